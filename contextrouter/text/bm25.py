"""BM25: the weight of a term, its saturation in a text, and which terms of a question are worth reading."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, TypeVar

K1, B = 0.9, 0.4
"""BM25's saturation and length normalisation, as in Anserini's defaults for passages."""

Amount = TypeVar("Amount", bound=Any)
"""A number, or an array of them."""


def weight(documents: int, frequency: int) -> float:
    """Inverse document frequency as Lucene has it: never negative, whatever the counts."""
    return log(1.0 + (max(documents, frequency) - frequency + 0.5) / (frequency + 0.5))


def saturation(frequency: Amount, relative_length: Amount) -> Amount:
    """What a term's (weighted) frequency contributes in a chunk of `relative_length`: its length over the
    average one.
    """
    contribution: Amount = frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * relative_length))
    return contribution


def rarest(frequencies: Sequence[tuple[str, int]], budget: int) -> list[str]:
    """Those terms that occur, rarest first, until reading them would touch more than `budget` postings; at
    least one.
    """
    chosen: list[str] = []
    for term, frequency in sorted((p for p in frequencies if p[1]), key=lambda p: (p[1], p[0])):
        budget -= frequency
        if chosen and budget < 0:
            break
        chosen.append(term)
    return chosen
