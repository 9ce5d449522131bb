"""Candidates: the distinct documents of one question, with their lists and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, overload

from contextrouter.model import Document, Envelope, Provenance, RankedList, Vector
from contextrouter.pipeline.envelopes import LazyEnvelopes

Place = tuple[int, int]
"""Where a document stands: the position of a list, and its index in that list."""


class Candidates(LazyEnvelopes):
    """Distinct documents, by number, in the order in which the lists name them. Reads as a sequence of
    envelopes.

    `rows[n]` has the numbers of the documents of `lists[n]`, by rank. The first `own` lists come from
    sources; lists behind them were added about documents that were here already.
    """

    def __init__(
        self, documents: Sequence[Document], lists: Sequence[RankedList], rows: Sequence[list[int]]
    ) -> None:
        self.documents, self.lists, self.rows = documents, list(lists), list(rows)
        self.own = len(self.lists)
        self._scales: dict[int, _Scale] = {}

    def __len__(self) -> int:
        return len(self.documents)

    def _make(self) -> list[Envelope]:
        return self.seal(range(len(self)), [0.0] * len(self), {})

    def add(self, ranked: RankedList, row: list[int]) -> None:
        """Add a list about documents that are here already, by number. It stands last in their provenance."""
        self.lists.append(ranked)
        self.rows.append(row)

    def normalized(self, n: int) -> list[float]:
        """Return the scores of list n scaled to [0, 1], by rank."""
        scale = self._scales.get(n) or self._scale(n)
        return [scale.normalize(index, hit.score) for index, hit in enumerate(self.lists[n].hits)]

    def _scale(self, n: int) -> _Scale:
        scale = self._scales[n] = _Scale(self.lists[n])
        return scale

    def seal(
        self, numbers: Sequence[int], scores: Sequence[float], most: Mapping[str, float]
    ) -> list[Envelope]:
        """Return the envelopes of these documents with these scores. `most` is what each source can give at
        best.
        """
        places = self._places(numbers)
        return [
            self._seal(places[number], score, most) for number, score in zip(numbers, scores, strict=True)
        ]

    def _places(self, numbers: Sequence[int]) -> dict[int, list[Place]]:
        """Find where these documents stand, in one pass; in each list once, at the best rank."""
        places: dict[int, list[Place]] = {number: [] for number in numbers}
        for n, row in enumerate(self.rows):
            for index, number in enumerate(row):
                if number in places and (not places[number] or places[number][-1][0] != n):
                    places[number].append((n, index))
        return places

    def _seal(self, places: list[Place], score: float, most: Mapping[str, float]) -> Envelope:
        lists = self.lists
        if len(places) == 1:
            possible = most.get(lists[places[0][0]].source, 0.0)
        else:
            sources = dict.fromkeys([lists[n].source for n, _ in places])  # in the order of their names
            possible = sum([most.get(source, 0.0) for source in sources])
            places = sorted(places, key=lambda item: (item[0] >= self.own, item[1]))
        stamps: list[Provenance] = []
        highlights: tuple[str, ...] = ()
        vector: Vector | None = None
        for n, index in places:
            ranked = lists[n]
            hit = ranked.hits[index]
            scale = self._scales.get(n) or self._scale(n)
            stamps.append(
                Provenance(
                    source=ranked.source,
                    leg=ranked.leg,
                    query=ranked.query,
                    rank=index + 1,
                    score=hit.score,
                    normalized=scale.normalize(index, hit.score),
                    weight=ranked.weight,
                    retrieved_at=ranked.retrieved_at,
                )
            )
            if hit.highlights:
                highlights = tuple(dict.fromkeys((*highlights, *hit.highlights)))
            if vector is None:
                vector = hit.vector
        best, index = places[0]
        return Envelope(
            document=lists[best].hits[index].document,
            provenance=tuple(stamps),
            score=score,
            normalized=min(1.0, score / possible) if possible else 0.0,
            highlights=highlights,
            vector=vector,
        )


class ScoredCandidates(LazyEnvelopes):
    """Candidates with scores, in an order; `reason` says why they are dropped, "" that they are live."""

    def __init__(
        self,
        candidates: Candidates,
        numbers: Sequence[int],
        scores: Sequence[float],
        most: Mapping[str, float],
        reason: str = "",
    ) -> None:
        self._candidates, self._numbers, self._scores = candidates, numbers, scores
        self._most, self._reason = most, reason

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        if isinstance(index, int) or self._made is not None:
            return self._read()[index]
        return ScoredCandidates(
            self._candidates, self._numbers[index], self._scores, self._most, self._reason
        )

    def dropped(self, reason: str) -> ScoredCandidates:
        """Return the same candidates, dropped for a reason."""
        return ScoredCandidates(self._candidates, self._numbers, self._scores, self._most, reason)

    def _make(self) -> list[Envelope]:
        scores = [self._scores[number] for number in self._numbers]
        envelopes = self._candidates.seal(self._numbers, scores, self._most)
        return [envelope.drop(self._reason) for envelope in envelopes] if self._reason else envelopes


class _Scale:
    """How the scores of one list are scaled to [0, 1].

    A declared range beats min-max; a list of one, or of equal scores, is all 1.0. Where a score is missing or
    not finite, or they are too far apart for a number, the whole list is scaled by rank.
    """

    __slots__ = ("by_rank", "high", "low", "size", "spread")

    def __init__(self, ranked: RankedList) -> None:
        scores: list[Any] = [hit.score for hit in ranked.hits]
        self.size, self.by_rank = len(scores), False
        try:
            low, high = ranked.score_range or (min(scores), max(scores))
            self.low, self.high = float(low), float(high)
            self.spread = self.high - self.low
            self.by_rank = not (
                isfinite(self.spread) and (isfinite(sum(scores)) or all(map(isfinite, scores)))
            )
        except (TypeError, ValueError, OverflowError):
            self.by_rank = True

    def normalize(self, index: int, score: Any) -> float:
        """Return the scaled score of the hit at `index`."""
        if self.by_rank:
            return (self.size - index) / self.size
        if not self.spread:
            return 1.0
        return float(min(self.high, max(self.low, score)) - self.low) / self.spread
