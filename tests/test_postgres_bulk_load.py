"""Loads of a store in Postgres: its indexes are built at the end, and searches find the same meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from support.postgres_server import open_store, run
from support.stores import entry, ids

from contextrouter import Embedder
from contextrouter.builtin.providers.postgres import Postgres, index_building, maintenance
from contextrouter.errors import IngestError
from contextrouter.ingest import ingest
from contextrouter.model import Document

ALL = [
    "chunks_filters",
    "chunks_frequent",
    "chunks_keywords_near",
    "chunks_sample",
    "chunks_terms",
    "chunks_vector_near",
]


class Letters(Embedder):
    """Counts of the letters a and b, so that cosines can be worked out by hand."""

    dimensions, model = 2, "letters"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
        return [[text.count("a") + 0.5, text.count("b") + 0.5] for text in texts]


class Pages:
    """A source of short texts. Before the one at `stop` it calls `meanwhile`."""

    def __init__(self, *texts: str, size: int | None = None, meanwhile: Any = None) -> None:
        self.texts, self.meanwhile = texts, meanwhile
        self.length = len(texts) if size is None else size

    async def size(self) -> int:
        return self.length

    async def crawl(self) -> AsyncIterator[Document]:
        for number, text in enumerate(self.texts):
            yield Document(id=f"p{number}", content=text)
        if self.meanwhile:
            await self.meanwhile()


async def indexes(store: Postgres) -> list[str]:
    sql = "SELECT indexname FROM pg_indexes WHERE schemaname = $1 AND indexname = ANY ($2) ORDER BY 1"
    return [row["indexname"] for row in await run(sql, store.pool.schema, ALL)]


async def load(store: Postgres, source: Pages, **how: Any) -> Any:
    return await ingest(source, store, [], Letters(), origin="x", batch=1, **how)


async def test_the_first_load_builds_the_indexes_at_its_end() -> None:
    """Meanwhile searches find what they find afterwards, and `status` says why they are slow."""
    async with open_store(exact_below=0) as store:
        found: dict[str, Any] = {}

        async def meanwhile() -> None:
            for _ in range(6_000):
                if (await store.stats())["chunks"] == 4:
                    break
                await asyncio.sleep(0.02)
            found["indexes"] = await indexes(store)
            found["status"] = (await store.status())["indexes"]
            found["vector"] = await ids(store, "", "vector", vector=[0.0, 1.0], limit=1)
            found["text"] = await ids(store, "abba")

        await load(store, Pages("aaa", "bbb", "abba", "x", meanwhile=meanwhile))
        assert found["indexes"] == []
        assert found["status"] == "missing until the load ends: searches read every row"
        assert found["vector"] == ["x:p1#0"]
        assert await indexes(store) == ALL
        assert (await store.status())["indexes"] == "complete"
        assert await ids(store, "", "vector", vector=[0.0, 1.0], limit=1) == ["x:p1#0"]
        assert await ids(store, "abba") == ["x:p2#0"]
        assert await store.tune() == []


@pytest.mark.parametrize(
    ("how", "documents", "dropped"),
    [("auto", 3, False), ("auto", 4, True), ("auto", None, False), (True, 0, True), (False, 1_000, False)],
)
async def test_auto_drops_indexes_when_more_comes_than_is_there(
    how: Any, documents: int | None, dropped: bool
) -> None:
    async with open_store(index_after_load=how) as store:
        await store.upsert([entry(f"d{n}", "x", vector=[1.0, float(n)]) for n in range(3)])
        assert await indexes(store) == ALL
        await store.begin_load(documents)
        assert (await indexes(store) == []) == dropped
        await store.upsert([entry("e", "x", vector=[1.0, 9.0])])
        await store.end_load()
        assert await indexes(store) == ALL


async def test_a_run_expects_the_documents_that_its_store_lacks() -> None:
    """Those that are there are not new, so a run of few new ones keeps the indexes."""
    async with open_store() as store:
        texts = ["a" * (n + 1) for n in range(4)]
        await load(store, Pages(*texts))
        seen: list[list[str]] = []

        async def meanwhile() -> None:
            seen.append(await indexes(store))

        await load(store, Pages(*texts, "b", meanwhile=meanwhile))
        await load(store, Pages(*texts, *("b" * n for n in range(1, 9)), meanwhile=meanwhile))
        assert seen == [ALL, []]
        assert await indexes(store) == ALL


async def test_a_load_that_died_is_mended_by_the_next_run_or_by_tune() -> None:
    async with open_store() as store:
        await store.begin_load(None)
        await store.upsert([entry("x:p0", "aaa", vector=[1.0, 0.0])])
        assert await store.tune() == [
            "vector: there is no index; hnsw WITH (m = 16, ef_construction = 64)",
            "keywords: there is no index; hnsw WITH (m = 16, ef_construction = 64)",
            "text: there is no index; gin (terms)",
            "text: there is no index; gin (filters)",
            "text: there is no index; gin (terms) WHERE left(md5(id), 2) = ANY ('{00,01,02,03}'::text[])",
            "text: there is no index; gin (frequent_terms(terms))",
        ]
        assert len(await store.tune(apply=True)) == 6
        assert (await store.status())["indexes"] == "complete"
        assert (await indexes(store), await store.tune()) == (ALL, [])
        await load(store, Pages("aaa"), remove=True)
        await index_building.begin(
            store.pool, index_building.BulkLoad(**{**OPTIONS, "index_after_load": True}), None
        )
        assert await indexes(store) == []
        report = await load(store, Pages("aaa"))
        assert (report.unchanged, await indexes(store)) == (1, ALL)


OPTIONS: dict[str, Any] = {
    "index_after_load": "auto",
    "maintenance_work_mem": "64MB",
    "max_parallel_maintenance_workers": 0,
}


async def test_a_run_that_fails_builds_the_indexes_all_the_same() -> None:
    async def fail() -> None:
        raise OSError("unplugged")

    async with open_store() as store:
        with pytest.raises(IngestError, match="broke off after 2 documents, nothing was removed: unplugged"):
            await load(store, Pages("aaa", "bbb", meanwhile=fail))
        assert await indexes(store) == ALL
        assert await ids(store, "aaa") == ["x:p0#0"]


async def test_a_dry_run_touches_no_index() -> None:
    async with open_store(index_after_load=True) as store:
        await store.upsert([entry("x:p0", "aaa", vector=[1.0, 0.0])])
        await load(store, Pages("aaa", "bbb", "ab"), dry_run=True)
        assert await indexes(store) == ALL


async def test_searches_that_go_on_keep_their_indexes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An index that somebody reads cannot be dropped: the load goes on beside it."""
    monkeypatch.setattr(index_building, "_LOCK_SECONDS", 0.1)
    async with open_store(index_after_load=True) as store:
        await store.upsert([entry("d", "aaa", vector=[1.0, 0.0])])
        reader = await asyncpg.connect(store.pool.dsn)
        async with reader.transaction():
            await reader.fetch(f'SELECT * FROM "{store.pool.schema}".chunks')
            with caplog.at_level(logging.WARNING):
                await store.begin_load(None)
        await reader.close()
        assert "Indexes stay during the load" in caplog.text
        assert await indexes(store) == ALL
        assert (await store.status())["indexes"] == "complete"


async def test_without_shared_memory_one_process_builds_the_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, whose shared memory is small by default."""
    async with open_store() as store:
        await store.begin_load(None)
        await store.upsert([entry("d", "aaa", vector=[1.0, 0.0])])
        workers: list[str] = []
        monkeypatch.setattr(index_building, "_AT_ONCE", 1)
        alone = store.pool.alone

        class Cramped:
            def __init__(self, connection: Any) -> None:
                self.connection = connection

            def __getattr__(self, name: str) -> Any:
                return getattr(self.connection, name)

            async def execute(self, sql: str, *values: Any) -> Any:
                if sql.startswith("SELECT set_config"):
                    workers.append(values[1])
                if sql.startswith("CREATE INDEX") and workers[-1] != "0":
                    raise asyncpg.DiskFullError("could not resize shared memory segment")
                return await self.connection.execute(sql, *values)

        @asynccontextmanager
        async def cramped() -> AsyncIterator[Any]:
            async with alone() as connection:
                yield Cramped(connection)

        monkeypatch.setattr(store.pool, "alone", cramped)
        await store.end_load()
        assert (workers, await indexes(store)) == (["2", "0"] * 6, ALL)


@pytest.mark.parametrize(
    ("keyword", "value", "message"),
    [
        ("index_after_load", "later", "index_after_load 'later' is not known; give true, false or 'auto'"),
        (
            "maintenance_work_mem",
            "much",
            "maintenance_work_mem 'much' is no size of memory; give one such as",
        ),
        ("max_parallel_maintenance_workers", -1, "max_parallel_maintenance_workers -1 is out of range"),
    ],
)
def test_values_of_a_load_are_checked(keyword: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Postgres(**{keyword: value})


async def test_fingerprints_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document once, under every tenant, also where two tenants have one id."""
    monkeypatch.setattr(maintenance, "_PAGE", 3)
    async with open_store(embedder=None) as store:
        assert [page async for page in store.fingerprint_pages()] == []
        every = [(tenant, f"d{n}") for tenant in (None, "a", "b") for n in range(4)]
        await store.upsert([entry(id, "x", tenant=tenant) for tenant, id in every])
        pages = [page async for page in store.fingerprint_pages()]
        assert [len(page) for page in pages] == [3, 3, 3, 3]
        listed = [(tenant, id) for page in pages for tenant, id, _ in page]
        assert sorted(listed, key=str) == sorted(every, key=str)
        for tenant, id, fingerprint in [row for page in pages for row in page]:
            assert (await store.fingerprints(tenant))[id] == fingerprint
