"""Explanation of the order: how a document got its score, and why one stands above another."""

from __future__ import annotations

from contextrouter.model import Envelope, Provenance


def explain_score(envelope: Envelope) -> list[str]:
    """Return how each source scored a document, and the value of its place there: one text for a source.

    >>> explain_score(first)
    ['place 1 in notes, with the score 1: text rank 1, score 8, scaled 1, weight 1; value of the place 1.4']
    """
    sources: dict[str, dict[str, Provenance]] = {}
    for seal in envelope.provenance:
        legs = sources.setdefault(seal.source, {})
        if seal.leg not in legs or _share(seal) > _share(legs[seal.leg]):
            legs[seal.leg] = seal
    return [_explain_source(source, legs) for source, legs in sources.items()]


def _share(seal: Provenance) -> float:
    return (seal.normalized or 0.0) * seal.weight


def _explain_source(source: str, legs: dict[str, Provenance]) -> str:
    parts = []
    for leg, seal in legs.items():
        numbers = {"score": seal.score, "scaled": seal.normalized, "weight": seal.weight}
        known = [f"{name} {_number(value)}" for name, value in numbers.items() if value is not None]
        parts.append(", ".join([f"{leg} rank {seal.rank}", *known]))
    seal = next(iter(legs.values()))
    if seal.calibrated is not None:
        parts.append(f"value of the place {_number(seal.calibrated)}")
    total = "" if seal.source_score is None else f", with the score {_number(seal.source_score)}"
    position = "" if seal.place is None else f"place {seal.place} in "
    return f"{position}{source}{total}: {'; '.join(parts)}"


def explain_order(upper: Envelope, lower: Envelope) -> str:
    """Return what speaks for `upper`, which stands above `lower`, and against it: scores, ranks by source and
    leg.

    >>> explain_order(first, second) 'score 0.0325 against 0.0161; library text 1 against 4; in spite of
    freshness 0.2 against 0.9'
    """
    ahead: list[str] = []
    behind: list[str] = []
    places = {(seal.source, seal.leg): None for envelope in (upper, lower) for seal in envelope.provenance}
    for source, leg in places:
        rank, lower_rank = _rank_of(upper, source, leg), _rank_of(lower, source, leg)
        if rank != lower_rank:
            line = f"{source} {leg} {rank or '–'} against {lower_rank or '–'}"
            (ahead if lower_rank is None or (rank is not None and rank < lower_rank) else behind).append(line)
    for name in dict.fromkeys((*upper.signals, *lower.signals)):
        signal, lower_signal = upper.signals.get(name), lower.signals.get(name)
        if name == "fused" and (signal, lower_signal) == (upper.score, lower.score):
            continue  # the score itself
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


def _rank_of(envelope: Envelope, source: str, leg: str) -> int | None:
    return min(
        [seal.rank for seal in envelope.provenance if (seal.source, seal.leg) == (source, leg)], default=None
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
