"""Reranker score cache: models are slow, and the same documents are often retrieved again."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from contextrouter.cache import keys
from contextrouter.cache.tiers import Tiers
from contextrouter.contracts import Reranker
from contextrouter.model import Document
from contextrouter.scope import Scope


class ScoreCache:
    """Scores by router, stage, model, scope, question and documents, in `tiers`, for `ttl` seconds.

    `router` is the digest of everything that all answers of the router depend on.
    """

    def __init__(self, tiers: Tiers, *, router: bytes, ttl: float) -> None:
        self._tiers, self._router, self._ttl = tiers, router, ttl

    async def score(
        self, name: str, scope: Scope | None, reranker: Reranker, query: str, documents: Sequence[Document]
    ) -> Sequence[float]:
        """Return the scores of `reranker` (the stage `name`), cached or new. Raises the errors of
        `score()`.
        """
        key = keys.scores_key(self._router, name, reranker.model, scope, query, documents)
        count = len(documents)
        packed: bytes | None = self._tiers.memory.get(key)
        if (
            packed is None
            and (hit := await self._tiers.fetch(key, lambda body: _check_floats(bytes(body), count)))
            is not None
        ):
            packed, remaining = hit
            self._tiers.memory.put(key, packed, size=len(packed), ttl=min(remaining, self._ttl))
        if packed is not None:
            return array("d", packed).tolist()
        scores = await reranker.score(query, documents)
        try:
            computed = _check_floats(array("d", scores).tobytes(), count)
        except (TypeError, ValueError, OverflowError):
            return scores  # not what a reranker should give: whoever gets it says so
        self._tiers.memory.put(key, computed, size=len(computed), ttl=self._ttl)
        self._tiers.keep(key, lambda: computed, self._ttl)
        return scores


def _check_floats(packed: bytes, count: int) -> bytes:
    """Return `packed` if it holds `count` finite numbers. Raises ValueError."""
    if len(packed) != 8 * count or not all(map(math.isfinite, array("d", packed))):
        raise ValueError(f"{len(packed)} bytes are not {count} finite numbers")
    return packed
