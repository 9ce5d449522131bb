"""Metadata filters of LlamaIndex as filters of a router."""

from __future__ import annotations

from typing import Any

from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from contextrouter.adapting import all_of


def filters_of(filters: MetadataFilters | None) -> dict[str, Any]:
    """Return the filters of a router: `==` and `in`, joined by AND.

    Raises ValueError for another operator, another condition, and a value of None: a filter that is left out
    would let through what it forbids.
    """
    if filters is None:
        return {}
    if filters.condition not in (FilterCondition.AND, None) and (
        len(filters.filters) > 1 or filters.condition is FilterCondition.NOT
    ):
        raise ValueError(
            f"A router cannot join filters by {filters.condition.value!r}. Join them by 'and', or ask twice."
        )
    return all_of(
        *[
            filters_of(each) if isinstance(each, MetadataFilters) else _filter_of(each)
            for each in filters.filters
        ]
    )


def _filter_of(each: MetadataFilter) -> dict[str, Any]:
    if each.operator not in (FilterOperator.EQ, FilterOperator.IN):
        raise ValueError(
            f"A router has no filter operator {each.operator.value!r}, of the key {each.key!r}. It has '=='"
            " and 'in'."
        )
    if each.value is None:
        raise ValueError(f"The filter of the key {each.key!r} has no value. Give one, or a list for 'in'.")
    if (each.operator is FilterOperator.IN) != isinstance(each.value, list):
        raise ValueError(
            f"The filter of the key {each.key!r} does not fit its operator: '==' takes one value, and 'in' a"
            " list."
        )
    return {each.key: each.value}
