"""Distances of a search as cosines: by vectors where all are compared, else by what the index measures."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from contextrouter.builtin.providers.vertex.collection import Collection, Result
from contextrouter.vectors import cosine


class IndexDistances:
    """How the distances of one index become cosines. It is asked for once, with the first results.

    The index says whether it measures products or cosine distances. Whether a product comes as it is or
    negated, no setting says: a stored vector is compared with itself. `index` "": all vectors are compared.
    """

    def __init__(self, collection: Collection, index: str, recall: float) -> None:
        self._collection, self._name = collection, f"{collection.name}/indexes/{index}" if index else ""
        self._asking = asyncio.Lock()
        self._conversion: Callable[[float], float] | None = None
        hint = collection.types.SearchHint
        if index:
            scan = hint.IndexHint.DenseScannParams(target_recall=recall) if recall else None
            self.hint: Any = hint(index_hint=hint.IndexHint(name=self._name, dense_scann_params=scan))
        else:
            self.hint = hint(knn_hint=hint.KnnHint())

    @property
    def with_vectors(self) -> bool:
        """Whether results have their vectors: those of an index stay there."""
        return not self._name

    async def with_cosines(
        self, direction: Sequence[float], results: Sequence[Result], deadline: float | None
    ) -> list[Result]:
        """Return results with cosines as scores, best first; None where a cosine cannot be known."""
        if not results:
            return []
        if self._name:
            convert = await self._find_conversion(results[0].id, deadline)
            scores = [None if convert is None or r.score is None else convert(r.score) for r in results]
        else:
            scores = [None if r.vector is None else cosine(direction, r.vector) for r in results]
        cosines = [max(-1.0, min(1.0, s)) for s in scores if s is not None and math.isfinite(s)]
        if len(cosines) < len(results):
            return [result._replace(score=None) for result in results]
        ordered = [result._replace(score=score) for result, score in zip(results, cosines, strict=True)]
        return sorted(ordered, key=lambda result: -(result.score or 0.0))

    async def to_itself(self, id: str, deadline: float | None = None) -> float | None:
        """Return the distance of a stored vector to itself, as the service gives it; None: it is gone."""
        stored = await self._collection.get(id, deadline=deadline)
        if stored is None or stored.vector is None:
            return None
        results = await self._collection.vector_search(
            stored.vector, [], 1, hint=self.hint, with_vectors=False, deadline=deadline
        )
        return results[0].score if results else None

    async def _find_conversion(self, id: str, deadline: float | None) -> Callable[[float], float] | None:
        async with self._asking:  # one asks for all
            if self._conversion is None:
                types = self._collection.types
                index = await self._collection.connection.call(
                    self._collection.admin.get_index,
                    types.GetIndexRequest(name=self._name),
                    deadline=deadline,
                )
                if index.distance_metric == types.DistanceMetric.COSINE_DISTANCE:
                    self._conversion = lambda distance: 1.0 - distance
                elif distance := await self.to_itself(id, deadline):
                    sign = 1.0 if distance > 0 else -1.0
                    self._conversion = lambda distance: sign * distance
        return self._conversion
