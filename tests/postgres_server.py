"""One real Postgres for all tests of a run: started at first need, without fsync, gone with the process."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from contextrouter.builtin.providers import postgres_embedded
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query


@functools.cache
def uri() -> str:
    """The server's connection string, for its superuser."""
    address = postgres_embedded.start(postgres_embedded.example_folder())

    async def hurry() -> None:
        connection = await asyncpg.connect(address)
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            await connection.execute(f"ALTER SYSTEM SET {setting} = off")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()

    asyncio.run(hurry())
    return address


def schema() -> str:
    """A name that no other test uses."""
    return f"test_{uuid.uuid4().hex[:24]}"


@asynccontextmanager
async def opened(**keywords: Any) -> AsyncIterator[Postgres]:
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


def entry(id: str, content: str, *, vector: Sequence[float] | None = None, **fields: Any) -> Entry:
    """An entry of one chunk, with the same vector on both vector legs."""
    document = Document(id=id, content=content, **fields)
    return Entry(document=document, chunks=[document], vectors={"vector": [vector], "keywords": [vector]} if vector else {})


async def ids(store: Any, text: str, leg: str = "text", **query: Any) -> list[str]:
    """Ids of what a search finds, in order."""
    return [hit.document.id for hit in await store.search(Query(text=text, leg=leg, **query))]
