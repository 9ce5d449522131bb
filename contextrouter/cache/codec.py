"""A Context as bytes and back: MessagePack of the nouns themselves, checked against their types when it is
read.

Two things do not go out: vectors, which are large and which no reader of a Context needs, and values in
metadata or attributes that MessagePack does not have (`Unfit`). A tuple in metadata comes back as a list, an
instant in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any

import msgspec

from contextrouter.cache.tiers import Unfit
from contextrouter.model import Call, Context, Envelope, Intent, Period, Plan, Query, Step, Trace


def encoded(context: Context) -> bytes:
    """Return `context` as bytes. Raises Unfit when it would not come back equal."""
    for values in _open_ended(context):
        for name, value in values.items():
            _check(name)
            _check(value)
    try:
        return msgspec.msgpack.encode(_without_vectors(context), enc_hook=_number)
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        raise Unfit(str(error)) from error


def decoded(body: bytes | memoryview) -> Context:
    """Return the Context in `body`. Raises msgspec.DecodeError or ValueError for anything else."""
    return _context(_decoder().decode(body))


def _without_vectors(context: Context) -> Context:
    steps = tuple(step.replace(lost=_bare(step.lost)) for step in context.trace.steps)
    return context.replace(envelopes=_bare(context.envelopes), trace=context.trace.replace(steps=steps))


def _bare(envelopes: Sequence[Envelope]) -> tuple[Envelope, ...]:
    return tuple(e if e.vector is None else e.replace(vector=None) for e in envelopes)


def _open_ended(context: Context) -> Iterator[Mapping[str, Any]]:
    """Every mapping whose values have no type that could be checked when they are read."""
    for envelope in (*context.envelopes, *context.trace.dropped):
        yield envelope.document.metadata
    yield from (fact.attributes for fact in context.facts)
    yield from (entity.attributes for entity in context.entities)
    yield from (intent.attributes for intent in (context.intent, context.trace.plan.intent))
    for call in context.trace.plan.calls:
        yield call.query.filters


def _check(value: Any) -> None:
    kind = type(value)
    if value is None or kind in (str, int, float, bool, bytes):
        return
    if kind in (list, tuple):
        for item in value:
            _check(item)
    elif kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise Unfit(f"{name!r} is a {type(name).__name__}, not a text")
            _check(item)
    elif not (kind is datetime and value.tzinfo is not None):
        raise Unfit(f"a {kind.__name__} has no form outside memory")


def _number(value: Any) -> Any:
    """Numbers of other libraries, where a number stands."""
    plain = getattr(value, "item", lambda: None)()
    if type(plain) in (int, float, bool):
        return plain
    raise NotImplementedError(f"a {type(value).__name__} has no form outside memory")


# `Period` may hold a day or an instant, which MessagePack's types do not tell apart. So the nouns that hold
# one are read by way of structs with the same fields, in which a period is still text.


class _Days(msgspec.Struct, frozen=True, kw_only=True):
    start: Any = None
    end: Any = None
    zone: str = "UTC"


def _like(noun: type[msgspec.Struct], **types: Any) -> Any:
    """A struct with the fields of `noun`, some of another type."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(noun):
        default = () if field.default is msgspec.NODEFAULT else (field.default,)
        fields.append((field.name, types.get(field.name, field.type), *default))
    return msgspec.defstruct(noun.__name__, fields, frozen=True, kw_only=True)


@cache
def _decoder() -> msgspec.msgpack.Decoder[Any]:
    intent = _like(Intent, period=_Days | None)
    query = _like(Query, period=_Days | None)
    calls: Any = tuple.__class_getitem__((_like(Call, query=query), ...))
    plan = _like(Plan, intent=intent, calls=calls)
    step = _like(Step, lost=tuple[Envelope, ...])
    trace = _like(Trace, plan=plan, steps=tuple.__class_getitem__((step, ...)))
    return msgspec.msgpack.Decoder(_like(Context, intent=intent, trace=trace))


def _fields(read: Any, **changes: Any) -> dict[str, Any]:
    return {**msgspec.structs.asdict(read), **changes}


def _context(read: Any) -> Context:
    plan = read.trace.plan
    calls = tuple(
        Call(**_fields(call, query=Query(**_fields(call.query, period=_period(call.query.period)))))
        for call in plan.calls
    )
    steps = tuple(Step(**_fields(step)) for step in read.trace.steps)
    trace = Trace(plan=Plan(**_fields(plan, intent=_intent(plan.intent), calls=calls)), steps=steps)
    return Context(**_fields(read, intent=_intent(read.intent), trace=trace))


def _intent(read: Any) -> Intent:
    return Intent(**_fields(read, period=_period(read.period)))


def _period(read: _Days | None) -> Period | None:
    return None if read is None else Period(start=_moment(read.start), end=_moment(read.end), zone=read.zone)


def _moment(read: Any) -> date | datetime | None:
    if read is None or isinstance(read, datetime):
        return read
    if not isinstance(read, str):
        raise ValueError(f"{read!r} is no day and no instant")
    return date.fromisoformat(read) if len(read) == 10 else datetime.fromisoformat(read)
