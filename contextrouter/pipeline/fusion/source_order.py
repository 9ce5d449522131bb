"""The order within one source: its legs fused by scores, reciprocal rank fusion (RRF) or weighted scores.

Scores: each leg's scores from 0 to 1, times the weight of the leg (`leg_scores`). Reciprocal rank fusion
(Cormack, Clarke and Büttcher 2009): a list of weight w gives w / (k + rank). Weighted: w times the score
scaled to [0, 1] within the list. In the last two, a list that does not hold a document says nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, zip_longest
from typing import NamedTuple

from contextrouter.model import Vector
from contextrouter.pipeline.candidates import Candidates, FusionNotes
from contextrouter.pipeline.fusion.leg_scores import LegList, LegScores, score_leg, score_parts
from contextrouter.pipeline.fusion.leg_weights import Profile
from contextrouter.settings import Rag

DERIVED = 0.01
"""Weight of a query that rules made of the question, where ranks are fused: it only adds behind the question.
"""


FRONT = 50
"""Documents of a source whose places are known at once: those of others are seldom read."""


class Queries(NamedTuple):
    """The queries of a request. Without a question all queries weigh alike."""

    question: str = ""
    derived: frozenset[str] = frozenset()  # made by rules
    vectors: Mapping[tuple[str, str], Vector] = {}  # by embedder and text of the query
    original: str = (
        ""  # the question as it was asked, where `question` is another text, such as a translation
    )

    def weight(self, query: str, rag: Rag) -> float:
        """Return what a query weighs beside the question where ranks are fused."""
        if not self.question or query == self.question:
            return 1.0
        return DERIVED if query in self.derived else rag.derived_query_weight


NO_QUERIES = Queries()


class SourceOrder:
    """The documents of a source, best first, with their `scores`; `maximum` is the highest score possible."""

    def __init__(
        self, numbers: Sequence[int], scores: Mapping[int, float], maximum: float, *, ties: bool = True
    ) -> None:
        self.numbers, self.scores, self.maximum = numbers, scores, maximum
        self.ties = ties  # whether two documents may have one score
        self.values: Mapping[int, float] = {}  # beside other sources: the calibrated values, by number
        self._places: dict[int, int] = {}  # of the first documents; of all when others are read
        self._read = 0

    def place(self, number: int) -> int | None:
        """Return the place of a document, from 1; None: it has none."""
        place = self._places.get(number)
        if place is None and self._read < len(self.numbers):
            self._read = len(self.numbers) if self._read else FRONT
            self._places = {number: place for place, number in enumerate(self.numbers[: self._read], 1)}
            return self.place(number)
        return place


class SourceLists:
    """The lists of one source, with their positions among the candidates."""

    def __init__(
        self, candidates: Candidates, positions: Sequence[int], profile: Profile, notes: FusionNotes
    ) -> None:
        self.candidates, self.positions, self.profile, self.notes = candidates, positions, profile, notes
        self.ranked = [candidates.lists[n] for n in positions]
        self.rows = [candidates.rows[n] for n in positions]
        self.source = self.ranked[0].source
        self.source_weight = self.ranked[0].weight
        self.queries = NO_QUERIES  # as they count in this source
        self.cosines: Mapping[int, float] = {}  # of documents that the leg "vector" did not return

    def order(self, rag: Rag) -> SourceOrder:
        """Fuse the lists, and note what each was multiplied by."""
        if rag.hybrid_fusion == "scores":
            return self._by_scores(rag)
        counting, scores = self.add_up(rag)
        total = sum([weight for _, weight in counting])
        maximum = total / (rag.rrf_k + 1) if rag.hybrid_fusion == "rrf" else total
        if len(counting) == 1 and rag.hybrid_fusion == "rrf":  # the list has the order already
            return SourceOrder([*scores], scores, maximum, ties=False)
        return SourceOrder(_best_first([self.rows[n] for n, _ in counting], scores), scores, maximum)

    def add_up(self, rag: Rag) -> tuple[list[tuple[int, float]], dict[int, float]]:
        """Return the lists that count with their weights, and the sum for each document: by ranks or weighted
        scores.
        """
        counting = [(n, weight) for n, weight in enumerate(self._weights(rag)) if weight > 0]
        scores: dict[int, float] = {}
        for n, weight in counting:
            row = self.rows[n]
            if rag.hybrid_fusion == "rrf":
                shares: Sequence[float] = reciprocal(weight, rag.rrf_k, len(row))
            else:
                shares = [weight * value for value in self.notes.normalized(self.positions[n])]
            best = dict(zip(row, shares, strict=False))
            if len(best) < len(row):  # several copies of a document count once, at their best rank
                best.update(zip(reversed(row), reversed(shares[: len(row)]), strict=True))
            if not scores:
                scores = best
            else:
                for number, value in best.items():
                    scores[number] = scores.get(number, 0.0) + value
        return counting, scores

    def _weights(self, rag: Rag) -> list[float]:
        """Return the weight of each list within the source: its leg's, shared by the queries asked on the
        leg.
        """
        query_weights = []
        totals: dict[str, float] = {}
        for ranked in self.ranked:
            weight = self.queries.weight(ranked.query, rag)
            query_weights.append(weight)
            totals[ranked.leg] = totals.get(ranked.leg, 0.0) + weight
        weights = []
        for n, ranked in enumerate(self.ranked):
            weight = query_weights[n] * self.profile.leg_weight(self.source, ranked.leg, rag)
            self._note(n, weight)
            weights.append(weight / (totals[ranked.leg] or 1.0))
        return weights

    def _note(self, n: int, weight: float) -> None:
        self.notes.weights[self.positions[n]] = weight * self.source_weight

    def _by_scores(self, rag: Rag) -> SourceOrder:
        legs: dict[str, list[int]] = {}
        for n, ranked in enumerate(self.ranked):
            legs.setdefault(ranked.leg, []).append(n)
            self._note(n, 0.0)  # until it counts
        scored_legs: list[tuple[float, LegScores]] = []
        rows: list[Sequence[int]] = []
        for leg, lists in legs.items():
            weight = self.profile.leg_weight(self.source, leg, rag)
            if weight > 0:
                ahead, derived = self._roles(lists, rag)
                scored_legs.append((weight, self._score_leg(weight, ahead, derived)))
                rows += [self.rows[n] for n in sorted([*ahead, *derived])]
        # With one leg no document is absent. With several, what each gives to the absent is added up once.
        several = len(scored_legs) > 1
        total = dict.fromkeys(by_best_rank(rows), sum([w * leg.absent for w, leg in scored_legs]) * several)
        for weight, scores in scored_legs:
            absent = scores.absent * several
            for number, score in scores.scores.items():
                total[number] += weight * (score - absent)
        numbers = sorted(total, key=total.__getitem__, reverse=True)
        return SourceOrder(numbers, total, sum([weight for weight, _ in scored_legs]))

    def _roles(self, lists: Sequence[int], rag: Rag) -> tuple[dict[int, float], Sequence[int]]:
        """Return the lists of a leg that count in full, with their queries' weights, and those behind."""
        ahead: dict[int, float] = {}
        derived = []
        for n in lists:
            query = self.ranked[n].query
            if query in self.queries.derived and query != self.queries.question:
                derived.append(n)
            elif (weight := self.queries.weight(query, rag)) > 0:
                ahead[n] = weight
        if any(self.rows[n] for n in ahead):
            return ahead, derived
        stand_ins = [n for n in derived if self.rows[n]]  # where the question found nothing
        return dict.fromkeys(stand_ins, 1.0), ()

    def _score_leg(self, weight: float, ahead: Mapping[int, float], derived: Sequence[int]) -> LegScores:
        if not ahead:
            return LegScores({}, 0.0, ())
        ranked = self.ranked[next(iter(ahead))]
        vectors = ranked.leg in self.profile.vector_legs
        lists = [self._leg_list(n, query_weight) for n, query_weight in ahead.items()]
        if len(lists) > 1 and self.queries.derived.issuperset([self.ranked[n].query for n in ahead]):
            leg = score_parts(lists, vectors=vectors)
        else:
            leg = score_leg(
                lists,
                [self._leg_list(n) for n in derived],
                self.profile.unrelated if vectors else ranked.score_range and ranked.score_range[0],
                vectors=vectors,
                cosines=self.cosines if vectors and ranked.leg == "vector" else None,
            )
        for n, query_weight in ahead.items():
            self._note(n, weight * query_weight)
        for n in derived:
            self._note(n, weight * leg.behind)
        for n, values in zip([*ahead, *derived], leg.lists, strict=True):
            self.notes.scaled[self.positions[n]] = values
        return leg

    def _leg_list(self, n: int, weight: float = 1.0) -> LegList:
        ranked = self.ranked[n]
        return LegList(self.rows[n], ranked.hits, weight, ranked.full)


def lists_by_source(candidates: Candidates) -> dict[str, list[int]]:
    """Return the positions of the lists of each source that found something.

    A query that found nothing is among them: it keeps its share of the weight.
    """
    by_source: dict[str, list[int]] = {}
    for n, ranked in enumerate(candidates.lists):
        by_source.setdefault(ranked.source, []).append(n)
    sources = {ranked.source for ranked in candidates.lists if ranked.hits}
    return {source: positions for source, positions in by_source.items() if source in sources}


def by_best_rank(rows: Iterable[Sequence[int]]) -> list[int]:
    """Return the documents of lists by their best rank, then in the order of the lists."""
    ordered = dict.fromkeys(chain.from_iterable(zip_longest(*rows)))
    ordered.pop(None, None)  # what zip_longest fills with
    return [*ordered]


def _best_first(rows: Iterable[Sequence[int]], scores: Mapping[int, float]) -> list[int]:
    return sorted(by_best_rank(rows), key=scores.__getitem__, reverse=True)


def reciprocal(weight: float, k: float, size: int) -> tuple[float, ...]:
    """Return what the ranks from 1 to `size`, or further, of a list of this weight give."""
    return _shares(weight, k, 1 << size.bit_length())


@lru_cache(maxsize=64)
def _shares(weight: float, k: float, size: int) -> tuple[float, ...]:
    return tuple([weight / (k + rank) for rank in range(1, size + 1)])
