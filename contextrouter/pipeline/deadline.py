"""The deadline of a request: one clock (`time.monotonic()`) for every step."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Collection
from time import monotonic
from typing import Any, TypeVar

from contextrouter.errors import PluginError
from contextrouter.runtime.abandoned_calls import AbandonedCalls
from contextrouter.runtime.plugin_calls import as_coroutine, containment

Result = TypeVar("Result")
GRACE = 0.05
"""Seconds in which cancelled work may end."""


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

    async def run(self, call: Awaitable[Result], abandoned: AbandonedCalls) -> Result:
        """Return the answer of a plugin's call. Context variables that it sets do not leave it.

        Raises TimeoutError when the deadline comes first, and PluginError where the call cancels itself. One
        that ignores its cancellation is added to `abandoned`: nobody waits for it. With too many of them, it
        raises PluginError and does not begin.
        """
        try:
            abandoned.check()
        except PluginError:
            as_coroutine(call).close()
            raise
        task = asyncio.get_running_loop().create_task(as_coroutine(call))  # a task has a context of its own
        try:
            await self.wait([task])
        finally:
            if late := not task.done():
                task.cancel()
                _, stubborn = await asyncio.wait([task], timeout=GRACE)
                abandoned.add(stubborn)
        if late:
            raise TimeoutError
        if task.cancelled():
            raise PluginError("the plugin cancelled its own call")
        with containment():
            return task.result()

    async def wait(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Wait for tasks until the deadline. Those that need nothing but the processor end at their first
        step, and need no timer.
        """
        await asyncio.sleep(0)
        running = [task for task in tasks if not task.done()]
        if running:
            await asyncio.wait(running, timeout=None if self.at == math.inf else self.left())

    def timeout(self) -> asyncio.Timeout:
        """Return a context manager that raises TimeoutError when the deadline comes."""
        return asyncio.timeout(None if self.at == math.inf else self.left())
