"""LRU cache: a bounded mapping that evicts the least recently used entries."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Values by key, with a total weight of at most `max_weight`. By default every entry weighs 1."""

    def __init__(self, max_weight: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._entries: OrderedDict[K, tuple[V, int, float]] = OrderedDict()  # the next to go stands first
        self.max_weight, self.weight, self._clock = max_weight, 0, clock

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value, which is then the most recently used; None when it is absent or expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, _, expires = entry
        if expires < math.inf and self._clock() >= expires:
            return self.pop(key)
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, *, weight: int = 1, ttl: float = math.inf) -> None:
        """Keep a value for `ttl` seconds. A value heavier than the whole cache is not kept."""
        self.pop(key)
        if weight > self.max_weight or ttl <= 0:
            return
        self._entries[key] = (value, weight, self._clock() + ttl)
        self.weight += weight
        while self.weight > self.max_weight:
            self.pop(next(iter(self._entries)))

    def pop(self, key: K) -> V | None:
        """Remove the value and return it; None when it is absent or expired."""
        value, weight, expires = self._entries.pop(key, (None, 0, math.inf))
        self.weight -= weight
        return value if self._clock() < expires else None

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self.weight = 0
