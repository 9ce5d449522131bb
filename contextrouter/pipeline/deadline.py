"""The deadline of a request: one clock (`time.monotonic()`) for every step."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

Result = TypeVar("Result")
GRACE = 0.05
"""Seconds in which cancelled work may end."""
ABANDONED: set[asyncio.Future[Any]] = set()
"""Work that ignores its cancellation, kept so that it is not collected while it runs."""


class Deadline:
    """The moment by which something has to be done. `Deadline()` never comes."""

    __slots__ = ("at",)

    def __init__(self, at: float = math.inf) -> None:
        self.at = at

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that comes in `seconds`."""
        return cls(monotonic() + seconds)

    def left(self) -> float:
        """Return the seconds that are left, 0 once it has passed."""
        return max(0.0, self.at - monotonic())

    def share(self, part: float) -> Deadline:
        """Return the deadline of a step that may use this part of the time that is left."""
        now = monotonic()
        return Deadline(now + max(0.0, self.at - now) * part)

    def reserve(self, part: float, most: float = math.inf) -> Deadline:
        """Return the deadline of a step that leaves this part of the time, at most `most` seconds, to later
        steps.
        """
        left = self.left()
        return self if left == math.inf else Deadline(self.at - min(left * part, most))

    def within(self, seconds: float | None) -> Deadline:
        """Return the deadline of a step that has a timeout of its own; None: it has none."""
        return self if seconds is None else Deadline(min(self.at, monotonic() + seconds))

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what `work` returns. Raises TimeoutError when the deadline comes first, also where the work
        ignores its cancellation: that is left behind, and ends with the event loop. Raises RuntimeError where
        the work cancels itself.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=None if self.at == math.inf else self.left())
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=GRACE)
        if not task.done():
            ABANDONED.add(task)
            task.add_done_callback(_forget)
            raise TimeoutError
        if task.cancelled():
            raise TimeoutError if self.left() <= 0 else RuntimeError("cancelled itself")
        return task.result()

    def timeout(self) -> asyncio.Timeout:
        """Return a context manager that raises TimeoutError when the deadline comes."""
        return asyncio.timeout(None if self.at == math.inf else self.left())


def _forget(task: asyncio.Future[Any]) -> None:
    ABANDONED.discard(task)
    if not task.cancelled():
        task.exception()  # read, so that the event loop does not report it as lost
