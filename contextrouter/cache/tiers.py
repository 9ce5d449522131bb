"""Cache tiers: memory first, then disk or Redis, whose failures count as misses and are never errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import time
from typing import Any, Protocol, runtime_checkable

import msgspec

from contextrouter.cache.entry import seal, unseal
from contextrouter.cache.keys import address
from contextrouter.cache.memory import MemoryCache
from contextrouter.cache.outage import Outage
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import Threads

log = logging.getLogger("contextrouter")

WAITING = 256
"""How many entries may wait to be written. When a tier is slower than that, further entries are skipped."""
LAST_WRITES = 2.0
"""Seconds that closing waits for pending writes."""


class TierStats(msgspec.Struct, frozen=True, kw_only=True):
    """The size of one tier, and its counters since it was opened.

    `rejected` entries were corrupt, foreign or forged. `failures` are failed operations of the tier. `unfit`
    values have no exact form outside memory. `skipped` values came faster than they could be written.
    `max_bytes` None: the tier's server decides.
    """

    tier: str
    entries: int
    bytes: int
    max_bytes: int | None = None
    hits: int = 0
    misses: int = 0
    rejected: int = 0
    failures: int = 0
    unfit: int = 0
    skipped: int = 0


class Tier(Protocol):
    """A cache outside the memory of this process: 32-byte addresses -> bytes, each with a lifetime. It may
    raise; `Tiers` handles the errors.
    """

    name: str
    max_bytes: int | None

    async def open(self) -> None:
        """Connect. Raises MissingDependency, or SettingsError for errors that a retry cannot fix."""
        ...

    async def aclose(self) -> None:
        """Disconnect. It may be called twice, and `open` works again."""
        ...

    async def get(self, address: bytes) -> bytes | None:
        """Return the entry; None when it is absent or expired."""
        ...

    async def put(self, address: bytes, entry: bytes, ttl: float) -> None:
        """Keep `entry` for `ttl` seconds."""
        ...

    async def clear(self) -> int:
        """Remove everything in the namespace, and return how many entries there were."""
        ...

    async def size(self) -> tuple[int, int]:
        """Return the number of entries in the namespace, and about how many bytes they take."""
        ...


@runtime_checkable
class SupportsLocks(Tier, Protocol):
    """A tier of several processes, in which one of them can say that it computes an entry."""

    async def lock(self, address: bytes, seconds: float) -> str:
        """Lock an address for at most `seconds`. Return what unlocks it; "": another process has the
        lock.
        """
        ...

    async def unlock(self, address: bytes, token: str) -> None:
        """Unlock an address, unless the lock has ended and is another one now."""
        ...


class Unfit(ValueError):
    """The value has no exact form outside memory, so only the memory tier keeps it."""


class Tiers:
    """The memory tier, and behind it an outer tier. One event loop owns both between `open` and `aclose`."""

    def __init__(
        self, max_bytes: int, outer: Tier | None = None, *, secret: str = "", secrets: Sequence[str] = ()
    ) -> None:
        self.memory: MemoryCache[Any] = MemoryCache(max_bytes)
        self.outer = outer
        self._secret, self._secrets = secret.encode(), secrets
        self._counts = dict.fromkeys(("hits", "misses", "rejected", "failures", "unfit", "skipped"), 0)
        name = repr(outer.name) if outer else ""
        self._outage = Outage(
            f"Cache tier {name} fails, so answers are computed until it works again",
            f"Cache tier {name} works again.",
            secrets,
        )
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]]
        self._writer: asyncio.Task[None] | None = None
        self._threads: Threads | None = None

    async def open(self) -> None:
        """Open the outer tier. One that cannot be reached or opened does not stop the start; a missing
        package or a wrong setting does.
        """
        if self.outer is None:
            return
        if self._writer is not None:
            if self._writer.get_loop() is asyncio.get_running_loop():
                return
            await self._abandon(self.outer)
        try:
            await self.outer.open()
        except OSError as error:  # a volume that is full or read-only: answers do not need the cache
            reason = mask(str(error), self._secrets)
            log.warning("Cache tier %r is left out, because it cannot be opened: %s", self.outer.name, reason)
            return
        self._queue = asyncio.Queue(WAITING)
        self._threads = Threads(1, "cache")
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _abandon(self, outer: Tier) -> None:
        """Release the resources of an event loop that ended before `aclose`. Pending writes are lost."""
        self._writer = None
        self._counts["skipped"] += self._queue.qsize()
        if self._threads is not None:
            self._threads.close()
        try:
            await outer.aclose()
        except Exception as error:  # a connection of the loop that is no more
            log.debug("Cache tier %r was not closed in its own loop: %r", outer.name, error)

    async def aclose(self) -> None:
        """Finish pending writes within `LAST_WRITES` seconds, and clear the memory."""
        self.memory.clear()
        writer, self._writer = self._writer, None
        if writer is None or self.outer is None:
            return
        if writer.get_loop() is not asyncio.get_running_loop():
            await self._abandon(self.outer)
            return
        try:
            async with asyncio.timeout(LAST_WRITES):
                await self._queue.join()
        except TimeoutError:
            self._counts["skipped"] += self._queue.qsize()
        finally:
            writer.cancel()
            await asyncio.wait([writer])
            if self._threads is not None:
                self._threads.close()
            await self.outer.aclose()

    async def fetch(self, key: bytes, decode: Callable[[memoryview], Any]) -> tuple[Any, float] | None:
        """Return a value of the outer tier and its remaining seconds, or None. Raises nothing."""
        if self.outer is None or self._writer is None or self._outage.pauses:
            return None
        try:
            entry = await self.outer.get(address(key))
        except Exception as error:
            self._record_failure(error)
            return None
        self._outage.end()
        hit = None if entry is None else self._decode_entry(entry, key, decode)
        self._counts["misses" if hit is None else "hits"] += 1
        return hit

    def _decode_entry(
        self, entry: bytes, key: bytes, decode: Callable[[memoryview], Any]
    ) -> tuple[Any, float] | None:
        try:
            opened = unseal(entry, key, secret=self._secret)
            if opened is not None:
                remaining = opened[1] - time()
                return (decode(opened[0]), remaining) if remaining > 0 else None
        except Exception as error:  # another program may have written anything
            log.debug("An entry of cache tier %r cannot be read: %r", self.outer and self.outer.name, error)
        self._counts["rejected"] += 1
        return None

    def keep(self, key: bytes, encode: Callable[[], bytes], ttl: float) -> None:
        """Write `encode()` to the outer tier in the background. It runs in a thread; when it raises Unfit,
        nothing is written.
        """
        self._queue_up(partial(self._put, key, encode, time() + ttl))

    def _queue_up(self, write: Callable[[], Awaitable[None]]) -> None:
        if self._writer is None or self._outage.pauses:
            return
        try:
            self._queue.put_nowait(write)
        except asyncio.QueueFull:
            self._counts["skipped"] += 1

    async def _put(self, key: bytes, encode: Callable[[], bytes], expires: float) -> None:
        assert self.outer is not None  # or nothing is queued up
        assert self._threads is not None
        entry = await self._threads.run(self._encode_entry, key, encode, expires)
        ttl = expires - time()
        if ttl > 0:
            await self.outer.put(address(key), entry, ttl)
            self._outage.end()

    async def lock(self, key: bytes, seconds: float) -> str | None:
        """Say to other processes that this one computes the value of a key, for at most `seconds`. Return
        what `unlock` takes; "": another process computes it; None: nobody can be told. Raises nothing.
        """
        if not isinstance(self.outer, SupportsLocks) or self._writer is None or self._outage.pauses:
            return None
        try:
            return await self.outer.lock(address(key), seconds)
        except Exception as error:
            self._record_failure(error)
            return None

    def unlock(self, key: bytes, token: str) -> None:
        """End a lock in the background, after what was given to `keep` before."""
        if isinstance(self.outer, SupportsLocks):
            self._queue_up(partial(self.outer.unlock, address(key), token))

    async def _write(self) -> None:
        while True:
            write = await self._queue.get()
            try:
                await write()
            except Unfit:
                self._counts["unfit"] += 1
            except Exception as error:
                self._record_failure(error)
            finally:
                self._queue.task_done()

    def _encode_entry(self, key: bytes, encode: Callable[[], bytes], expires: float) -> bytes:
        return seal(key, encode(), expires=expires, secret=self._secret)

    def _record_failure(self, error: Exception) -> None:
        self._counts["failures"] += 1
        self._outage.begin(error)

    async def clear(self) -> int:
        """Clear every tier, and return how many entries the outermost had. Raises the errors of that tier."""
        count = len(self.memory)
        self.memory.clear()
        if self.outer is None:
            return count
        await self._demand(self.outer)
        return await self.outer.clear()

    async def _demand(self, outer: Tier) -> None:
        """Open a tier that was left out. Raises its errors: here nothing goes on without it."""
        if self._writer is None:
            await outer.open()

    async def stats(self) -> tuple[TierStats, ...]:
        """Return the statistics of each tier, memory first. Raises the errors of the outer tier."""
        memory = self.memory
        memory_stats = TierStats(
            tier="memory",
            entries=len(memory),
            bytes=memory.size,
            max_bytes=memory.max_bytes,
            hits=memory.hits,
            misses=memory.misses,
        )
        if self.outer is None:
            return (memory_stats,)
        await self._demand(self.outer)
        entries, size = await self.outer.size()
        outer = TierStats(
            tier=self.outer.name, entries=entries, bytes=size, max_bytes=self.outer.max_bytes, **self._counts
        )
        return memory_stats, outer
