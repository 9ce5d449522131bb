"""A server on this machine, so that the examples of `web` and `http_api` work with no network."""

from __future__ import annotations

import asyncio
import json
from typing import Any

HOST = "site.example"
_PAGES = {
    "/tides": ("The tides", "The moon raises the tides of the sea twice a day, and the sun helps it or holds it back.",
               "People at the coast read the tables of the tides before they sail, and the light of the moon tells them why."),
    "/comets": ("Comets and the light of the sun", "A comet is a lump of ice and dust that grows a tail of light near the sun.",
                "People of old read news of the world from comets; today a book of science says when each comes back."),
}  # fmt: skip


class ExampleSite:
    """Serves two pages, and a JSON API at `/items`."""

    urls = tuple(f"http://{HOST}{path}" for path in _PAGES)

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def open(self) -> dict[str, tuple[str, int]]:
        """Listen on a free port of 127.0.0.1; return where the host of `urls` is."""
        self._server = self._server or await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return {HOST: ("127.0.0.1", self._server.sockets[0].getsockname()[1])}

    async def aclose(self) -> None:
        """Stop listening, close the connections, and wait for what serves them."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        serving = dict(self._connections)
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(serving)
        await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode("ascii", "replace")
                kind, body = _items() if path.startswith("/items") else _page(path)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(body)) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client has closed
        finally:
            del self._connections[task]
            writer.close()


def _items() -> tuple[bytes, bytes]:
    items = [
        {"id": number, "name": title, "about": " ".join(texts), "link": f"http://{HOST}{path}", "when": f"2026-01-0{number}"}
        for number, (path, (title, *texts)) in enumerate(_PAGES.items(), start=1)
    ]
    return b"application/json", json.dumps({"found": {"items": items}}).encode()


def _page(path: str) -> tuple[bytes, bytes]:
    """The one page is HTML, the other Markdown."""
    title, *texts = _PAGES.get(path, ("Nothing here", "There is no such page."))
    if path == "/comets":
        return b"text/markdown; charset=utf-8", "\n\n".join((f"# {title}", *texts)).encode()
    paragraphs = "".join(f"<p>{text}</p>" for text in texts)
    article = f"<article><h1>{title}</h1>{paragraphs}</article>"
    html = f'<!DOCTYPE html><html lang="en"><head><title>{title}</title></head><body>{article}</body></html>'
    return b"text/html; charset=utf-8", html.encode()
