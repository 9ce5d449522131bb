"""Candidates: the distinct documents of one question, with their lists and provenance."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Protocol, overload

from contextrouter.model import Document, Envelope, Hit, Provenance, RankedList, Vector
from contextrouter.pipeline.envelopes import LazyEnvelopes
from contextrouter.text.characters import whole_characters, whole_texts

FEW = 20
"""Documents that are looked for in a list one by one."""


class Order(Protocol):
    """The order within a source, as fusion made it: the place of each document, and the calibrated value
    given to it.
    """

    def place(self, number: int) -> int | None:
        """Return the place of a document, from 1."""

    @property
    def scores(self) -> Mapping[int, float]:
        """Number -> score within the source."""

    @property
    def values(self) -> Mapping[int, float]:
        """Number -> calibrated value; empty where there is one source."""


class FusionNotes:
    """What fusion did, for provenance: `weights[n]`, what list n was multiplied by; `scaled[n]`, its scores
    from 0 to 1; `orders`, the order within each source; `calibrated`, the value of each document on the scale
    of all sources.
    """

    def __init__(self, lists: Sequence[RankedList]) -> None:
        self._lists = lists
        self.weights = [ranked.weight for ranked in lists]
        self.scaled: dict[int, Sequence[float]] = {}
        self._ranges: dict[int, Range] = {}
        self.orders: Mapping[str, Order] = {}
        self.calibrated: Mapping[int, float] = {}

    def normalized(self, n: int) -> Sequence[float]:
        """Return the scores of list n from 0 to 1, by rank, over their range."""
        span = self.range(n)
        return [span.scale(index, hit.score) for index, hit in enumerate(self._lists[n].hits)]

    def scale_of(self, n: int) -> Callable[[int, Any], float]:
        """Return the function from the index and the score of a hit in list n to its score from 0 to 1."""
        scaled = self.scaled.get(n)
        return self.range(n).scale if scaled is None else lambda index, _: scaled[index]

    def range(self, n: int) -> Range:
        """Return the range of the scores of list n."""
        if n not in self._ranges:
            self._ranges[n] = Range(self._lists[n])
        return self._ranges[n]


class Share:
    """The documents of one source: those that it named first begin at number `first`; `joined` are, by
    number, its copies of documents that another source named before it, and of its own.
    """

    __slots__ = ("first", "joined", "source")

    def __init__(self, source: str, first: int, joined: Mapping[int, Document]) -> None:
        self.source, self.first, self.joined = source, first, joined


class Candidates(LazyEnvelopes):
    """Distinct documents, by number, in the order in which the lists name them. Reads as a sequence of
    envelopes.

    `rows[n]` has the numbers of the documents of `lists[n]`, by rank. `shares` are those of the sources, in
    the order of the lists.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        lists: Sequence[RankedList],
        rows: Sequence[list[int]],
        shares: Sequence[Share],
    ) -> None:
        self.documents, self.lists, self.rows, self.shares = documents, lists, rows, shares

    def duplicates(self) -> list[int]:
        """Return the numbers of the documents that several sources named."""
        return sorted({number for share in self.shares for number in share.joined if number < share.first})

    def copies(self, numbers: Sequence[int]) -> dict[int, list[tuple[str, Document]]]:
        """Return the sources that named each of these documents, in their order, with their copies of it."""
        firsts = [share.first for share in self.shares]
        copies = {
            number: [(self.shares[bisect_right(firsts, number) - 1].source, self.documents[number])]
            for number in numbers
        }
        for share in self.shares:
            for number in share.joined.keys() & copies.keys():
                if number < share.first:
                    copies[number].append((share.source, share.joined[number]))
        return copies

    def __len__(self) -> int:
        return len(self.documents)

    def _make(self) -> list[Envelope]:
        return self.seal(range(len(self)), [0.0] * len(self), {}, FusionNotes(self.lists))

    def vectors(
        self, lists: Iterable[int], other_legs: Collection[str], without: Collection[int] = ()
    ) -> dict[int, Vector]:
        """Return the vectors that documents brought along in these lists, without the documents in `without`.

        `other_legs` have vectors of something else than the text, such as its keywords.
        """
        vectors: dict[int, Vector] = {}
        for n in lists:
            if self.lists[n].leg not in other_legs:
                for number, hit in zip(self.rows[n], self.lists[n].hits, strict=True):
                    if hit.vector is not None and number not in vectors and number not in without:
                        vectors[number] = hit.vector
        return vectors

    def seal(
        self,
        numbers: Sequence[int],
        scores: Sequence[float],
        maximum: Mapping[str, float] | float,
        notes: FusionNotes,
    ) -> list[Envelope]:
        """Return the envelopes of these documents with these scores. `maximum` is the highest score possible,
        or what each source can give at best.
        """
        hits_by_number = self._find(numbers, notes)
        envelopes = []
        for number, score in zip(numbers, scores, strict=True):
            hits = hits_by_number[number]
            if len(hits) > 1:
                hits.sort(key=_standing)
            first = hits[0][0]
            highlights, vector = first.highlights or (), first.vector
            for hit, _ in hits[1:]:
                if hit.highlights:
                    highlights = (*highlights, *hit.highlights)
                if vector is None:
                    vector = hit.vector
            provenance = tuple([stamp for _, stamp in hits])
            possible = maximum if isinstance(maximum, float) else _possible(provenance, maximum)
            signals = {"fused": score}
            if number in notes.calibrated:
                signals["calibrated"] = notes.calibrated[number]
            envelope = Envelope(
                document=whole_characters(first.document),
                provenance=provenance,
                score=score,
                normalized=min(1.0, score / possible) if possible else 0.0,
                signals=signals,
                highlights=whole_texts(tuple(dict.fromkeys(highlights))) if highlights else (),
                vector=vector,
            )
            envelopes.append(envelope)
        return envelopes

    def _find(self, numbers: Sequence[int], notes: FusionNotes) -> dict[int, list[tuple[Hit, Provenance]]]:
        """Find the hits of these documents, in each list the one of the best rank, with their provenance."""
        hits: dict[int, list[tuple[Hit, Provenance]]] = {number: [] for number in numbers}
        wanted = {*numbers}
        for n, row in enumerate(self.rows):
            here = wanted.intersection(row)
            if not here:
                continue
            ranked, scale = self.lists[n], notes.scale_of(n)
            order = notes.orders.get(ranked.source)
            firsts = _first_places(row) if len(here) > FEW else None
            for number in here:
                index = row.index(number) if firsts is None else firsts[number]
                hit = ranked.hits[index]
                stamp = Provenance(
                    source=ranked.source,
                    leg=ranked.leg,
                    query=ranked.query,
                    rank=index + 1,
                    score=hit.score,
                    normalized=scale(index, hit.score),
                    weight=notes.weights[n],
                    retrieved_at=ranked.retrieved_at,
                    place=None if order is None else order.place(number),
                    source_score=None if order is None else order.scores.get(number),
                    calibrated=None if order is None else order.values.get(number),
                )
                hits[number].append((hit, stamp))
        return hits


def _first_places(row: Sequence[int]) -> dict[int, int]:
    """Return where each number of a row stands first: to look for many one by one is quadratic."""
    return dict(zip(reversed(row), range(len(row) - 1, -1, -1), strict=True))


def _standing(hit: tuple[Hit, Provenance]) -> tuple[bool, int]:
    """Lists that count come first, by rank; behind them those of weight 0."""
    return hit[1].weight == 0, hit[1].rank


def _possible(provenance: Sequence[Provenance], maximum: Mapping[str, float]) -> float:
    """Return the highest score that the sources of a document could give together."""
    if len(provenance) == 1:
        return maximum.get(provenance[0].source, 0.0)
    sources = sorted({stamp.source for stamp in provenance})
    return sum([maximum.get(source, 0.0) for source in sources])


class ScoredCandidates(LazyEnvelopes):
    """Candidates with scores, in an order; `reason` says why they are dropped, "" that they are live."""

    def __init__(
        self,
        candidates: Candidates,
        numbers: Sequence[int],
        scores: Mapping[int, float],
        maximum: Mapping[str, float] | float,
        notes: FusionNotes,
        reason: str = "",
    ) -> None:
        self.numbers = numbers
        self._candidates, self._scores, self._most = candidates, scores, maximum
        self._notes, self._reason = notes, reason

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        if isinstance(index, int) or self._made is not None:
            return self._read()[index]
        return self._of(self.numbers[index], self._reason)

    def dropped(self, reason: str) -> ScoredCandidates:
        """Return the same candidates, dropped for a reason."""
        return self._of(self.numbers, reason)

    def _of(self, numbers: Sequence[int], reason: str) -> ScoredCandidates:
        return ScoredCandidates(self._candidates, numbers, self._scores, self._most, self._notes, reason)

    def _make(self) -> list[Envelope]:
        scores = [self._scores.get(number, 0.0) for number in self.numbers]
        envelopes = self._candidates.seal(self.numbers, scores, self._most, self._notes)
        return [envelope.drop(self._reason) for envelope in envelopes] if self._reason else envelopes


class Range:
    """The range of the scores of one list.

    A declared range beats the lowest and the highest score; a list of one, or of equal scores, is all 1.0.
    Where a score is missing or not finite, or they are too far apart for a number, the whole list is scaled
    by rank.
    """

    __slots__ = ("by_rank", "high", "low", "size")

    def __init__(self, ranked: RankedList) -> None:
        scores: list[Any] = [hit.score for hit in ranked.hits]
        self.size, self.by_rank = len(scores), True
        try:
            self.low, self.high = map(float, ranked.score_range or (min(scores), max(scores)))
            finite = isfinite(sum(scores)) or all(map(isfinite, scores))
            self.by_rank = not (finite and isfinite(self.high - self.low))
        except (TypeError, ValueError, OverflowError):
            pass

    def scale(self, index: int, score: Any) -> float:
        """Return the score of the hit at `index` from 0 to 1."""
        if self.by_rank:
            return (self.size - index) / self.size
        if score >= self.high or self.high == self.low:
            return 1.0
        return 0.0 if score <= self.low else float(score - self.low) / (self.high - self.low)
