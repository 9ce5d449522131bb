"""Step 4: one envelope per distinct document, with the word of every list on it. Pure; the result does not depend on arrival.

Within a source a document is known by its id; across sources by what it says: url, snippet and content all equal, which is
what the SHA-256 fingerprint stands for. Comparing texts inside a bucket of equal urls decides the same question without hashing
every document, which would be most of the router's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from contextrouter.model import Document, Envelope, Hit, Provenance, RankedList

Seen = tuple[int, str, str, str, int, int, Hit]
"""Where a hit stood: rank, source, leg, query, number of its list, position in it, and itself. Sorts best first."""


def dedupe(lists: Sequence[RankedList], identity: str = "exact") -> list[Envelope]:
    """Return sealed envelopes, in the order in which documents are first met in `lists`.

    `identity` says when documents of different sources are one: "exact" (url, snippet, content), "content", "url", "id" or
    "title"; a document that lacks the field is compared exactly. Of merged copies the best-ranked is kept, and all provenance.
    """
    groups = _across_sources(_within_sources(lists), identity)
    scales = [_normalizer(ranked) for ranked in lists]
    return [_seal(group, lists, scales) for group in groups]


def _within_sources(lists: Sequence[RankedList]) -> list[list[Seen]]:
    groups: list[list[Seen]] = []
    by_source: dict[str, dict[str, list[Seen]]] = {}
    for number, ranked in enumerate(lists):
        source, leg, query = ranked.source, ranked.leg, ranked.query
        known = by_source.setdefault(source, {})
        for position, hit in enumerate(ranked.hits):
            seen = (position + 1, source, leg, query, number, position, hit)
            name = hit.document.id
            group = known.get(name) if name else None
            if group is not None:
                group.append(seen)
                continue
            group = [seen]
            groups.append(group)
            if name:
                known[name] = group
    return groups


def _across_sources(groups: list[list[Seen]], identity: str) -> list[list[Seen]]:
    index: dict[Any, list[Seen]] = {}
    kept: list[list[Seen]] = []
    key_of = _KEYS.get(identity)
    for group in groups:
        if len(group) > 1:
            group.sort(key=_order)
        document = group[0][6].document
        named = key_of(document) if key_of else None
        found = index.setdefault(named, group) if named is not None else _exact(index, document, group)
        if found is group:
            kept.append(group)
        else:
            found.extend(group)
    for group in kept:
        if len(group) > 1:
            group.sort(key=_order)
    return kept


def _exact(index: dict[Any, list[Seen]], document: Document, group: list[Seen]) -> list[Seen]:
    """The group of the same url, snippet and content, or `group`, now entered. Longer keys only where shorter ones collide."""
    url, snippet, content = document.url, document.snippet, document.content
    key: Any
    for key in (url, (url, snippet), (url, snippet, content)):
        found = index.setdefault(key, group)
        if found is group:
            return group
        other = found[0][6].document
        if other.content == content and other.snippet == snippet and other.url == url:
            return found
    return found


_KEYS: dict[str, Callable[[Document], Any]] = {
    "content": lambda document: ("content", document.content) if document.content else None,
    "url": lambda document: ("url", document.url) if document.url else None,
    "id": lambda document: ("id", document.id) if document.id else None,
    "title": lambda document: ("title", document.title.casefold()) if document.title else None,
}


def _order(seen: Seen) -> tuple[int, str, str, str, int, int]:
    return seen[:6]


def _normalizer(ranked: RankedList) -> Callable[[int, Hit], float]:
    """A function from a hit's position to its score in [0, 1] within the list.

    A declared range beats min-max; a list of one, or of equal scores, is all 1.0. Where a score is missing or not finite,
    the whole list is scaled by rank instead: no arithmetic on what is not there, and the source's order holds.
    """
    hits = ranked.hits
    scores = [hit.score for hit in hits]
    if any(score is None or not math.isfinite(score) for score in scores):
        size = len(hits)
        return lambda position, hit: (size - position) / size
    low, high = ranked.score_range or (min(scores, default=0.0), max(scores, default=0.0))  # type: ignore[type-var]
    spread = float(high) - float(low)  # type: ignore[arg-type]
    if not spread > 0:
        return lambda position, hit: 1.0
    return lambda position, hit: min(1.0, max(0.0, (hit.score - low) / spread))  # type: ignore[operator]


def _seal(group: list[Seen], lists: Sequence[RankedList], scales: Sequence[Callable[[int, Hit], float]]) -> Envelope:
    provenance = []
    said: set[int] = set()
    for rank, source, leg, query, number, position, hit in group:
        if number in said:
            continue  # several copies in one list count once, at their best rank
        said.add(number)
        ranked = lists[number]
        provenance.append(
            Provenance(
                source=source, leg=leg, query=query, rank=rank, score=hit.score, normalized=scales[number](position, hit),
                weight=ranked.weight, retrieved_at=ranked.retrieved_at,
            )
        )  # fmt: skip
    best: Hit = group[0][6]
    if len(group) == 1:
        return Envelope(document=best.document, provenance=tuple(provenance), highlights=best.highlights, vector=best.vector)
    highlights = tuple(dict.fromkeys(text for seen in group for text in seen[6].highlights))
    vector = next((seen[6].vector for seen in group if seen[6].vector is not None), None)
    return Envelope(document=best.document, provenance=tuple(provenance), highlights=highlights, vector=vector)
