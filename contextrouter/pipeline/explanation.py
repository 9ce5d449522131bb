"""Explanation of the order: why one document stands above another, by scores, lists and signals."""

from __future__ import annotations

from contextrouter.model import Envelope


def above(one: Envelope, other: Envelope) -> str:
    """What speaks for `one`, which stands above `other`, and against: scores, ranks by source and leg.

    >>> above(first, second)
    'score 0.0325 against 0.0161; library text 1 against 4; in spite of freshness 0.2 against 0.9'
    """
    ahead: list[str] = []
    behind: list[str] = []
    places = {(seal.source, seal.leg): None for envelope in (one, other) for seal in envelope.provenance}
    for source, leg in places:
        mine, theirs = _rank(one, source, leg), _rank(other, source, leg)
        if mine != theirs:
            said = f"{source} {leg} {mine or '–'} against {theirs or '–'}"
            (ahead if theirs is None or (mine is not None and mine < theirs) else behind).append(said)
    for name in dict.fromkeys((*one.signals, *other.signals)):
        mine_is, theirs_is = one.signals.get(name), other.signals.get(name)
        if mine_is is None or theirs_is is None or mine_is != theirs_is:
            said = f"{name} {_number(mine_is)} against {_number(theirs_is)}"
            (ahead if (mine_is or 0.0) >= (theirs_is or 0.0) else behind).append(said)
    scores = f"score {_number(one.score)} against {_number(other.score)}"
    if one.score < other.score:
        scores = f"in spite of its {scores}"
    elif one.score == other.score:
        scores = f"{scores}, a tie"
    parts = [scores, ", ".join(ahead), f"in spite of {', '.join(behind)}" if behind else ""]
    return "; ".join(part for part in parts if part)


def _rank(envelope: Envelope, source: str, leg: str) -> int | None:
    return min(
        [seal.rank for seal in envelope.provenance if (seal.source, seal.leg) == (source, leg)], default=None
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
