"""JSON serialization of results, for the command line and the server. Vectors are left out."""

from __future__ import annotations

import typing
from typing import Any, NamedTuple

import msgspec

from contextrouter.model import Answer, Context, Intent, Provenance, SourceReport
from contextrouter.model.plain_form import Detail, builtins, shorten
from contextrouter.pipeline.answerability import Answerability


class PlainField(NamedTuple):
    """A field of the plain form of a noun. One that is not required may be left out."""

    name: str
    hint: Any
    required: bool = False


QUERIES = PlainField("queries", tuple[str, ...])
ADDED: dict[type, list[PlainField]] = {
    Context: [
        QUERIES,
        PlainField("route", str, required=True),
        PlainField("answerability", Answerability, required=True),
        PlainField("degraded", bool, required=True),
    ],
    SourceReport: [PlainField("calls", int)],
}
"""The fields that plain forms have beside those of their nouns."""
LEFT_OUT = {(Context, "trace"), (SourceReport, "query"), (Intent, "question")}
"""Required fields of nouns that some level of detail leaves out."""


def plain_fields(noun: type[msgspec.Struct]) -> list[PlainField]:
    """Return the fields of the plain form of a noun, from the noun itself: for every description of it."""
    hints, short = typing.get_type_hints(noun, include_extras=True), getattr(noun, "BRIEF", None)
    fields = []
    for field in msgspec.structs.fields(noun):
        if field.name == "vector":
            continue
        hint = int if (noun, field.name) == (Provenance, "query") else hints[field.name]  # its place
        is_shown = (short is None or field.name in short) and (noun, field.name) not in LEFT_OUT
        fields.append(PlainField(field.name, hint, field.required and is_shown))
    return [*fields, *ADDED.get(noun, [])]


def plain(value: Any, detail: Detail = "trace") -> Any:
    """Return nouns as mappings, sequences and scalars, without vectors: contexts and answers in the `detail`
    asked for, all else whole.
    """
    return value.to_dict(detail) if isinstance(value, Context | Answer) else builtins(value)


def shorten_query(report: SourceReport) -> SourceReport:
    """Return a report with the beginning of its query."""
    query = shorten(report.query)
    return report if query == report.query else report.replace(query=query)
