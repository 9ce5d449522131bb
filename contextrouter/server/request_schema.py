"""What callers send, as types that validate; the nouns, as types that describe what they get. The OpenAPI
document is of these.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contextrouter import model
from contextrouter.model import Period, Request
from contextrouter.pipeline.answerability import Answerability
from contextrouter.scope import Scope
from contextrouter.server.error_responses import Refused

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Names = Annotated[tuple[Name, ...], Meta(max_length=100)]
_NONE: Mapping[str, Any] = {}


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was said before the question."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[str, Meta(max_length=100_000)]


class ScopeAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer may be made of: the API key's scope, or less."""

    tenant: Name | None = None
    compartments: Names = ()
    ceiling: Literal["public", "internal", "confidential", "restricted"] = "public"


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

    def request(self, scope: Scope | None, sources: Sequence[str] | None, longest: float) -> Request:
        """The request to the router, with the scope and the sources that the caller may have."""
        history = tuple({"role": turn.role, "content": turn.content} for turn in self.history)
        return Request(
            question=self.question,
            history=history,
            scope=scope,
            profile=self.profile,
            sources=None if sources is None else tuple(sources),
            legs=self.legs,
            kinds=self.kinds,
            filters=self.filters,
            deadline=None if self.deadline is None else min(self.deadline, longest),
            mode=self.mode,
        )

    def narrower(self) -> Scope | None:
        """The scope asked for."""
        if self.scope is None:
            return None
        compartments = frozenset(self.scope.compartments)
        return Scope(tenant=self.scope.tenant, compartments=compartments, ceiling=self.scope.ceiling)


class RouteAsked(PlanAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to be answered. `stream`: source reports as events as they come, then the result."""

    stream: bool = False


class SourceShown(msgspec.Struct, frozen=True, kw_only=True):
    """A source, and whether the caller may ask it: `excluded` says why not."""

    name: str
    kind: str
    use: str
    legs: Sequence[str]
    weight: float | None  # None: facts are not fused
    compartment: str | None = None
    sensitivity: str | None = None
    excluded: str = ""


class SourcesShown(msgspec.Struct, frozen=True, kw_only=True):
    """The sources, the routes, and who is asking."""

    sources: Sequence[SourceShown]
    routes: Sequence[str]
    caller: str
    scope: Mapping[str, Any] | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is."""

    status: str


class PeriodShown(msgspec.Struct, frozen=True, kw_only=True):
    """Inclusive days in a named zone, or instants."""

    start: str | None = None
    end: str | None = None
    zone: str = "UTC"


def decoded(body: bytes, asked: type[msgspec.Struct]) -> Any:
    """Return a body as its type. Raises Refused: 400 what is no JSON, 422 what is no such object."""
    try:
        return msgspec.json.decode(body, type=asked)
    except msgspec.ValidationError as error:
        text = str(error)
        where = text.partition(" - at `$.")[2].rstrip("`")
        raise Refused(
            422, "invalid_body", f"The body is not what it should be: {text}.", param=where or None
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "malformed_json", f"The body is not JSON: {error}.") from None


@cache
def described(noun: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A type like `noun` of which a schema can be made: what is a date or an instant there is a text here."""
    if noun is Period:
        return PeriodShown
    hints = typing.get_type_hints(noun, include_extras=True)
    fields: list[Any] = []
    for field in msgspec.structs.fields(noun):
        hint = _described(hints[field.name])
        fields.append(
            (field.name, hint) if field.required else (field.name, hint, msgspec.field(default=None))
        )
    if noun is model.Context:
        fields += [("answerability", described(Answerability)), ("degraded", bool)]
    made = msgspec.defstruct(noun.__name__, fields, kw_only=True)
    made.__doc__ = noun.__doc__
    return made


def _described(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return described(hint)
    arguments = typing.get_args(hint)
    if not arguments or typing.get_origin(hint) is Literal:
        return hint
    if typing.get_origin(hint) is not None and not isinstance(hint, type(int | None)):
        return typing.get_origin(hint)[
            tuple(part if part is Ellipsis else _described(part) for part in arguments)
        ]
    made = _described(arguments[0])
    for part in arguments[1:]:
        made |= _described(part)
    return made
