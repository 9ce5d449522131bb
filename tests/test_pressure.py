"""Slots and breakers: bounded, honest, and never all at once on a source that is coming back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import AllSourcesFailed, Context, ContextRouter, Hit, Query, SourceError
from contextrouter.pipeline.call_limits.circuit_breaker import CircuitBreaker
from contextrouter.pipeline.call_limits.slots import Slots
from contextrouter.testing import Fixed, hits


async def test_slots_bound_what_runs_and_serve_in_order():
    slots = Slots(2, 10, "s")
    served: list[int] = []
    running = most = 0

    async def work(number: int) -> None:
        nonlocal running, most
        await slots.take()
        running += 1
        most = max(most, running)
        served.append(number)
        await asyncio.sleep(0.001)
        running -= 1
        slots.release()

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(work(number))
    assert most == 2
    assert served == list(range(8))


async def test_a_full_line_refuses_at_once():
    slots = Slots(1, 1, "'web'")
    await slots.take()
    waiting = asyncio.create_task(slots.take())
    await asyncio.sleep(0)
    with pytest.raises(SourceError, match="overloaded: 1 calls to 'web' run and 1 wait already"):
        await slots.take()
    slots.release()
    await waiting


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 3))
def test_cancelled_waiters_lose_no_slot(cancelled: list[int], size: int):
    async def run() -> None:
        slots = Slots(size, 100, "s")

        async def work() -> None:
            await slots.take()
            try:
                await asyncio.sleep(0)
            finally:
                slots.release()

        tasks = [asyncio.create_task(work()) for _ in range(6)]
        for index in cancelled:
            await asyncio.sleep(0)
            tasks[index].cancel()
        await asyncio.wait(tasks)
        for _ in range(size):
            await asyncio.wait_for(slots.take(), 5)
        beyond = asyncio.create_task(slots.take())
        await asyncio.sleep(0)
        assert not beyond.done()
        beyond.cancel()

    asyncio.run(run())


def breaker(failures: int = 3, seconds: float = 10.0) -> tuple[CircuitBreaker, list[float]]:
    now = [0.0]
    return CircuitBreaker(failures, seconds, clock=lambda: now[0]), now


def test_a_breaker_opens_after_failures_in_a_row_and_says_why_and_how_long():
    b, now = breaker()
    for _ in range(2):
        b.fail("x")
    b.succeed()
    for _ in range(3):
        assert b.refuses() == ""
        b.fail("connection refused")
    now[0] = 4.0
    assert (
        b.refuses()
        == "not asked after 3 failures in a row; the last: connection refused; tried again in 6.0 s"
    )


@pytest.mark.case("ASY-19")
def test_after_the_pause_one_call_tries_and_the_others_are_refused():
    b, now = breaker()
    for _ in range(3):
        b.fail("x")
    now[0] = 10.0
    answers = [b.refuses() for _ in range(100)]
    assert answers[0] == ""
    assert all("being tried just now" in answer for answer in answers[1:])
    b.succeed()
    assert [b.refuses() for _ in range(5)] == [""] * 5


def test_a_failed_probe_opens_the_circuit_for_another_pause():
    """After a cancelled probe the next call may try."""
    b, now = breaker()
    for _ in range(3):
        b.fail("x")
    now[0] = 10.0
    assert b.refuses() == ""
    b.abandon()
    assert b.refuses() == ""
    b.fail("y")
    now[0] = 19.9
    assert "tried again in 0.1 s" in b.refuses()
    now[0] = 20.0
    assert b.refuses() == ""


class Flaky(Fixed):
    """Fails while told to."""

    def __init__(self, *, failing: bool = True, delay: float = 0.0) -> None:
        super().__init__("a", delay=delay)
        self.failing = failing
        self.calls = self.running = self.most = 0

    async def search(self, query: Query) -> Sequence[Hit]:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.running -= 1
        if self.failing:
            raise SourceError("connection refused")
        return hits("a")


SETTINGS = {
    "rag": {"max_retrieval_queries": 1, "cache_enabled": False},
    "limits": {"breaker_failures": 2, "breaker_seconds": 1.0},
}


def status(context: Context, source: str) -> str:
    return next(r.status for r in context.coverage if r.source == source)


async def test_a_source_that_keeps_failing_is_reported_open_probed_by_one_and_comes_back():
    flaky = Flaky()
    async with ContextRouter(SETTINGS, connectors={"flaky": flaky, "good": Fixed("b")}) as router:
        seen = [status(await router.route("q"), "flaky") for _ in range(4)]
        assert (seen, flaky.calls) == (["error", "error", "open", "open"], 2)
        context = await router.route("q")
        assert context.degraded
        assert "connection refused" in next(r.error for r in context.coverage if r.source == "flaky")
        await asyncio.sleep(1.1)
        flaky.failing, flaky.delay, flaky.most = False, 0.5, 0
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(router.route("q")) for _ in range(20)]
        found = [status(task.result(), "flaky") for task in tasks]
        assert (sorted(found), flaky.most) == (["ok"] + ["open"] * 19, 1)
        assert status(await router.route("q"), "flaky") == "ok"


async def test_a_breaker_can_be_off_and_each_leg_has_its_own():
    flaky = Flaky()
    off = {**SETTINGS, "limits": {"breaker_failures": 0}}
    async with ContextRouter(off, connectors={"flaky": flaky, "good": Fixed("b")}) as router:
        for _ in range(5):
            assert status(await router.route("q"), "flaky") == "error"

    class HalfDead(Fixed):
        legs = ("one", "two")

        async def search(self, query: Query) -> Sequence[Hit]:
            if query.leg == "one":
                raise SourceError("gone")
            return hits("a")

    async with ContextRouter(SETTINGS, connectors={"half": HalfDead()}) as router:
        for _ in range(3):
            context = await router.route("q")
    assert {r.leg: r.status for r in context.coverage} == {"one": "open", "two": "ok"}


async def test_a_used_up_quota_opens_the_breaker_at_the_first_failure():
    class UsedUp(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            error = SourceError("the daily quota is used up")
            error.exhausted = True
            raise error

    for limits, seen in (({"breaker_failures": 9}, "open"), ({"breaker_failures": 0}, "error")):
        settings = {**SETTINGS, "limits": limits}
        async with ContextRouter(settings, connectors={"paid": UsedUp(), "good": Fixed("b")}) as router:
            assert status(await router.route("q"), "paid") == "error"
            context = await router.route("q")
            report = next(r for r in context.coverage if r.source == "paid")
            assert report.status == seen
            assert "the daily quota is used up" in report.error
            if seen == "open":
                assert report.error.startswith("not asked after 1 failure; the last: ")


@pytest.mark.case("INT-04")
async def test_a_caller_in_a_hurry_opens_nothing():
    slow = Flaky(failing=False, delay=0.2)
    async with ContextRouter(SETTINGS, connectors={"slow": slow, "good": Fixed("b")}) as router:
        for _ in range(4):
            assert status(await router.route("q", deadline=0.02), "slow") == "timeout"
        assert status(await router.route("q"), "slow") == "ok"


async def test_a_late_source_counts_when_it_had_its_time():
    slow = Flaky(failing=False, delay=5)
    settings = {**SETTINGS, "rag": {**SETTINGS["rag"], "timeout_seconds": 0.05}}
    async with ContextRouter(settings, connectors={"slow": slow, "good": Fixed("b")}) as router:
        assert [status(await router.route("q"), "slow") for _ in range(3)] == ["timeout", "timeout", "open"]


async def test_overload_is_answered_at_once_and_honestly():
    refused = asyncio.Event()

    class Held(Flaky):
        async def search(self, query: Query) -> Sequence[Hit]:
            await refused.wait()
            return await super().search(query)

    slow = Held(failing=False, delay=0.01)
    settings = {
        "rag": {"max_retrieval_queries": 1, "cache_enabled": False, "max_concurrency": 2},
        "limits": {"max_waiting": 2},
    }
    async with ContextRouter(settings, connectors={"slow": slow}) as router:
        said: list[str] = []

        async def ask() -> bool:
            try:
                await router.route("q")
            except AllSourcesFailed as error:
                said.append(error.reports[0].error)
                if len(said) == 6:
                    refused.set()
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask()) for _ in range(10)]
    assert sum(task.result() for task in tasks) == 4
    assert all("overloaded: 2 calls to all sources run and 2 wait already" in why for why in said)
    assert slow.most == 2


class Hanging(Fixed):
    """Never answers."""

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.Event().wait()
        return []


async def ask_many(router: ContextRouter, count: int) -> list[Context | AllSourcesFailed]:
    async def ask(number: int) -> Context | AllSourcesFailed:
        try:
            return await router.route(f"question {number}")
        except AllSourcesFailed as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(number)) for number in range(count)]
    return [task.result() for task in tasks]


@pytest.mark.case("ASY-20")
@pytest.mark.parametrize(
    "rag", [{"timeout_seconds": 3.0}, {"timeout_seconds": 3.0, "max_concurrency": 2}], ids=["default", "two"]
)
async def test_a_source_that_hangs_never_takes_another_one_down(rag: dict[str, float]):
    settings = {"rag": {**rag, "cache_enabled": False}, "limits": {"breaker_failures": 3}}
    sources = {"a_hanging": Hanging(), "good": Fixed("found", delay=0.001)}
    async with ContextRouter(settings, connectors=sources) as router:
        answers = await ask_many(router, 100)
        answers += await ask_many(router, 1)
    contexts = [answer for answer in answers if isinstance(answer, Context)]
    assert len(contexts) == 101
    assert {status(context, "good") for context in contexts} == {"ok"}


@pytest.mark.case("ASY-20")
@pytest.mark.parametrize("slots", [1, 2, 4, 7])
async def test_sources_that_hang_take_no_slot_of_others_however_few_there_are(slots: int):
    settings = {"rag": {"timeout_seconds": 1.0, "max_concurrency": slots, "cache_enabled": False}}
    hanging = {f"a_hanging{number}": Hanging() for number in range(5)}
    good = {f"good{number}": Fixed("found") for number in range(3)}
    async with ContextRouter(settings, connectors={**hanging, **good}) as router:
        answers = await ask_many(router, 10)
    contexts = [answer for answer in answers if isinstance(answer, Context)]
    assert len(contexts) == 10
    assert {status(context, name) for context in contexts for name in good} == {"ok"}


@pytest.mark.case("ASY-20")
async def test_a_call_without_a_slot_does_not_count_against_its_source():
    settings = {
        "rag": {"timeout_seconds": 0.2, "max_concurrency": 1, "cache_enabled": False},
        "limits": {"breaker_failures": 2},
    }
    async with ContextRouter(settings, connectors={"hanging": Hanging()}) as router:
        lost = await ask_many(router, 5)
        reports = [
            report for error in lost if isinstance(error, AllSourcesFailed) for report in error.reports
        ]
        assert [r.error for r in reports].count("no slot was free by the request's deadline") == 4
        assert router.engine.limits.breaker("hanging", "default").closed


async def test_a_slow_source_leaves_the_share_of_others_free():
    settings = {"rag": {"timeout_seconds": 5.0, "max_concurrency": 8, "cache_enabled": False}}
    slow, good = Flaky(failing=False, delay=0.01), Fixed("found")
    async with ContextRouter(settings, connectors={"slow": slow, "good": good}) as router:
        await ask_many(router, 20)
        assert router.engine.limits.slots.share == 2
    assert slow.most == 6
