"""Thread pools for blocking work, with context variables and cancellation.

A cancelled call is abandoned, not stopped: its thread runs to the end, and the result is discarded. Use it
for work that is harmless when repeated or late (reads), or atomic (one database transaction).
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from contextrouter.errors import PluginError

T = TypeVar("T")
PATIENCE = 1.0
"""Seconds after which a thread that goes on with an abandoned call is given up."""
OWN = min(32, (os.cpu_count() or 1) + 4)
"""Threads for the router's own work."""
_pools: WeakSet[Threads] = WeakSet()


def check_threads(size: int) -> None:
    """Raise ValueError for a number of threads that no plugin may have."""
    if not 1 <= size <= 64:
        raise ValueError(f"threads {size!r} is out of range; give 1 to 64.")


class Threads:
    """A bounded pool of threads owned by one plugin. Made in `open()`, closed in `aclose()`."""

    def __init__(self, size: int, name: str) -> None:
        self.size, self.name = size, name
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)
        self._lock = Lock()
        self._abandoned: dict[Future[Any], float] = {}  # a call -> since when nobody waits for it
        _pools.add(self)

    @property
    def abandoned(self) -> int:
        """How many threads go on with calls that nobody waits for."""
        return len(self._abandoned)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run `function(*args)` in the pool, in a copy of the caller's context.

        Raises PluginError when the pool is closed, and when abandoned calls that do not end hold all its
        threads.
        """
        self._refuse_if_held()
        context, task = contextvars.copy_context(), asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            future = self._pool.submit(context.run, function, *args)
        except RuntimeError as error:  # it is shut down
            raise self._closing_error() from error
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if task is not None and task.cancelling() == before:  # closing cancelled it, not the caller
                raise self._closing_error() from None
            self._abandon(future)
            raise

    def close(self, *, wait: bool = False) -> None:
        """Shut the pool down; with `wait` after the running calls have ended."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _abandon(self, future: Future[Any]) -> None:
        with self._lock:
            self._abandoned[future] = monotonic()
        future.add_done_callback(self._end)  # at once, where it has ended

    def _end(self, future: Future[Any]) -> None:
        with self._lock:
            self._abandoned.pop(future, None)

    def _refuse_if_held(self) -> None:
        if len(self._abandoned) < self.size:
            return
        with self._lock:
            since = sorted(self._abandoned.values())
        if len(since) >= self.size and monotonic() - since[self.size - 1] >= PATIENCE:
            raise PluginError(
                f"all {self.size} threads of {self.name!r} go on with calls that nobody waits for any more;"
                " restart the program if they never end"
            )

    def _closing_error(self) -> PluginError:
        return PluginError(f"the threads of {self.name!r} are closed; open the plugin again")


_own = Threads(OWN, "contextrouter")


async def work_aside(function: Callable[..., T], *args: object) -> T:
    """Run work of the router in threads of its own: no plugin's `asyncio.to_thread` can hold them all."""
    return await _own.run(function, *args)


def _renew() -> None:
    global _own
    _own = Threads(OWN, "contextrouter")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)  # a child has none of its parent's threads


def count_abandoned_threads() -> Mapping[str, int]:
    """Return how many threads go on with calls that nobody waits for, by the name of their pool."""
    counts: Counter[str] = Counter()
    for pool in list(_pools):
        counts[pool.name] += pool.abandoned
    return counts
