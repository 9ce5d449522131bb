"""Cached floats: vectors and scores, as packed bytes in the tiers of the cache."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from contextrouter.cache.tiers import Tiers


class FloatEntries:
    """Entries of floats in `tiers`, for `ttl` seconds. `typecode` is "f" (32 bits) or "d" (64 bits)."""

    def __init__(self, tiers: Tiers, typecode: str, ttl: float) -> None:
        self._tiers, self._typecode, self._ttl = tiers, typecode, ttl

    async def read(self, key: bytes, count: int) -> list[float] | None:
        """Return the `count` floats of an entry; None where there is none."""
        packed: bytes | None = self._tiers.memory.get(key)
        if packed is None:
            hit = await self._tiers.fetch(key, lambda body: self._check(bytes(body), count))
            if hit is None:
                return None
            packed, remaining = hit
            self._tiers.memory.put(key, packed, size=len(packed), ttl=min(remaining, self._ttl))
        return array(self._typecode, packed).tolist()

    def store(self, key: bytes, values: Sequence[float], count: int) -> Sequence[float]:
        """Store `count` floats, and return them as `read` will. Anything else is returned as it is, and not
        stored: whoever gets it says what is wrong with it.
        """
        try:
            packed = self._check(array(self._typecode, values).tobytes(), count)
        except (TypeError, ValueError, OverflowError):
            return values
        self._tiers.memory.put(key, packed, size=len(packed), ttl=self._ttl)
        self._tiers.keep(key, lambda: packed, self._ttl)
        return array(self._typecode, packed).tolist()

    def _check(self, packed: bytes, count: int) -> bytes:
        """Return `packed` if it holds `count` finite floats. Raises ValueError."""
        values = array(self._typecode)
        values.frombytes(packed)
        if len(values) != count or not all(map(math.isfinite, values)):
            raise ValueError(f"{len(packed)} bytes are not {count} finite numbers")
        return packed
