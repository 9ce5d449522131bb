"""Relevance gate: drops all documents if the best one is not good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from contextrouter.builtin.stages.envelope_values import read_value
from contextrouter.contracts import CLARIFY, GATED, Stage, StageContext
from contextrouter.model import Envelope


class Gate(Stage):
    """Lets everything go on when the best value of `reads` is at least `threshold`, which itself passes; else
    drops everything.

    `reads` is "similarity", the best raw score that a leg of `legs` gave; "normalized", the fused score ÷ the
    most it could be; or the name of a signal, such as "rerank". Put it before stages that cut, so that it
    sees everything.

    `unscored` says what happens to documents of which none has the value, because the legs that give it were
    not asked or failed: "drop" counts 0.0, "pass" lets them go on with a note. Without a document to judge it
    lets nothing on. `outcome` is what the request becomes then:
    "confidence_gated_fallback", or "clarify", which asks `clarification` back.
    """

    switch = ""
    withholds_facts = True

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        reads: str = "similarity",
        legs: Sequence[str] = ("vector", "keywords"),
        unscored: Literal["drop", "pass"] = "drop",
        outcome: Literal["confidence_gated_fallback", "clarify"] = GATED,
        clarification: str = "Nothing matches this question well. Can you say more, or ask in other words?",
    ) -> None:
        if not math.isfinite(threshold):
            raise ValueError(f"threshold {threshold!r} is not a number that can be reached.")
        if not reads:
            raise ValueError("reads is empty; give similarity, normalized or the name of a signal.")
        if outcome == CLARIFY and not clarification.strip():
            raise ValueError("clarification is empty; give the question to ask back.")
        self.outcome, self.clarification = outcome, clarification
        self._threshold, self._reads, self._legs = threshold, reads, frozenset(legs)
        self._passes_unscored = unscored == "pass"

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all as they are, or all dropped with what was read."""
        read = (read_value(envelope, self._reads, self._legs) for envelope in envelopes)
        values = [value for value in read if value is not None]
        if envelopes and not values and self._passes_unscored:
            context.note(f"no document has a value of {self._reads}: all pass")
            return list(envelopes)
        best = max(values, default=0.0)
        if best >= self._threshold:
            return list(envelopes)
        return [
            envelope.drop(f"gate: best {self._reads} {best:.4g} is below {self._threshold:g}")
            for envelope in envelopes
        ]
