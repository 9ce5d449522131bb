"""The value that a stage reads of an envelope: its similarity, its normalised score, or a signal."""

from __future__ import annotations

from collections.abc import Set

from contextrouter.model import Envelope


def read_value(envelope: Envelope, reads: str, legs: Set[str]) -> float | None:
    """Return the value that `reads` names; None where the envelope has none.

    "similarity" is the best raw score that one of `legs` gave, "normalized" the score ÷ the most it could be;
    anything else is the name of a signal.
    """
    if reads == "normalized":
        return envelope.normalized
    if reads != "similarity":
        return envelope.signals.get(reads)
    scores = [p.score for p in envelope.provenance if p.leg in legs and p.score is not None]
    return max(scores, default=None)
