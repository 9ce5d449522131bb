"""Recency: newer documents rank higher, by 0.5 ** (age / half-life), as a bounded boost or a decay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, Self

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import Envelope

_DAY = 86_400.0
_TOGETHER = 3_600.0  # seconds


class Freshness(Stage):
    """Scores by age. Freshness is 1 now (and in the future), one half after `half_life_days`, and so on.

    The score that counts is the one given ÷ the best one given, so that documents of one age keep their
    order. `mode = "boost"` adds `weight` times freshness to it, so that relevance leads; "decay" multiplies
    it with freshness, which never falls below `floor`. `field` names the time that counts. A document without
    it has the freshness `missing`, and the signal `freshness_missing`. So have documents that are dated by
    their file alone (`metadata["dated_by"]` is "file"), where all such files were written within an hour: a
    copy or a clone was.
    """

    def __init__(
        self,
        *,
        half_life_days: float = 30.0,
        mode: Literal["boost", "decay"] = "boost",
        weight: float = 0.1,
        floor: float = 0.5,
        field: Literal["updated_at", "synced_at"] = "updated_at",
        missing: float = 0.5,
    ) -> None:
        if not (half_life_days > 0 and math.isfinite(half_life_days)):
            raise ValueError(f"half_life_days {half_life_days!r} is not a number of days above 0.")
        for name, value, maximum in (
            ("weight", weight, 10.0),
            ("floor", floor, 1.0),
            ("missing", missing, 1.0),
        ):
            if not 0 <= value <= maximum:
                raise ValueError(f"{name} {value!r} is not between 0 and {maximum:g}.")
        self._half_life, self._mode, self._weight, self._floor = half_life_days, mode, weight, floor
        self._field, self._missing = field, missing

    @classmethod
    def example(cls) -> Self:
        """As it is by default."""
        return cls()

    def freshness(self, moment: datetime, now: datetime) -> float:
        """Freshness in (0, 1]; a naive `moment` is taken as UTC."""
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        age = max(0.0, (now - moment).total_seconds() / _DAY)
        return float(0.5 ** (age / self._half_life))

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all envelopes, rescored; those that tie keep their order."""
        if not envelopes:
            return []
        low = min(0.0, min(envelope.score for envelope in envelopes))  # a reranker's scores may be negative
        best = max(envelope.score for envelope in envelopes) - low
        undated = self._written_together(envelopes)
        scored = [
            self._score(e, (e.score - low) / best if best > 0 else 1.0, context.now, undated)
            for e in envelopes
        ]
        return sorted(scored, key=lambda envelope: -envelope.score)

    def _written_together(self, envelopes: Sequence[Envelope]) -> bool:
        """Whether the documents that are dated by their file have all the same date."""
        moments = [
            moment.timestamp()
            for envelope in envelopes
            if (moment := envelope.document.updated_at) is not None and _is_of_file(envelope)
        ]
        return bool(moments) and max(moments) - min(moments) <= _TOGETHER

    def _score(self, envelope: Envelope, relevance: float, now: datetime, undated: bool) -> Envelope:
        moment: datetime | None = getattr(envelope.document, self._field)
        if undated and self._field == "updated_at" and _is_of_file(envelope):
            moment = None
        fresh = self._missing if moment is None else self.freshness(moment, now)
        signals = (
            {"freshness": fresh} if moment is not None else {"freshness": fresh, "freshness_missing": 1.0}
        )
        if self._mode == "boost":
            score = relevance + self._weight * fresh
            return envelope.scored(score, score / (1 + self._weight), **signals)
        score = relevance * max(self._floor, fresh)
        return envelope.scored(score, score, **signals)


def _is_of_file(envelope: Envelope) -> bool:
    return envelope.document.metadata.get("dated_by") == "file"
