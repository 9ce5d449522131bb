# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""A change of the embedding model of a store in Postgres: the vectors of a second model beside those of the
first, in columns and indexes of their own.

Each batch of the filling is a transaction of its own, so what an interruption leaves out is what has no mark
yet. The index is built before `finish()` lets questions be answered, in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import TYPE_CHECKING

from contextrouter.builtin.providers.entity_texts import PAGE, distinct_texts
from contextrouter.builtin.providers.payloads import document
from contextrouter.builtin.providers.postgres import entity_vectors, index_tuning, schema, write
from contextrouter.builtin.providers.postgres.connection_pool import Pool
from contextrouter.builtin.providers.postgres.vector_leg import LEGS
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

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

_KEY = "(owner, document, place)"
_WITHOUT = "embedded{0} IS NOT TRUE AND vector{0} IS NULL AND keywords{0} IS NULL"


class PostgresModels:
    """The models whose vectors a store has."""

    def __init__(self, pool: Pool, target: index_tuning.Wanted) -> None:
        self._pool, self._wanted = pool, target

    async def stored(self) -> Sequence[StoredModel]:
        """The models whose vectors are here, the first place first."""
        none: list[StoredModel] = []
        return await self._pool.answer(_count_models, missing=none)

    async def fingerprint_model(self) -> tuple[str, int] | None:
        """The model and dimensions that fingerprints count; None: the model was never changed."""
        note = await self._pool.answer(lambda c: schema.read_meta(c, COUNTED_AS), missing="")
        return tuple(json.loads(note)) if note else None

    async def begin(self, model: str, dimensions: int, embedder: str) -> None:
        """Make a place for the vectors of a model, or go on with it. Raises SourceError where there are two
        other models, or the role does not own the tables.
        """
        await schema.lay_out(self._pool)
        async with self._pool.transaction(write=True) as connection:
            await _begin_filling(connection, model, dimensions, embedder)
        await self._pool.refresh()

    async def missing(self, model: str, limit: int, after: str = "") -> Sequence[ChunkToEmbed]:
        """The next chunks without vectors of a model, by their documents and places."""
        async with self._pool.transaction() as connection:
            without = _WITHOUT.format((await _slot_of(connection, model)).suffix)
            start = json.loads(after)[:3] if after else ("", "", -1)
            rows = await connection.fetch(
                f"SELECT owner, document, place, payload FROM chunks WHERE {_KEY} > ($1, $2, $3) AND"
                f" {without} ORDER BY owner, document, place LIMIT $4",
                *start,
                limit,
            )
        return [
            ChunkToEmbed(
                key=json.dumps(
                    [row["owner"], row["document"], row["place"], _payload_digest(row["payload"])]
                ),
                document=document(row["payload"]),
            )
            for row in rows
        ]

    async def add(self, model: str, vectors: Mapping[str, Mapping[str, Vector | None]]) -> int:
        """Keep vectors of chunks that are as they were and have none; return how many these were."""
        async with self._pool.transaction(write=True) as connection:
            slot = await _slot_of(connection, model)
            sql = (
                f"UPDATE chunks SET vector{slot.suffix} = $5::real[]::vector, keywords{slot.suffix} ="
                f" $6::real[]::vector, embedded{slot.suffix} = true WHERE {_KEY} = ($1, $2, $3) AND"
                f" md5(payload) = $4 AND {_WITHOUT.format(slot.suffix)} RETURNING 1"
            )
            keys = {key: json.loads(key) for key in vectors}
            # in one order, as in an upsert: no deadlock
            for owner in sorted({(owner, id) for owner, id, *_ in keys.values()}):
                lock = "SELECT FROM documents WHERE tenant = $1 AND id = $2 FOR UPDATE"
                await connection.execute(lock, *owner)
            added = 0
            for key, parts in keys.items():
                units = [_checked(vectors[key].get(leg), slot) for leg in LEGS]
                added += await connection.fetchval(sql, *parts, *units) or 0
            if added and not slot.filling:  # a gap is closed: kept results lack these chunks
                await write.note_change(connection)
        return added

    async def entity_texts(self, model: str) -> Sequence[str]:
        """The distinct texts about the next entities that have no vectors of a model."""
        async with self._pool.transaction() as connection:
            suffix = (await _slot_of(connection, model)).suffix
            entities = await entity_vectors.without_vectors(connection, PAGE, suffix)
        return distinct_texts(entities)

    async def embed_entities(self, model: str, vectors: Mapping[str, Vector]) -> int:
        """Keep vectors of entities, by text; return how many entities have theirs now that had none."""
        async with self._pool.transaction(write=True) as connection:
            slot = await _slot_of(connection, model)
            count = await entity_vectors.insert(connection, vectors, slot.suffix)
            if count and not slot.filling:  # kept results lack these entities
                await write.note_change(connection)
        return count

    async def finish(self, model: str) -> int:
        """Build the index, and answer with a model from then on, if nothing is missing; return how much
        is.
        """
        async with self._pool.transaction() as connection:
            slot = await _slot_of(connection, model)
            if gaps := await _count_gaps(connection, slot):
                return gaps
            changes = await index_tuning.changes_at(connection, self._wanted, slot)
        if changes:
            await index_tuning.apply(self._pool, changes, self._wanted)
        async with self._pool.transaction(write=True) as connection:
            gaps = await _count_gaps(connection, slot)
            if not gaps and slot.filling:
                await connection.execute("DELETE FROM meta WHERE key = $1", f"filling{slot.suffix}")
                await write.note_change(connection)
        return gaps

    async def drop(self, model: str) -> None:
        """Remove the vectors of a model, in one transaction. Their columns begin anew, which takes no time;
        the room on the disk comes back as rows are written again, or with VACUUM FULL.
        """
        async with self._pool.transaction(write=True) as connection:
            suffix = (await _slot_of(connection, model)).suffix
            if not await _has_second(connection):
                await connection.execute(schema.MAKE_SECOND)
            await connection.execute("SET LOCAL lock_timeout = '5s'")
            columns = [("vector", "vector"), ("keywords", "vector"), ("embedded", "boolean")]
            dropped = [f"DROP COLUMN {name}{suffix}" for name, _ in columns]
            await connection.execute(f"ALTER TABLE chunks {', '.join(dropped)}")
            added = [f"ADD COLUMN {name}{suffix} {kind}" for name, kind in columns]
            await connection.execute(f"ALTER TABLE chunks {', '.join(added)}")
            await connection.execute(f"TRUNCATE entities{suffix}")
            keys = [key + suffix for key in NOTES]
            await connection.execute("DELETE FROM meta WHERE key = ANY ($1::text[])", keys)
            await write.note_change(connection)


async def _has_second(connection: Connection) -> bool:
    return SECOND in await schema.entity_places(connection)


async def _slot_of(connection: Connection, model: str) -> Slot:
    return present_slot(await schema.slots(connection), model)


async def _count_models(connection: Connection) -> list[StoredModel]:
    total = await connection.fetchval("SELECT count(*) FROM chunks")
    marked = await _has_second(connection)
    models = []
    for slot in await schema.slots(connection):
        without = _WITHOUT.format(slot.suffix)
        if not marked:
            without = "vector IS NULL AND keywords IS NULL"
        gaps = await connection.fetchval(f"SELECT count(*) FROM chunks WHERE {without}")
        models.append(slot.to_stored_model(total - gaps, gaps))
    return models


async def _begin_filling(connection: Connection, model: str, dimensions: int, embedder: str) -> None:
    slots = await schema.slots(connection)
    slot = place_for(slots, model, dimensions)
    await connection.execute("SET LOCAL lock_timeout = '5s'")
    if not await _has_second(connection):
        await connection.execute(schema.MAKE_SECOND)
    if slots:
        counted = json.dumps([slots[0].model, slots[0].dimensions])
        await schema.keep_note(connection, COUNTED_AS, counted)
    notes = {"embedder": embedder}
    if slot not in slots:
        notes |= {"model": model, "dimensions": str(dimensions), "filling": "1"}
    for key, value in notes.items():
        await schema.set_note(connection, key + slot.suffix, value)


async def _count_gaps(connection: Connection, slot: Slot) -> int:
    without = _WITHOUT.format(slot.suffix)
    chunks = await connection.fetchval(f"SELECT count(*) FROM chunks WHERE {without}")
    return int(chunks) + len(await entity_vectors.without_vectors(connection, PAGE, slot.suffix))


def _checked(vector: Vector | None, slot: Slot) -> list[float] | None:
    unit = write.unit_or_null(vector)
    if unit is not None:
        slot.check_length(len(unit))
    return unit


def _payload_digest(payload: str) -> str:
    return md5(payload.encode(), usedforsecurity=False).hexdigest()
