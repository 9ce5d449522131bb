"""Fusion: one order out of many ranked lists. Pure.

First each source has an order of its own (`source_order`). Then the sources are merged: by calibrated values,
which are handed out in each source's own order, the best value to its first document; where there are none,
by ranks (`weighted`: by the scores of the sources). `levels = 1` fuses all lists of all sources flat, by
ranks or weighted scores.

The order is total: score, place in its source (flat, or with one source: best rank), order of the sources,
names of the lists. It never depends on arrival or on hashes of strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextrouter.pipeline.candidates import Candidates, FusionNotes, ScoredCandidates
from contextrouter.pipeline.envelopes import Ranking
from contextrouter.pipeline.fusion.exact_cosines import add_cosines
from contextrouter.pipeline.fusion.leg_weights import Profiles
from contextrouter.pipeline.fusion.source_order import (
    NO_QUERIES,
    Queries,
    SourceLists,
    SourceOrder,
    by_best_rank,
    lists_by_source,
    reciprocal,
)
from contextrouter.pipeline.fusion.translations import place_original
from contextrouter.settings import Rag

NO_WEIGHT = "only found by lists of weight 0"
RANK_CONSTANT = 60.0
"""k of the rank fusion of sources where mode "scores" has no calibrated values."""


def fuse(
    candidates: Candidates,
    rag: Rag,
    *,
    queries: Queries = NO_QUERIES,
    profiles: Profiles | None = None,
    calibrated: Mapping[int, float] | None = None,
) -> Ranking:
    """Return the candidates best first, with `score` and `normalized`; those of lists without weight are
    dropped.

    `calibrated` has the value of each candidate on the scale of all sources; None: there is none.
    """
    profiles = Profiles() if profiles is None else profiles
    by_source = lists_by_source(candidates)
    sources = sorted(by_source, key=lambda name: (profiles[name].position, name))
    notes = FusionNotes(candidates.lists)
    source_lists = []
    for name in sources:
        lists = SourceLists(candidates, by_source[name], profiles[name], notes)
        lists.queries = place_original(queries, lists.ranked, lists.profile, rag)
        source_lists.append(lists)
    if rag.levels == 1 and len(source_lists) > 1:
        return _ranking(candidates, notes, *_flat(source_lists, rag))
    if rag.hybrid_fusion == "scores":
        add_cosines(source_lists)
    orders = {}
    for lists in source_lists:
        order = lists.order(rag)
        if lists.source_weight > 0 and order.numbers:
            orders[lists.source] = order
    notes.orders = orders
    if len(orders) == 1:
        ((name, only),) = orders.items()
        return _ranking(candidates, notes, only.numbers, only.scores, {name: only.maximum})
    maximum: Mapping[str, float] | float
    if calibrated:
        notes.calibrated = calibrated
        scores = _hand_out(orders, rag.keep_order, calibrated)
        maximum = max(scores.values(), default=0.0)
    else:
        weights = {lists.source: lists.source_weight for lists in source_lists}
        scores, maximum = _by_rank(orders, weights, rag)
    by_place = by_best_rank([order.numbers for order in orders.values()])
    return _ranking(
        candidates, notes, sorted(by_place, key=scores.__getitem__, reverse=True), scores, maximum
    )


def _ranking(
    candidates: Candidates,
    notes: FusionNotes,
    numbers: Sequence[int],
    scores: Mapping[int, float],
    maximum: Mapping[str, float] | float,
) -> Ranking:
    unranked: list[int] = []
    if len(numbers) < len(candidates):
        ranked = set(numbers)
        unranked = [number for number in range(len(candidates)) if number not in ranked]
    dropped = ScoredCandidates(candidates, unranked, {}, {}, notes, NO_WEIGHT)
    return Ranking(ScoredCandidates(candidates, numbers, scores, maximum, notes), dropped)


def _hand_out(
    orders: Mapping[str, SourceOrder], keep_order: float, calibrated: Mapping[int, float]
) -> dict[int, float]:
    """Merge sources by calibrated values: the values of a source's documents go to its places, best first.

    With a `keep_order` below 1 a document keeps that much less of what its place is given, and the more of
    its own value. Of several sources the highest one counts.
    """
    scores: dict[int, float] = {}
    for order in orders.values():
        values = [calibrated.get(number, 0.0) for number in order.numbers]
        handed_out = sorted(values, reverse=True)
        if keep_order < 1:
            pairs = zip(values, handed_out, strict=True)
            handed_out = [(1 - keep_order) * value + keep_order * place_value for value, place_value in pairs]
        order.values = dict(zip(order.numbers, handed_out, strict=True))
        for number, value in order.values.items():
            if value > scores.get(number, -1.0):
                scores[number] = value
    return scores


def _by_rank(
    orders: Mapping[str, SourceOrder], weights: Mapping[str, float], rag: Rag
) -> tuple[dict[int, float], dict[str, float]]:
    """Merge sources by rank; in mode "weighted" by their scores. Documents with equal scores share a rank."""
    k = RANK_CONSTANT if rag.hybrid_fusion == "scores" else rag.rrf_k
    scores: dict[int, float] = {}
    maximum = {}
    for name, order in orders.items():
        weight = weights[name]
        shares: Sequence[float]
        if rag.hybrid_fusion == "weighted":
            maximum[name] = weight
            shares = [weight * order.scores[number] / order.maximum for number in order.numbers]
        else:
            maximum[name] = weight / (k + 1)
            shares = reciprocal(weight, k, len(order.numbers))
            if order.ties:
                shares = [shares[rank - 1] for rank in _ranks_with_ties(order)]
        if not scores:
            scores.update(zip(order.numbers, shares, strict=False))
            continue
        for number, value in zip(order.numbers, shares, strict=False):
            scores[number] = scores.get(number, 0.0) + value
    return scores, maximum


def _ranks_with_ties(order: SourceOrder) -> list[int]:
    ranks: list[int] = []
    previous = None
    for position, number in enumerate(order.numbers, 1):
        score = order.scores[number]
        ranks.append(ranks[-1] if score == previous else position)
        previous = score
    return ranks


def _flat(
    source_lists: Sequence[SourceLists], rag: Rag
) -> tuple[list[int], dict[int, float], dict[str, float]]:
    """Add up all lists of all sources."""
    scores: dict[int, float] = {}
    maximum: dict[str, float] = {}
    rows: list[Sequence[int]] = []
    best = 1.0 / (rag.rrf_k + 1) if rag.hybrid_fusion == "rrf" else 1.0
    for lists in source_lists:
        counting, sums = lists.add_up(rag)
        if lists.source_weight > 0 and counting:
            maximum[lists.source] = lists.source_weight * best * sum([weight for _, weight in counting])
            rows += [lists.rows[n] for n, _ in counting]
            for number, value in sums.items():
                scores[number] = scores.get(number, 0.0) + lists.source_weight * value
    return sorted(by_best_rank(rows), key=scores.__getitem__, reverse=True), scores, maximum
