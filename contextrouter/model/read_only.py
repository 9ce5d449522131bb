"""Read-only results: what a reader changes in an answer changes no cache and no store, but raises TypeError.

Mappings and lists stay `dict` and `list`, so that they are compared, encoded and copied as before:
`dict(document.metadata)` is a copy that can be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, overload

from msgspec.structs import replace

from contextrouter.model.document import Envelope
from contextrouter.model.request import Intent, Plan
from contextrouter.model.result import Context


def _refuse(self: object, *arguments: object, **keywords: object) -> NoReturn:
    raise TypeError("A result is read-only, and may be shared with other callers. Change a copy of it.")


class ReadOnlyMapping(dict[str, Any]):
    """A mapping whose values cannot be changed, added or taken out."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyMapping, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list whose items cannot be changed, added or taken out."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyList, (list(self),)


class ReadOnlyEnvelopes(Sequence[Envelope]):
    """Envelopes that become read-only when they are read: of those lost in a step few ever are."""

    __slots__ = ("_envelopes",)

    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        self._envelopes = envelopes

    def __len__(self) -> int:
        return len(self._envelopes)

    def __iter__(self) -> Iterator[Envelope]:
        return map(_envelope, self._envelopes)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        chosen = self._envelopes[index]
        return (
            _envelope(chosen)
            if isinstance(chosen, Envelope)
            else [_envelope(envelope) for envelope in chosen]
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadOnlyEnvelopes | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # envelopes have no hash

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyEnvelopes, (list(self._envelopes),)


def read_only(value: Any) -> Any:
    """Return a value of metadata in read-only form. Other objects than mappings, lists and sets stay."""
    kind = type(value)
    if kind in _READ_ONLY:
        return value
    if kind is dict or isinstance(value, Mapping):
        return ReadOnlyMapping({key: read_only(item) for key, item in value.items()})
    if kind is list:
        return ReadOnlyList([read_only(item) for item in value])
    if kind is tuple:
        return tuple([read_only(item) for item in value])
    return frozenset(value) if kind is set else value


_READ_ONLY = frozenset({str, int, float, bool, ReadOnlyMapping, ReadOnlyList})
_NOTHING = ReadOnlyMapping()


def read_only_context(context: Context) -> Context:
    """Return a context whose mappings and lists are read-only, and are those of no store."""
    trace = context.trace
    steps = tuple([replace(s, lost=_lost(s.lost)) if s.lost != () else s for s in trace.steps])
    intent = _intent(context.intent)
    return replace(
        context,
        envelopes=tuple(map(_envelope, context.envelopes)),
        facts=tuple([replace(fact, attributes=read_only(fact.attributes)) for fact in context.facts]),
        entities=tuple(
            [replace(entity, attributes=read_only(entity.attributes)) for entity in context.entities]
        ),
        intent=intent,
        trace=replace(trace, steps=steps, plan=_plan(trace.plan, context.intent, intent)),
    )


def _envelope(envelope: Envelope) -> Envelope:
    metadata = envelope.document.metadata
    document = replace(envelope.document, metadata=read_only(metadata) if metadata else _NOTHING)
    return replace(envelope, document=document, signals=ReadOnlyMapping(envelope.signals))


def _lost(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
    if not len(envelopes) or isinstance(envelopes, ReadOnlyEnvelopes):
        return envelopes or ()
    return ReadOnlyEnvelopes(envelopes)


def _intent(intent: Intent) -> Intent:
    return intent.replace(filters=read_only(intent.filters), attributes=read_only(intent.attributes))


def _plan(plan: Plan, intent: Intent, read_only_intent: Intent) -> Plan:
    """Return a plan in read-only form. Mostly its intent is that of the context, whose form is there."""
    calls = [
        call.replace(query=call.query.replace(filters=read_only(call.query.filters)))
        if call.query.filters
        else call
        for call in plan.calls
    ]
    own = read_only_intent if plan.intent is intent else _intent(plan.intent)
    return plan.replace(intent=own, calls=tuple(calls), excluded=read_only(plan.excluded))
