# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Statement counts as SQL, for SQLite and Postgres. Equal facts of several documents count once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from contextrouter.builtin.providers.stored_attributes import UNTRUSTED_MARK
from contextrouter.model import Entity, Facet

DIMENSIONS = ("subject", "predicate", "object", "entity")
"""The dimensions of counts. An entity is a subject or an object."""
_KEYS_AND_VALUES = {
    "subject": "SELECT subject_key AS key, subject AS value, foreign_text FROM statements",
    "predicate": "SELECT predicate AS key, predicate AS value, foreign_text FROM statements",
    "object": "SELECT object_key AS key, object AS value, foreign_text FROM statements",
    "entity": (
        "SELECT subject_key AS key, subject AS value, foreign_text FROM statements"
        " UNION ALL SELECT object_key, object, foreign_text FROM statements WHERE object_key <> subject_key"
    ),
}


def _statements(condition: str, collate: str) -> str:
    """Return a CTE of the distinct statements that meet a condition over `facts f`. `collate` orders by code
    point.
    """
    return (
        "WITH statements AS (SELECT f.subject_key, f.predicate, f.object_key, f.valid_from, f.valid_to,"
        f" min(f.subject{collate}) AS subject, min(f.object{collate}) AS object, max(CASE WHEN f.attributes"
        f" LIKE '%{UNTRUSTED_MARK}%' THEN 1 ELSE 0 END) AS foreign_text FROM facts f WHERE {condition}"
        " GROUP BY 1, 2, 3, 4, 5)"
    )


def count_query(dimension: str, condition: str, collate: str = "") -> str:
    """Return a query for (value, many, foreign_text) of one of `DIMENSIONS`. The last is 1 where strangers
    wrote one of the statements.
    """
    return (
        f"{_statements(condition, collate)} SELECT min(value{collate}) AS value, count(*) AS many,"
        f" max(foreign_text) AS foreign_text FROM ({_KEYS_AND_VALUES[dimension]}) e WHERE key <> '' GROUP BY"
        " key"
    )


def make_facets(dimension: str, rows: Iterable[Any], limit: int) -> list[Facet]:
    """Return the rows of `count_query` as facets, largest first, then by value; `limit` at most."""
    ordered = sorted((-many, value, foreign) for value, many, foreign in rows)[: max(limit, 0)]
    return [
        Facet(dimension=dimension, value=value, count=-many, untrusted=bool(foreign))
        for many, value, foreign in ordered
    ]


def neighbour_query(name: str, limit: str, condition: str, predicates: str, collate: str = "") -> str:
    """Return a query for (key, name, facts, predicates, foreign_text) of the neighbours of `name`.
    `predicates` is an aggregate.
    """
    return (
        f"{_statements(f'(f.subject_key = {name} OR f.object_key = {name}) AND {condition}', collate)}"
        f" SELECT key, min(value{collate}) AS name, count(*) AS facts, {predicates} AS predicates,"
        " max(foreign_text) AS foreign_text FROM (SELECT object_key AS key, object AS value, predicate,"
        f" foreign_text FROM statements WHERE subject_key = {name} UNION ALL SELECT subject_key, subject,"
        f" predicate, foreign_text FROM statements WHERE object_key = {name}) n"
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
    rows: Sequence[tuple[str, str, int, Sequence[str], int]], degree: dict[str, int]
) -> list[Entity]:
    """Return the rows of `neighbour_query` as entities, in their order."""
    return [
        Entity(
            id=key,
            name=name,
            attributes={"predicates": sorted(predicates), "facts": facts, "degree": degree[key]},
            untrusted=bool(foreign),
        )
        for key, name, facts, predicates, foreign in rows
    ]
