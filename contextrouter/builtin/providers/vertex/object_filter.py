"""Scope, period, labels and filters of a query as a filter of a collection, applied before any limit.

Filters have $eq, $in (texts only), $gt and the like (numbers only), $and and $or. There is no $not and no
null, so a missing label has the value "-", and a missing date one below all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.builtin.providers.vertex.data_objects import NONE, UNDATED, encode_label, encode_value
from contextrouter.filters import forms
from contextrouter.model import Query
from contextrouter.scope import SHARED, Scope

Condition = Mapping[str, Any]


def in_scope(scope: Scope | None) -> list[Condition]:
    """Return the conditions of a scope, by the rule of `Scope.allows`."""
    if scope is None:
        return []
    return [
        {"tenant": {"$in": [encode_label(scope.tenant), SHARED]}},
        {"compartment": {"$in": [NONE, *map(encode_label, sorted(filter(None, scope.compartments)))]}},
        {"sensitivity": {"$in": [NONE, *scope.levels()]}},
    ]


def query_conditions(query: Query) -> list[Condition] | None:
    """Return the conditions of a query; None: nothing can meet them."""
    conditions = in_scope(query.scope)
    if query.period is not None:
        start, end = map(microseconds, query.period.bounds())
        lowest = UNDATED / 2 if start is None else float(start)
        conditions.append({"updated": {"$gte": lowest}})
        if end is not None:
            conditions.append({"updated": {"$lt": float(end)}})
    requested = [*query.filters.items(), *([("labels", query.labels)] if query.labels else [])]
    for key, value in requested:
        values = [encode_value(str(key), form) for form in forms(value)]
        if not values:
            return None
        conditions.append({"values": {"$in": values}})
    return conditions


def join_conditions(conditions: Sequence[Condition]) -> Condition:
    """Return one filter that holds where all conditions do."""
    return {"$and": list(conditions)} if len(conditions) > 1 else (conditions[0] if conditions else {})
