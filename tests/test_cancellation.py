"""Cancellation: never hidden, never masking what went wrong, and what a cancelled thread leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from contextrouter import ContextRouter, Hit, Query
from contextrouter.runtime.threads import Threads
from contextrouter.testing import Fixed, Raising

SETTINGS = {"rag": {"max_retrieval_queries": 1, "cache_enabled": False}}


@pytest.mark.case("ASY-08")
async def test_a_cancelled_call_in_a_thread_is_abandoned_at_once():
    """Its result is thrown away."""
    threads = Threads(1, "t")
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def blocking() -> str:
        begun.set()
        go.wait(60)
        ended.set()
        return "late"

    task = asyncio.create_task(threads.run(blocking))
    await asyncio.to_thread(begun.wait, 60)
    queued = asyncio.create_task(threads.run(lambda: pytest.fail("a queued call that was cancelled ran")))
    await asyncio.sleep(0.01)
    queued.cancel()
    task.cancel()
    for each in (task, queued):
        with pytest.raises(asyncio.CancelledError):
            await each
    assert not ended.is_set()
    go.set()
    threads.close(wait=True)
    assert ended.is_set()


@pytest.mark.case("ASY-12")
async def test_a_cancellation_is_never_hidden_whenever_it_comes():
    async with ContextRouter(SETTINGS, connectors={"a": Fixed("a"), "b": Fixed("b", delay=0.001)}) as router:
        outcomes = set()
        for turns in range(40):
            task = asyncio.create_task(router.route("q"))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked = task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() is asked
            outcomes.add(asked)
            assert asyncio.all_tasks() == {asyncio.current_task()}
    assert True in outcomes


@pytest.mark.case("ASY-21")
async def test_a_source_that_cancels_itself_does_not_mask_another_s_failure():
    class CancelsItself(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            raise asyncio.CancelledError

    sources = {"odd": CancelsItself(), "bad": Raising(RuntimeError("the root cause")), "good": Fixed("a")}
    async with ContextRouter(SETTINGS, connectors=sources) as router:
        context = await router.route("q")
    assert {r.source: (r.status, r.error) for r in context.coverage} == {
        "odd": ("error", "the source cancelled its own call"),
        "bad": ("error", "RuntimeError: the root cause"),
        "good": ("ok", ""),
    }
