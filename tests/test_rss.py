"""The rss connector: searching feeds, several at once, limits, and opening and closing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from support.closing import give_up_closing
from support.feeds import EXAMPLES, QUESTION, ZEBRA, FeedServer, OpenRss, ids, rss

from contextrouter.builtin.connectors.pages import extraction as extract_module
from contextrouter.builtin.connectors.pages.extraction import LONG_FEED, Extractor
from contextrouter.builtin.connectors.pages.feed_parser import parse_feed
from contextrouter.builtin.connectors.rss import Rss
from contextrouter.contracts import Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Period, Query


async def silent(_: web.Request) -> web.Response:
    await asyncio.sleep(30)
    raise AssertionError("not reached")


@pytest.mark.case("RSS-01")
async def test_a_server_that_never_answers_ends_with_the_deadline(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    feed_server.answers["/feed"] = silent
    source = await open_rss(feed_server.url + "/feed")
    begun = time.monotonic()
    with pytest.raises(SourceTimeout, match="did not answer before the deadline"):
        await source.search(Query(text="zebra", deadline=begun + 0.2))
    assert time.monotonic() - begun < 20


@pytest.mark.case("RSS-01")
async def test_a_body_that_trickles_for_ever_ends_without_a_deadline_too(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    feed_server.answers["/feed"] = trickle
    source = await open_rss(feed_server.url + "/feed", fetch_seconds=0.2)
    with pytest.raises(SourceTimeout, match=r"within 0\.2 seconds"):
        await source.search(Query(text="zebra"))


async def test_a_close_that_is_cancelled_while_a_reading_ends_closes_the_rest(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    feed_server.answers["/feed"] = silent
    source = await open_rss(feed_server.url + "/feed")
    with pytest.raises(SourceTimeout):
        await source.search(Query(text="zebra", deadline=time.monotonic() + 0.1))
    await give_up_closing(source)  # it waits for the reading
    with pytest.raises(SourceError, match="not open"):
        await source.search(Query(text="zebra"))


async def test_the_example_feed_answers_the_example_question() -> None:
    source = Rss(paths=[str(EXAMPLES / "news.xml")])
    await source.open()
    hits = await source.search(Query(text=QUESTION))
    assert hits[0].document.url == "https://example.org/news/five-books"
    assert "track(" not in hits[0].document.content
    assert hits[0].document.labels == ("books", "machine learning")
    hits = await source.search(Query(text="data beginners opening course Python catalogue Kurs statistical"))
    everything = {hit.document.id: hit.document for hit in hits}
    assert len(everything) == 8
    assert everything["shelf-1041"].url == "https://example.org/news/data-lab"
    assert everything["shelf-1041"].title == "Library opens a lab for data & chance"
    assert everything["shelf-1041"].updated_at == datetime(2026, 4, 2, 15, 5, tzinfo=UTC)
    assert everything["shelf-1038"].updated_at is None
    assert everything["shelf-1032"].updated_at == datetime(2026, 3, 16, 11, 41, 36, tzinfo=UTC)
    assert everything["shelf-1003"].updated_at is None
    assert everything["shelf-1027"].url == "https://example.org/news/python-mornings?from=feed&kind=course"
    assert source.problems == []
    await source.aclose()


async def test_equals_come_newest_first_and_undated_last_within_the_limit(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    item = "<title>zebra</title><guid isPermaLink='false'>{}</guid><pubDate>{}</pubDate>"
    dates = {
        "undated": "soon",
        "old": "Thu, 01 Jan 2026 00:00:00 GMT",
        "new": "Fri, 02 Jan 2026 00:00:00 GMT",
    }
    feed_server.answers["/feed"] = rss(*(item.format(name, when) for name, when in dates.items()))
    source = await open_rss(feed_server.url + "/feed")
    assert await ids(source) == ["new", "old", "undated"]
    assert await ids(source, limit=2) == ["new", "old"]
    assert await ids(source, limit=1, period=Period(end=date(2026, 1, 1))) == ["old"]
    assert await ids(source, filters={"kind": "book"}) == []


async def test_items_beyond_max_age_are_left_out_and_max_items_keeps_the_newest(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    item = (
        "<title>zebra</title><guid isPermaLink='false'>{}</guid><pubDate>{:%a, %d %b %Y %H:%M:%S}"
        " +0000</pubDate>"
    )
    ages = {"a": 1, "b": 30, "c": 100}
    now = datetime.now(UTC)
    feed_server.answers["/feed"] = rss(
        *(item.format(name, now - timedelta(hours=age)) for name, age in ages.items())
    )
    assert await ids(await open_rss(feed_server.url + "/feed", max_age_hours=48)) == ["a", "b"]
    assert await ids(await open_rss(feed_server.url + "/feed")) == ["a", "b", "c"]
    assert await ids(await open_rss(feed_server.url + "/feed", max_items=1)) == ["a"]


async def test_one_failing_feed_of_several_makes_the_answer_partial(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    feed_server.answers = {"/good": ZEBRA, "/bad": missing}
    source = await open_rss(feed_server.url + "/bad", feed_server.url + "/good")
    hits = await source.search(Query(text="zebra"))
    assert isinstance(hits, Partial)
    assert [hit.document.url for hit in hits] == ["https://example.org/z"]
    assert "status 404" in hits.reason
    assert len(source.problems) == 1
    assert "status 404" in source.problems[0]


async def test_when_every_feed_fails_the_source_fails_and_says_why(
    feed_server: FeedServer, open_rss: OpenRss, tmp_path: Path
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>no feed</html>")

    feed_server.answers["/page"] = page
    source = await open_rss(
        feed_server.url + "/page", "http://127.0.0.1:1/", paths=[str(tmp_path / "none.xml")]
    )
    with pytest.raises(SourceError, match=r"(?s)it is no feed.*could not be fetched.*cannot be read"):
        await source.search(Query(text="zebra"))


async def test_a_slow_feed_does_not_hold_up_the_others_beyond_the_deadline(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError("not reached")

    feed_server.answers = {"/slow": silent, "/good": ZEBRA}
    source = await open_rss(feed_server.url + "/slow", feed_server.url + "/good")
    hits = await source.search(Query(text="zebra", deadline=time.monotonic() + 1.0))
    assert isinstance(hits, Partial)
    assert len(hits) == 1


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "no feed to read"),
        ({"urls": "https://example.org/"}, "give a list"),
        ({"urls": ["ftp://example.org/"]}, "is not http or https"),
        ({"urls": ["example.org/feed"]}, "is not http or https"),
        ({"paths": ["x"], "max_items": 0}, "max_items"),
        ({"paths": ["x"], "max_bytes": 0}, "max_bytes"),
        ({"paths": ["x"], "max_age_hours": -1}, "max_age_hours"),
        ({"paths": ["x"], "refresh_seconds": float("nan")}, "refresh_seconds"),
        ({"paths": ["x"], "user_agent": "a\r\nX: y"}, "user_agent"),
    ],
)
def test_values_that_make_no_sense_are_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rss(**keywords)  # type: ignore[arg-type]  # a wrong type on purpose


async def test_a_source_that_is_not_open_says_so() -> None:
    with pytest.raises(SourceError, match="not open"):
        await Rss.example().search(Query(text="zebra"))


def test_it_can_be_used_in_one_event_loop_after_another() -> None:
    source = Rss(
        urls=["http://127.0.0.1:1/"], paths=[str(EXAMPLES / "news.xml")], allow_private=["127.0.0.0/8"]
    )

    async def once() -> int:
        await source.open()
        await source.open()
        hits = await source.search(Query(text="beginners"))
        await source.aclose()
        await source.aclose()
        return len(hits)

    assert asyncio.run(once()) == asyncio.run(once()) == 3


def long_feed() -> bytes:
    about = "<pubDate>Tue, 03 Nov 2026 10:00:00 +0100</pubDate><category>a</category><category>b</category>"
    text = (
        "<description>&lt;p style='display:none'&gt;unseen&lt;/p&gt;"
        + "text and more " * 60
        + "</description>"
    )
    return rss(*(f"<title>n {n}</title><link>/{n}</link>{about}{text}" for n in range(400)))


async def test_a_long_feed_is_parsed_in_a_process_and_says_the_same():
    body = long_feed()
    assert len(body) > LONG_FEED
    extractor = Extractor(5)
    await extractor.open(pages=False)
    try:
        found = await extractor.feed(body, "https://example.org/feed", "application/rss+xml", 500, 60)
        with pytest.raises(ValueError, match="it declares entities"):
            await extractor.feed(b'<!DOCTYPE r [<!ENTITY a "b">]>' + body, "", "", 500, 60)
    finally:
        await extractor.aclose()
    assert found == parse_feed(body, "https://example.org/feed", "application/rss+xml")
    assert len(found.documents) == 400


async def test_a_feed_that_takes_too_long_to_parse_is_given_up_with_its_process(
    feed_server: FeedServer, open_rss: OpenRss, monkeypatch
):
    started: list[subprocess.Popen[bytes]] = []
    start = extract_module._Worker._start
    monkeypatch.setattr(
        extract_module._Worker, "_start", lambda worker: started.append(process := start(worker)) or process
    )
    feed_server.answers["/hostile"] = rss(
        "<title>a</title><description>" + "<" * 4_000_000 + "</description>"
    )
    feed_server.answers["/good"] = ZEBRA
    source = await open_rss(f"{feed_server.url}/hostile", f"{feed_server.url}/good", fetch_seconds=0.7)
    answer = await source.search(Query(text="zebra"))
    assert isinstance(answer, Partial)
    assert [hit.document.title for hit in answer] == ["zebra"]
    assert "/hostile" in answer.reason
    assert "0.7 seconds" in answer.reason
    assert [await asyncio.to_thread(process.wait, 5) for process in started] == [-signal.SIGKILL]


@pytest.mark.case("RSS-05")
async def test_an_item_without_a_usable_link_has_its_id_or_makes_the_answer_partial(tmp_path: Path) -> None:
    entries = "".join(
        f"<entry><id>{id}</id><title>Moon {n}</title><summary>The moon, {n}.</summary><link"
        f" href='{link}'/></entry>"
        for n, (id, link) in enumerate(
            [
                ("http://good.example/guid", "javascript:alert(1)"),
                ("tag:x,2026:1", "FC2/"),
                ("tag:x,2026:2", "http://a.example/2"),
            ]
        )
    )
    path = tmp_path / "feed.atom"
    path.write_text(f"<feed xmlns='http://www.w3.org/2005/Atom'><title>T</title>{entries}</feed>")
    source = Rss(paths=[str(path)])
    await source.open()
    hits = await source.search(Query(text="moon"))
    await source.aclose()
    assert {hit.document.url for hit in hits} == {"http://good.example/guid", "http://a.example/2"}
    assert isinstance(hits, Partial)
    assert "item 'Moon 1': link 'FC2/' cannot be made an http address; left out." in hits.reason
