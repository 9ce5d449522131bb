"""Exact cosines of documents that a vector leg did not return, where another leg brought their vectors."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.model import Vector
from contextrouter.pipeline.fusion.source_order import SourceLists
from contextrouter.vectors import Near, can_compare

Key = tuple[str, str]
"""An embedder, and the text of a query."""


def add_cosines(sources: Sequence[SourceLists]) -> None:
    """Give the lists of each source the cosines with the question that its leg "vector" does not tell.

    What only derived queries found gets none: it stands behind. All sources of one embedder are compared at
    once.
    """
    vectors_of = next((lists.queries.vectors for lists in sources), {})  # the same for all
    if not vectors_of or not can_compare():
        return
    absent = [_absent(lists) for lists in sources]
    together: dict[Key, dict[int, Vector]] = {}
    for vectors in absent:
        for key, by_number in vectors.items():
            together.setdefault(key, {}).update(by_number)
    cosines = {key: Near(vectors_of[key], vectors).cosines() for key, vectors in together.items()}
    for lists, vectors in zip(sources, absent, strict=True):
        best: dict[int, float] = {}
        for key, by_number in vectors.items():
            for number in by_number:  # a vector of another length has no cosine
                if (cosine := cosines[key].get(number)) is not None:
                    best[number] = max(cosine, best.get(number, cosine))
        lists.cosines = best


def _absent(lists: SourceLists) -> dict[Key, dict[int, Vector]]:
    """Return the vectors of documents that are absent from the leg "vector" of a source, by query."""
    vector_legs, embedder = lists.profile.vector_legs, lists.profile.embedder or ""
    in_full = [n for n, ranked in enumerate(lists.ranked) if ranked.query not in lists.queries.derived]
    by_vectors = [n for n in in_full if lists.ranked[n].leg == "vector" and lists.rows[n]]
    returned = {number for n in by_vectors for number in lists.rows[n]}
    others = [lists.positions[n] for n in in_full if lists.ranked[n].leg not in vector_legs]
    vectors = lists.candidates.vectors(others, (), returned) if by_vectors else {}
    keys = {(embedder, lists.ranked[n].query) for n in by_vectors}
    return {key: vectors for key in keys if vectors and key in lists.queries.vectors}
