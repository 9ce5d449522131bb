# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Statement counts as SQL, for SQLite and Postgres. Equal facts of several documents count once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from contextrouter.model import Entity, Facet

DIMENSIONS = ("subject", "predicate", "object", "entity")
"""The dimensions of counts. An entity is a subject or an object."""
_KEYS_AND_VALUES = {
    "subject": "SELECT subject_key AS key, subject AS value FROM statements",
    "predicate": "SELECT predicate AS key, predicate AS value FROM statements",
    "object": "SELECT object_key AS key, object AS value FROM statements",
    "entity": (
        "SELECT subject_key AS key, subject AS value FROM statements"
        " UNION ALL SELECT object_key, object FROM statements WHERE object_key <> subject_key"
    ),
}


def _statements(condition: str, collate: str) -> str:
    """Return a CTE of the distinct statements that meet a condition over `facts f`. `collate` orders by code
    point.
    """
    return (
        "WITH statements AS (SELECT f.subject_key, f.predicate, f.object_key, f.valid_from, f.valid_to,"
        f" min(f.subject{collate}) AS subject, min(f.object{collate}) AS object FROM facts f WHERE"
        f" {condition} GROUP BY 1, 2, 3, 4, 5)"
    )


def count_query(dimension: str, condition: str, collate: str = "") -> str:
    """Return a query for (value, many) of one of `DIMENSIONS`."""
    return (
        f"{_statements(condition, collate)} SELECT min(value{collate}) AS value, count(*) AS many FROM"
        f" ({_KEYS_AND_VALUES[dimension]}) e WHERE key <> '' GROUP BY key"
    )


def make_facets(dimension: str, rows: Iterable[Any], limit: int) -> list[Facet]:
    """Return the rows of `count_query` as facets, largest first, then by value; `limit` at most."""
    ordered = sorted((-many, value) for value, many in rows)[: max(limit, 0)]
    return [Facet(dimension=dimension, value=value, count=-many) for many, value in ordered]


def neighbour_query(name: str, limit: str, condition: str, predicates: str, collate: str = "") -> str:
    """Return a query for (key, name, facts, predicates) of the neighbours of `name`. `predicates` is an
    aggregate.
    """
    return (
        f"{_statements(f'(f.subject_key = {name} OR f.object_key = {name}) AND {condition}', collate)}"
        f" SELECT key, min(value{collate}) AS name, count(*) AS facts, {predicates} AS predicates FROM ("
        f"SELECT object_key AS key, object AS value, predicate FROM statements WHERE subject_key = {name}"
        f" UNION ALL SELECT subject_key, subject, predicate FROM statements WHERE object_key = {name}) n"
        f" WHERE key <> '' AND key <> {name} GROUP BY key ORDER BY facts DESC, key{collate} LIMIT {limit}"
    )


def degree_query(is_one_of: str, condition: str) -> str:
    """Return a query for (key, degree): the number of neighbours of each name. `is_one_of` selects
    the names.
    """
    ends = f"({is_one_of.format('f.subject_key')} OR {is_one_of.format('f.object_key')})"
    return (
        f"{_statements(f'{ends} AND {condition}', '')} SELECT key, count(DISTINCT neighbour) AS degree FROM"
        " (SELECT subject_key AS key, object_key AS neighbour FROM statements UNION ALL SELECT object_key,"
        f" subject_key FROM statements) n WHERE {is_one_of.format('key')} AND neighbour <> ''"
        " AND neighbour <> key GROUP BY key"
    )


def make_entities(
    rows: Sequence[tuple[str, str, int, Sequence[str]]], degree: dict[str, int]
) -> list[Entity]:
    """Return the rows of `neighbour_query` as entities, in their order."""
    return [
        Entity(
            id=key,
            name=name,
            attributes={"predicates": sorted(predicates), "facts": facts, "degree": degree[key]},
        )
        for key, name, facts, predicates in rows
    ]
