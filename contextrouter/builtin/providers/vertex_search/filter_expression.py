"""Scope and filters of a query as a filter expression of Vertex AI Search: `field: ANY("a", "b") AND …`.

Only labels that the table maps to a field of the store can be asked for there. The rest is checked on
arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import category

from contextrouter.model import Query
from contextrouter.scope import SHARED

NONE = "-"  # what a document has in the field of a label that it lacks


def expression(query: Query, labels: Mapping[str, str]) -> str:
    """Return the filter of a query, by `labels`: our name -> field of the store. "": nothing to ask for."""
    parts = [
        f"{field}: ANY({', '.join(map(quote_string, values))})"
        for field, values in _conditions(query, labels)
    ]
    return " AND ".join(parts)


def checks_on_arrival(query: Query, labels: Mapping[str, str]) -> bool:
    """Whether something of a query cannot be asked for, so that more results have to be fetched."""
    names = {*query.filters, *(["labels"] if query.labels else [])}
    if query.scope is not None:
        names |= {"tenant", "compartment", "sensitivity"} & {*labels}
    unmapped = names - {*labels} or {
        name for name in query.filters if name in labels and not _any_of(query.filters[name])
    }
    return bool(unmapped or query.period is not None or query.excluded)


def quote_string(text: str) -> str:
    """Return a text as a string of the filter language: what is in it cannot end it. Control characters,
    which no string of it can hold, are left out.
    """
    clean = "".join(c for c in text.encode("utf-8", "replace").decode() if category(c) != "Cc")
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _conditions(query: Query, labels: Mapping[str, str]) -> list[tuple[str, Sequence[str]]]:
    conditions: list[tuple[str, Sequence[str]]] = []
    if (scope := query.scope) is not None:
        allowed = {
            "tenant": [scope.tenant or NONE, SHARED],
            "compartment": [NONE, *sorted(scope.compartments)],
            "sensitivity": [NONE, *scope.levels()],
        }
        conditions += [(labels[name], values) for name, values in allowed.items() if name in labels]
    for name, value in {**query.filters, **({"labels": query.labels} if query.labels else {})}.items():
        if name in labels and (texts := _any_of(value)):
            conditions.append((labels[name], texts))
    return conditions


def _any_of(value: Any) -> list[str]:
    """The values of a filter, where all are texts: ANY compares texts."""
    values = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    return values if values and all(isinstance(item, str) and item for item in values) else []
