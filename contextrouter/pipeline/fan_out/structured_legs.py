"""Structured legs: facts, facets, entities and paths, which are answers but no documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

from contextrouter.contracts import (
    ENTITIES,
    FACETS,
    FACTS,
    PATH,
    FactSource,
    Source,
    SupportsEntities,
    SupportsFacets,
    SupportsGraph,
)
from contextrouter.errors import ContractError
from contextrouter.model import Facet, Fact, Query

STORE_DIMENSIONS = ("labels", "keywords", "kind")
"""What a store counts where a question names no dimension."""
FACT_DIMENSIONS = ("entity", "predicate")
"""What a fact source counts then."""


async def ask_structured(
    source: Source | FactSource,
    query: Query,
    names: Sequence[tuple[str, ...]],
    dimensions: Sequence[str] = (),
) -> Sequence[Any]:
    """Return what a source answers on a structured leg. `names` are those of each entity of the query,
    `dimensions` those that facets count; without any the default ones. Raises ContractError for a leg that
    the source does not have.
    """
    leg = query.leg
    if leg == FACTS and isinstance(source, FactSource):
        return await source.facts(query)
    if leg == ENTITIES and isinstance(source, SupportsEntities):
        return await source.entities(query)
    if leg == FACETS and isinstance(source, SupportsFacets):
        default = FACT_DIMENSIONS if isinstance(source, FactSource) else STORE_DIMENSIONS
        return await source.facets(query, dimensions or default)
    if leg == PATH and isinstance(source, SupportsGraph):
        return await _find_paths(source, query, names)
    raise ContractError(f"leg {leg!r} is not one this source has")


def note_cut(query: Query, answer: Sequence[Any]) -> str:
    """Say which of facts, entities or dimensions reached the limit of a query; empty: none."""
    names = [item.dimension if isinstance(item, Facet) else query.leg for item in answer]
    full = [name for name, number in Counter(names).items() if number >= query.limit]
    return f"{', '.join(full)}: the first {query.limit}, there may be more" if full else ""


async def _find_paths(
    source: SupportsGraph, query: Query, names: Sequence[tuple[str, ...]]
) -> Sequence[Fact]:
    """Return the facts between each entity and the next one, each fact once, in the order of the ways.

    An entity with several names is tried by each, in their order, until there is a way.
    """
    facts: list[Fact] = []
    for starts, goals in pairwise(names):
        for start, goal in product(starts, goals):
            if path := await source.path(start, goal, query):
                facts += [fact for fact in path if fact not in facts]
                break
    return facts
