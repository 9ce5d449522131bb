"""Explanation of the order: why one document ranks above another, by scores, lists and signals."""

from __future__ import annotations

from contextrouter.model import Envelope


def explain_order(upper: Envelope, lower: Envelope) -> str:
    """What speaks for `one`, which stands above `other`, and against: scores, ranks by source and leg.

    >>> above(first, second)
    'score 0.0325 against 0.0161; library text 1 against 4; in spite of freshness 0.2 against 0.9'
    """
    ahead: list[str] = []
    behind: list[str] = []
    places = {(seal.source, seal.leg): None for envelope in (upper, lower) for seal in envelope.provenance}
    for source, leg in places:
        rank, lower_rank = _rank(upper, source, leg), _rank(lower, source, leg)
        if rank != lower_rank:
            line = f"{source} {leg} {rank or '–'} against {lower_rank or '–'}"
            (ahead if lower_rank is None or (rank is not None and rank < lower_rank) else behind).append(line)
    for name in dict.fromkeys((*upper.signals, *lower.signals)):
        signal, lower_signal = upper.signals.get(name), lower.signals.get(name)
        if signal is None or lower_signal is None or signal != lower_signal:
            line = f"{name} {_number(signal)} against {_number(lower_signal)}"
            (ahead if (signal or 0.0) >= (lower_signal or 0.0) else behind).append(line)
    scores = f"score {_number(upper.score)} against {_number(lower.score)}"
    if upper.score < lower.score:
        scores = f"in spite of its {scores}"
    elif upper.score == lower.score:
        scores = f"{scores}, a tie"
    parts = [scores, ", ".join(ahead), f"in spite of {', '.join(behind)}" if behind else ""]
    return "; ".join(part for part in parts if part)


def _rank(envelope: Envelope, source: str, leg: str) -> int | None:
    return min(
        [seal.rank for seal in envelope.provenance if (seal.source, seal.leg) == (source, leg)], default=None
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
