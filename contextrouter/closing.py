"""What runs while the router is closed is ended, and whoever waits for it is told why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contextrouter.errors import ContextRouterError

_log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds in which what is ended has to end. A plugin that swallows its cancellation is then left behind, and the log says so."""


def closed() -> ContextRouterError:
    """The error of a request that the router's end has ended."""
    return ContextRouterError("Router was closed before the request was answered; close it after the last answer.")


def looked_at(task: asyncio.Task[Any]) -> None:
    """For a task that nobody may wait for any more: its error is not the event loop's to report."""
    if not task.cancelled():
        task.exception()


class _Entry:
    __slots__ = ("before", "ended", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task, self.before, self.ended = task, task.cancelling(), False


class Running:
    """The computations of one open router."""

    def __init__(self) -> None:
        self._entries: set[_Entry] = set()
        self._closed = False
        self._over = asyncio.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A computation in the current task. Raises ContextRouterError once the router is closed, at once where it is already."""
        if self._closed:
            raise closed()
        task = asyncio.current_task()
        assert task is not None
        entry = _Entry(task)
        self._entries.add(entry)
        try:
            yield
        except asyncio.CancelledError:
            if entry.ended and task.uncancel() <= entry.before:
                raise closed() from None  # nobody but the router asked for it
            raise
        except BaseException:
            self._taken_back(entry)
            raise
        else:
            self._taken_back(entry)
        finally:
            self._entries.discard(entry)
            if not any(other.ended for other in self._entries):
                self._over.set()

    @staticmethod
    def _taken_back(entry: _Entry) -> None:
        """A task that ended in its own way goes on, and is not cancelled any more."""
        if entry.ended:
            entry.task.uncancel()

    async def aclose(self) -> None:
        """End every computation but one that closes the router itself, and wait for them, though not for ever."""
        self._closed = True
        here = asyncio.current_task()
        running = [entry for entry in self._entries if entry.task is not here]
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
            left = len(self._entries.intersection(running))
            _log.warning("Router was closed while %d requests did not end; a plugin swallows its cancellation.", left)
