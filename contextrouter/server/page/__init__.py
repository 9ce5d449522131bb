"""The explorer: one static page, which asks no other server and shows texts as plain text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from aiohttp import web

from contextrouter.server.endpoints import Endpoint, Exchange, Handle

# Nothing but what this server has, no script in the page itself, and no text that is made into HTML.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri"
    " 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
    " 'none'"
)
_MEDIA = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PAGE = "explorer.html"
PARTS = (
    "explorer.css",
    "explorer.js",
    "answer.js",
    "api.js",
    "cards.js",
    "copies.js",
    "course.js",
    "dom.js",
    "facts.js",
    "icon.svg",
    "markdown.js",
    "scores.js",
)


@cache
def _read(name: str) -> bytes:
    return (files(__name__) / name).read_bytes()


def _shows(name: str) -> Handle:
    async def handle(exchange: Exchange) -> web.StreamResponse:
        headers = {
            "Content-Security-Policy": POLICY,
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        media = _MEDIA[name.rpartition(".")[2]]
        return web.Response(body=_read(name), content_type=media, charset="utf-8", headers=headers)

    return handle


def _path_of(name: str) -> str:
    return "/explorer" if name == PAGE else f"/explorer/{name}"


_PATHS = (("/", PAGE), *[(_path_of(name), name) for name in (PAGE, *PARTS)])
ENDPOINTS: tuple[Endpoint, ...] = tuple(
    Endpoint(
        method="GET",
        path=path,
        handle=_shows(name),
        summary="The explorer" if name == PAGE else "A part of the explorer",
        media=_MEDIA[name.rpartition(".")[2]],
        guarded=False,
    )
    for path, name in _PATHS
)
