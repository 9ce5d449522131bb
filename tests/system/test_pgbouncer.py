"""A store in Postgres behind a real PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.postgres_server import run, schema, uri
from support.stores import entry, ids

from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.contracts import Entry
from contextrouter.model import Document, Fact, Query
from contextrouter.scope import Scope

CONFIG = """
[databases]
postgres = host={socket} dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
"""


class Bouncer:
    """A pooler that has three connections to the server for all its clients."""

    def __init__(self, server: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.folder = Path(tempfile.mkdtemp(prefix="contextrouter-bouncer-"))
        self.folder.chmod(0o755)
        config = self.folder / "pgbouncer.ini"
        config.write_text(CONFIG.format(socket=server.partition("host=")[2], port=port))
        command = ["pgbouncer", str(config)]
        if os.geteuid() == 0:
            command[1:1] = [
                "-u",
                "embedded_postgres",
            ]  # whom the server runs as; its socket is for that user alone
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.folder)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    bouncer = Bouncer(await asyncio.to_thread(uri))
    try:
        for _ in range(200):
            try:
                connection = await asyncpg.connect(bouncer.dsn, statement_cache_size=0, timeout=5)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                await connection.close()
                break
        yield bouncer.dsn
    finally:
        bouncer.close()


@pytest.mark.case("PG-17", "PG-18")
async def test_many_clients_share_few_connections_in_transaction_mode(address: str) -> None:
    """Two processes' worth of pools, writes and every kind of read at once; scopes never mix."""
    name = schema()
    stores = [
        Postgres(dsn=address, schema=name, statement_cache_size=0, exact_below=0, pool_size=8)
        for _ in range(2)
    ]
    facts = PostgresFacts(dsn=address, schema=name, statement_cache_size=0)
    for each in (*stores, facts):
        await each.open()
    for tenant in ("a", "b"):
        fact = Fact(subject="sea", predicate="has", object=f"tides of {tenant}")
        document = Document(id=f"{tenant}-told", content="told", tenant=tenant)
        await stores[0].upsert([Entry(document=document, chunks=[document], facts=[fact])])
        rows = [entry(f"{tenant}{n}", "sea", vector=[1.0, float(n)], tenant=tenant) for n in range(20)]
        await stores[0].upsert(rows)

    async def ask(number: int) -> None:
        tenant, store = "ab"[number % 2], stores[number // 2 % 2]
        scope = Scope(tenant=tenant)
        for leg in store.legs:
            found = await ids(store, "sea", leg, vector=[1.0, 0.0], scope=scope, limit=20)
            assert len(found) == 20
            assert {id[0] for id in found} == {tenant}
        assert [f.object for f in await facts.facts(Query(text="sea", scope=scope))] == [f"tides of {tenant}"]
        await store.upsert(
            [entry(f"{tenant}{number % 20}", "sea", vector=[1.0, float(number)], tenant=tenant)]
        )

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(ask(number))
    (row,) = await run(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE usename = 'postgres' AND client_addr IS NULL"
        " AND application_name = 'contextrouter'"
    )
    assert row["n"] <= 3
    for each in (*stores, facts):
        await each.aclose()
    await run(f'DROP SCHEMA "{name}" CASCADE')
