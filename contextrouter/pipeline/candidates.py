"""Candidates: the distinct documents of one question, with their lists and provenance."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol, overload

from contextrouter.model import Document, Envelope, Provenance, RankedList, Vector
from contextrouter.pipeline.envelopes import LazyEnvelopes
from contextrouter.text.characters import whole_characters, whole_texts

Rank = tuple[int, int]
"""Where a document stands: the position of a list, and its index in that list."""


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

    def range(self, n: int) -> Range:
        """Return the range of the scores of list n."""
        if n not in self._ranges:
            self._ranges[n] = Range(self._lists[n])
        return self._ranges[n]


class Share(NamedTuple):
    """The documents of one source: those that it named first begin at number `first`; `joined` are, by
    number, its copies of documents that another source named before it, and of its own.
    """

    source: str
    first: int
    joined: Mapping[int, Document]


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

    def copies(self, number: int) -> list[tuple[str, Document]]:
        """Return the sources that named a document, in their order, and the copy that each has of it."""
        behind = bisect_right(self.shares, number, key=attrgetter("first"))
        others = [
            (share.source, share.joined[number]) for share in self.shares[behind:] if number in share.joined
        ]
        return [(self.shares[behind - 1].source, self.documents[number]), *others]

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
        ranks = self._ranks(numbers)
        some_without_weight = 0 in notes.weights
        envelopes = []
        for number, score in zip(numbers, scores, strict=True):
            places = ranks[number]
            if len(places) > 1:  # lists that count, by rank; behind them those of weight 0
                places.sort(key=itemgetter(1))
                if some_without_weight:
                    places.sort(key=lambda place: notes.weights[place[0]] == 0)
            possible = maximum if isinstance(maximum, float) else self._possible(places, maximum)
            signals = {"fused": score}
            if number in notes.calibrated:
                signals["calibrated"] = notes.calibrated[number]
            hits = [self.lists[n].hits[index] for n, index in places]
            highlights, vector = hits[0].highlights or (), hits[0].vector
            for hit in hits[1:]:
                if hit.highlights:
                    highlights = (*highlights, *hit.highlights)
                if vector is None:
                    vector = hit.vector
            envelope = Envelope(
                document=whole_characters(hits[0].document),
                provenance=tuple([self._stamp(number, place, notes) for place in places]),
                score=score,
                normalized=min(1.0, score / possible) if possible else 0.0,
                signals=signals,
                highlights=whole_texts(tuple(dict.fromkeys(highlights))) if highlights else (),
                vector=vector,
            )
            envelopes.append(envelope)
        return envelopes

    def _ranks(self, numbers: Sequence[int]) -> dict[int, list[Rank]]:
        """Find where these documents stand; in each list once, at the best rank."""
        ranks: dict[int, list[Rank]] = {number: [] for number in numbers}
        wanted = {*numbers}
        for n, row in enumerate(self.rows):
            here = wanted.intersection(row)
            if len(here) <= FEW:
                for number in here:
                    ranks[number].append((n, row.index(number)))
            else:  # to look for each from the beginning of a list is quadratic
                firsts = dict(zip(reversed(row), range(len(row) - 1, -1, -1), strict=True))
                for number in here:
                    ranks[number].append((n, firsts[number]))
        return ranks

    def _possible(self, ranks: Sequence[Rank], maximum: Mapping[str, float]) -> float:
        """Return the highest score that the sources of these lists could give together."""
        if len(ranks) == 1:
            return maximum.get(self.lists[ranks[0][0]].source, 0.0)
        sources = sorted({self.lists[n].source for n, _ in ranks})
        return sum([maximum.get(source, 0.0) for source in sources])

    def _stamp(self, number: int, place: Rank, notes: FusionNotes) -> Provenance:
        n, index = place
        ranked = self.lists[n]
        score = ranked.hits[index].score
        order = notes.orders.get(ranked.source)
        return Provenance(
            source=ranked.source,
            leg=ranked.leg,
            query=ranked.query,
            rank=index + 1,
            score=score,
            normalized=notes.scaled[n][index] if n in notes.scaled else notes.range(n).scale(index, score),
            weight=notes.weights[n],
            retrieved_at=ranked.retrieved_at,
            place=None if order is None else order.place(number),
            source_score=None if order is None else order.scores.get(number),
            calibrated=None if order is None else order.values.get(number),
        )


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
