# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""A change of the embedding model of a SQLite store: the vectors of a second model beside those of the first.

Each batch of the filling is a transaction of its own, so what an interruption leaves out is what has no row
yet. Searches read neither these rows nor their codes before `finish()` says so, in one transaction.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Mapping, Sequence

from contextrouter.builtin.providers.entity_texts import PAGE, EntityTexts, distinct_texts
from contextrouter.builtin.providers.payloads import document
from contextrouter.builtin.providers.sqlite import entity_vectors, schema, write
from contextrouter.builtin.providers.sqlite.file import StoreFile
from contextrouter.builtin.providers.vector_slots import (
    COUNTED_AS,
    NOTES,
    SECOND,
    Slot,
    place_for,
    present_slot,
)
from contextrouter.contracts import ChunkToEmbed, StoredModel
from contextrouter.model import Vector

_WITHOUT = "NOT EXISTS (SELECT 1 FROM vectors{0} v WHERE v.chunk = c.number)"


class SqliteModels:
    """The models whose vectors a store has."""

    def __init__(self, file: StoreFile, legs: Sequence[str]) -> None:
        self._file, self._legs = file, legs

    async def stored(self) -> Sequence[StoredModel]:
        """The models whose vectors are here, the first place first."""
        none: list[StoredModel] = []
        return await self._file.read(lambda c, _: _count_models(c), missing=none, must_exist=False)

    async def fingerprint_model(self) -> tuple[str, int] | None:
        """The model and dimensions that fingerprints count; None: the model was never changed."""
        note = await self._file.read(lambda c, _: schema.text(c, COUNTED_AS), missing="", must_exist=False)
        return tuple(json.loads(note)) if note else None

    async def begin(self, model: str, dimensions: int, embedder: str) -> None:
        """Make a place for the vectors of a model, or go on with it. Raises SourceError where there are two
        other models.
        """
        await self._file.write(lambda c, _: _begin_filling(c, model, dimensions, embedder))

    async def missing(self, model: str, limit: int, after: str = "") -> Sequence[ChunkToEmbed]:
        """The next chunks without vectors of a model, by their numbers."""
        return await self._file.read(lambda c, _: _find_gaps(c, model, limit, int(after or 0)), missing=[])

    async def add(self, model: str, vectors: Mapping[str, Mapping[str, Vector | None]]) -> int:
        """Keep vectors of chunks that are still there and have none; return how many these were."""

        def encoded() -> list[tuple[int, write.VectorRows]]:
            return [(int(key), write.encode_vectors(by_leg)) for key, by_leg in vectors.items()]

        return await self._file.write(lambda c, rows: _add_vectors(c, model, rows), encoded)

    async def entity_texts(self, model: str) -> Sequence[str]:
        """The distinct texts about the next entities that have no vectors of a model."""
        entities: list[EntityTexts] = await self._file.read(
            lambda c, _: entity_vectors.without_vectors(c, PAGE, _slot_of(c, model).suffix), missing=[]
        )
        return distinct_texts(entities)

    async def embed_entities(self, model: str, vectors: Mapping[str, Vector]) -> int:
        """Keep vectors of entities, by text; return how many entities have theirs now that had none."""
        return await self._file.write(
            lambda c, _: entity_vectors.insert(c, vectors, _slot_of(c, model).suffix)
        )

    async def finish(self, model: str) -> int:
        """Answer with a model from now on, if nothing is missing; return how much is."""
        return await self._file.write(lambda c, _: _finish_filling(c, model))

    async def drop(self, model: str) -> None:
        """Remove the vectors of a model, in one transaction."""
        await self._file.write(lambda c, _: _drop_model(c, model))


def _slot_of(connection: sqlite3.Connection, model: str) -> Slot:
    return present_slot(schema.slots(connection), model)


def _count_models(connection: sqlite3.Connection) -> list[StoredModel]:
    total = schema.number(connection, "chunks")
    models = []
    for slot in schema.slots(connection):
        rows = connection.execute(f"SELECT count(*) FROM vectors{slot.suffix}").fetchone()[0]
        models.append(slot.to_stored_model(rows, total - rows))
    return models


def _begin_filling(connection: sqlite3.Connection, model: str, dimensions: int, embedder: str) -> None:
    slots = schema.slots(connection)
    slot = place_for(slots, model, dimensions)
    if slot.suffix == SECOND:
        schema.make_second(connection)
    if slots and not schema.text(connection, COUNTED_AS):
        former = slots[0]
        schema.write_meta(connection, COUNTED_AS, json.dumps([former.model, former.dimensions]))
    notes: dict[str, str | int] = {"embedder": embedder}
    if slot not in slots:
        notes |= {"model": model, "dimensions": dimensions, "filling": 1, "filled": uuid.uuid4().hex}
    for key, value in notes.items():
        schema.write_meta(connection, key + slot.suffix, value)


def _find_gaps(connection: sqlite3.Connection, model: str, limit: int, after: int) -> list[ChunkToEmbed]:
    without = _WITHOUT.format(_slot_of(connection, model).suffix)
    rows = connection.execute(
        f"SELECT c.number, t.payload FROM chunks c JOIN texts t ON t.chunk = c.number WHERE c.number > ? AND"
        f" {without} ORDER BY c.number LIMIT ?",
        (after, limit),
    )
    return [ChunkToEmbed(key=str(number), document=document(stored)) for number, stored in rows]


def _add_vectors(
    connection: sqlite3.Connection, model: str, rows: Sequence[tuple[int, write.VectorRows]]
) -> int:
    slot = _slot_of(connection, model)
    added = 0
    for number, vectors in rows:
        for exact, _ in vectors.values():
            slot.check_length(len(exact) // 4)
        sql = f"SELECT 1 FROM chunks c WHERE c.number = ? AND {_WITHOUT.format(slot.suffix)}"
        if connection.execute(sql, (number,)).fetchone():
            write.insert_vectors(connection, number, vectors, slot.suffix)
            added += 1
    if added and not slot.filling:  # a gap is closed: what searches remember lacks these chunks
        schema.write_meta(connection, f"filled{slot.suffix}", uuid.uuid4().hex)
        schema.add(connection, "generation", 1)
    return added


def _finish_filling(connection: sqlite3.Connection, model: str) -> int:
    slot = _slot_of(connection, model)
    sql = f"SELECT count(*) FROM chunks c WHERE {_WITHOUT.format(slot.suffix)}"
    gaps = int(connection.execute(sql).fetchone()[0])
    gaps += len(entity_vectors.without_vectors(connection, PAGE, slot.suffix))
    if not gaps and slot.filling:
        connection.execute("DELETE FROM meta WHERE key = ?", (f"filling{slot.suffix}",))
        schema.write_meta(connection, f"filled{slot.suffix}", uuid.uuid4().hex)
        schema.add(connection, "generation", 1)
    return gaps


def _drop_model(connection: sqlite3.Connection, model: str) -> None:
    suffix = _slot_of(connection, model).suffix
    for table in schema.MODEL_TABLES:
        connection.execute(f"DELETE FROM {table}{suffix}")
    connection.executemany("DELETE FROM meta WHERE key = ?", [(key + suffix,) for key in NOTES])
    schema.write_meta(connection, f"filled{suffix}", uuid.uuid4().hex)
    schema.add(connection, "generation", 1)
