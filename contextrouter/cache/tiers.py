"""Cache tiers: memory first, then disk or Redis, whose failures count as misses and are never errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Any, Protocol

import msgspec

from contextrouter.cache.entry import seal, unseal
from contextrouter.cache.keys import address
from contextrouter.cache.memory import MemoryCache
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import Threads

log = logging.getLogger("contextrouter")

RETRY = 1.0
"""Seconds for which a tier that failed is left alone."""
WAITING = 256
"""How many entries may wait to be written. More come from a tier that cannot keep up; they are not kept
there.
"""
LAST_WRITES = 2.0
"""Seconds that closing waits for entries not yet written."""


class TierStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one tier holds, and what became of the reads since it was opened.

    `rejected` entries were corrupt, foreign or forged; `failures` are operations the tier itself could not
    do; `unfit` values have no exact form outside memory; `skipped` ones came faster than they could be
    written. `max_bytes` None: not ours to say.
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
    """A place outside this process's memory: addresses of 32 bytes -> bytes, each for a time. May raise;
    `Tiers` bears it.

    `fatal` are the errors of `open()` that stop the start, because waiting mends nothing.
    """

    name: str
    max_bytes: int | None

    async def open(self) -> None:
        """Acquire what is needed. Raises MissingDependency, or SettingsError for what waiting does not
        mend.
        """
        ...

    async def aclose(self) -> None:
        """Let go of it all. May be called twice; `open` works again."""
        ...

    async def get(self, at: bytes) -> bytes | None:
        """Return what is kept there and not too old."""
        ...

    async def put(self, at: bytes, entry: bytes, ttl: float) -> None:
        """Keep `entry` for `ttl` seconds."""
        ...

    async def clear(self) -> int:
        """Forget everything in the namespace; return how many entries there were."""
        ...

    async def size(self) -> tuple[int, int]:
        """Return the number of entries in the namespace, and about how many bytes they take."""
        ...


class Unfit(ValueError):
    """The value would not come back from outside as it went; it stays in memory alone."""


class Tiers:
    """Memory, and before it is asked in vain, an outer tier. One event loop owns it between `open` and
    `aclose`.
    """

    def __init__(
        self, max_bytes: int, outer: Tier | None = None, *, secret: str = "", secrets: Sequence[str] = ()
    ) -> None:
        self.memory: MemoryCache[Any] = MemoryCache(max_bytes)
        self.outer = outer
        self._secret, self._secrets = secret.encode(), secrets
        self._counts = dict.fromkeys(("hits", "misses", "rejected", "failures", "unfit", "skipped"), 0)
        self._left_alone_until = 0.0
        self._ill = False
        self._queue: asyncio.Queue[tuple[bytes, Callable[[], bytes], float]]
        self._writer: asyncio.Task[None] | None = None
        self._threads: Threads | None = None

    async def open(self) -> None:
        """Open the outer tier. One that is not there now does not stop the start; a missing package or a
        wrong setting does.
        """
        if self.outer is None:
            return
        if self._writer is not None:
            if self._writer.get_loop() is asyncio.get_running_loop():
                return
            await self._left_behind(self.outer)
        await self.outer.open()
        self._queue = asyncio.Queue(WAITING)
        self._threads = Threads(1, "cache")
        self._writer = asyncio.get_running_loop().create_task(self._write(self._threads))

    async def _left_behind(self, outer: Tier) -> None:
        """Let go of what belongs to a loop that ended before the router was closed; what had still to be
        written is lost.
        """
        self._writer = None
        self._counts["skipped"] += self._queue.qsize()
        if self._threads is not None:
            self._threads.close()
        try:
            await outer.aclose()
        except Exception as error:  # a connection of the loop that is no more
            log.debug("Cache tier %r was not closed in its own loop: %r", outer.name, error)

    async def aclose(self) -> None:
        """Write what waits, as far as that goes quickly; forget what is in memory."""
        self.memory.clear()
        writer, self._writer = self._writer, None
        if writer is None or self.outer is None:
            return
        if writer.get_loop() is not asyncio.get_running_loop():
            await self._left_behind(self.outer)
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
        """Return a value from the outer tier and how many seconds it has left, or None. Raises nothing."""
        if self.outer is None or self._writer is None or monotonic() < self._left_alone_until:
            return None
        try:
            entry = await self.outer.get(address(key))
        except Exception as error:
            self._failed(error)
            return None
        self._answered()
        found = None if entry is None else self._opened(entry, key, decode)
        self._counts["misses" if found is None else "hits"] += 1
        return found

    def _opened(
        self, entry: bytes, key: bytes, decode: Callable[[memoryview], Any]
    ) -> tuple[Any, float] | None:
        try:
            body = unseal(entry, key, secret=self._secret)
            if body is not None:
                left = body[1] - time()
                return (decode(body[0]), left) if left > 0 else None
        except Exception as error:  # whatever a stranger put there
            log.debug("An entry of cache tier %r cannot be read: %r", self.outer and self.outer.name, error)
        self._counts["rejected"] += 1
        return None

    def keep(self, key: bytes, encode: Callable[[], bytes], ttl: float) -> None:
        """Have `encode()` written to the outer tier, soon. It runs in a thread; when it raises Unfit, nothing
        is written.
        """
        if self._writer is None or monotonic() < self._left_alone_until:
            return
        try:
            self._queue.put_nowait((key, encode, time() + ttl))
        except asyncio.QueueFull:
            self._counts["skipped"] += 1

    async def _write(self, threads: Threads) -> None:
        assert self.outer is not None
        while True:
            key, encode, expires = await self._queue.get()
            try:
                entry = await threads.run(self._sealed, key, encode, expires)
                ttl = expires - time()
                if ttl > 0:
                    await self.outer.put(address(key), entry, ttl)
                    self._answered()
            except Unfit:
                self._counts["unfit"] += 1
            except Exception as error:
                self._failed(error)
            finally:
                self._queue.task_done()

    def _sealed(self, key: bytes, encode: Callable[[], bytes], expires: float) -> bytes:
        return seal(key, encode(), expires=expires, secret=self._secret)

    def _failed(self, error: Exception) -> None:
        self._counts["failures"] += 1
        self._left_alone_until = monotonic() + RETRY
        if not self._ill:
            self._ill = True
            name, why = (
                self.outer.name if self.outer else "",
                mask(f"{type(error).__name__}: {error}", self._secrets),
            )
            log.warning("Cache tier %r fails, so answers are computed until it works again: %s", name, why)

    def _answered(self) -> None:
        if self._ill:
            self._ill = False
            log.warning("Cache tier %r works again.", self.outer.name if self.outer else "")

    async def clear(self) -> int:
        """Forget everything in every tier; return how many entries there were in the outermost. Raises what
        that tier raises.
        """
        count = len(self.memory)
        self.memory.clear()
        return count if self.outer is None else await self.outer.clear()

    async def stats(self) -> tuple[TierStats, ...]:
        """What each tier holds, memory first. Raises what the outer tier raises."""
        memory = self.memory
        first = TierStats(
            tier="memory",
            entries=len(memory),
            bytes=memory.size,
            max_bytes=memory.max_bytes,
            hits=memory.hits,
            misses=memory.misses,
        )
        if self.outer is None:
            return (first,)
        entries, size = await self.outer.size()
        outer = TierStats(
            tier=self.outer.name, entries=entries, bytes=size, max_bytes=self.outer.max_bytes, **self._counts
        )
        return first, outer
