"""What runs while the router is closed is ended, and whoever waits for it is told why."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from contextrouter.errors import ContextRouterError

_log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds in which what is ended has to end. A plugin that swallows its cancellation is then left behind, and
the log says so.
"""


def shutdown_error() -> ContextRouterError:
    """The error of a request that the router's end has ended."""
    return ContextRouterError(
        "Router was closed before the request was answered; close it after the last answer."
    )


def consume_exception(task: asyncio.Task[Any]) -> None:
    """For a task that nobody may wait for any more: its error is not the event loop's to report."""
    if not task.cancelled():
        task.exception()


class Computation:
    """One computation in the task that enters it."""

    __slots__ = ("before", "ended", "running", "task")

    def __init__(self, running: Running, task: asyncio.Task[Any]) -> None:
        self.running, self.task, self.before, self.ended = running, task, task.cancelling(), False

    def __enter__(self) -> None:
        self.running.entries.add(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.running.entries.discard(self)
        if not self.ended:
            return
        self.running.notify_end()
        # A task that ended in its own way goes on, and is not cancelled any more.
        if self.task.uncancel() <= self.before and isinstance(error, asyncio.CancelledError):
            raise shutdown_error() from None  # nobody but the router asked for it


class Running:
    """The computations of one open router."""

    def __init__(self) -> None:
        self.entries: set[Computation] = set()
        self._closed = False
        self._over = asyncio.Event()

    def track(self) -> Computation:
        """A computation in the current task. Raises ContextRouterError once the router is closed, at once
        where it is already.
        """
        if self._closed:
            raise shutdown_error()
        task = asyncio.current_task()
        assert task is not None
        return Computation(self, task)

    def notify_end(self) -> None:
        """One that was ended has ended."""
        if not any(entry.ended for entry in self.entries):
            self._over.set()

    async def aclose(self) -> None:
        """End every computation but one that closes the router itself, and wait for them, though not for
        ever.
        """
        self._closed = True
        current = asyncio.current_task()
        running = [entry for entry in self.entries if entry.task is not current]
        if not running:
            return
        self._over.clear()
        for entry in running:
            entry.ended = True
            entry.task.cancel()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._over.wait()
        except TimeoutError:
            unfinished = len(self.entries.intersection(running))
            _log.warning(
                "Router was closed while %d requests did not end; a plugin swallows its cancellation.",
                unfinished,
            )
