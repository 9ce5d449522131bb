"""Durations on a machine that may be busy: the least of several attempts counts, and the machine's own lag is
added.
"""

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


async def least(attempt: Callable[[], Awaitable[float]], enough: float) -> float:
    """The shortest of up to three attempts, in seconds; an attempt of at most `enough` is the last."""
    shortest = await attempt()
    for _ in range(ATTEMPTS - 1):
        if shortest <= enough:
            break
        shortest = min(shortest, await attempt())
    return shortest


async def stall(work: Callable[[], Awaitable[object]]) -> float:
    """The longest time in seconds in which the event loop ran nothing else while `work()` ran."""
    longest, last, running = 0.0, monotonic(), True

    async def tick() -> None:
        nonlocal longest, last
        while running:
            await asyncio.sleep(TICK)
            now = monotonic()
            longest, last = max(longest, now - last), now

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        await asyncio.sleep(TICK)
        try:
            await work()
        finally:
            longest, running = max(longest, monotonic() - last), False
    return longest


async def idle() -> float:
    """The lag of this machine's loop with nothing to do, in seconds."""
    return await stall(lambda: asyncio.sleep(0.01))


async def ended(task: asyncio.Task[object], most: float) -> float:
    """Seconds until `task` ends, or `most`; it is waited for, not cancelled, and what it raises is left in
    it.
    """
    started = monotonic()
    await asyncio.wait({task}, timeout=most)
    return monotonic() - started


@contextmanager
def clock_readings() -> Iterator[list[str]]:
    """Note who reads the time of day in this thread, by `time.time`, `datetime.now` or their like; Python's
    own modules may.
    """
    readings: list[str] = []
    before = sys.getprofile()

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not _reads_clock(called):
            return
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in sys.stdlib_module_names:
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
