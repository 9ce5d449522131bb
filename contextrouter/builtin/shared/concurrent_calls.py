"""Several calls at once, up to a limit, with their answers in order; the first error ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def run_together(calls: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """Make calls, `at_once` at most at the same time; return their answers in order."""
    slots = asyncio.Semaphore(at_once)

    async def run(call: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await call()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in calls]
    except* Exception as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
