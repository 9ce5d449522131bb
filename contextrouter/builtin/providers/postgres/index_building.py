# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Bulk loads: indexes are left out or dropped while a run stores many documents, and built at its end.

While they are away, searches read every row, so that they find what they found before. A note in `meta` says
that indexes are missing. It stays if the run dies; then the next run, or `contextrouter db tune --apply`,
builds them.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from contextrouter.builtin.providers.postgres import index_tuning, schema
from contextrouter.builtin.providers.postgres.error_messages import NoStore
from contextrouter.builtin.providers.postgres.index_tuning import GIN, Wanted
from contextrouter.builtin.providers.postgres.vector_leg import LEGS, near_index
from contextrouter.builtin.providers.vector_slots import FIRST, SECOND
from contextrouter.errors import SourceError

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection, Pool

log = logging.getLogger("contextrouter")
IndexAfterLoad: TypeAlias = bool | Literal["auto"]
COMPLETE, PUT_OFF = "complete", "missing until the load ends: searches read every row"
"""What `status()` says of the indexes."""
_NOTE = "load"  # key in `meta`; its value is the time when indexes were first left out
_AT_ONCE = 2  # indexes that are built at the same time
_LOCK_SECONDS = 5  # how long a drop waits for searches; new ones queue behind it


class BulkLoad(msgspec.Struct, frozen=True):
    """When indexes are built after a load, and with what. Raises ValueError for values out of range."""

    index_after_load: IndexAfterLoad
    maintenance_work_mem: str
    max_parallel_maintenance_workers: int

    def __post_init__(self) -> None:
        if self.index_after_load not in (True, False, "auto"):
            raise ValueError(
                f"index_after_load {self.index_after_load!r} is not known; give true, false or 'auto'."
            )
        index_tuning.check_range(
            "max_parallel_maintenance_workers", self.max_parallel_maintenance_workers, 0, 1024
        )
        index_tuning.check_memory("maintenance_work_mem", self.maintenance_work_mem)


async def begin(pool: Pool, options: BulkLoad, documents: int | None) -> None:
    """Leave indexes out from now on, if the options say so.

    `documents` is how many the run will store at least; None: nobody knows. With "auto" this happens where
    the store has no chunks, or where the run is known to store more documents than the store has.
    """
    if options.index_after_load is False:
        return
    await schema.lay_out(pool)
    try:
        async with pool.transaction(write=True) as connection:
            if options.index_after_load == "auto" and not await _is_large(connection, documents):
                return
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
            await schema.keep_note(connection, _NOTE, datetime.now(UTC).isoformat(timespec="seconds"))
            columns = (leg + suffix for suffix in (FIRST, SECOND) for leg in LEGS)
            for name in (*map(near_index, columns), *GIN):
                await connection.execute(f"DROP INDEX IF EXISTS {name}")
    except NoStore:
        raise
    except SourceError as error:  # another program reads all the time: the load goes on beside the indexes
        log.warning("Indexes stay during the load, because they cannot be dropped: %s", error)


async def _is_large(connection: Connection, documents: int | None) -> bool:
    """Whether the store has no chunks, or a run is known to store more documents than there are."""
    row = await connection.fetchrow(
        "SELECT (SELECT coalesce(sum(chunks), 0)::bigint FROM counts) AS chunks,"
        " (SELECT count(*) FROM documents) AS documents"
    )
    assert row is not None
    return not row["chunks"] or (documents is not None and documents > row["documents"])


async def left_out(connection: Connection) -> bool:
    """Whether indexes are missing because of a load."""
    return bool(await schema.read_meta(connection, _NOTE))


async def end(pool: Pool, options: BulkLoad, target: Wanted) -> None:
    """Build the indexes that a load left out, two at a time. Searches go on; writes wait.

    An index is whole or not there. If one cannot be built, the note stays.
    """
    try:
        async with pool.transaction() as connection:
            if not await left_out(connection):
                return
            needed = await index_tuning.missing(connection, target)
    except NoStore:
        return
    log.info("Building %d indexes after the load.", len(needed))
    at_once = asyncio.Semaphore(_AT_ONCE)
    try:
        async with asyncio.TaskGroup() as tasks:
            for change in needed:
                sql = index_tuning.first_statement(pool, change, target)
                tasks.create_task(_build(pool, options, sql, at_once))
    except* SourceError as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    async with pool.alone() as connection:
        await connection.execute(f'ANALYZE "{pool.schema}".chunks')
        await clear_note(connection, pool)


async def _build(pool: Pool, options: BulkLoad, sql: str, at_once: asyncio.Semaphore) -> None:
    """Build an index. Several processes share memory of the system, of which a container may have little;
    without it one process builds it.
    """
    import asyncpg

    async with at_once, pool.alone() as connection:
        for workers in dict.fromkeys((options.max_parallel_maintenance_workers, 0)):
            try:
                async with connection.transaction():
                    await connection.execute(
                        "SELECT set_config('maintenance_work_mem', $1, true),"
                        " set_config('max_parallel_maintenance_workers', $2, true)",
                        options.maintenance_work_mem,
                        str(workers),
                    )
                    await connection.execute(sql)
                return
            except (asyncpg.DiskFullError, asyncpg.OutOfMemoryError):
                if not workers:
                    raise


async def clear_note(connection: Any, pool: Pool) -> None:
    """Note that no index is missing because of a load."""
    await connection.execute(f'DELETE FROM "{pool.schema}".meta WHERE key = $1', _NOTE)
