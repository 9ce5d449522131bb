"""Single flight (request coalescing): equal computations that overlap run once, whichever caller is
cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar

from contextrouter.runtime.abandoned_calls import consume_exception
from contextrouter.runtime.shutdown import shutdown_error

V = TypeVar("V")
LEAST_LEFT = 0.05
"""Seconds that a caller must have left to compute anew. Equal deadlines of one burst are no reason to."""


class _Flight(Generic[V]):
    __slots__ = ("deadline", "ended", "task", "waiting")

    def __init__(self, task: asyncio.Task[V], deadline: float) -> None:
        self.task, self.deadline, self.waiting, self.ended = task, deadline, 0, False


class SingleFlight(Generic[V]):
    """Equal computations that overlap run once. A cancelled caller leaves; when the last caller leaves, the
    computation is cancelled.

    A caller joins only a computation whose deadline is not later than its own.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}
        self._running: set[_Flight[V]] = set()  # also those that one with an earlier deadline replaced

    async def run(
        self,
        key: bytes,
        deadline: float,
        compute: Callable[[], Awaitable[V]],
        cut_short: Callable[[V | Exception], bool] | None = None,
    ) -> tuple[V, bool]:
        """Return the value, and whether another caller's computation gave it. Raises ContextRouterError when
        `aclose` ends it.

        `cut_short` says whether a computation ended for lack of time. A caller that joined such a one, and
        has time left, computes anew or joins one with more time.
        """
        after = -inf
        while True:
            flight = self._flights.get(key)
            joined = flight is not None and after < flight.deadline <= deadline and not flight.task.done()
            if not joined or flight is None:
                flight = self._start(key, deadline, compute)
            result: V | Exception
            try:
                result = await self._wait(key, flight)
            except Exception as error:
                result = error
            has_time = deadline - monotonic() > LEAST_LEFT
            if joined and has_time and cut_short is not None and cut_short(result):
                after = flight.deadline
                continue
            if isinstance(result, Exception):
                raise result
            return result, joined

    async def _wait(self, key: bytes, flight: _Flight[V]) -> V:
        """Return what a computation gives. The last caller who leaves cancels it."""
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if flight.ended and current is not None and not current.cancelling():
                raise shutdown_error() from None
            raise
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()
                await _wait_until_done([flight.task])

    def _start(self, key: bytes, deadline: float, compute: Callable[[], Awaitable[V]]) -> _Flight[V]:
        async def run() -> V:
            return await compute()

        flight = _Flight(asyncio.get_running_loop().create_task(run()), deadline)
        self._running.add(flight)
        previous = self._flights.get(key)
        if previous is None or previous.task.done() or deadline < previous.deadline:
            self._flights[key] = flight
        flight.task.add_done_callback(lambda task: self._finish(key, flight, task))
        return flight

    def _finish(self, key: bytes, flight: _Flight[V], task: asyncio.Task[V]) -> None:
        self._forget(key, flight)
        self._running.discard(flight)
        consume_exception(task)

    def _forget(self, key: bytes, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def aclose(self) -> None:
        """Cancel the running computations; their callers get an error."""
        running = list(self._running)
        for flight in running:
            flight.ended = True
            flight.task.cancel()
        await _wait_until_done([flight.task for flight in running])


async def _wait_until_done(tasks: Iterable[asyncio.Task[Any]]) -> None:
    waiting = [task for task in tasks if not task.done()]
    if waiting:
        await asyncio.wait(waiting)
