"""Step 5: one order out of many lists. Pure.

Level 1 fuses the lists of one source (its legs, and the queries on each); level 2 fuses the sources, each now one list.
Where a single source answered, level 1 is the whole of it; `levels = 1` fuses all lists flat.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): a list of weight w gives w / (k + rank). Weighted: w times the score
scaled to [0, 1] within the list. A list that does not hold a document says nothing about it.

The order is total: score, best rank, order of the sources, fingerprint. It never depends on arrival or on hashes of strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contextrouter.model import Envelope, Provenance
from contextrouter.settings import Rag

NO_WEIGHT = "only found by lists of weight 0"


def fuse(
    envelopes: Sequence[Envelope],
    rag: Rag,
    *,
    profiles: Mapping[str, Mapping[str, float]] | None = None,
    sources: Sequence[str] = (),
) -> list[Envelope]:
    """Return the envelopes best first, with `score` and `normalized` set; those found by nothing that counts come last, dropped.

    `profiles` maps a source to the leg weights of its embedder's profile; `sources` gives the order that breaks ties.
    `normalized` is the score ÷ the most it could be over the lists of the sources that returned the document.
    """
    weights = _ListWeights(envelopes, rag, profiles or {})
    scored = _Flat(weights, rag) if rag.levels == 1 or len(weights.by_source) == 1 else _TwoLevels(envelopes, weights, rag)
    live, lost = [], []
    order = {name: index for index, name in enumerate(sources)}
    for envelope in envelopes:
        counted = weights.counted(envelope.provenance)
        if not counted:
            lost.append(envelope.drop(NO_WEIGHT))
            continue
        score, most = scored.of(envelope, counted)
        best = min((p.rank, order.get(p.source, len(order)), p.source) for p in counted)
        live.append(((-score, *best), Envelope(
            document=envelope.document, provenance=envelope.provenance, score=score,
            normalized=min(1.0, score / most) if most else 0.0, signals=envelope.signals,
            highlights=envelope.highlights, vector=envelope.vector,
        )))  # fmt: skip
    live.sort(key=lambda pair: pair[0])
    return [*_by_fingerprint(live), *lost]


Key = tuple[float, int, int, str]


def _by_fingerprint(ranked: list[tuple[Key, Envelope]]) -> list[Envelope]:
    """Order what is still tied by fingerprint; nothing else is hashed."""
    ordered: list[Envelope] = []
    start = 0
    for end in range(1, len(ranked) + 1):
        if end < len(ranked) and ranked[end][0] == ranked[start][0]:
            continue
        tied = [envelope for _, envelope in ranked[start:end]]
        if len(tied) > 1:
            tied.sort(key=lambda envelope: envelope.id)
        ordered.extend(tied)
        start = end
    return ordered


class _ListWeights:
    """The weight of each list within its source: the leg's weight, shared by the queries that found something on it."""

    def __init__(self, envelopes: Sequence[Envelope], rag: Rag, profiles: Mapping[str, Mapping[str, float]]) -> None:
        queries: dict[tuple[str, str], set[str]] = {}
        source_weight: dict[str, float] = {}
        for envelope in envelopes:
            for p in envelope.provenance:
                found = queries.get((p.source, p.leg))
                if found is None:
                    queries[p.source, p.leg] = {p.query}
                    source_weight[p.source] = p.weight
                else:
                    found.add(p.query)
        self.of_list = {
            (source, leg): leg_weight(source, leg, rag, profiles.get(source, {})) / len(texts)
            for (source, leg), texts in queries.items()
        }
        self.of_source = source_weight
        self.by_source: dict[str, float] = {}  # source -> sum of the weights of its lists
        self.lists: dict[str, int] = {}
        for (source, leg), texts in queries.items():
            if self.of_list[source, leg] > 0 and source_weight[source] > 0:
                self.by_source[source] = self.by_source.get(source, 0.0) + self.of_list[source, leg] * len(texts)
                self.lists[source] = self.lists.get(source, 0) + len(texts)
        self.all_count = all(w > 0 for w in self.of_list.values()) and all(w > 0 for w in source_weight.values())

    def counted(self, provenance: tuple[Provenance, ...]) -> tuple[Provenance, ...]:
        """The provenance that has weight."""
        if self.all_count:
            return provenance
        return tuple(p for p in provenance if self.of_list[p.source, p.leg] > 0 and self.of_source[p.source] > 0)


def leg_weight(source: str, leg: str, rag: Rag, profile: Mapping[str, float]) -> float:
    """The weight of a leg: `[rag.leg_weights]` by "source.leg" or "leg"; in weighted mode `hybrid_…_weight`; else the profile."""
    for key in (f"{source}.{leg}", leg):
        if key in rag.leg_weights:
            return rag.leg_weights[key]
    if rag.hybrid_fusion == "weighted":
        if leg == "vector":
            return rag.hybrid_vector_weight
        if leg == "text":
            return rag.hybrid_text_weight
    return profile.get(leg, 1.0)


def _sum(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.fsum(values)  # exact, so the order of the lists does not matter


class _Flat:
    """Every list by itself, weighted by its leg and its source."""

    def __init__(self, weights: _ListWeights, rag: Rag) -> None:
        self.weights, self.k, self.rrf = weights, rag.rrf_k, rag.hybrid_fusion == "rrf"
        single = len(weights.by_source) == 1
        self.source_weight = dict.fromkeys(weights.of_source, 1.0) if single else weights.of_source

    def of(self, envelope: Envelope, counted: Sequence[Provenance]) -> tuple[float, float]:
        """The score, and the most it could be."""
        of_list, of_source = self.weights.of_list, self.source_weight
        if self.rrf:
            parts = [of_list[p.source, p.leg] * of_source[p.source] / (self.k + p.rank) for p in counted]
            best = 1.0 / (self.k + 1)
        else:
            parts = [of_list[p.source, p.leg] * of_source[p.source] * (p.normalized or 0.0) for p in counted]
            best = 1.0
        names = {p.source for p in counted}
        most = _sum([self.weights.by_source[name] * of_source[name] * best for name in sorted(names)])
        return _sum(parts), most


class _Place(NamedTuple):
    rank: int
    normalized: float


class _TwoLevels:
    """First the lists of each source, then the sources."""

    def __init__(self, envelopes: Sequence[Envelope], weights: _ListWeights, rag: Rag) -> None:
        self.weights, self.k, self.rrf = weights, rag.rrf_k, rag.hybrid_fusion == "rrf"
        self.places: dict[str, dict[int, _Place]] = {}
        several = {name for name, lists in weights.lists.items() if lists > 1}
        pool: dict[str, list[tuple[float, int]]] = {name: [] for name in several}
        for envelope in envelopes if several else ():
            for name, score in self._within(envelope, several).items():
                pool[name].append((score, id(envelope)))
        for name, scores in pool.items():
            self.places[name] = self._placed(name, scores)

    def _within(self, envelope: Envelope, several: set[str]) -> dict[str, float]:
        parts: dict[str, list[float]] = {}
        for p in self.weights.counted(envelope.provenance):
            if p.source in several:
                weight = self.weights.of_list[p.source, p.leg]
                parts.setdefault(p.source, []).append(weight / (self.k + p.rank) if self.rrf else weight * (p.normalized or 0.0))
        return {name: _sum(values) for name, values in parts.items()}

    def _placed(self, name: str, scores: list[tuple[float, int]]) -> dict[int, _Place]:
        """Rank by score; equal scores share a rank, so that nothing but evidence sets documents apart."""
        most = self.weights.by_source[name] * (1.0 / (self.k + 1) if self.rrf else 1.0)
        places: dict[int, _Place] = {}
        rank, before = 0, math.inf
        for index, (score, which) in enumerate(sorted(scores, key=lambda pair: -pair[0]), 1):
            if score < before:
                rank, before = index, score
            places[which] = _Place(rank, score / most)
        return places

    def of(self, envelope: Envelope, counted: Sequence[Provenance]) -> tuple[float, float]:
        """The score, and the most it could be."""
        of_source = self.weights.of_source
        parts, most = [], []
        for name in {p.source: None for p in counted}:
            weight = of_source[name]
            places = self.places.get(name)
            if places is not None:
                rank, normalized = places[id(envelope)]
            else:  # one list: its own ranks stand
                own = next(p for p in counted if p.source == name)
                rank, normalized = own.rank, own.normalized or 0.0
            parts.append(weight / (self.k + rank) if self.rrf else weight * normalized)
            most.append(weight / (self.k + 1) if self.rrf else weight)
        return _sum(parts), _sum(most)
