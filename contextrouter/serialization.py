"""JSON serialization of results, for the command line and the server. Vectors are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from contextrouter.model import Context, Envelope, Plan, SourceReport, Step

LONGEST_QUERY = 200
"""Characters of a query that the coverage repeats."""
CUT = " […]"


def plain(value: Any, *, trace: bool = True) -> Any:
    """Return nouns as mappings, sequences and scalars, without vectors: they are large, and nobody reads
    them.

    A context has `queries`, and its provenance names each query by its place there: a long question is not
    repeated for every document. Without `trace`, which holds every document that was lost, it has none.
    """
    if isinstance(value, Context):
        return _plain_context(value, trace=trace)
    return msgspec.to_builtins(_drop_vectors(value), enc_hook=_encode_number)


def _plain_context(context: Context, *, trace: bool) -> dict[str, Any]:
    light = context.replace(
        envelopes=tuple([_drop_vectors(envelope) for envelope in context.envelopes]),
        coverage=tuple(map(shorten_query, context.coverage)),
    )
    steps = context.trace.steps if trace else ()
    lost = [envelope for step in steps for envelope in step.lost]
    queries = list(
        dict.fromkeys(
            [
                *context.intent.queries,
                *[seal.query for envelope in (*context.envelopes, *lost) for seal in envelope.provenance],
            ]
        )
    )
    numbers = {query: number for number, query in enumerate(queries)}
    result: dict[str, Any] = {}
    for name in light.__struct_fields__:
        if name != "trace":
            result[name] = msgspec.to_builtins(getattr(light, name), enc_hook=_encode_number)
    _number_queries(result["envelopes"], numbers)
    result["queries"] = queries
    if trace:
        result["trace"] = {
            "plan": msgspec.to_builtins(_drop_vectors(context.trace.plan), enc_hook=_encode_number),
            "steps": [msgspec.to_builtins(_drop_vectors(step), enc_hook=_encode_number) for step in steps],
        }
        for step in result["trace"]["steps"]:
            _number_queries(step["lost"], numbers)
    result["answerability"] = msgspec.to_builtins(context.answerability)
    result["degraded"] = context.degraded
    return result


def _number_queries(envelopes: Iterable[Mapping[str, Any]], numbers: Mapping[str, int]) -> None:
    for envelope in envelopes:
        for seal in envelope["provenance"]:
            seal["query"] = numbers[seal["query"]]


def shorten_query(report: SourceReport) -> SourceReport:
    """Return a report with the beginning of its query."""
    if len(report.query) <= LONGEST_QUERY:
        return report
    return report.replace(query=report.query[:LONGEST_QUERY] + CUT)


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
