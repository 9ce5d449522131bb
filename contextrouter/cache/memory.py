"""LRU cache in memory, the first cache tier. It holds the objects themselves, so a hit decodes nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from contextrouter.runtime.lru import Lru

V = TypeVar("V")


class MemoryCache(Generic[V]):
    """The most recently used values, up to `max_bytes` of keys and values, each with its own lifetime.

    Values must be immutable, because a hit returns the cached object itself.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._entries: Lru[bytes, V] = Lru(max_bytes, clock=clock)
        self.max_bytes = max_bytes
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """The size of all entries."""
        return self._entries.weight

    def get(self, key: bytes) -> V | None:
        """Return the value, or None when it is absent or expired."""
        value = self._entries.get(key)
        self.hits += value is not None
        self.misses += value is None
        return value

    def put(self, key: bytes, value: V, *, size: int, ttl: float) -> None:
        """Keep a value of about `size` bytes for `ttl` seconds; the least recently used are evicted.

        A value that is larger than the cache or already expired is not kept.
        """
        self._entries.put(key, value, weight=len(key) + size, ttl=ttl)

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
