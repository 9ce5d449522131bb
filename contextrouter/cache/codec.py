"""Serialization of a Context with MessagePack; decoding checks every type.

Vectors are left out: they are large, and no reader of a Context needs them. Values in metadata or attributes
that MessagePack cannot represent raise `Unfit`. A tuple in metadata comes back as a list, an instant in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any

import msgspec

from contextrouter.cache.tiers import Unfit
from contextrouter.model import Call, Context, Envelope, Intent, Period, Plan, Query, Step, Trace
from contextrouter.model.read_only import ReadOnlyList, ReadOnlyMapping


def encode(context: Context) -> bytes:
    """Return `context` as bytes. Raises Unfit when decoding could not restore it."""
    for values in _untyped_mappings(context):
        for name, value in values.items():
            _check_value(name)
            _check_value(value)
    try:
        return msgspec.msgpack.encode(_drop_vectors(context), enc_hook=_encode_number)
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        raise Unfit(str(error)) from error


def decode(body: bytes | memoryview) -> Context:
    """Return the Context in `body`. Raises msgspec.DecodeError or ValueError for invalid bytes."""
    return _build_context(_decoder().decode(body))


def _drop_vectors(context: Context) -> Context:
    steps = tuple(step.replace(lost=_drop_envelope_vectors(step.lost)) for step in context.trace.steps)
    return context.replace(
        envelopes=_drop_envelope_vectors(context.envelopes), trace=context.trace.replace(steps=steps)
    )


def _drop_envelope_vectors(envelopes: Sequence[Envelope]) -> tuple[Envelope, ...]:
    return tuple(e if e.vector is None else e.replace(vector=None) for e in envelopes)


def _untyped_mappings(context: Context) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping whose values have no declared type, so that decoding cannot check them."""
    for envelope in (*context.envelopes, *context.trace.dropped):
        yield envelope.document.metadata
    yield from (fact.attributes for fact in context.facts)
    yield from (entity.attributes for entity in context.entities)
    for intent in (context.intent, context.trace.plan.intent):
        yield from (intent.attributes, intent.filters)
    for call in context.trace.plan.calls:
        yield call.query.filters


def _check_value(value: Any) -> None:
    kind = type(value)
    if value is None or kind in (str, int, float, bool, bytes):
        return
    if kind in (list, tuple, ReadOnlyList):
        for item in value:
            _check_value(item)
    elif kind in (dict, ReadOnlyMapping):
        for name, item in value.items():
            if type(name) is not str:
                raise Unfit(f"{name!r} is a {type(name).__name__}, not a text")
            _check_value(item)
    elif not (kind is datetime and value.tzinfo is not None):
        raise Unfit(f"a {kind.__name__} has no form outside memory")


def _encode_number(value: Any) -> Any:
    """Encode a number of another library (numpy)."""
    plain = getattr(value, "item", lambda: None)()
    if type(plain) in (int, float, bool):
        return plain
    raise NotImplementedError(f"a {type(value).__name__} has no form outside memory")


# `Period` holds days or instants. In MessagePack both are text, so msgspec cannot decode a `Period` directly.
# The nouns that contain one are decoded into mirror structs first, in which a period is still text.


class _TextPeriod(msgspec.Struct, frozen=True, kw_only=True):
    start: Any = None
    end: Any = None
    zone: str = "UTC"


def _mirror_struct(noun: type[msgspec.Struct], **types: Any) -> Any:
    """Return a struct type with the fields of `noun`, some of them with another type."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(noun):
        default = () if field.default is msgspec.NODEFAULT else (field.default,)
        fields.append((field.name, types.get(field.name, field.type), *default))
    return msgspec.defstruct(noun.__name__, fields, frozen=True, kw_only=True)


@cache
def _decoder() -> msgspec.msgpack.Decoder[Any]:
    intent = _mirror_struct(Intent, period=_TextPeriod | None)
    query = _mirror_struct(Query, period=_TextPeriod | None)
    calls: Any = tuple.__class_getitem__((_mirror_struct(Call, query=query), ...))
    plan = _mirror_struct(Plan, intent=intent, calls=calls, preferred=_TextPeriod | None)
    step = _mirror_struct(Step, lost=tuple[Envelope, ...])
    trace = _mirror_struct(Trace, plan=plan, steps=tuple.__class_getitem__((step, ...)))
    return msgspec.msgpack.Decoder(_mirror_struct(Context, intent=intent, trace=trace))


def _field_values(raw: Any, **changes: Any) -> dict[str, Any]:
    return {**msgspec.structs.asdict(raw), **changes}


def _build_context(raw: Any) -> Context:
    intent, plan = _with_period(Intent, raw.intent), raw.trace.plan
    calls = [Call(**_field_values(call, query=_with_period(Query, call.query))) for call in plan.calls]
    changes = {"intent": _with_period(Intent, plan.intent), "preferred": _build_period(plan.preferred)}
    plan = Plan(**_field_values(plan, calls=tuple(calls), **changes))
    steps = tuple(Step(**_field_values(step)) for step in raw.trace.steps)
    return Context(**_field_values(raw, intent=intent, trace=Trace(plan=plan, steps=steps)))


def _with_period(noun: Any, raw: Any) -> Any:
    """Return an Intent or a Query with the period of its mirror struct."""
    return noun(**_field_values(raw, period=_build_period(raw.period)))


def _build_period(raw: _TextPeriod | None) -> Period | None:
    if raw is None:
        return None
    return Period(start=_parse_moment(raw.start), end=_parse_moment(raw.end), zone=raw.zone)


def _parse_moment(raw: Any) -> date | datetime | None:
    if raw is None or isinstance(raw, datetime):
        return raw
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is no day and no instant")
    return date.fromisoformat(raw) if len(raw) == 10 else datetime.fromisoformat(raw)
