"""Local HTTP server for the examples of `web` and `http_api`, which then need no network."""

from __future__ import annotations

import json

from contextrouter.builtin.shared.loopback_server import Loopback

HOST = "site.example"
_PAGES = {
    "/tides": (
        "The tides",
        "The moon raises the tides of the sea twice a day, and the sun helps it or holds it back.",
        (
            "People at the coast read the tables of the tides before they sail, and the light of the moon"
            " tells them why."
        ),
    ),
    "/comets": (
        "Comets and the light of the sun",
        "A comet is a lump of ice and dust that grows a tail of light near the sun.",
        (
            "People of old read news of the world from comets; today a book of science says when each comes"
            " back."
        ),
    ),
}


class ExampleSite(Loopback):
    """Serves two pages, and a JSON API at `/items`."""

    urls = tuple(f"http://{HOST}{path}" for path in _PAGES)

    async def open(self) -> dict[str, tuple[str, int]]:
        """Listen; return where the host of `urls` is."""
        return {HOST: ("127.0.0.1", await self.listen())}

    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        """A page, or the items."""
        return _items() if path.startswith("/items") else _page(path)


def _items() -> tuple[bytes, bytes]:
    items = [
        {
            "id": number,
            "name": title,
            "about": " ".join(texts),
            "link": f"http://{HOST}{path}",
            "when": f"2026-01-0{number}",
        }
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
