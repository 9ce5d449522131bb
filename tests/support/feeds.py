"""Feeds for tests: short RSS documents, and a server on the loopback address that sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from contextrouter.builtin.connectors.pages.feed_parser import parse_feed
from contextrouter.builtin.connectors.rss import Rss
from contextrouter.model import Document, Query

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = "What books talk about machine learning for beginners?"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
OpenRss = Callable[..., Awaitable[Rss]]


def rss(*items: str, head: str = "<title>T</title><link>https://example.org/</link>") -> bytes:
    """A feed of these items."""
    body = "".join(f"<item>{item}</item>" for item in items)
    return f'<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel>{head}{body}</channel></rss>'.encode()


ZEBRA = rss("<title>zebra</title><link>https://example.org/z</link>")


class FeedServer:
    """A web server on the loopback interface; `paths` are the requests it got, in order."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | bytes] = {}
        self.paths: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send the bytes of this path, or let its function answer."""
        self.paths.append(request.path)
        answer = self.answers[request.path]
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="application/rss+xml")
        return await answer(request)


@asynccontextmanager
async def serve_feeds() -> AsyncIterator[FeedServer]:
    """A server on a free port."""
    server = FeedServer()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@asynccontextmanager
async def open_sources() -> AsyncIterator[OpenRss]:
    """Make and open sources; they close at the end."""
    sources: list[Rss] = []

    async def make(*urls: str, **more: object) -> Rss:
        source = Rss(urls=urls, **{"allow_private": ["127.0.0.0/8"], "retries": 0, **more})  # type: ignore[arg-type]  # keywords of many types
        await source.open()
        sources.append(source)
        return source

    yield make
    for source in sources:
        await source.aclose()


async def ids(source: Rss, text: str = "zebra", **more: object) -> list[str]:
    """Ids of what a search finds, in order."""
    return [hit.document.id for hit in await source.search(Query(text=text, **more))]  # type: ignore[arg-type]  # fields of many types


def only(body: bytes, url: str = "https://example.org/feed") -> Document:
    """The one document of a feed."""
    (document,) = parse_feed(body, url).documents
    return document
