"""Filters of Haystack as filters of a router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack.errors import FilterError

from contextrouter.adapting import all_of

OWN = "meta.metadata."
"""Where the metadata of a document stands in Haystack's."""


def filters_of(filters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the filters of a router: `==` and `in`, joined by AND.

    Raises FilterError for another operator, a value of None, and what is no filter: one left out would let
    through what it forbids.
    """
    if not filters:
        return {}
    operator = filters.get("operator")
    if "field" in filters:
        return _filter_of(filters)
    conditions = filters.get("conditions")
    if operator is None or not isinstance(conditions, list):
        raise FilterError(
            "A filter has 'field', 'operator' and 'value', or an 'operator' and a list of 'conditions'."
            f" It has: {', '.join(map(repr, filters))}."
        )
    if operator != "AND":
        raise FilterError(f"A router cannot join filters by {operator!r}. Join them by 'AND', or ask twice.")
    for condition in conditions:
        if not isinstance(condition, Mapping) or not condition:
            raise FilterError(f"A condition of a filter is a table, not {condition!r}.")
    return all_of(*[filters_of(condition) for condition in conditions])


def _filter_of(condition: Mapping[str, Any]) -> dict[str, Any]:
    field, operator = condition["field"], condition.get("operator")
    if operator not in ("==", "in"):
        raise FilterError(
            f"A router has no filter operator {operator!r}, of the field {field!r}. It has '==' and 'in'."
        )
    value = condition.get("value")
    if value is None:
        raise FilterError(f"The filter of the field {field!r} has no value. Give one, or a list for 'in'.")
    if (operator == "in") != isinstance(value, list):
        raise FilterError(
            f"The filter of the field {field!r} does not fit its operator: '==' takes one value, 'in' a list."
        )
    key = field.removeprefix(OWN) if field.startswith(OWN) else field.removeprefix("meta.")
    return {key: value}
