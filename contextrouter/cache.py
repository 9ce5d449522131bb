"""Results kept for the next equal question, and one computation for many equal questions at once.

The key is an exact encoding of everything the answer depends on; the digest is SHA-256 in full. Values are frozen, so the object
handed out is the one that is kept. Nothing is pickled.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")

_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=str)


def key_of(*parts: Any) -> bytes:
    """A digest of `parts`; equal only for parts that are equal. Mappings and sets count without their order."""
    return sha256(_encoder.encode(parts)).digest()


class MemoryCache(Generic[V]):
    """The most recently used values, up to `max_bytes` in all, each for `ttl` seconds."""

    def __init__(self, max_bytes: int, ttl: float, size_of: Callable[[V], int], *, clock: Callable[[], float] = monotonic) -> None:
        self._entries: OrderedDict[bytes, tuple[float, int, V]] = OrderedDict()
        self._max, self._ttl, self._size_of, self._clock = max_bytes, ttl, size_of, clock
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> V | None:
        """Return the value, or None when it is not there or too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        expires, size, value = entry
        if self._clock() >= expires:
            del self._entries[key]
            self.bytes -= size
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: bytes, value: V) -> None:
        """Keep the value; the least recently used go. A value larger than the whole cache is not kept."""
        size = self._size_of(value)
        old = self._entries.pop(key, None)
        if old is not None:
            self.bytes -= old[1]
        if size > self._max:
            return
        self._entries[key] = (self._clock() + self._ttl, size, value)
        self.bytes += size
        while self.bytes > self._max:
            _, (_, gone, _) = self._entries.popitem(last=False)
            self.bytes -= gone

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes = 0


class _Flight(Generic[V]):
    __slots__ = ("deadline", "task", "waiting")

    def __init__(self, task: asyncio.Task[V], deadline: float) -> None:
        self.task, self.deadline, self.waiting = task, deadline, 0


class SingleFlight(Generic[V]):
    """Equal computations that overlap run once. A caller that is cancelled leaves; the last one to leave ends the computation.

    A caller joins only a computation that will be done by its own deadline; a more patient one would keep it too long.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}

    async def run(self, key: bytes, deadline: float, compute: Callable[[], Awaitable[V]]) -> tuple[V, bool]:
        """Return the value, and whether another caller's computation gave it."""
        flight = self._flights.get(key)
        joined = flight is not None and flight.deadline <= deadline and not flight.task.done()
        if not joined or flight is None:
            flight = self._start(key, deadline, compute)
        flight.waiting += 1
        try:
            value = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()
                await _ended([flight.task])
        return value, joined

    def _start(self, key: bytes, deadline: float, compute: Callable[[], Awaitable[V]]) -> _Flight[V]:
        async def run() -> V:
            return await compute()

        flight = _Flight(asyncio.get_running_loop().create_task(run()), deadline)
        before = self._flights.get(key)
        if before is None or before.task.done() or deadline < before.deadline:
            self._flights[key] = flight
        flight.task.add_done_callback(lambda task: self._done(key, flight, task))
        return flight

    def _done(self, key: bytes, flight: _Flight[V], task: asyncio.Task[V]) -> None:
        self._forget(key, flight)
        if not task.cancelled():
            task.exception()  # looked at: whoever waits gets it, and nobody may be waiting

    def _forget(self, key: bytes, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def aclose(self) -> None:
        """End what is running."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await _ended(tasks)


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    waiting = [task for task in tasks if not task.done()]
    if waiting:
        await asyncio.wait(waiting)
