"""Score blending: ranks by a weighted sum of signals between 0 and 1. Trust decides ties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import TRUSTS, Envelope

_WEIGHTS: Mapping[str, float] = {"vector": 0.6, "text": 0.3, "freshness": 0.1}


class Blend(Stage):
    """Scores by the weighted mean of signals. A name in `weights` is a signal that a stage before has given,
    "normalized", or a leg. What is missing counts as 0.

    A leg's value is the best raw score of the document on that leg, in any of its sources, normalised over
    all documents of the stage: ÷ the highest, with 0 as zero point, or the lowest where one is negative.
    Equal scores are all 1. A document that the leg found without a score has 6 ÷ (5 + rank). Cosines of one
    embedder are comparable between sources; scores of BM25 are not: a source whose scores are higher counts
    more on the leg "text".

    Scores within `tie` of the best of their group are equal; those go by trust (authoritative, reference,
    volatile, none said), then by score, then by fingerprint. A group begins at its best score, so that many
    small steps do not tie what is far apart.
    """

    def __init__(self, *, weights: Mapping[str, float] = _WEIGHTS, tie: float = 0.01) -> None:
        if not weights:
            raise ValueError("weights is empty; name legs or signals, such as { vector = 0.6, text = 0.3 }.")
        for name, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"weights.{name} {weight!r} is not a finite number, 0 or more.")
        if not any(weights.values()):
            raise ValueError(f"weights {dict(weights)!r} are all 0; give one of them a weight above 0.")
        if not 0 <= tie <= 1:
            raise ValueError(f"tie {tie!r} is not between 0 and 1.")
        self._weights, self._tie = dict(weights), tie

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all, by blended score."""
        values = {name: _values(envelopes, name) for name in self._weights}
        total = math.fsum(self._weights.values())
        scored = []
        for index, envelope in enumerate(envelopes):
            parts = {name: values[name][index] for name in self._weights}
            score = sum([weight * parts[name] for name, weight in self._weights.items()]) / total
            signals = {name: value for name, value in parts.items() if name != "normalized"}
            scored.append(envelope.scored(score, min(1.0, score), **{**signals, "blend": score}))
        scored.sort(key=lambda envelope: -envelope.score)
        return self._order_ties(scored)

    def _order_ties(self, scored: Sequence[Envelope]) -> list[Envelope]:
        groups: list[list[Envelope]] = []
        for envelope in scored:
            # A hundredth is not a binary fraction: what is apart by exactly the width of a tie is equal.
            if groups and groups[-1][0].score - envelope.score <= self._tie + 1e-12:
                groups[-1].append(envelope)
            else:
                groups.append([envelope])
        return [e for group in groups for e in (sorted(group, key=_tie_key) if len(group) > 1 else group)]


def _values(envelopes: Sequence[Envelope], name: str) -> list[float]:
    """The value of each envelope, in [0, 1], for a name in `weights`."""
    if name == "normalized":
        return [envelope.normalized for envelope in envelopes]
    of_leg = _leg_values(envelopes, name)
    return [
        min(1.0, max(0.0, e.signals[name])) if name in e.signals else value
        for e, value in zip(envelopes, of_leg, strict=True)
    ]


def _leg_values(envelopes: Sequence[Envelope], leg: str) -> list[float]:
    raw = [_raw_score(envelope, leg) for envelope in envelopes]
    scores = [score for score in raw if score is not None]
    zero = min(0.0, *scores, 0.0)
    spread = max(scores, default=0.0) / 2 - zero / 2  # halves: two scores may be too far apart for a number
    values = []
    for envelope, score in zip(envelopes, raw, strict=True):
        if score is None:
            values.append(_rank_value(envelope, leg))
        else:
            values.append((score / 2 - zero / 2) / spread if spread else 1.0)
    return values


def _raw_score(envelope: Envelope, leg: str) -> float | None:
    """The best score that a source gave on a leg; None where none gave a finite one."""
    scores = []
    for provenance in envelope.provenance:
        if provenance.leg == leg and provenance.score is not None:
            try:
                scores.append(float(provenance.score))
            except OverflowError:  # a whole number beyond all floats
                continue
    return max(filter(math.isfinite, scores), default=None)


def _rank_value(envelope: Envelope, leg: str) -> float:
    """A value for the best rank on a leg; 0 where the leg did not find the document."""
    ranks = [p.rank for p in envelope.provenance if p.leg == leg]
    return 6 / (5 + min(ranks)) if ranks else 0.0


def _tie_key(envelope: Envelope) -> tuple[int, float, str]:
    trust = envelope.document.trust
    return TRUSTS.index(trust) if trust in TRUSTS else len(TRUSTS), -envelope.score, envelope.id
