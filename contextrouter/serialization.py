"""JSON serialization of results, for the command line and the server. Vectors are left out."""

from __future__ import annotations

from typing import Any

import msgspec

from contextrouter.model import Answer, Context, Envelope, Plan, Step


def plain(value: Any) -> Any:
    """Return nouns as mappings, sequences and scalars, without vectors: they are large, and nobody reads
    them.
    """
    if isinstance(value, Answer):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name != "context"}
        return {**msgspec.to_builtins(fields), "context": plain(value.context)}
    if isinstance(value, Context):
        trace = value.trace.replace(
            steps=tuple(_drop_vectors(step) for step in value.trace.steps),
            plan=_drop_vectors(value.trace.plan),
        )
        light = value.replace(
            envelopes=tuple(_drop_vectors(envelope) for envelope in value.envelopes), trace=trace
        )
        answerability = msgspec.to_builtins(value.answerability)
        return {
            **msgspec.to_builtins(light, enc_hook=_encode_number),
            "answerability": answerability,
            "degraded": value.degraded,
        }
    return msgspec.to_builtins(_drop_vectors(value), enc_hook=_encode_number)


def _drop_vectors(value: Any) -> Any:
    if isinstance(value, Envelope):
        return value.replace(vector=None)
    if isinstance(value, Step):
        return value.replace(lost=tuple(_drop_vectors(envelope) for envelope in value.lost))
    if isinstance(value, Plan):
        return value.replace(
            calls=tuple(call.replace(query=call.query.replace(vector=None)) for call in value.calls)
        )
    return value


def _encode_number(value: Any) -> Any:
    """Encode a number of another library (numpy) as a float, anything else as its text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def encode_json(value: Any) -> bytes:
    """Return plain values as JSON in UTF-8. A lone surrogate, which UTF-8 cannot encode, becomes "?"."""
    try:
        return msgspec.json.encode(value, enc_hook=_encode_number)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replace_surrogates(msgspec.to_builtins(value, enc_hook=_encode_number)))


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value
