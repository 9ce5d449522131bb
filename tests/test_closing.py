"""Closing a router that is at work: what runs is ended, those that wait are told, and nothing stays
behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest

from contextrouter import (
    Context,
    ContextRouter,
    ContextRouterError,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
    SourceReport,
)
from contextrouter.runtime import shutdown as module
from contextrouter.testing import Fixed

CLOSED = "Router was closed before the request was answered"


class Held(Fixed):
    """Answers when told to, never by itself."""

    def __init__(self) -> None:
        super().__init__("a")
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def search(self, query: Query) -> Sequence[Hit]:
        self.asked.set()
        await self.go.wait()
        return await super().search(query)


def router_of(held: Held, *, cached: bool = False, **more: Fixed) -> ContextRouter:
    settings = {"rag": {"cache_enabled": cached, "max_retrieval_queries": 1, "timeout_seconds": 60}}
    return ContextRouter(settings, connectors={"held": held, **more})


async def route(router: ContextRouter) -> object:
    return await router.route("q")


async def plan(router: ContextRouter) -> object:
    return await router.plan("q")


async def stream(router: ContextRouter) -> object:
    return [item async for item in router.stream("q")]


async def left_behind() -> set[asyncio.Task[object]]:
    """Tasks that are still there once all that is done has been let go."""
    await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("ask", [route, stream])
async def test_who_waits_is_told_and_no_task_is_left(
    ask: Callable[[ContextRouter], Awaitable[object]], cached: bool
):
    held = Held()
    router = router_of(held, cached=cached)
    await router.open()
    waiting = [asyncio.create_task(ask(router)) for _ in range(2)]  # type: ignore[arg-type]  # what is awaited is a coroutine
    await held.asked.wait()
    await router.aclose()
    for each in await asyncio.gather(*waiting, return_exceptions=True):
        assert type(each) is ContextRouterError
        assert CLOSED in str(each)
    assert await left_behind() == set()
    held.go.set()
    assert [e.document.id for e in (await router.route("q")).envelopes] == ["a"]  # open works again
    await router.aclose()


async def test_a_stream_nobody_reads_on_ends_with_its_router():
    held = Held()
    router = router_of(held, quick=Fixed("b"))
    reports = router.stream("q")
    first = await anext(reports)
    assert isinstance(first, SourceReport)
    await router.aclose()
    assert await left_behind() == set()
    with pytest.raises(ContextRouterError, match=CLOSED):
        assert [item async for item in reports] == []


async def test_a_caller_that_is_cancelled_at_the_same_time_is_cancelled():
    held = Held()
    for cached in (False, True):
        router = router_of(held, cached=cached)
        await router.open()
        held.asked.clear()
        waiting = asyncio.create_task(router.route("q"))
        await held.asked.wait()
        waiting.cancel()
        await router.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_the_caller_s_task_lives_on():
    held = Held()
    router = router_of(held)
    await router.open()

    async def caller() -> str:
        with pytest.raises(ContextRouterError, match=CLOSED):
            await router.route("q")
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return f"alive, {task.cancelling()} cancellations left"

    waiting = asyncio.create_task(caller())
    await held.asked.wait()
    await router.aclose()
    assert await waiting == "alive, 0 cancellations left"


class Pondering(Interpreter):
    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        self.asked.set()
        await asyncio.Event().wait()
        return intent


async def test_a_plan_that_is_being_made_is_ended_too():
    pondering = Pondering()
    router = ContextRouter(
        {"rag": {"interpreters": ["p"], "timeout_seconds": 60}},
        connectors={"s": Fixed("a")},
        interpreters={"p": pondering},
    )
    waiting = asyncio.create_task(plan(router))
    await pondering.asked.wait()
    await router.aclose()
    with pytest.raises(ContextRouterError, match=CLOSED):
        await waiting


class Opening(Fixed):
    """Takes its time to open."""

    def __init__(self) -> None:
        super().__init__("a")
        self.begun = asyncio.Event()

    async def open(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def test_who_waits_for_the_opening_is_told_as_well():
    opening = Opening()
    router = ContextRouter({"rag": {"timeout_seconds": 60}}, connectors={"s": opening})
    waiting = asyncio.create_task(router.route("q"))
    await opening.begun.wait()
    await router.aclose()
    with pytest.raises(ContextRouterError, match=CLOSED):
        await waiting


class Stubborn(Interpreter):
    """Minds no cancellation until it is let go."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        self.asked.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        return intent


async def test_a_plugin_that_swallows_its_cancellation_does_not_hold_the_closing_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    stubborn = Stubborn()
    settings = {"rag": {"interpreters": ["p"], "cache_enabled": False, "timeout_seconds": 60}}
    router = ContextRouter(settings, connectors={"s": Fixed("a")}, interpreters={"p": stubborn})
    waiting: asyncio.Task[Context] = asyncio.create_task(router.route("q"))
    await stubborn.asked.wait()
    with caplog.at_level(logging.WARNING):
        await router.aclose()
    assert "1 requests did not end" in caplog.text
    stubborn.go.set()
    await asyncio.wait([waiting])
    assert waiting.cancelling() == 0
