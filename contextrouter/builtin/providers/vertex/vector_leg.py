"""The leg `vector`: the chunks nearest to the vector of a question, by an index or by a scan of all."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.builtin.providers.queries import query_direction
from contextrouter.builtin.providers.vertex.collection import Collection, Result
from contextrouter.builtin.providers.vertex.index_distances import IndexDistances
from contextrouter.builtin.providers.vertex.object_filter import Condition
from contextrouter.errors import SourceError
from contextrouter.model import Query
from contextrouter.vectors import unit


async def search_vectors(
    collection: Collection,
    query: Query,
    conditions: Sequence[Condition],
    *,
    top: int,
    distances: IndexDistances,
    dimensions: int,
) -> list[Result]:
    """Return chunks with their cosines, best first. The vectors of an index stay there."""
    direction = query_direction(query, unit)
    if direction is None:
        return []
    if dimensions and len(direction) != dimensions:
        raise SourceError(
            f"Query vector has {len(direction)} dimensions, the store's have {dimensions}; use one embedder"
            " for both."
        )
    results = await collection.vector_search(
        direction,
        conditions,
        top,
        hint=distances.hint,
        with_vectors=distances.with_vectors,
        deadline=query.deadline,
    )
    return await distances.with_cosines(direction, results, query.deadline)
