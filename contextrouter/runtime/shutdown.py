"""Graceful shutdown: ends running requests when the router closes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from contextrouter.errors import ContextRouterError

log = logging.getLogger("contextrouter")
PATIENCE = 2.0
"""Seconds that a cancelled computation has to end. After that it is abandoned, and the log says so."""


def shutdown_error() -> ContextRouterError:
    """Return the error of a request that the shutdown cancelled."""
    return ContextRouterError(
        "Router was closed before the request was answered; close it after the last answer."
    )


class Computation:
    """One running computation, in the task that enters this context manager."""

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
        # A task that ended by itself goes on: undo the cancellation.
        if self.task.uncancel() <= self.before and isinstance(error, asyncio.CancelledError):
            raise shutdown_error() from None  # nobody but the router asked for it


class Running:
    """The running computations of one open router."""

    def __init__(self) -> None:
        self.entries: set[Computation] = set()
        self._closed = False
        self._over = asyncio.Event()

    def track(self) -> Computation:
        """Register a computation in the current task. Raises ContextRouterError when the router is closed."""
        if self._closed:
            raise shutdown_error()
        task = asyncio.current_task()
        assert task is not None
        return Computation(self, task)

    def notify_end(self) -> None:
        """Wake `aclose` when the last cancelled computation has ended."""
        if not any(entry.ended for entry in self.entries):
            self._over.set()

    async def aclose(self) -> None:
        """Cancel every computation except the caller's own, and wait for at most `PATIENCE` seconds."""
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
            log.warning(
                "Router was closed while %d requests did not end; a plugin swallows its cancellation.",
                len(self.entries.intersection(running)),
            )
