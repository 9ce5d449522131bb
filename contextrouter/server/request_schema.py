"""Request validation, and the response schemas of the OpenAPI document."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contextrouter.model import Period, Request
from contextrouter.model.plain_form import Detail
from contextrouter.pipeline.request_validation import read_instant
from contextrouter.scope import Scope, Sensitivity
from contextrouter.serialization import plain_fields
from contextrouter.server.error_responses import Refused
from contextrouter.settings import Settings
from contextrouter.settings.schema import choices

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Names = Annotated[tuple[Name, ...], Meta(max_length=100)]
_NONE: Mapping[str, Any] = {}


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn of the conversation before the question."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[str, Meta(max_length=100_000)]


class ScopeAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scope of a request: the one of the API key, or a narrower one."""

    tenant: Name | None = None
    compartments: Names = ()
    ceiling: Sensitivity = "public"


class PeriodAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Inclusive days ("2026-03-01") or instants in ISO 8601. An end that is absent is open.

    Without `zone` they are in the time zone of the settings.
    """

    start: Name | None = None
    end: Name | None = None
    zone: Name | None = None


class PlanAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question. `deadline` is in seconds from now; `mode` names the route."""

    question: Annotated[str, Meta(min_length=1, max_length=20_000)]
    history: Annotated[tuple[Turn, ...], Meta(max_length=200)] = ()
    scope: ScopeAsked | None = None
    profile: Mapping[str, Any] = _NONE
    sources: Names | None = None
    legs: Names | None = None
    kinds: Names | None = None
    filters: Mapping[str, Any] = _NONE
    deadline: Annotated[float, Meta(gt=0)] | None = None
    mode: Name | None = None
    period: PeriodAsked | None = None
    labels: Names = ()
    as_of: Name | None = None
    limit: int | None = None

    def make_request(self, scope: Scope | None, sources: Sequence[str] | None, settings: Settings) -> Request:
        """Make the request to the router, with the scope and the sources that the caller may have."""
        history = tuple({"role": turn.role, "content": turn.content} for turn in self.history)
        period = self.period or PeriodAsked()
        zone = period.zone or settings.rag.timezone
        max_deadline = settings.serve.max_deadline_seconds
        return Request(
            question=self.question,
            history=history,
            scope=scope,
            profile=self.profile,
            sources=None if sources is None else tuple(sources),
            legs=self.legs,
            kinds=self.kinds,
            filters=self.filters,
            deadline=None if self.deadline is None else min(self.deadline, max_deadline),
            mode=self.mode,
            period=Period.of_texts(period.start, period.end, zone),
            labels=self.labels,
            as_of=None if self.as_of is None else read_instant(self.as_of, "as_of"),
            limit=self.limit,
        )

    def read_scope(self) -> Scope | None:
        """Return the scope that the caller asks for."""
        if self.scope is None:
            return None
        compartments = frozenset(self.scope.compartments)
        return Scope(tenant=self.scope.tenant, compartments=compartments, ceiling=self.scope.ceiling)


class RouteAsked(PlanAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to answer. With `stream`, source reports come as events, and then the result. `detail` says
    how much of the result is told: "full" has every field, and the text of each document; "trace" every step
    beside it, and every document that was lost in one.
    """

    stream: bool = False
    detail: Detail = "brief"


class SourceShown(msgspec.Struct, frozen=True, kw_only=True):
    """A source. `excluded` says why the caller may not ask it; empty: the caller may."""

    name: str
    kind: str
    use: str
    legs: Sequence[str]
    weight: float | None  # None: facts are not fused
    compartment: str | None = None
    sensitivity: str | None = None
    excluded: str = ""


class SourcesShown(msgspec.Struct, frozen=True, kw_only=True):
    """The sources, the routes, and the caller with its scope."""

    sources: Sequence[SourceShown]
    routes: Sequence[str]
    caller: str
    scope: Mapping[str, Any] | None = None
    examples: Sequence[str] = ()  # questions to begin with


SourceState = Literal[
    "ready", "not open", "paused after failures", "does not answer", "does not end its calls"
]


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the server, and of each source. `required` are those that it cannot do without."""

    status: str
    worker: int = 0  # the number of the process that answered, of several
    sources: Mapping[str, SourceState] = _NONE
    required: Names = ()


class PeriodShown(msgspec.Struct, frozen=True, kw_only=True):
    """Inclusive days in a named zone, or instants."""

    start: str | None = None
    end: str | None = None
    zone: str = "UTC"


def decode_body(body: bytes, noun: type[msgspec.Struct]) -> Any:
    """Decode and validate a body. Raises Refused: 400 for malformed JSON, 422 for an invalid object."""
    try:
        return msgspec.json.decode(body, type=noun)
    except msgspec.ValidationError as error:
        text = str(error)
        param = text.partition(" - at `$.")[2].rstrip("`")
        allowed = _choices_of(noun, param) if text.startswith("Invalid enum value") else ()
        remedy = f" Choose from {', '.join(allowed)}." if allowed else ""
        detail = f"The body is not what it should be: {text}.{remedy}"
        raise Refused(422, "invalid_body", detail, param=param or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "malformed_json", f"The body is not JSON: {error}.") from None


def _choices_of(noun: Any, param: str) -> Sequence[str]:
    """Return the values that a field may have, by its name; () where there is no such list."""
    for name in param.split("."):
        hints = {field.name: field.type for field in msgspec.structs.fields(noun)}
        hint = hints.get(name)
        parts = [hint, *typing.get_args(hint)]
        structs = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
        if not structs:
            return choices(hint)
        noun = structs[0]
    return ()


@cache
def schema_type(noun: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a type like `noun` that has a JSON schema: dates and instants are texts."""
    if noun is Period:
        return PeriodShown
    fields: list[Any] = []
    for field in plain_fields(noun):
        default = () if field.required else (msgspec.field(default=None),)
        fields.append((field.name, _schema_hint(field.hint), *default))
    struct = msgspec.defstruct(noun.__name__, fields, kw_only=True)
    struct.__doc__ = noun.__doc__
    return struct


def _schema_hint(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return schema_type(hint)
    arguments = typing.get_args(hint)
    if not arguments or typing.get_origin(hint) is Literal:
        return hint
    if typing.get_origin(hint) is not None and not isinstance(hint, type(int | None)):
        return typing.get_origin(hint)[
            tuple(part if part is Ellipsis else _schema_hint(part) for part in arguments)
        ]
    union = _schema_hint(arguments[0])
    for part in arguments[1:]:
        union |= _schema_hint(part)
    return union
