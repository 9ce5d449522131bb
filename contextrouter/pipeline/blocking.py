"""Finds the plugin whose blocking made an answer late: one step of its coroutine held the event loop."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from time import monotonic
from typing import Any

from contextrouter.pipeline.deadline import Deadline

BLOCKED = 0.1
"""Seconds of one step from which a plugin counts as blocking."""


class Steps:
    """Runs a coroutine when it is awaited, and measures the longest step between two of its waits."""

    __slots__ = ("_work", "longest")

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work, self.longest = work, 0.0

    def __await__(self) -> Generator[Any, Any, None]:
        step, argument = self._work.send, None
        try:
            while True:
                started = monotonic()
                try:
                    future = step(argument)
                except StopIteration:
                    return
                finally:
                    self.longest = max(self.longest, monotonic() - started)
                try:
                    step, argument = self._work.send, (yield future)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step, argument = self._work.throw, error
        finally:
            self._work.close()

    def blocked(self, deadline: Deadline) -> str:
        """Say how long the longest step was, where it made the answer late; empty: it did not."""
        return blocked(self.longest, deadline)


def blocked(seconds: float, deadline: Deadline) -> str:
    """Say that a step of so many seconds ended behind the deadline; empty: it did not block, or was in
    time.
    """
    if seconds < BLOCKED or deadline.left() > 0:
        return ""
    return f"blocked the event loop for {seconds:.1f} s, so that the answer is late"
