"""Embedding cache: keeps the vectors of query texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Self

from contextrouter.cache import keys
from contextrouter.cache.float_entries import FloatEntries
from contextrouter.cache.tiers import Tiers
from contextrouter.contracts import Embedder
from contextrouter.model import Vector
from contextrouter.settings import Instance, Settings


class RequestEmbeddings:
    """The embeddings of one request. `embedded` counts the texts that were sent to an embedder."""

    def __init__(self, cache: EmbeddingCache | None = None) -> None:
        self._cache = cache
        self.embedded = 0
        self.vectors: dict[tuple[str, str], Vector] = {}  # of this request, by embedder and text

    async def __call__(self, name: str, embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per query text, from the cache where there is one."""
        if self._cache is None:
            vectors = await self.compute(embedder, texts)
        else:
            vectors = await self._cache.embed(name, embedder, texts, self)
        self.vectors.update(((name, text), vector) for text, vector in zip(texts, vectors, strict=False))
        return vectors

    async def compute(self, embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
        """Embed all `texts` without the cache."""
        vectors = await embedder.embed(texts, query=True)
        self.embedded += len(texts)
        return vectors


class EmbeddingCache:
    """Vectors of query texts by embedder, model and text, as 32-bit floats, in `tiers`, for `ttl` seconds.

    `instances` are the settings of embedders by name. An embedder made by hand has none; its model identifies
    it, or else `token`.
    """

    def __init__(
        self, tiers: Tiers, *, instances: Mapping[str, Instance], namespace: str, token: str, ttl: float
    ) -> None:
        self._entries, self._instances = FloatEntries(tiers, "f", ttl), instances
        self._namespace, self._token = namespace, token

    @classmethod
    def from_settings(
        cls, tiers: Tiers, settings: Settings, by_hand: Collection[tuple[str, str]], token: str
    ) -> Self | None:
        """Return the configured cache; None when it is off. `by_hand` are the (kind, name) of instances made
        by hand.
        """
        cache, embedders = settings.cache, settings.embedders
        if not (cache.embeddings and settings.rag.cache_enabled):
            return None
        instances = {name: embedders[name] for name in embedders if ("embedder", name) not in by_hand}
        ttl = cache.embedding_ttl_seconds
        return cls(tiers, instances=instances, namespace=cache.namespace, token=token, ttl=ttl)

    async def embed(
        self, name: str, embedder: Embedder, texts: Sequence[str], embedding: RequestEmbeddings
    ) -> Sequence[Vector]:
        """Return one vector per text. Texts without a cached vector are embedded in one call.

        A cached vector and a new one are equal to the bit.
        """
        digest = keys.embedder_digest(
            embedder, self._instances.get(name), namespace=self._namespace, token=self._token
        )
        cache_keys = [keys.query_key(digest, text) for text in texts]
        vectors: list[Vector | None]
        vectors = [await self._entries.read(key, embedder.dimensions) for key in cache_keys]
        absent = [index for index, vector in enumerate(vectors) if vector is None]
        if absent:
            computed = await embedding.compute(embedder, [texts[index] for index in absent])
            if len(computed) != len(absent):
                return computed  # the caller says what is wrong with that
            for index, vector in zip(absent, computed, strict=True):
                vectors[index] = self._entries.store(cache_keys[index], vector, embedder.dimensions)
        return [vector for vector in vectors if vector is not None]
