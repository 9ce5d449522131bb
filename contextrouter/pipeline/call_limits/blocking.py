"""Finds the plugin whose blocking made an answer late: one step of its coroutine held the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from time import monotonic
from typing import Any, NoReturn, TypeVar

from contextrouter.pipeline.deadline import Deadline
from contextrouter.runtime.plugin_calls import as_coroutine

Answer = TypeVar("Answer")

BLOCKED = 0.1
"""Seconds of one step from which a plugin counts as blocking."""


class Steps(Coroutine[Any, Any, Answer]):
    """A plugin's call, for a task, which measures the longest step between two of its waits."""

    __slots__ = ("_ended", "_work", "longest")

    def __init__(self, call: Awaitable[Answer]) -> None:
        self._work, self.longest, self._ended = as_coroutine(call), 0.0, 0.0

    def __del__(self) -> None:
        self._work.close()  # where nobody waited for it: the time was over before it began

    def send(self, value: Any) -> Any:
        """Run the next step."""
        started = monotonic()
        try:
            return self._work.send(value)
        finally:
            self._measure(started)

    def throw(self, *error: Any) -> Any:
        """Run the next step, which begins with an error such as a cancellation."""
        started = monotonic()
        try:
            return self._work.throw(*error)
        finally:
            self._measure(started)

    def close(self) -> None:
        """Give the call up."""
        self._work.close()

    def __await__(self) -> NoReturn:
        raise TypeError("steps are run by a task")

    def _measure(self, started: float) -> None:
        self._ended = monotonic()
        self.longest = max(self.longest, self._ended - started)

    def blocked(self, deadline: Deadline) -> str:
        """Say how long the longest step was, where it made the answer late; empty: it did not block, or ended
        in time.
        """
        if self.longest < BLOCKED or self._ended < deadline.at:
            return ""
        return f"blocked the event loop for {self.longest:.1f} s, so that the answer is late"
