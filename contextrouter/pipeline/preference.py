"""Preference for an inferred period: its documents are asked for as well, and stand higher than others.

A question that names a time often means documents of another date: a report of May was written in June. So
what was inferred is no filter by default. Measured in docs/ranking-measurements.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from contextrouter.model import Envelope, Hit, Period, RankedList

SIGNAL = "period"
"""Signal of a document inside the period: the bonus on its score, from 0 to 1 before it."""


def join_lists(lists: Sequence[RankedList]) -> Sequence[RankedList]:
    """Return the lists with those of one source, leg and query made one: the answer for all times and the one
    for the period.
    """
    joined: dict[tuple[str, str, str], RankedList] = {}
    for ranked in lists:
        key = ranked.source, ranked.leg, ranked.query
        joined[key] = _add_period(joined[key], ranked) if key in joined else ranked
    return tuple(joined.values())


def prefer(envelopes: Sequence[Envelope], period: Period, bonus: float) -> list[Envelope]:
    """Return all envelopes, rescored: score ÷ the best score, and `bonus` for those inside the period."""
    best = max([envelope.score for envelope in envelopes], default=0.0)
    scored = []
    for envelope in envelopes:
        gain = bonus if lies_in(envelope, period) else 0.0
        score = (envelope.score / best if best > 0 else 1.0) + gain
        scored.append(envelope.scored(score, score / (1 + bonus), **{SIGNAL: gain}))
    return sorted(scored, key=lambda envelope: -envelope.score)


def lies_in(envelope: Envelope, period: Period) -> bool:
    """Whether the document has a date in the period."""
    moment = envelope.document.updated_at
    return moment is not None and period.contains(moment)


def _add_period(everything: RankedList, in_period: RankedList) -> RankedList:
    """Return both lists as one, by score; where scores are no numbers, in the order in which they stand."""
    ids = {_identity(hit) for hit in everything.hits}
    hits = [*everything.hits, *(hit for hit in in_period.hits if _identity(hit) not in ids)]
    if all(hit.score is not None and isfinite(hit.score) for hit in hits):
        hits.sort(key=lambda hit: -(hit.score or 0.0))
    return everything.replace(hits=hits, full=everything.full or in_period.full)


def _identity(hit: Hit) -> tuple[str | None, str]:
    document = hit.document
    return document.tenant, document.id or document.fingerprint
