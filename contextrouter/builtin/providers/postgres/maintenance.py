"""Maintenance of a store in Postgres: migrations, what it holds, its indexes, and bulk loads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from contextrouter.builtin.providers.postgres import index_building, index_tuning, lookup, schema
from contextrouter.builtin.providers.postgres.connection_pool import Pool
from contextrouter.builtin.providers.postgres.index_building import BulkLoad
from contextrouter.contracts import Provider

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

_PAGE = 5_000  # fingerprints in one answer
_FINGERPRINTS = (
    "SELECT tenant, id, fingerprint FROM documents WHERE (tenant, id) > ($1, $2) ORDER BY tenant, id LIMIT $3"
)


async def _fingerprints(connection: Connection, tenant: str, id: str) -> list[Any]:
    """Return the fingerprints of the next documents after this one."""
    rows: list[Any] = await connection.fetch(_FINGERPRINTS, tenant, id, _PAGE)
    return rows


class Maintained(Provider):
    """A store in a schema of a database, as its administrator and ingestion see it."""

    pool: Pool
    many_writers = True
    """Several processes may upsert at the same time."""
    _model: tuple[str, int] = ("", 0)
    """The model whose vectors the store is asked with, and their length."""
    _wanted: index_tuning.Wanted
    _load: BulkLoad
    _usual: bool  # the weights of fields are those that the index of pg_textsearch was made with

    @property
    def _ranks(self) -> bool:
        """Whether pg_textsearch ranks as the settings want it."""
        return self.pool.ranks and self._usual

    async def stats(self) -> Mapping[str, int | str]:
        """Counts of what the store holds; generation, dimensions, model; and bytes on disk."""
        async with self.pool.transaction() as connection:
            return await lookup.stats(connection, self._model)

    async def fingerprint_pages(self) -> AsyncIterator[Sequence[tuple[str | None, str, str]]]:
        """Yield the (tenant, id, fingerprint) of all documents, page by page."""
        position = ("", "")
        while True:
            rows: list[Any] = await self.pool.answer(
                partial(_fingerprints, tenant=position[0], id=position[1]), missing=[]
            )
            if rows:
                yield [(row["tenant"] or None, row["id"], row["fingerprint"]) for row in rows]
            if len(rows) < _PAGE:
                return
            position = (rows[-1]["tenant"], rows[-1]["id"])

    async def begin_load(self, documents: int | None) -> None:
        """Prepare for a run that stores at least so many documents (None: nobody knows): vectors and terms
        may be indexed at its end.
        """
        await index_building.begin(self.pool, self._load, documents)

    async def end_load(self) -> None:
        """Build the indexes that this load, or one that died, left out."""
        await index_building.end(self.pool, self._load, self._wanted)

    async def migrate(self) -> Sequence[int]:
        """Bring the schema up to date; return the versions made. A newer schema is an error, and stays."""
        return await schema.migrate(self.pool)

    async def status(self) -> Mapping[str, int | str]:
        """Versions of server, pgvector and schema (0: no store yet), whether all indexes are there, and what
        `stats()` says.
        """
        async with self.pool.transaction() as connection:
            versions = await schema.versions(connection)
            if not versions["schema"]:
                return versions
            put_off = await index_building.left_out(connection)
            indexes = index_building.PUT_OFF if put_off else index_building.COMPLETE
            return {**versions, "indexes": indexes, **await lookup.stats(connection, self._model)}

    async def tune(self, *, apply: bool = False) -> Sequence[str]:
        """Say what should change in the indexes for the present rows; with `apply` do it, while searches go
        on.
        """
        async with self.pool.transaction() as connection:
            changes = await index_tuning.changes(connection, self._wanted, ranks=self._ranks)
            put_off = await index_building.left_out(connection)
        if apply and changes:
            await index_tuning.apply(self.pool, changes, self._wanted)
        if apply and put_off:
            async with self.pool.transaction(write=True) as connection:
                await index_building.clear_note(connection, self.pool)
        return [f"{c.leg}: {c.reason}{'; ' + c.definition if c.definition else ''}" for c in changes]
