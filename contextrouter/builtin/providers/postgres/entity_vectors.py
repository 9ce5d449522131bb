# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Vectors of entities: kept with the names that facts have, all compared at each search.

Each write of facts takes out the rows of the entities they are about, so that what is kept is never out of
date; ingestion makes them anew. Writes of facts share a lock, and whoever keeps vectors has it alone: else
the facts could change between the look at them and the insertion of what they said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextrouter.builtin.providers.entity_texts import (
    NO_VECTORS,
    PAGE,
    EntityTexts,
    StoredFact,
    describe_entities,
    ready_rows,
)
from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.postgres.connection_pool import clean
from contextrouter.builtin.providers.postgres.filter import Values, visible
from contextrouter.contracts import EntityMatch
from contextrouter.errors import SourceError
from contextrouter.model import Query, Vector
from contextrouter.vectors import unit

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

NO_TABLE = (
    "Store has no table for vectors of entities; run `contextrouter db migrate`, then `contextrouter ingest`."
)
_LABELS = "f.tenant, f.compartment, f.sensitivity"
_WITHOUT = (
    f"(SELECT DISTINCT f.{{0}} AS key, {_LABELS} FROM facts f WHERE f.{{0}} <> '' AND NOT EXISTS (SELECT FROM"
    " entities{1} e WHERE (e.key, e.tenant, e.compartment, e.sensitivity) ="
    f" (f.{{0}}, {_LABELS})) ORDER BY 1, 2, 3, 4 LIMIT $1)"
)
"""In one order, whatever the plan: else texts of some are embedded, and vectors of others are expected."""


_LOCK = "SELECT pg_advisory_xact_lock{0}($1, hashtext(current_schema() || ':entities'))"


async def nearest(
    connection: Connection, vector: Vector, query: Query, threshold: float, suffix: str
) -> list[EntityMatch]:
    """The entities in scope with a cosine of `threshold` or more, nearest first, then by name.

    Raises SourceError where there are facts and no vectors of entities, or vectors of another length.
    """
    if not await schema.has_entities(connection):
        raise SourceError(NO_TABLE)
    if not await _has_vectors(connection, query, suffix):
        raise SourceError(NO_VECTORS)
    hint = unit(vector)
    if hint is None:
        return []
    values = Values()
    access = visible(query.scope, "e", values)
    direction = values.bound(list(hint), "real[]")
    minimum, limit = values.bound(threshold, "float8"), values.bound(max(query.limit, 0), "bigint")
    cosine = f"round(max(-(e.vector <#> {direction}::vector))::numeric, 6)::float8"
    rows = await connection.fetch(
        f"SELECT e.name, {cosine} AS cosine FROM entities{suffix} e WHERE e.vector IS NOT NULL AND {access}"
        f' GROUP BY e.name HAVING {cosine} >= {minimum} ORDER BY 2 DESC, e.name COLLATE "C" LIMIT {limit}',
        *values,
    )
    return [EntityMatch(name=row["name"], cosine=min(row["cosine"], 1.0)) for row in rows]


async def _has_vectors(connection: Connection, query: Query, suffix: str) -> bool:
    """Whether entities in scope have vectors, or there is none that needs them."""
    values = Values()
    entities, facts = (visible(query.scope, table, values) for table in "ef")
    sql = (
        f"SELECT EXISTS (SELECT FROM entities{suffix} e WHERE {entities}) OR NOT EXISTS (SELECT FROM facts f"
        f" WHERE {facts})"
    )
    return bool(await connection.fetchval(sql, *values))


async def without_vectors(connection: Connection, limit: int, suffix: str) -> list[EntityTexts]:
    """About `limit` entities that have no vectors, with the texts they need."""
    if not await schema.has_entities(connection):
        return []
    subjects, objects = (_WITHOUT.format(column, suffix) for column in ("subject_key", "object_key"))
    keys = await connection.fetch(f"{subjects} UNION {objects}", limit)
    entities = [(row["key"], (row["tenant"], row["compartment"], row["sensitivity"])) for row in keys]
    rows = await connection.fetch(
        "SELECT subject, predicate, object, subject_key, object_key, valid_to, tenant, compartment,"
        " sensitivity FROM facts WHERE subject_key = ANY ($1::text[]) OR object_key = ANY ($1::text[]) ORDER"
        ' BY confidence DESC, predicate COLLATE "C", object COLLATE "C", subject COLLATE "C"',
        sorted({key for key, _ in entities}),
    )
    return describe_entities(entities, (StoredFact(*tuple(row)) for row in rows))


async def without_vectors_of(connection: Connection, limit: int, model: tuple[str, int]) -> list[EntityTexts]:
    """As `without_vectors`, in the place of a model's vectors."""
    return await without_vectors(connection, limit, await schema.suffix_of(connection, *model))


async def insert(connection: Connection, vectors: Mapping[str, Vector], suffix: str) -> int:
    """Keep the vectors of the next entities that have none, where all of their texts are in `vectors`; return
    how many those are. Call inside a write transaction.
    """
    await connection.execute(_LOCK.format(""), schema.LOCK)
    entities = ready_rows(await without_vectors(connection, PAGE, suffix), vectors)
    rows: list[tuple[Any, ...]] = []
    for entity, texts in entities:
        units: Sequence[Any] = [row for vector in texts if (row := unit(vector)) is not None] or [None]
        rows += [(entity.key, *entity.labels, n, clean(entity.name), v) for n, v in enumerate(units)]
    await connection.executemany(
        f"INSERT INTO entities{suffix} VALUES ($1, $2, $3, $4, $5, $6, $7::real[]::vector)"
        " ON CONFLICT DO NOTHING",
        rows,
    )
    return len(entities)


async def forget_entities(connection: Connection, keys: Iterable[str]) -> None:
    """Take out the vectors of entities whose facts change, in one order, so that writers do not wait for one
    another in a circle. Call inside a write transaction.
    """
    names = sorted(set(keys))
    if not names:
        return
    await connection.execute(_LOCK.format("_shared"), schema.LOCK)
    for suffix in await schema.entity_places(connection):
        await connection.execute(
            f"DELETE FROM entities{suffix} e USING (SELECT key, tenant, compartment, sensitivity, place FROM"
            f" entities{suffix} WHERE key = ANY ($1::text[]) ORDER BY 1, 2, 3, 4, 5 FOR UPDATE) g WHERE"
            " (e.key, e.tenant, e.compartment, e.sensitivity, e.place) = (g.key, g.tenant, g.compartment,"
            " g.sensitivity, g.place)",
            names,
        )
