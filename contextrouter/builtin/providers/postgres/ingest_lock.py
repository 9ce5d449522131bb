"""Whose turn it is to fill a store in Postgres: an advisory lock of a transaction, which ends with the
connection that has it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import Any

from contextrouter.builtin.providers.postgres.connection_pool import Pool
from contextrouter.builtin.providers.postgres.schema import LOCK
from contextrouter.errors import SourceError

_KEY = LOCK + 1
"""The first half of the lock's key; the second is a hash of the schema's name."""
_TAKE = "SELECT pg_try_advisory_xact_lock($1, hashtext($2))"
_HOLDER = (
    "SELECT a.pid, coalesce(host(a.client_addr), 'this machine') AS place, to_char(a.xact_start AT TIME ZONE"
    " 'UTC', 'HH24:MI:SS') AS since FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype"
    " = 'advisory' AND l.granted AND l.classid = $1::bigint::oid AND l.objid = (hashtext($2)::bigint &"
    " 4294967295)::oid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class IngestLock:
    """The turns at one schema. The connection that has one is not of the pool, and holds nothing else."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held: AsyncExitStack | None = None

    async def acquire(self) -> str:
        """Take the turn: "". Else say who has it. Raises SourceError when the server cannot be asked."""
        if self._held is not None:
            return "this process"
        async with AsyncExitStack() as stack:
            connection: Any = await stack.enter_async_context(self._pool.alone())
            await connection.execute("BEGIN")  # a lock of the transaction: a pooler may stand between
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            if await connection.fetchval(_TAKE, _KEY, self._pool.schema):
                self._held = stack.pop_all()
                return ""
            row = await connection.fetchrow(_HOLDER, _KEY, self._pool.schema)
        return (
            f"a connection from {row['place']} (pid {row['pid']}) since {row['since']} UTC"
            if row
            else "another process"
        )

    async def release(self) -> None:
        """Give it back, if it is ours."""
        lock, self._held = self._held, None
        if lock is not None:
            with suppress(SourceError):  # the connection is gone, and the lock with it
                await lock.aclose()
