"""Finds the plugin whose blocking made an answer late: one step of its coroutine held the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from time import monotonic
from typing import Any, Generic, TypeVar

from contextrouter.pipeline.deadline import Deadline
from contextrouter.runtime.plugin_calls import as_coroutine

Answer = TypeVar("Answer")

BLOCKED = 0.1
"""Seconds of one step from which a plugin counts as blocking."""


class Steps(Generic[Answer]):
    """Runs a plugin's call when it is awaited, and measures the longest step between two of its waits."""

    __slots__ = ("_work", "longest")

    def __init__(self, call: Awaitable[Answer]) -> None:
        self._work, self.longest = as_coroutine(call), 0.0

    def __del__(self) -> None:
        self._work.close()  # where nobody waited for it: the time was over before it began

    def __await__(self) -> Generator[Any, Any, Answer]:
        step: Any = self._work.send
        argument: Any = None
        try:
            while True:
                started = monotonic()
                try:
                    future = step(argument)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
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
        """Say how long the longest step was, where it made the answer late; empty: it did not block, or was
        in time.
        """
        if self.longest < BLOCKED or deadline.left() > 0:
            return ""
        return f"blocked the event loop for {self.longest:.1f} s, so that the answer is late"
