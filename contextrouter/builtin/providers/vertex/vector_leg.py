"""The leg `vector`: the chunks nearest to the vector of a question, by an index or by a scan of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextrouter.builtin.providers.vertex.collection import Collection, Result
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
    index: str,
    recall: float,
    dimensions: int,
) -> list[Result]:
    """Return chunks with their cosines, best first. The vectors of an index stay there."""
    direction = query_direction(query, dimensions)
    if direction is None:
        return []
    results = await collection.vector_search(
        direction,
        conditions,
        top,
        hint=index_hint(collection, index, recall),
        with_vectors=not index,
        deadline=query.deadline,
    )
    return [result._replace(score=score) for result, score in zip(results, cosines(results), strict=True)]


def query_direction(query: Query, dimensions: int) -> list[float] | None:
    """Return the unit vector of a query; None for the zero vector. Raises SourceError for a wrong one."""
    if query.vector is None:
        raise SourceError(
            f"Leg {query.leg!r} needs a query vector and got none; set `embedder` to a defined embedder."
        )
    try:
        direction = unit(query.vector)
    except ValueError as error:
        raise SourceError(f"Query on the leg {query.leg!r} {error}.") from error
    if direction is not None and dimensions and len(direction) != dimensions:
        raise SourceError(
            f"Query vector has {len(direction)} dimensions, the store's have {dimensions}; use one embedder"
            " for both."
        )
    return direction


def cosines(results: Sequence[Result]) -> list[float | None]:
    """Return the scores of results, best first, as cosines. A service may give products, or their negatives:
    the order says which.
    """
    scores = [result.score for result in results if result.score is not None]
    sign = -1.0 if scores and scores[0] < scores[-1] else 1.0
    return [None if result.score is None else max(-1.0, min(1.0, sign * result.score)) for result in results]


def index_hint(collection: Collection, index: str, recall: float) -> Any:
    """Return the order to use an index; None: the collection decides, which is a scan where there is none."""
    if not index:
        return None
    hint = collection.types.SearchHint
    parameters = hint.IndexHint.DenseScannParams(target_recall=recall) if recall else None
    name = f"{collection.name}/indexes/{index}"
    return hint(index_hint=hint.IndexHint(name=name, dense_scann_params=parameters))
