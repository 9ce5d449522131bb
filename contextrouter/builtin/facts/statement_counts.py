# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Counting statements, each once however many documents make it, in SQL that SQLite and Postgres both
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from contextrouter.model import Entity, Facet

DIMENSIONS = ("subject", "predicate", "object", "entity")
"""What statements are counted by. An entity is a subject or an object."""
_BY = {
    "subject": "SELECT subject_key AS key, subject AS value FROM told",
    "predicate": "SELECT predicate AS key, predicate AS value FROM told",
    "object": "SELECT object_key AS key, object AS value FROM told",
    "entity": (
        "SELECT subject_key AS key, subject AS value FROM told"
        " UNION ALL SELECT object_key, object FROM told WHERE object_key <> subject_key"
    ),
}


def _told(condition: str, collate: str) -> str:
    """Statements that pass a condition over `facts f`, each once; `collate` makes order that of code
    points.
    """
    return (
        "WITH told AS (SELECT f.subject_key, f.predicate, f.object_key, f.valid_from, f.valid_to,"
        f" min(f.subject{collate}) AS subject, min(f.object{collate}) AS object FROM facts f WHERE"
        f" {condition} GROUP BY 1, 2, 3, 4, 5)"
    )


def by_dimension(dimension: str, condition: str, collate: str = "") -> str:
    """A query for (value, many) of one of `DIMENSIONS`."""
    return (
        f"{_told(condition, collate)} SELECT min(value{collate}) AS value, count(*) AS many FROM"
        f" ({_BY[dimension]}) e WHERE key <> '' GROUP BY key"
    )


def facets(dimension: str, rows: Iterable[Any]) -> list[Facet]:
    """Rows of `by_dimension`, most first, then by value."""
    counted = sorted((-many, value) for value, many in rows)
    return [Facet(dimension=dimension, value=value, count=-many) for many, value in counted]


def linked(name: str, limit: str, condition: str, predicates: str, collate: str = "") -> str:
    """A query for (key, name, facts, predicates) of what statements link with `name`; `predicates` is an
    aggregate over them.
    """
    return (
        f"{_told(f'(f.subject_key = {name} OR f.object_key = {name}) AND {condition}', collate)}"
        f" SELECT key, min(value{collate}) AS name, count(*) AS facts, {predicates} AS predicates FROM ("
        f"SELECT object_key AS key, object AS value, predicate FROM told WHERE subject_key = {name}"
        f" UNION ALL SELECT subject_key, subject, predicate FROM told WHERE object_key = {name}) n"
        f" WHERE key <> '' AND key <> {name} GROUP BY key ORDER BY facts DESC, key{collate} LIMIT {limit}"
    )


def degrees(is_one_of: str, condition: str) -> str:
    """A query for (key, degree): how many other names each has beside it; `is_one_of` says that `key` is
    one of those wanted.
    """
    ends = f"({is_one_of.format('f.subject_key')} OR {is_one_of.format('f.object_key')})"
    return (
        f"{_told(f'{ends} AND {condition}', '')} SELECT key, count(DISTINCT beside) AS degree FROM (SELECT"
        " subject_key AS key, object_key AS beside FROM told UNION ALL SELECT object_key, subject_key FROM"
        f" told) n WHERE {is_one_of.format('key')} AND beside <> '' AND beside <> key GROUP BY key"
    )


def entities(rows: Sequence[tuple[str, str, int, Sequence[str]]], degree: dict[str, int]) -> list[Entity]:
    """Rows of `linked` as entities, in their order."""
    return [
        Entity(
            id=key,
            name=name,
            attributes={"predicates": sorted(predicates), "facts": facts, "degree": degree[key]},
        )
        for key, name, facts, predicates in rows
    ]
