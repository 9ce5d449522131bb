"""Fusion (step 8): one order from many ranked lists, by reciprocal rank fusion (RRF) or by scores. Pure.

Level 1 fuses the lists of one source: its legs, and the queries on each, of which the question itself
decides. Level 2 fuses the sources, each now one list. Where a single source answered, level 1 is the whole of
it; `levels = 1` fuses all lists flat.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): a list of weight w gives w / (k + rank). Weighted:
w times the score scaled to [0, 1] within the list. A list that does not hold a document says nothing about
it.

The order is total: score, best rank, order of the sources, then the names of the lists (leg, query) that gave
that rank. It never depends on arrival or on hashes of strings: lists are added up in the order of their
names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, zip_longest

from contextrouter.model import Envelope
from contextrouter.pipeline.candidates import Candidates, ScoredCandidates
from contextrouter.pipeline.envelopes import Dropped, Ranking
from contextrouter.settings import Rag

NO_WEIGHT = "only found by lists of weight 0"
Profiles = Mapping[str, Mapping[str, float]]
"""Source -> the leg weights of its embedder."""


class _List:
    """One ranked list: the numbers of its documents by rank (None: a rank that counts for nothing), and its
    weights.

    `normalized()` gives its scores scaled to [0, 1], by rank.
    """

    __slots__ = ("leg", "normalized", "query", "row", "source", "source_weight", "weight")

    def __init__(
        self,
        name: tuple[str, str, str],
        source_weight: float,
        row: Sequence[int | None],
        normalized: Callable[[], Sequence[float]],
    ) -> None:
        self.source, self.leg, self.query = name
        self.source_weight, self.row, self.normalized = source_weight, row, normalized
        self.weight = 1.0  # within its source

    def add_to(self, scores: list[float] | dict[int, float], weight: float, rag: Rag) -> None:
        """Add what the list, with this weight, gives to each of its documents."""
        if rag.hybrid_fusion == "rrf":
            for number, share in zip(self.row, _reciprocal(weight, rag.rrf_k, len(self.row)), strict=False):
                if number is not None:
                    scores[number] += share
        else:
            for number, value in zip(self.row, self.normalized(), strict=True):
                if number is not None:
                    scores[number] += weight * value


def _reciprocal(weight: float, k: float, size: int) -> tuple[float, ...]:
    """Return what the ranks from 1 to `size`, or further, of a list of this weight give."""
    return _shares(weight, k, 1 << size.bit_length())


@lru_cache(maxsize=64)
def _shares(weight: float, k: float, size: int) -> tuple[float, ...]:
    return tuple([weight / (k + rank) for rank in range(1, size + 1)])


def fuse(
    envelopes: Sequence[Envelope],
    rag: Rag,
    *,
    profiles: Profiles | None = None,
    sources: Sequence[str] = (),
    question: str = "",
) -> Ranking:
    """Return the envelopes best first, with `score` and `normalized`; those of lists without weight are
    dropped.

    `envelopes` come from `dedupe`, or are any that are sealed. `sources` gives the order that breaks ties.
    What other queries than `question` found weighs `derived_query_weight` beside what it found itself ("":
    all queries weigh alike). `normalized` is the score ÷ the most it could be over the lists of the sources
    that returned the document.
    """
    lists = _lists_of(envelopes) if isinstance(envelopes, Candidates) else _lists_in(envelopes)
    _weigh(lists, rag, profiles or {}, question)
    counting = [entry for entry in lists if entry.weight > 0 and entry.source_weight > 0]
    scores, maximum = _sum(counting, rag, len(envelopes))
    best_first = sorted(_order_by_best_rank(counting, sources), key=scores.__getitem__, reverse=True)
    unranked: list[int] = []
    if len(best_first) < len(envelopes):
        ranked = set(best_first)
        unranked = [number for number in range(len(envelopes)) if number not in ranked]
    if isinstance(envelopes, Candidates):
        dropped = ScoredCandidates(envelopes, unranked, [0.0] * len(envelopes), {}, NO_WEIGHT)
        return Ranking(ScoredCandidates(envelopes, best_first, scores, maximum), dropped)
    live = [_rescore(envelopes[number], scores[number], maximum) for number in best_first]
    return Ranking(live, Dropped([envelopes[number] for number in unranked], NO_WEIGHT))


def _lists_of(candidates: Candidates) -> list[_List]:
    """The lists of the sources that found something; a query that found nothing keeps its share of the
    weight.
    """
    answered = {ranked.source for ranked in candidates.lists if ranked.hits}
    lists = []
    for n, (ranked, row) in enumerate(zip(candidates.lists, candidates.rows, strict=True)):
        if ranked.source in answered:
            name = (ranked.source, ranked.leg, ranked.query)
            lists.append(_List(name, ranked.weight, _once(row), lambda n=n: candidates.normalized(n)))  # type: ignore[misc]  # a default binds n
    return lists


def _once(row: Sequence[int]) -> Sequence[int | None]:
    """Count several copies of a document in one list once, at their best rank."""
    if len({*row}) == len(row):
        return row
    best = {number: index for index, number in reversed([*enumerate(row)])}
    return [number if best[number] == index else None for index, number in enumerate(row)]


def _lists_in(envelopes: Sequence[Envelope]) -> list[_List]:
    """The lists that the provenance of sealed envelopes names."""
    named: dict[tuple[str, str, str], list[tuple[int, int, float, float]]] = {}
    for number, envelope in enumerate(envelopes):
        for p in envelope.provenance:
            entry = (p.rank, number, p.normalized or 0.0, p.weight)
            named.setdefault((p.source, p.leg, p.query), []).append(entry)
    lists = []
    for name, entries in sorted(named.items()):
        size = max(rank for rank, *_ in entries)
        row: list[int | None] = [None] * size
        values = [0.0] * size
        for rank, number, value, _ in entries:
            row[rank - 1], values[rank - 1] = number, value
        lists.append(_List(name, entries[0][3], row, lambda values=values: values))  # type: ignore[misc]  # a default binds them
    return lists


def _rescore(envelope: Envelope, score: float, maximum: Mapping[str, float]) -> Envelope:
    possible = sum([maximum.get(source, 0.0) for source in sorted({p.source for p in envelope.provenance})])
    return envelope.scored(score, min(1.0, score / possible) if possible else 0.0)


def _weigh(lists: Sequence[_List], rag: Rag, profiles: Profiles, question: str) -> None:
    """Give each list its weight: its leg's, shared by the queries that were asked on the leg."""
    derived = rag.derived_query_weight if question else 1.0
    totals: dict[tuple[str, str], float] = {}
    for entry in lists:
        entry.weight = 1.0 if entry.query == question else derived
        leg = (entry.source, entry.leg)
        totals[leg] = totals.get(leg, 0.0) + entry.weight
    for entry in lists:
        total = totals[entry.source, entry.leg] or 1.0
        entry.weight *= leg_weight(entry.source, entry.leg, rag, profiles.get(entry.source, {})) / total


def leg_weight(source: str, leg: str, rag: Rag, profile: Mapping[str, float]) -> float:
    """The weight of a leg: `[rag.leg_weights]` by "source.leg" or "leg"; in weighted mode `hybrid_…_weight`;
    else the profile.
    """
    for key in (f"{source}.{leg}", leg) if rag.leg_weights else ():
        if key in rag.leg_weights:
            return rag.leg_weights[key]
    if rag.hybrid_fusion == "weighted":
        if leg == "vector":
            return rag.hybrid_vector_weight
        if leg == "text":
            return rag.hybrid_text_weight
    return profile.get(leg, 1.0)


def _sum(lists: Sequence[_List], rag: Rag, size: int) -> tuple[list[float], dict[str, float]]:
    """Add the lists up, source by source. Return the score of every document, and the most each source can
    give.
    """
    by_source: dict[str, list[_List]] = {}
    for entry in lists:
        by_source.setdefault(entry.source, []).append(entry)
    scores = [0.0] * size
    maximum: dict[str, float] = {}
    best = 1.0 / (rag.rrf_k + 1) if rag.hybrid_fusion == "rrf" else 1.0
    flat = rag.levels == 1 or len(by_source) == 1
    for source, own in by_source.items():
        source_weight = 1.0 if len(by_source) == 1 else own[0].source_weight
        total = 0.0
        if flat or len(own) == 1:
            for entry in own:
                weight = entry.weight * source_weight if flat else source_weight
                total += weight
                entry.add_to(scores, weight, rag)
        else:
            total = source_weight
            for number, value in _second_level(own, source_weight, rag):
                scores[number] += value
        maximum[source] = total * best
    return scores, maximum


def _second_level(lists: Sequence[_List], weight: float, rag: Rag) -> Iterable[tuple[int, float]]:
    """Fuse the lists of one source into one list, and return what that gives. Equal scores share a rank."""
    within: dict[int, float] = defaultdict(float)
    for entry in lists:
        entry.add_to(within, entry.weight, rag)
    if rag.hybrid_fusion != "rrf":
        total = sum([entry.weight for entry in lists])
        return [(number, weight * value / total) for number, value in within.items()]
    shares = []
    rank, previous = 0, -1.0
    for position, number in enumerate(sorted(within, key=within.__getitem__, reverse=True), 1):
        if within[number] != previous:
            rank, previous = position, within[number]
        shares.append((number, weight / (rag.rrf_k + rank)))
    return shares


def _order_by_best_rank(lists: Sequence[_List], sources: Sequence[str]) -> list[int]:
    """The documents of the lists by best rank, then the order of the sources, then the names of the lists."""
    position = {name: index for index, name in enumerate(sources)}
    ordered = sorted(lists, key=lambda entry: (position.get(entry.source, len(position)), entry.source))
    by_rank = chain.from_iterable(zip_longest(*[entry.row for entry in ordered]))
    return [number for number in dict.fromkeys(by_rank) if number is not None]
