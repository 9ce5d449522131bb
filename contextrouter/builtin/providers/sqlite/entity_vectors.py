# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Vectors of entities: kept with the names that facts have, searched in memory.

Each write of facts takes out the rows of the entities they are about, so that what is kept is never out of
date; ingestion makes them anew.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.entity_texts import (
    NO_VECTORS,
    PAGE,
    EntityTexts,
    Labels,
    StoredFact,
    describe_entities,
    ready_rows,
)
from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.filter import visible
from contextrouter.builtin.providers.sqlite.rows import numpy
from contextrouter.builtin.providers.sqlite.snapshot_cache import SnapshotCache
from contextrouter.builtin.providers.vector_slots import REBUILD
from contextrouter.contracts import EntityMatch
from contextrouter.errors import SourceError
from contextrouter.model import Document, Query, Vector
from contextrouter.vectors import unit_array

_LABELS = "f.tenant, f.compartment, f.sensitivity"
_WITHOUT = (
    f"SELECT DISTINCT f.{{0}} AS key, {_LABELS} FROM facts f WHERE f.{{0}} <> '' AND NOT EXISTS (SELECT 1"
    " FROM entities{1} e WHERE (e.key, e.tenant, e.compartment, e.sensitivity) ="
    f" (f.{{0}}, {_LABELS})) LIMIT ?1"
)


class _Rows(NamedTuple):
    """All vectors of entities, one row each, and the name and the labels of each row."""

    names: Sequence[str]
    labels: Sequence[Labels]
    vectors: Any


class EntityIndex(SnapshotCache[_Rows]):
    """Finds the entities near a vector. All vectors are read again after a write."""

    keys = ("store", "generation")

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self._suffix = suffix

    def nearest(
        self, connection: sqlite3.Connection, vector: Vector, query: Query, threshold: float
    ) -> list[EntityMatch]:
        """The entities in scope with a cosine of `threshold` or more, nearest first, then by name.

        Raises SourceError where there are facts and no vectors of entities, or vectors of another length.
        """
        if not _has_vectors(connection, query, self._suffix):
            raise SourceError(NO_VECTORS)
        rows, hint = self.read_at(connection), unit_array(vector)
        if hint is None or not len(rows.names):
            return []
        if rows.vectors.shape[1] != len(hint):
            raise SourceError(
                f"Hint has a vector of {len(hint)} dimensions, entities have {rows.vectors.shape[1]}; run"
                f" {REBUILD}."
            )
        cosines = numpy().round(rows.vectors @ hint, 6)
        best: dict[str, float] = {}
        for row in numpy().flatnonzero(cosines >= threshold):
            if _shows(query, rows.labels[row]):
                name = rows.names[row]
                best[name] = max(best.get(name, -1.0), float(cosines[row]))
        ranked = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[: max(query.limit, 0)]
        return [EntityMatch(name=name, cosine=min(cosine, 1.0)) for name, cosine in ranked]

    def first(self, connection: sqlite3.Connection) -> _Rows:
        """The vectors in the snapshot of `connection`."""
        rows = connection.execute(
            f"SELECT name, tenant, compartment, sensitivity, vector FROM entities{self._suffix}"
            " WHERE vector IS NOT NULL"
        ).fetchall()
        np = numpy()
        width = len(rows[0][-1]) // 4 if rows else 0
        vectors = np.frombuffer(b"".join(row[-1] for row in rows), "<f4").reshape(len(rows), width)
        return _Rows([row[0] for row in rows], [row[1:4] for row in rows], vectors)


def _shows(query: Query, labels: Labels) -> bool:
    tenant, compartment, sensitivity = labels
    return query.scope is None or query.scope.allows(
        Document(content="", tenant=tenant, compartment=compartment, sensitivity=sensitivity)
    )


def _has_vectors(connection: sqlite3.Connection, query: Query, suffix: str) -> bool:
    """Whether entities in scope have vectors, or there is none that needs them."""
    if not schema.has_entities(connection):
        return False
    entities, facts = visible(query.scope, "e"), visible(query.scope, "f")
    sql = (
        f"SELECT EXISTS (SELECT 1 FROM entities{suffix} e WHERE {entities.where}) OR NOT EXISTS (SELECT 1"
        f" FROM facts f WHERE {facts.where})"
    )
    return bool(connection.execute(sql, (*entities.values, *facts.values)).fetchone()[0])


def without_vectors(connection: sqlite3.Connection, limit: int, suffix: str) -> list[EntityTexts]:
    """About `limit` entities that have no vectors, with the texts they need."""
    if schema.has_entities(connection):
        subjects, objects = (_WITHOUT.format(column, suffix) for column in ("subject_key", "object_key"))
        sql = f"SELECT * FROM ({subjects}) UNION SELECT * FROM ({objects})"
    else:
        sql = (
            "SELECT subject_key, tenant, compartment, sensitivity FROM facts WHERE subject_key <> '' UNION"
            " SELECT object_key, tenant, compartment, sensitivity FROM facts WHERE object_key <> '' LIMIT ?1"
        )
    entities = [(row[0], (row[1], row[2], row[3])) for row in connection.execute(sql, (limit,))]
    keys = json.dumps(sorted({key for key, _ in entities}))
    rows = connection.execute(
        "SELECT subject, predicate, object, subject_key, object_key, valid_to, tenant, compartment,"
        " sensitivity FROM facts WHERE number IN (SELECT number FROM facts WHERE subject_key IN (SELECT value"
        " FROM json_each(?1)) UNION SELECT number FROM facts WHERE object_key IN (SELECT value FROM"
        " json_each(?1))) ORDER BY confidence DESC, predicate, object, subject",
        (keys,),
    )
    return describe_entities(entities, (StoredFact(*row) for row in rows))


def insert(connection: sqlite3.Connection, vectors: Mapping[str, Vector], suffix: str) -> int:
    """Keep the vectors of the next entities that have none, where all of their texts are in `vectors`; return
    how many those are.
    """
    rows = ready_rows(without_vectors(connection, PAGE, suffix), vectors)
    for entity, texts in rows:
        units = [unit for vector in texts if (unit := unit_array(vector)) is not None]
        blobs = [unit.tobytes() for unit in units] if units else [None]
        connection.executemany(
            f"INSERT INTO entities{suffix} VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(entity.key, *entity.labels, number, entity.name, blob) for number, blob in enumerate(blobs)],
        )
    if rows:
        schema.add(connection, "generation", 1)
    return len(rows)


def forget_entities(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    """Take out the vectors of entities whose facts change. Call inside a write transaction."""
    names = json.dumps(sorted(set(keys)))
    for suffix in schema.suffixes(connection):
        connection.execute(
            f"DELETE FROM entities{suffix} WHERE key IN (SELECT value FROM json_each(?))", (names,)
        )
