"""Datapoints of an index: their ids, and restricts, which narrow a search before its limit.

A restrict has a namespace and tokens. Namespaces are joined by AND, the tokens of one by OR; a datapoint
without a namespace that is asked for is left out, so a missing label has the token "-".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.filters import attributes, forms
from contextrouter.model import Document, Query
from contextrouter.scope import SHARED

NONE = "-"
_LABELS = ("tenant", "compartment", "sensitivity")
_UPDATED = "updated_at"
_TENANT = "tenant="


def datapoint_id(tenant: str | None, id: str) -> str:
    """Return the id of a chunk's datapoint: that of the chunk, behind its tenant where it has one."""
    clean = _sendable(id)
    if not tenant and not clean.startswith(_TENANT):
        return clean
    return f"{_TENANT}{quote(tenant or '', safe='')}/{clean}"


def chunk_key(datapoint: str) -> tuple[str | None, str]:
    """Return the tenant and the id of the chunk that a datapoint stands for."""
    if not datapoint.startswith(_TENANT):
        return None, datapoint
    tenant, _, id = datapoint.removeprefix(_TENANT).partition("/")
    return unquote(tenant) or None, id


def make_datapoint(types: Any, chunk: Document, vector: Sequence[float]) -> Any:
    """Return the datapoint of a chunk, with its labels and all values that filters can ask for."""
    labels = {name: getattr(chunk, name) or NONE for name in _LABELS}
    tokens = {key: sorted(values) for key, values in attributes(chunk).items() if key not in _LABELS}
    point = types.IndexDatapoint
    datapoint = point(
        datapoint_id=datapoint_id(chunk.tenant, chunk.id),
        feature_vector=vector,
        restricts=[
            point.Restriction(namespace=_sendable(key), allow_list=values)
            for key, values in {**tokens, **{name: [token] for name, token in labels.items()}}.items()
        ],
    )
    if (moment := microseconds(chunk.updated_at)) is not None:
        datapoint.numeric_restricts = [point.NumericRestriction(namespace=_UPDATED, value_int=moment)]
    return datapoint


def restrict(types: Any, point: Any, query: Query) -> bool:
    """Narrow the datapoint of a query to scope, period, filters and labels. False: nothing can be found."""
    tokens = _restrict_tokens(query)
    if not all(tokens.values()):
        return False
    restriction, numeric = types.IndexDatapoint.Restriction, types.IndexDatapoint.NumericRestriction
    point.restricts = [
        restriction(namespace=_sendable(name), allow_list=sorted(values)) for name, values in tokens.items()
    ]
    if query.period is not None:
        start, end = map(microseconds, query.period.bounds())
        at_least, below = numeric.Operator.GREATER_EQUAL, numeric.Operator.LESS
        bounds = [
            (start if start is not None else -(2**62), at_least),
            *([] if end is None else [(end, below)]),
        ]
        point.numeric_restricts = [
            numeric(namespace=_UPDATED, value_int=value, op=sign) for value, sign in bounds
        ]
    return True


def _restrict_tokens(query: Query) -> Mapping[str, set[str]]:
    """The tokens that a query lets through, by namespace; an empty set lets nothing through."""
    tokens: dict[str, set[str]] = {}
    if (scope := query.scope) is not None:
        tokens = {
            "tenant": {_sendable(scope.tenant or NONE), SHARED},
            "compartment": {NONE, *map(_sendable, scope.compartments)},
            "sensitivity": {NONE, *scope.levels()},
        }
    for key, value in [*query.filters.items(), *([("labels", query.labels)] if query.labels else [])]:
        name, values = str(key), set(forms(value))
        tokens[name] = tokens[name] & values if name in tokens else values
    return tokens


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
