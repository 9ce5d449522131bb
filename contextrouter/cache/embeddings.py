"""Embedding cache: the vectors of texts, kept for the next equal text."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from contextrouter.cache import keys
from contextrouter.cache.tiers import Tiers
from contextrouter.contracts import Embedder
from contextrouter.model import Vector
from contextrouter.settings import Instance, Settings


class Embedding:
    """The embedding of one request. `embedded` counts the texts that an embedder really got."""

    def __init__(self, cache: EmbeddingCache | None = None) -> None:
        self._cache = cache
        self.embedded = 0
        self.vectors: dict[tuple[str, str], Vector] = {}  # of this request, by embedder and text

    async def __call__(self, name: str, embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per query text, from the cache where there is one."""
        made = (
            await self.fresh(embedder, texts)
            if self._cache is None
            else await self._cache.embed(name, embedder, texts, self)
        )
        self.vectors.update(((name, text), vector) for text, vector in zip(texts, made, strict=False))
        return made

    async def fresh(self, embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
        """Have all of `texts` embedded."""
        vectors = await embedder.embed(texts, query=True)
        self.embedded += len(texts)
        return vectors


class EmbeddingCache:
    """Vectors of query texts by embedder, model and text, as 32-bit floats, in `tiers`, for `ttl` seconds.

    `instances` are the embedders' settings by name; one that has none, made by hand, is known by the model it
    names, or else by `token`.
    """

    def __init__(
        self, tiers: Tiers, *, instances: Mapping[str, Instance], namespace: str, token: str, ttl: float
    ) -> None:
        self._tiers, self._instances = tiers, instances
        self._namespace, self._token, self._ttl = namespace, token, ttl

    @classmethod
    def of(
        cls, tiers: Tiers, settings: Settings, given: Collection[tuple[str, str]], token: str
    ) -> Self | None:
        """Return the cache that `settings` ask for; None for none. `given` are the (kind, name) of instances
        made by hand.
        """
        cache = settings.cache
        if not (cache.embeddings and settings.rag.cache_enabled):
            return None
        instances = {
            name: made for name, made in settings.embedders.items() if ("embedder", name) not in given
        }
        return cls(
            tiers,
            instances=instances,
            namespace=cache.namespace,
            token=token,
            ttl=cache.embedding_ttl_seconds,
        )

    async def embed(
        self, name: str, embedder: Embedder, texts: Sequence[str], embedding: Embedding
    ) -> Sequence[Vector]:
        """Return one vector per text; only texts that are not kept are embedded, all in one call.

        A vector is the same, to the bit, whether it was kept or has just been made.
        """
        whose = keys.of_embedder(
            embedder, self._instances.get(name), namespace=self._namespace, token=self._token
        )
        at = [keys.of_text(whose, text, query=True) for text in texts]
        found: list[Vector | None] = [await self._kept(key, embedder.dimensions) for key in at]
        missing = [index for index, vector in enumerate(found) if vector is None]
        if missing:
            made = await embedding.fresh(embedder, [texts[index] for index in missing])
            if len(made) != len(missing):
                return made  # the caller says what is wrong with that
            for index, vector in zip(missing, made, strict=True):
                found[index] = self._keep(at[index], vector, embedder.dimensions)
        return [vector for vector in found if vector is not None]

    async def _kept(self, key: bytes, dimensions: int) -> Vector | None:
        packed: bytes | None = self._tiers.memory.get(key)
        if packed is None:
            found = await self._tiers.fetch(key, lambda body: _checked(bytes(body), dimensions))
            if found is None:
                return None
            packed, left = found
            self._tiers.memory.put(key, packed, size=len(packed), ttl=min(left, self._ttl))
        return _unpacked(packed)

    def _keep(self, key: bytes, vector: Vector, dimensions: int) -> Vector:
        try:
            packed = _checked(array("f", vector).tobytes(), dimensions)
        except (TypeError, ValueError, OverflowError):
            return vector  # not what an embedder should give: whoever gets it says so
        self._tiers.memory.put(key, packed, size=len(packed), ttl=self._ttl)
        self._tiers.keep(key, lambda: packed, self._ttl)
        return _unpacked(packed)


def _unpacked(packed: bytes) -> list[float]:
    return array("f", packed).tolist()


def _checked(packed: bytes, dimensions: int) -> bytes:
    """Return `packed` if it holds `dimensions` finite floats. Raises ValueError."""
    if len(packed) != 4 * dimensions or not all(map(math.isfinite, _unpacked(packed))):
        raise ValueError(f"{len(packed)} bytes are not {dimensions} finite floats")
    return packed
