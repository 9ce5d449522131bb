"""Abandoned calls: cancelled calls of a plugin that have not ended. They are counted, and not without end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from contextrouter.errors import PluginError

log = logging.getLogger("contextrouter")


def consume_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that nobody waits for, so that the event loop does not report it."""
    if not task.cancelled():
        task.exception()


class AbandonedCalls:
    """The abandoned calls of one plugin. With `limit` of them it is not called."""

    __slots__ = ("limit", "owner", "tasks")

    def __init__(self, owner: str, limit: int) -> None:
        self.owner, self.limit = owner, limit
        self.tasks: set[asyncio.Task[Any]] = set()

    def refusal(self) -> str:
        """Why the plugin is not called now. Empty: it may be."""
        if len(self.tasks) < self.limit:
            return ""
        return f"not asked: {len(self.tasks)} calls to it ignore their cancellation and have not ended"

    def check(self) -> None:
        """Raise PluginError where the plugin is not called now."""
        if reason := self.refusal():
            raise PluginError(reason)

    def add(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Hold on to cancelled tasks until they end."""
        before = len(self.tasks)
        for task in tasks:
            self.tasks.add(task)
            task.add_done_callback(self._end)
        if before < self.limit <= len(self.tasks):
            log.warning("%s: %s; it is asked again when some of them end", self.owner, self.refusal())

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        consume_exception(task)


class AllAbandonedCalls:
    """The abandoned calls of all plugins, by their kind and name."""

    def __init__(self, limit: int = 32) -> None:
        self._most = limit
        self._calls: dict[str, AbandonedCalls] = {}

    def of(self, kind: str, name: str) -> AbandonedCalls:
        """Return those of one plugin. `kind` is such as "source", "stage" or "version of source": a version
        that hangs keeps no search from its source.
        """
        owner = f"{kind} {name!r}"
        if owner not in self._calls:
            self._calls[owner] = AbandonedCalls(owner, self._most)
        return self._calls[owner]

    def counts(self) -> Mapping[str, int]:
        """Return how many each plugin has that ever had one, such as `source 'wiki'`."""
        return {owner: len(calls.tasks) for owner, calls in self._calls.items()}

    async def aclose(self) -> None:
        """Wait a second for them, and log how many still do not end."""
        tasks = {task for calls in self._calls.values() for task in calls.tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            _, running = await asyncio.wait(tasks, timeout=1.0)
            if running:
                log.warning("%d calls to plugins ignore their cancellation and are left behind", len(running))
