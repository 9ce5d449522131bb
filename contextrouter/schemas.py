"""Pydantic models of the nouns, for programs that describe their API with them: FastAPI's `response_model`.

They are made from the nouns, and describe what `to_dict` returns in every level of detail. Each takes a noun
as well: `schemas.Context.model_validate(context)` is the context in the brief form.
"""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, Literal

import msgspec

from contextrouter.errors import MissingDependency

try:
    from pydantic import BaseModel, ConfigDict, create_model, model_validator
except ImportError:
    raise MissingDependency("pydantic", "schemas", what="contextrouter.schemas") from None

import contextrouter
from contextrouter.model import Answer as AnswerNoun
from contextrouter.model import Context as ContextNoun
from contextrouter.model.plain_form import builtins
from contextrouter.serialization import plain_fields


class NounModel(BaseModel):
    """The plain form of a noun."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @model_validator(mode="before")
    @classmethod
    def _as_plain_form(cls, value: Any) -> Any:
        if isinstance(value, ContextNoun | AnswerNoun):
            return value.to_dict()
        return builtins(value) if isinstance(value, msgspec.Struct) else value


@cache
def _model(noun: type[msgspec.Struct]) -> type[NounModel]:
    fields: dict[str, Any] = {}
    for field in plain_fields(noun):
        hint = _hint(field.hint)
        fields[field.name] = (hint, ...) if field.required else (hint | None, None)
    return create_model(
        noun.__name__, __base__=NounModel, __module__=__name__, __doc__=noun.__doc__, **fields
    )


def _hint(hint: Any) -> Any:
    """Return a hint in which models stand for nouns."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _model(hint)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if not parts or origin is Literal:
        return hint
    parts = tuple([part if part is Ellipsis else _hint(part) for part in parts])
    if isinstance(hint, type(int | None)) or origin is typing.Union:
        return typing.Union[parts]  # noqa: UP007 - made of a list of parts
    return origin[parts]


Answer = _model(contextrouter.Answer)
Answerability = _model(contextrouter.Answerability)
Call = _model(contextrouter.Call)
Citation = _model(contextrouter.Citation)
Clarification = _model(contextrouter.Clarification)
Context = _model(contextrouter.Context)
Document = _model(contextrouter.Document)
Entity = _model(contextrouter.Entity)
Envelope = _model(contextrouter.Envelope)
Facet = _model(contextrouter.Facet)
Fact = _model(contextrouter.Fact)
Harvest = _model(contextrouter.Harvest)
Hit = _model(contextrouter.Hit)
Intent = _model(contextrouter.Intent)
ModelUsage = _model(contextrouter.ModelUsage)
Period = _model(contextrouter.Period)
Plan = _model(contextrouter.Plan)
Provenance = _model(contextrouter.Provenance)
Query = _model(contextrouter.Query)
RankedList = _model(contextrouter.RankedList)
Request = _model(contextrouter.Request)
Scope = _model(contextrouter.Scope)
SourceReport = _model(contextrouter.SourceReport)
Step = _model(contextrouter.Step)
Trace = _model(contextrouter.Trace)
Usage = _model(contextrouter.Usage)

__all__ = [
    "Answer",
    "Answerability",
    "Call",
    "Citation",
    "Clarification",
    "Context",
    "Document",
    "Entity",
    "Envelope",
    "Facet",
    "Fact",
    "Harvest",
    "Hit",
    "Intent",
    "ModelUsage",
    "Period",
    "Plan",
    "Provenance",
    "Query",
    "RankedList",
    "Request",
    "Scope",
    "SourceReport",
    "Step",
    "Trace",
    "Usage",
]
