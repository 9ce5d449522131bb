"""The full text of feed items: their pages are fetched and extracted."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from aiohttp import web
from support.feeds import Answer, FeedServer, OpenRss, ids, rss

from contextrouter.contracts import Partial
from contextrouter.model import Query


async def test_the_pages_of_the_newest_items_are_read_and_stand_in_their_place(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    def page(text: str) -> Answer:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(
                text=f"<html><body><article><p>{text * 20}</p></article></body></html>",
                content_type="text/html",
            )

        return answer

    item = (
        "<title>zebra {0}</title><link>{1}/{0}</link><description>short</description><pubDate>0{2} Jan 2026"
        " 00:00 GMT</pubDate>"
    )
    pages = {"/a": page("All about the stripes. "), "/b": page("All about the mane. ")}
    feed_server.answers = {
        "/feed": rss(*(item.format(n, feed_server.url, day) for n, day in (("a", 3), ("b", 2), ("c", 1)))),
        **pages,
    }
    source = await open_rss(feed_server.url + "/feed", full_text=1)
    hits = await source.search(Query(text="zebra stripes mane"))
    assert hits[0].document.content.startswith("All about the stripes.")
    assert hits[0].document.parent == feed_server.url + "/a"
    assert (hits[0].document.title, hits[0].document.updated_at) == (
        "zebra a",
        datetime(2026, 1, 3, tzinfo=UTC),
    )
    assert [hit.document.content for hit in hits[1:]] == ["short", "short"]
    assert feed_server.paths == ["/feed", "/a"]
    await ids(source)
    assert feed_server.paths == ["/feed", "/a"]


async def test_a_page_that_cannot_be_read_leaves_its_item_as_the_feed_has_it(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    feed_server.answers = {
        "/feed": rss(f"<title>zebra</title><link>{feed_server.url}/gone</link>"),
        "/gone": missing,
    }
    source = await open_rss(feed_server.url + "/feed", full_text=5)
    hits = await source.search(Query(text="zebra"))
    assert [hit.document.content for hit in hits] == ["zebra"]
    assert not isinstance(hits, Partial)
    assert "status 404" in source.problems[0]


async def test_items_are_used_while_their_pages_are_still_read(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError("not reached")

    feed_server.answers = {
        "/feed": rss(f"<title>zebra</title><link>{feed_server.url}/slow</link>"),
        "/slow": silent,
    }
    source = await open_rss(feed_server.url + "/feed", full_text=1)
    hits = await source.search(Query(text="zebra", deadline=time.monotonic() + 2.0))
    assert isinstance(hits, Partial)
    assert len(hits) == 1
    assert "not all pages of its items" in hits.reason
