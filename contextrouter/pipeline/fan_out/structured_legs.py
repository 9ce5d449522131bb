"""Structured legs: facts, facets, entities and paths, which are answers but no documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise, product
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
from contextrouter.runtime.plugin_calls import as_plain

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


def add_up_counts(answers: Sequence[Sequence[Facet]]) -> list[Facet]:
    """Return what several sources counted of one thing, documents or statements, as one: most first in each
    dimension, equal counts in the order of the sources. The answer of one source stays as it is.
    """
    answers = [answer for answer in answers if answer]
    if len(answers) < 2:
        return [facet for answer in answers for facet in answer]
    dimensions: dict[str, dict[str, int]] = {}
    for facet in chain.from_iterable(answers):
        values = dimensions.setdefault(facet.dimension, {})
        values[facet.value] = values.get(facet.value, 0) + facet.count
    return [
        Facet(dimension=dimension, value=value, count=values[value])
        for dimension, values in dimensions.items()
        for value in sorted(values, key=values.__getitem__, reverse=True)
    ]


def cut_counts(facets: Sequence[Facet], most: int) -> tuple[list[Facet], list[Facet]]:
    """Return the first `most` values of each dimension, and the others."""
    places: Counter[str] = Counter()
    kept: list[Facet] = []
    beyond: list[Facet] = []
    for facet in facets:
        places[facet.dimension] += 1
        (kept if places[facet.dimension] <= most else beyond).append(facet)
    return kept, beyond


async def _find_paths(
    source: SupportsGraph, query: Query, names: Sequence[tuple[str, ...]]
) -> Sequence[Fact]:
    """Return the facts between each entity and the next one, each fact once, in the order of the ways.

    An entity with several names is tried by each, in their order, until there is a way.
    """
    facts: list[Fact] = []
    for starts, goals in pairwise(names):
        for start, goal in product(starts, goals):
            if path := as_plain(await source.path(start, goal, query)):
                facts += [fact for fact in path if fact not in facts]
                break
    return facts
