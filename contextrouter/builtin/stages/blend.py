"""Score blending: ranks by a weighted sum of signals between 0 and 1. Trust decides ties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import TRUSTS, Envelope

_WEIGHTS: Mapping[str, float] = {"vector": 0.6, "text": 0.3, "freshness": 0.1}


class Blend(Stage):
    """Scores by the weighted mean of signals. A name in `weights` is a signal that a stage before has given,
    "normalized", or a leg: the best normalised score that it gave. What is missing counts as 0.

    Scores within `tie` of the best of their group are equal; those go by trust (authoritative, reference,
    volatile, none said), then by score, then by fingerprint. A group begins at its best score, so that many
    small steps do not tie what is far apart.
    """

    def __init__(self, *, weights: Mapping[str, float] = _WEIGHTS, tie: float = 0.01) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights.values()) or not any(
            weights.values()
        ):
            raise ValueError(f"weights {dict(weights)!r} are not finite, 0 or more, and not all 0.")
        if not 0 <= tie <= 1:
            raise ValueError(f"tie {tie!r} is not between 0 and 1.")
        self._weights, self._tie = dict(weights), tie

    def value(self, envelope: Envelope, name: str) -> float:
        """A signal in [0, 1]."""
        if name in envelope.signals:
            return min(1.0, max(0.0, envelope.signals[name]))
        if name == "normalized":
            return envelope.normalized
        return max([p.normalized or 0.0 for p in envelope.provenance if p.leg == name], default=0.0)

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all, by blended score."""
        total = sum(self._weights.values())
        scored = []
        for envelope in envelopes:
            parts = {name: self.value(envelope, name) for name in self._weights}
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


def _tie_key(envelope: Envelope) -> tuple[int, float, str]:
    trust = envelope.document.trust
    return TRUSTS.index(trust) if trust in TRUSTS else len(TRUSTS), -envelope.score, envelope.id
