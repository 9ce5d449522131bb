"""Calls that do not end: they are counted and shown, they do not grow without end, and hold nobody else up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

import pytest
from support.serving import router, serve_router

from contextrouter import Connector, ContextRouter, Document, Hit, Query
from contextrouter.errors import ContextRouterError, PluginError, SourceError, SourceTimeout
from contextrouter.runtime.threads import Threads, count_abandoned_threads
from contextrouter.testing import Fixed

SETTINGS = {
    "rag": {"cache_enabled": False, "timeout_seconds": 0.2, "interpreters": []},
    "limits": {"breaker_failures": 0, "max_abandoned": 2},
}


class Stubborn(Fixed):
    """Ignores its cancellation until `go` is set."""

    def __init__(self) -> None:
        super().__init__("a")
        self.asked, self.go = 0, asyncio.Event()

    async def search(self, query: Query) -> Sequence[Hit]:
        self.asked += 1
        while not self.go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.go.wait()
        return await super().search(query)


class Holding(Connector):
    """Holds a thread of the event loop's own pool for each call, until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.to_thread(self.go.wait, 60)
        return []


async def test_a_source_with_too_many_abandoned_calls_is_not_asked(caplog: pytest.LogCaptureFixture):
    stubborn = Stubborn()
    made = router(SETTINGS, connectors={"stubborn": stubborn, "good": Fixed("found")})
    async with serve_router(made) as ask:
        said = []
        try:
            for number in range(4):
                answer = await ask("/v1/route", {"question": f"what {number}?"})
                reports = {report["source"]: report for report in answer.json["coverage"]}
                assert reports["good"]["status"] == "ok"
                said.append((reports["stubborn"]["status"], reports["stubborn"]["error"]))
            metrics, ready = await ask("/metrics"), await ask("/readyz")
        finally:
            stubborn.go.set()
        await asyncio.sleep(0)
        again = await ask("/v1/route", {"question": "what now?"})
    refused = ("open", "not asked: 2 calls to it ignore their cancellation and have not ended")
    assert said[2:] == [refused] * 2
    assert [status for status, _ in said[:2]] == ["timeout"] * 2
    assert "contextrouter_abandoned_calls{plugin=\"source 'stubborn'\"} 2.0" in metrics.text
    assert ready.json["sources"] == {"stubborn": "does not end its calls", "good": "ready"}
    assert {report["status"] for report in again.json["coverage"]} == {"ok"}
    assert stubborn.asked == 3
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert sum("source 'stubborn': not asked" in warning for warning in warnings) == 1


class StubbornVersion(Fixed):
    """Ignores the cancellation of `version`."""

    def __init__(self) -> None:
        super().__init__("a")
        self.asked, self.go = 0, asyncio.Event()

    async def version(self) -> str:
        self.asked += 1
        while not self.go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.go.wait()
        return "1"


async def test_the_version_of_a_source_is_not_asked_for_without_end():
    source = StubbornVersion()
    settings = {"limits": {"max_abandoned": 1}, "cache": {"version_seconds": 0}, "rag": {"interpreters": []}}
    async with ContextRouter(settings, connectors={"docs": source}) as made:
        try:
            for number in range(3):
                await made.route(f"question {number}")
            counts = made.engine.limits.abandoned.counts()
        finally:
            source.go.set()
    assert (source.asked, counts["version of source 'docs'"]) == (1, 1)


class Shelf(Stubborn):
    """Reads documents by id, in the way that `how` says."""

    def __init__(self, how: object) -> None:
        super().__init__()
        self.how = how

    async def fetch(self, ids, scope=None):
        if self.how == "deaf":
            return [hit.document for hit in await self.search(Query(text=""))]
        if isinstance(self.how, BaseException):
            raise self.how
        return self.how


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ("deaf", SourceTimeout, "did not answer within 0.2 s"),
        (GeneratorExit("gone"), ContextRouterError, "gone"),
        (ValueError("torn"), SourceError, "failed: torn"),
        (["a"], SourceError, "failed: "),
        (None, SourceError, "failed: "),
    ],
    ids=["deaf", "panic", "raises", "no documents", "nothing"],
)
async def test_a_document_is_read_in_time_or_the_source_is_named(
    how: object, error: type[Exception], says: str
):
    shelf = Shelf(how)
    async with asyncio.timeout(60), router(SETTINGS, connectors={"shelf": shelf}) as made:
        with pytest.raises(error, match=says):
            await made.document("shelf", "a")
        shelf.go.set()


async def test_threads_that_are_held_by_abandoned_calls_are_counted_and_refuse():
    pool, go = Threads(2, "held-in-a-test"), threading.Event()
    begun = threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        go.wait(60)

    calls = [asyncio.create_task(pool.run(hang)) for _ in range(2)]
    for _ in calls:
        await asyncio.to_thread(begun.acquire)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert (pool.abandoned, count_abandoned_threads()["held-in-a-test"]) == (2, 2)

    async def refused() -> None:
        while True:  # at first it waits in line: the calls may be about to end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await pool.run(int)

    with pytest.raises(PluginError, match="all 2 threads of 'held-in-a-test' go on with calls"):
        await refused()
    go.set()
    pool.close(wait=True)
    assert pool.abandoned == 0
    pool.close(wait=True)
    with pytest.raises(PluginError, match="are closed"):
        await pool.run(int)


@pytest.mark.case("ASY-20")
async def test_a_source_that_holds_the_threads_of_the_loop_takes_no_other_one_down():
    holding = Holding()
    settings = {"rag": {**SETTINGS["rag"], "timeout_seconds": 2.0}}
    long = [Hit(document=Document(id="a", content="otter " * 18_000))]
    found = {"holding": holding, "one": Fixed(long), "two": Fixed(long)}
    async with ContextRouter(settings, connectors=found) as made:
        try:
            asked = [made.route(f"otter -heron {number}", deadline=2.0) for number in range(20)]
            await asyncio.gather(*asked, return_exceptions=True)
            context = await made.route("otter -heron", deadline=20.0)
        finally:
            holding.go.set()
    assert context.envelopes
    assert {r.source: r.status for r in context.coverage if r.source != "holding"} == {
        "one": "ok",
        "two": "ok",
    }
