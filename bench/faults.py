"""A source that hangs and one that raises beside three that answer: when the answer comes, and what is left
running. Then 100 questions at once over a source that hangs and a healthy one, with default settings.

    python bench/faults.py [rounds]

Exits 1 when the answer comes later than the deadline + LATE, when anything of the three is missing, when a
task is left, or when the source that hangs costs a question or opens the breaker of the healthy one.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from time import perf_counter

from contextrouter import AllSourcesFailed, Connector, ContextRouter, Document, Hit, Query

DEADLINE, LATE = 0.2, 0.025  # seconds
TOGETHER = 100  # questions
EXPECTED = {"a": "ok", "b": "ok", "c": "ok", "hang": "timeout", "raise": "error"}


class Answering(Connector):
    """Thirty documents after 10 ms."""

    def __init__(self, name: str) -> None:
        self.hits = [Hit(document=Document(id=f"{name}{i}", content=f"{name} {i} " * 50)) for i in range(30)]

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.sleep(0.01)
        return self.hits[: query.limit]


class Hanging(Connector):
    """Never answers."""

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.Event().wait()
        return []


class Raising(Connector):
    """Fails at once."""

    async def search(self, query: Query) -> Sequence[Hit]:
        raise ConnectionError("connection refused")


async def measure(rounds: int) -> tuple[list[float], int, int]:
    """Seconds until each answer; how many were not as they should be; how many tasks were left."""
    sources: dict[str, Connector] = {name: Answering(name) for name in ("a", "b", "c")}
    settings = {"rag": {"cache_enabled": False, "token_budget": 0}, "limits": {"breaker_failures": 0}}
    spent, wrong, left = [], 0, 0
    async with ContextRouter(
        settings, connectors={**sources, "hang": Hanging(), "raise": Raising()}
    ) as router:
        for turn in range(rounds):
            started = perf_counter()
            context = await router.route(f"question {turn}", deadline=DEADLINE)
            spent.append(perf_counter() - started)
            left += len(asyncio.all_tasks()) - 1
            statuses = {report.source: report.status for report in context.coverage}
            wrong += statuses != EXPECTED or len(context.envelopes) != 10
    return spent, wrong, left


async def load(count: int) -> tuple[int, bool, float]:
    """How many of so many questions at once were lost, whether the healthy source's breaker stayed closed,
    and the seconds until the last answer.
    """
    lost = 0
    async with ContextRouter(connectors={"a_hang": Hanging(), "good": Answering("good")}) as router:

        async def ask(number: int) -> None:
            nonlocal lost
            try:
                context = await router.route(f"question {number}")
                lost += not context.envelopes
            except AllSourcesFailed:
                lost += 1

        started = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(ask(number))
        await ask(count)
        return lost, router.engine.limits.breaker("good", "default").closed, perf_counter() - started


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    spent, wrong, left = asyncio.run(measure(rounds))
    over = [(seconds - DEADLINE) * 1000 for seconds in spent]
    print(
        f"deadline {DEADLINE * 1000:.0f} ms, {rounds} requests; answers that were not as they should be:"
        f" {wrong}"
    )
    print(
        f"hang + raise: answered {statistics.median(over):.1f} ms after the deadline as median,"
        f" {max(over):.1f} ms at worst (at most {LATE * 1000:.0f} ms); {left} tasks left"
    )
    lost, closed, seconds = asyncio.run(load(TOGETHER))
    print(
        f"{TOGETHER} questions at once and one after them, one source hangs, default settings: {lost} lost,"
        f" breaker of the healthy source {'never opened' if closed else 'open'}, {seconds:.1f} s"
    )
    return 1 if wrong or left or lost or not closed or max(over) > LATE * 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
