"""Durations on a busy machine: the shortest attempt counts, and the machine's own lag is allowed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import date
from time import monotonic
from types import FrameType
from typing import Any

ATTEMPTS = 3
TICK = 0.002
_NETWORK_CLIENTS = ("google", "grpc")


async def shortest(attempt: Callable[[], Awaitable[float]], enough: float) -> float:
    """Return the shortest of up to three attempts in seconds; one of at most `enough` ends the series."""
    duration = await attempt()
    for _ in range(ATTEMPTS - 1):
        if duration <= enough:
            break
        duration = min(duration, await attempt())
    return duration


async def stall(work: Callable[[], Awaitable[object]]) -> float:
    """Return the longest time in seconds for which `work()` kept the event loop to itself."""
    longest, previous, running = 0.0, monotonic(), True
    failure: Exception | None = None

    async def tick() -> None:
        nonlocal longest, previous
        while running:
            await asyncio.sleep(TICK)
            now = monotonic()
            longest, previous = max(longest, now - previous), now

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        await asyncio.sleep(TICK)
        try:
            await work()
        except Exception as error:  # raised below as it is, not in a group
            failure = error
        finally:
            longest, running = max(longest, monotonic() - previous), False
    if failure is not None:
        raise failure
    return longest


async def idle() -> float:
    """Return the lag of this machine's event loop in seconds, with nothing to do."""
    return await stall(lambda: asyncio.sleep(0.01))


async def measure_end(task: asyncio.Task[object], timeout: float) -> float:
    """Wait for a task, at most for `timeout`, and return the seconds. Its exception stays in the task."""
    start = monotonic()
    await asyncio.wait({task}, timeout=timeout)
    return monotonic() - start


@contextmanager
def clock_readings() -> Iterator[list[str]]:
    """Collect who reads the time of day in this thread: callers of `time.time`, `datetime.now` and the like.

    Python's own modules may read it, and clients of networks, for their time limits.
    """
    readings: list[str] = []
    before = sys.getprofile()

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not _reads_clock(called):
            return
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package not in sys.stdlib_module_names and package not in _NETWORK_CLIENTS:
            readings.append(f"{called.__name__}() in {module}, line {frame.f_lineno}")

    sys.setprofile(note)
    try:
        yield readings
    finally:
        sys.setprofile(before)


def _reads_clock(called: Any) -> bool:
    if called in (time.time, time.time_ns):
        return True
    owner = getattr(called, "__self__", None)
    return (
        isinstance(owner, type) and issubclass(owner, date) and called.__name__ in ("now", "utcnow", "today")
    )
