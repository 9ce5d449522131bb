"""Score fusion within a source: the scores of each leg on one scale, and what a missing document counts.

A leg gives a document n = (score − zero) ÷ (highest − zero), so its best one has 1. Zero is the score of a
document that has nothing to do with the question: 0 for BM25, `unrelated` of the embedder for cosines, the
low end of a declared `score_range` for others. Formulas and measurements are in docs/ranking.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import isfinite
from operator import ge
from typing import Any, NamedTuple

from contextrouter.model import Hit

BEHIND = 0.9
"""What a document has that a leg did not return, or that only a derived query found: this share of the lowest
that the question found there.
"""
UNSCORED = 5
"""A list without scores gives (UNSCORED + 1) ÷ (UNSCORED + rank)."""


NOISE = 1e-9
"""Share of the highest score by which a score may rise from one rank to the next and still count as equal."""


class LegList(NamedTuple):
    """One list of a leg. `row` has the numbers of its documents by rank, `weight` is that of its query beside
    the question's.
    """

    row: Sequence[int]
    hits: Sequence[Hit]
    weight: float = 1.0
    full: bool = False  # there may be more than what was returned


class LegScores(NamedTuple):
    """What a leg gives: `scores` by number, from 0 to 1; `absent` to a document that it did not return.

    `lists` has what each list gave by rank before its weight, `behind` the factor of the lists of derived
    queries.
    """

    scores: Mapping[int, float]
    absent: float
    lists: Sequence[Sequence[float]]
    behind: float = 0.0


def score_leg(
    lists: Sequence[LegList],
    derived: Sequence[LegList],
    zero: float | None,
    *,
    vectors: bool = False,
    cosines: Mapping[int, float] | None = None,
) -> LegScores:
    """Return what a leg gives to its documents.

    `lists` are those of the question and of other queries that count in full; `derived` those of queries that
    rules made, which stand behind. `zero` is the score that counts as nothing; None: 0, or the lowest where
    that is less. On a leg of `vectors` the scores of several queries are on one scale; on others each list
    has its own. `cosines` are known of documents that a leg of vectors did not return.
    """
    above = [above_zero(entry.hits, zero) for entry in lists]
    highest = max([entry[0] for entry in above if entry], default=0.0) if vectors else None
    scaled = [_scale(entry, values, highest) for entry, values in zip(lists, above, strict=True)]
    scores: dict[int, float] = {}
    for entry, values in zip(lists, scaled, strict=True):
        _take_highest(scores, entry.row, values, entry.weight)
    lowest = min(scores.values(), default=0.0)
    behind = BEHIND * lowest
    late: dict[int, float] = {}
    for entry in derived:
        values = _scale(entry, above_zero(entry.hits, zero), None)
        scaled.append(values)
        for number, value in zip(entry.row, values, strict=True):
            if number not in scores and value >= late.get(number, 0.0):
                late[number] = value
    if late:
        lowest = behind * min(late.values())
    if highest:
        for number, cosine in (cosines or {}).items():
            if number not in scores:
                scores[number] = min(1.0, max(0.0, cosine - (zero or 0.0)) / highest)
    for number, value in late.items():
        scores.setdefault(number, behind * value)
    absent = BEHIND * lowest if vectors or any(entry.full for entry in lists) else 0.0
    return LegScores(scores, absent, scaled, behind)


def score_parts(lists: Sequence[LegList], *, vectors: bool = False) -> LegScores:
    """Return what a leg gives where several parts of a question stand in for it: by rank, as lists without
    scores, and added up, so that a document which fits several parts comes first.
    """
    scaled = [_scale(entry, None, None) for entry in lists]
    scores: dict[int, float] = {}
    for entry, values in zip(lists, scaled, strict=True):
        for number, value in dict(zip(reversed(entry.row), reversed(values), strict=True)).items():
            scores[number] = scores.get(number, 0.0) + value
    highest = max(scores.values(), default=1.0)
    shares = {number: value / highest for number, value in scores.items()}
    full = vectors or any(entry.full for entry in lists)
    return LegScores(shares, BEHIND * min(shares.values(), default=0.0) if full else 0.0, scaled)


def above_zero(hits: Sequence[Hit], zero: float | None) -> list[float] | None:
    """Return how far each score is above zero; None where they are no numbers in falling order, so that only
    the ranks tell.
    """
    scores: list[Any] = [hit.score for hit in hits]
    if not scores:
        return []
    try:
        if not all(map(ge, scores, scores[1:])):
            noise = NOISE * abs(scores[0])
            if not all([lower <= higher + noise for higher, lower in pairwise(scores)]):
                return None
            scores = list(accumulate(scores, min))
        highest, lowest = float(scores[0]), float(scores[-1])
        low = min(0.0, lowest) if zero is None else zero
        if not (isfinite(highest - low) and isfinite(lowest)):
            return None
        if low == 0.0 <= lowest:
            return scores
        return [float(score) - low if score > low else 0.0 for score in scores]
    except (TypeError, OverflowError):
        return None


def _scale(entry: LegList, above: Sequence[float] | None, highest: float | None) -> list[float]:
    """Return the scores of a list from 0 to 1; `highest` is that of the leg, None: that of the list."""
    if above is None:
        return [(UNSCORED + 1) / (UNSCORED + rank) for rank in range(1, len(entry.hits) + 1)]
    top = highest if highest is not None else above[0] if above else 0.0
    return [value / top for value in above] if top > 0 else [0.0] * len(above)


def _take_highest(
    scores: dict[int, float], row: Sequence[int], values: Sequence[float], weight: float
) -> None:
    if not scores and weight == 1.0 and len({*row}) == len(row):
        scores.update(zip(row, values, strict=True))
        return
    for number, value in zip(row, values, strict=True):
        value *= weight
        if value > scores.get(number, -1.0):
            scores[number] = value
