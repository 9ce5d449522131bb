"""Polling of feeds: refresh, conditional requests, back-off after a failure, shared fetches."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from support.feeds import ZEBRA, FeedServer, OpenRss, ids

from contextrouter.builtin.connectors.rss import feed_polling
from contextrouter.contracts import Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Query


async def test_items_are_kept_for_refresh_seconds_and_concurrent_questions_share_one_fetch(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    feed_server.answers["/feed"] = ZEBRA
    kept = await open_rss(feed_server.url + "/feed")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ids(kept)) for _ in range(5)]
    assert [len(task.result()) for task in tasks] == [1] * 5
    await ids(kept)
    assert len(feed_server.paths) == 1
    fresh = await open_rss(feed_server.url + "/feed", refresh_seconds=0)
    await ids(fresh)
    await ids(fresh)
    assert len(feed_server.paths) == 3
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ids(fresh)) for _ in range(6)]
    assert len(feed_server.paths) <= 5  # one for the first, one for all that asked while it ran


async def test_one_cancelled_question_does_not_fail_those_that_share_its_fetch(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    arrived, gate = asyncio.Event(), asyncio.Event()

    async def gated(_: web.Request) -> web.Response:
        arrived.set()
        await gate.wait()
        return web.Response(body=ZEBRA)

    feed_server.answers["/feed"] = gated
    source = await open_rss(feed_server.url + "/feed")
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(ids(source)), group.create_task(ids(source))
        await arrived.wait()
        first.cancel()
        gate.set()
    assert len(second.result()) == 1


async def test_a_feed_that_failed_is_not_asked_again_at_once(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500)

    feed_server.answers["/feed"] = broken
    source = await open_rss(feed_server.url + "/feed")
    for _ in range(2):
        with pytest.raises(SourceError, match="status 500"):
            await source.search(Query(text="zebra"))
    assert len(feed_server.paths) == 1


async def test_a_feed_that_failed_is_asked_again_sooner_than_one_that_answered(
    feed_server: FeedServer, open_rss: OpenRss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_polling, "RETRY_SECONDS", 0.0)
    feed_server.answers["/feed"] = b"no feed"
    source = await open_rss(feed_server.url + "/feed")
    with pytest.raises(SourceError, match="it is no feed"):
        await ids(source)
    feed_server.answers["/feed"] = ZEBRA
    assert len(await ids(source)) == 1
    feed_server.answers["/feed"] = b"no feed"
    assert len(await ids(source)) == 1


async def test_an_unchanged_feed_is_not_sent_again(feed_server: FeedServer, open_rss: OpenRss) -> None:
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("If-None-Match"))
        if asked[-1] == '"v1"':
            return web.Response(status=304)
        return web.Response(body=ZEBRA, headers={"ETag": '"v1"'}, content_type="application/rss+xml")

    feed_server.answers["/feed"] = answer
    source = await open_rss(feed_server.url + "/feed", refresh_seconds=0)
    assert [len(await ids(source)) for _ in range(3)] == [1, 1, 1]
    assert asked == [None, '"v1"', '"v1"']


async def test_a_feed_that_fails_keeps_its_items_and_backs_off(
    feed_server: FeedServer, open_rss: OpenRss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure doubles the time until the next attempt."""

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500)

    feed_server.answers["/feed"] = ZEBRA
    source = await open_rss(feed_server.url + "/feed", refresh_seconds=0)
    await ids(source)
    feed_server.answers["/feed"] = broken
    for pause in (10, 20, 40):
        before = time.monotonic()
        hits = await source.search(Query(text="zebra"))
        after = time.monotonic()
        assert isinstance(hits, Partial)
        assert len(hits) == 1
        assert "status 500" in hits.reason
        assert "Its items of 0 s ago are used" in hits.reason
        snapshot = source._polling.snapshots[feed_server.url + "/feed"]
        assert before + pause <= snapshot.next_read <= after + pause
        source._polling.snapshots[feed_server.url + "/feed"] = snapshot._replace(next_read=0.0)
    feed_server.answers["/feed"] = ZEBRA
    assert not isinstance(await source.search(Query(text="zebra")), Partial)


@pytest.mark.parametrize(
    ("status", "headers", "pause"), [(429, {"Retry-After": "100"}, 100), (410, {}, 3600), (404, {}, 10)]
)
async def test_a_feed_says_how_long_it_wants_to_be_left_alone(
    feed_server: FeedServer, open_rss: OpenRss, status: int, headers: dict[str, str], pause: int
) -> None:
    async def refusing(_: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers)

    feed_server.answers["/feed"] = refusing
    source = await open_rss(feed_server.url + "/feed")
    before = time.monotonic()
    with pytest.raises(SourceError, match=f"status {status}"):
        await ids(source)
    snapshot = source._polling.snapshots[feed_server.url + "/feed"]
    assert before + pause <= snapshot.next_read <= time.monotonic() + pause


async def test_a_reading_goes_on_when_who_asked_has_no_more_time(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    arrived, gate = asyncio.Event(), asyncio.Event()

    async def gated(_: web.Request) -> web.Response:
        arrived.set()
        await gate.wait()
        return web.Response(body=ZEBRA, content_type="application/rss+xml")

    feed_server.answers["/feed"] = gated
    source = await open_rss(feed_server.url + "/feed")
    with pytest.raises(SourceTimeout):
        await ids(source, deadline=time.monotonic() + 0.1)
    gate.set()
    assert len(await ids(source)) == 1
    assert len(feed_server.paths) == 1
