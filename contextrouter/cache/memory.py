"""The memory tier: the objects themselves, so that a hit decodes nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

V = TypeVar("V")


class MemoryCache(Generic[V]):
    """The most recently used values, up to `max_bytes` in all (keys and values), each for its own time.

    Values have to be immutable: the object handed out is the one that is kept.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._entries: OrderedDict[bytes, tuple[float, int, V]] = OrderedDict()
        self.max_bytes, self._clock = max_bytes, clock
        self.bytes = self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> V | None:
        """Return the value, or None when it is not there or too old."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        if self._clock() >= entry[0]:
            del self._entries[key]
            self.bytes -= entry[1]
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return entry[2]

    def put(self, key: bytes, value: V, *, size: int, ttl: float) -> None:
        """Keep a value of about `size` bytes for `ttl` seconds; the least recently used go.

        A value larger than the whole cache is not kept, nor is one whose time is over.
        """
        size += len(key)
        old = self._entries.pop(key, None)
        if old is not None:
            self.bytes -= old[1]
        if size > self.max_bytes or ttl <= 0:
            return
        self._entries[key] = (self._clock() + ttl, size, value)
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, (_, gone, _) = self._entries.popitem(last=False)
            self.bytes -= gone

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes = 0
