"""Serialization of results to plain values and JSON, for the command line and the server. Vectors are left
out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contextrouter.model import Context, Envelope, Plan, Step


def plain(value: Any) -> Any:
    """Return nouns as mappings, sequences and scalars. Vectors are left out: they are large, and no one reads
    them.
    """
    if isinstance(value, Context):
        trace = value.trace.replace(
            steps=tuple(_light(step) for step in value.trace.steps), plan=_light(value.trace.plan)
        )
        light = value.replace(envelopes=tuple(_light(envelope) for envelope in value.envelopes), trace=trace)
        judged = msgspec.to_builtins(value.answerability)
        return {
            **msgspec.to_builtins(light, enc_hook=_encoded),
            "answerability": judged,
            "degraded": value.degraded,
        }
    return msgspec.to_builtins(_light(value), enc_hook=_encoded)


def _light(value: Any) -> Any:
    if isinstance(value, Envelope):
        return value.replace(vector=None)
    if isinstance(value, Step):
        return value.replace(lost=tuple(_light(envelope) for envelope in value.lost))
    if isinstance(value, Plan):
        return value.replace(
            calls=tuple(call.replace(query=call.query.replace(vector=None)) for call in value.calls)
        )
    return value


def _encoded(value: Any) -> Any:
    """JSON for numbers of other libraries; a sentence about anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def encoded(value: Any) -> bytes:
    """Return plain values as JSON in UTF-8; half of a surrogate pair, which no UTF-8 can carry, becomes
    "?".
    """
    try:
        return msgspec.json.encode(value, enc_hook=_encoded)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sound(msgspec.to_builtins(value, enc_hook=_encoded)))


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return [_sound(item) for item in value] if isinstance(value, list | tuple) else value
