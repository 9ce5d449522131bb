"""Translations: whether a question counts beside its translation in a source, or stands behind it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.model import RankedList
from contextrouter.pipeline.fusion.leg_scores import above_zero
from contextrouter.pipeline.fusion.leg_weights import Profile
from contextrouter.pipeline.fusion.source_order import Queries
from contextrouter.settings import Rag

ALIKE = 0.9
"""Share of a strength from which on another strength counts as equal."""
_MEANING = "vectors"


def place_original(queries: Queries, lists: Sequence[RankedList], profile: Profile, rag: Rag) -> Queries:
    """Return the queries of one source; the original is among the derived ones where it is the weaker one.

    `lists` are those of the source. A query is as strong on a leg as its best score above zero; vector legs
    count as one. The original is weaker where no leg finds it stronger than the translation and one leg finds
    it weaker. One kind of leg alone is no proof, for a wrong translation has common words or near vectors,
    too: there must be words and vectors.
    """
    original = queries.original
    if not original or original == queries.question or original in queries.derived:
        return queries
    before = _strengths(lists, original, profile, rag)
    after = _strengths(lists, queries.question, profile, rag)
    legs = before.keys() & after.keys()
    if len(legs) < 2 or _MEANING not in legs:
        return queries
    stronger = any(ALIKE * before[leg] > after[leg] for leg in legs)
    weaker = any(before[leg] < ALIKE * after[leg] for leg in legs)
    return queries if stronger or not weaker else queries._replace(derived=queries.derived | {original})


def _strengths(lists: Sequence[RankedList], query: str, profile: Profile, rag: Rag) -> dict[str, float]:
    """Return the best score above zero by leg; a leg without scores, or without a weight, is left out."""
    strengths: dict[str, float] = {}
    for ranked in lists:
        if ranked.query != query or profile.leg_weight(ranked.source, ranked.leg, rag) <= 0:
            continue
        is_vector = ranked.leg in profile.vector_legs
        zero = profile.unrelated if is_vector else ranked.score_range and ranked.score_range[0]
        if (above := above_zero(ranked.hits, zero)) is None:
            continue
        leg = _MEANING if is_vector else ranked.leg
        strengths[leg] = max(strengths.get(leg, 0.0), above[0] if above else 0.0)
    return strengths
