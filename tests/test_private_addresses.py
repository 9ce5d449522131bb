"""`allow_private` opens the addresses of the settings, and nothing that they link or redirect to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.hostile import Forbidden, Listening, send

from contextrouter import Context, ContextRouter

NETWORKS = ["127.0.0.1/32"]


class Site(Listening):
    """Answers with what stands in `pages` under a path: (status, body, headers)."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")
        self.pages: dict[str, tuple[str, str, dict[str, str]]] = {}

    async def answer(self, path: str, head: str, writer: asyncio.StreamWriter) -> None:
        status, body, headers = self.pages.get(path.partition("?")[0], ("404 Not Found", "", {}))
        await send(writer, status, body.encode(), headers)


def page(text: str) -> tuple[str, str, dict[str, str]]:
    body = f"<html><body><article><p>{text} {'More words about it. ' * 40}</p></article></body></html>"
    return "200 OK", body, {"Content-Type": "text/html"}


async def ask(**connector: Any) -> Context:
    settings = {"rag": {"token_budget": 0}, "connectors": {"c": {"allow_private": NETWORKS, **connector}}}
    async with ContextRouter(settings) as router:
        return await router.route("otters", deadline=20)


@pytest.mark.case("WEB-07")
@pytest.mark.parametrize("redirected", [False, True])
async def test_a_private_search_engine_opens_no_other_private_address(redirected: bool):
    async with Site() as engine, Forbidden("127.0.0.1") as inside:
        elsewhere = f"{inside.url}/admin"
        links = [f"{engine.url}/moved" if redirected else elsewhere, f"{engine.url}/own"]
        results = {"results": [{"url": link, "title": "Otters", "content": "otters"} for link in links]}
        engine.pages = {
            "/search": ("200 OK", json.dumps(results), {"Content-Type": "application/json"}),
            "/moved": ("302 Found", "", {"Location": elsewhere}),
            "/own": page("Otters swim at home."),
            "/robots.txt": ("404 Not Found", "", {}),
        }
        context = await ask(use="web", search="searxng", search_url=engine.url)
    assert inside.connections == 0
    assert any("Otters swim at home" in envelope.document.content for envelope in context.envelopes)
    assert "here I am" not in context.text


@pytest.mark.case("WEB-07")
async def test_a_private_feed_opens_no_private_page_behind_an_item():
    async with Site() as feeds, Forbidden("127.0.0.1") as inside:
        item = f"<item><title>Otters</title><link>{inside.url}/admin</link><description>otters</description></item>"
        feed = f'<?xml version="1.0"?><rss version="2.0"><channel><title>F</title>{item}</channel></rss>'
        feeds.pages = {"/feed": ("200 OK", feed, {"Content-Type": "application/rss+xml"})}
        context = await ask(use="rss", urls=[f"{feeds.url}/feed"], full_text=3)
    assert inside.connections == 0
    assert [envelope.document.title for envelope in context.envelopes] == ["Otters"]
