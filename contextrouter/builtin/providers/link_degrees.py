"""Link degrees: how many links documents have, counted over documents in memory; and a cache of the mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock

from contextrouter.model import Document
from contextrouter.runtime.lru import Lru
from contextrouter.scope import SHARED, Scope

_MEANS = 256  # scopes whose mean is kept


def count_degrees(documents: Sequence[Document]) -> tuple[list[int], float]:
    """Return the degree of each document, and the mean number of links per document.

    A link leads from one of the documents to another, by its id or its URL, and counts once. Both have one
    tenant, or one of them is shared.
    """
    pairs = _links(documents)
    degrees = [0] * len(documents)
    for start, goal in pairs:
        degrees[start] += 1
        degrees[goal] += 1
    return degrees, mean_links(len(pairs), len(documents))


def mean_links(links: int, documents: int) -> float:
    """Return the number of links per document; 0 without documents."""
    return links / documents if documents else 0.0


class MeanCache:
    """Keeps the mean number of links by the version of a store and the scope: counting reads every link."""

    def __init__(self) -> None:
        self._means: Lru[tuple[str, Scope | None], float] = Lru(_MEANS)
        self._lock = Lock()  # stores count in threads

    def get(self, version: str, scope: Scope | None) -> float | None:
        """Return the mean; None where it is not kept."""
        with self._lock:
            return self._means.get((version, scope))

    def put(self, version: str, scope: Scope | None, mean: float) -> None:
        """Keep a mean."""
        with self._lock:
            self._means.put((version, scope), mean)


def _links(documents: Sequence[Document]) -> set[tuple[int, int]]:
    by_name: defaultdict[str, set[int]] = defaultdict(set)
    for position, document in enumerate(documents):
        for name in filter(None, (document.id, document.url)):
            by_name[name].add(position)
    return {
        (start, goal)
        for start, document in enumerate(documents)
        for link in filter(None, document.links)
        for goal in by_name.get(link, ())
        if start != goal and _may_link(document.tenant or "", documents[goal].tenant or "")
    }


def _may_link(tenant: str, other: str) -> bool:
    return tenant == other or SHARED in (tenant, other)
