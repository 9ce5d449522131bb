"""Personalization: documents that fit the request's profile rank higher, by metadata and tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import Envelope

_BOOSTS: Mapping[str, float] = {"grade": 0.2, "subject": 0.2, "major": 0.1}
_NONE: Mapping[str, Any] = {}
_N = TypeVar("_N", int, float)
OTHER = "other"
"""The tier of askers whose own is not listed."""


class Profile(Stage):
    """Multiplies scores by 1 + the `boosts` of the keys in which a document's metadata and the request's
    profile agree, and by the multiplier in `tiers` of what the document's metadata has under `tier_key`.

    Values agree when they are equal as texts, whatever their case; of a list one suffices. `limits` says how
    many documents of a tier go on, the best of them; a tier without a limit has none. The score that counts
    is the one given ÷ the best one given.

    The asker has a tier too: what the profile has under `asker_key`. `asker_boosts` says by which factor the
    boosts of such an asker are multiplied, `asker_limits` how many documents go on in all. "other" stands for
    tiers that are not listed, and for an asker without one. Of several tiers, the largest number counts.
    """

    def __init__(
        self,
        *,
        boosts: Mapping[str, float] = _BOOSTS,
        tiers: Mapping[str, float] = _NONE,
        limits: Mapping[str, int] = _NONE,
        tier_key: str = "tier",
        asker_boosts: Mapping[str, float] = _NONE,
        asker_limits: Mapping[str, int] = _NONE,
        asker_key: str = "tier",
    ) -> None:
        for name, table in (("boosts", boosts), ("tiers", tiers), ("asker_boosts", asker_boosts)):
            for key, value in table.items():
                if not (math.isfinite(value) and value >= 0):
                    raise ValueError(f"{name}.{key} {value!r} is not a finite number, 0 or more.")
        for name, counts in (("limits", limits), ("asker_limits", asker_limits)):
            for key, count in counts.items():
                if count < 0:
                    raise ValueError(f"{name}.{key} {count!r} is below 0.")
        self._asker_boosts, self._asker_limits = _fold_keys(asker_boosts), _fold_keys(asker_limits)
        self._asker_key = asker_key
        self._boosts, self._tiers, self._limits, self._tier_key = (
            dict(boosts),
            dict(tiers),
            dict(limits),
            tier_key,
        )

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all, those over the limit of their tier or of the asker's dropped; the signal `profile` is
        the factor.
        """
        if not envelopes:
            return []
        low = min(0.0, min(e.score for e in envelopes))
        best = max(e.score for e in envelopes) - low
        share = self._of_asker(self._asker_boosts, context.profile)
        share = 1.0 if share is None else share
        largest_share = max([1.0, *self._asker_boosts.values()])
        maximum = (1 + largest_share * sum(self._boosts.values())) * max([1.0, *self._tiers.values()])
        scored = []
        for envelope in envelopes:
            factor = self._factor(envelope.document.metadata, context.profile, share)
            score = factor * ((envelope.score - low) / best if best > 0 else 1.0)
            scored.append(envelope.scored(score, min(1.0, score / maximum), profile=factor))
        scored.sort(key=lambda envelope: -envelope.score)
        return self._apply_asker_limit(self._apply_limits(scored), context.profile)

    def _factor(self, metadata: Mapping[str, Any], profile: Mapping[str, Any], share: float) -> float:
        agreeing = [
            boost
            for key, boost in self._boosts.items()
            if _fold_values(metadata.get(key)) & _fold_values(profile.get(key))
        ]
        return (1 + share * sum(agreeing)) * self._tiers.get(self._tier(metadata), 1.0)

    def _of_asker(self, table: Mapping[str, _N], profile: Mapping[str, Any]) -> _N | None:
        """Return the largest value of the asker's tiers; None where the table has none for the asker."""
        tiers = _fold_values(profile.get(self._asker_key)) & table.keys()
        return max([table[tier] for tier in tiers], default=table.get(OTHER))

    def _apply_asker_limit(self, ranked: Sequence[Envelope], profile: Mapping[str, Any]) -> list[Envelope]:
        limit = self._of_asker(self._asker_limits, profile)
        result, live = [], 0
        for envelope in ranked:
            live += envelope.dropped is None
            over = limit is not None and envelope.dropped is None and live > limit
            result.append(
                envelope.drop(f"profile: limit of {limit} for this asker's tier") if over else envelope
            )
        return result

    def _tier(self, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get(self._tier_key, ""))

    def _apply_limits(self, scored: Sequence[Envelope]) -> list[Envelope]:
        counts: dict[str, int] = {}
        result = []
        for envelope in scored:
            tier = self._tier(envelope.document.metadata)
            counts[tier] = counts.get(tier, 0) + 1
            over = tier in self._limits and counts[tier] > self._limits[tier]
            result.append(
                envelope.drop(f"profile: limit of {self._limits[tier]} for tier {tier!r}")
                if over
                else envelope
            )
        return result


def _fold_keys(table: Mapping[str, _N]) -> dict[str, _N]:
    return {key.strip().casefold(): value for key, value in table.items()}


def _fold_values(value: Any) -> set[str]:
    """What a key holds, as folded texts; nothing for what is not there."""
    items = value if isinstance(value, list | tuple | set | frozenset) else () if value is None else (value,)
    return {str(item).strip().casefold() for item in items}
