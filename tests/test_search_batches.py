"""Batches of searches: what the queries of one request share in a SQLite store, and what stays their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.stores import entry

from contextrouter import ContextRouter
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Document, Query
from contextrouter.scope import Scope

TEXTS = {
    "tide": "The moon pulls the tide of the sea twice a day.",
    "gull": "A gull follows the boat over the sea.",
    "keel": "The keel of a boat lies deep in the water.",
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Sqlite]:
    store = Sqlite(path=str(tmp_path / "store.db"))
    await store.open()
    yield store
    await store.aclose()


def count_reads(store: Sqlite, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The deadlines of the looks at the file of a store, from now on."""
    reads: list[float | None] = []
    read = store._file.read

    async def counted(work: Any, **keywords: Any) -> Any:
        reads.append(keywords.get("deadline"))
        return await read(work, **keywords)

    monkeypatch.setattr(store._file, "read", counted)
    return reads


async def test_a_question_looks_twice_at_a_store_on_three_legs(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for its texts, and once for its vectors, however many queries are made of it."""
    embedder = Static()
    await embedder.open()
    vectors = await embedder.embed(list(TEXTS.values()))
    await store.embedded_by(embedder.model, embedder.dimensions)
    await store.upsert(
        [
            entry(id, text, vector=list(vector))
            for (id, text), vector in zip(TEXTS.items(), vectors, strict=True)
        ]
    )
    async with ContextRouter({}, providers={"store": store}, embedders={"default": embedder}) as router:
        await router.route("What is a keel?")
        reads = count_reads(store, monkeypatch)
        context = await router.route("Which animal follows the boat over the sea, and what pulls the tide?")
    assert {report.leg for report in context.coverage} >= {"text", "vector", "keywords"}
    assert len(context.coverage) > 3  # several queries
    assert all(report.status == "ok" for report in context.coverage)
    searches = [deadline for deadline in reads if deadline is not None]
    assert len(searches) == 2


async def test_a_search_in_a_batch_has_the_hits_that_it_has_alone(store: Sqlite) -> None:
    await store.upsert([entry(id, text, vector=[1.0, len(text) / 50]) for id, text in TEXTS.items()])
    queries = [
        Query(text="boat sea", leg="text"),
        Query(text="boat", leg="text"),
        Query(text="sea -boat", leg="text"),
        Query(text="", leg="vector", vector=[1.0, 0.0]),
        Query(text="", leg="keywords", vector=[0.5, 1.0]),
    ]
    alone = [await store.search(query) for query in queries]
    together = await asyncio.gather(*map(store.search, queries))
    assert [[(hit.document, hit.score) for hit in hits] for hits in together] == [
        [(hit.document, hit.score) for hit in hits] for hits in alone
    ]
    assert [[hit.document.id for hit in hits] for hits in together[:3]] == [
        ["gull", "keel", "tide"],
        ["gull", "keel"],
        ["tide"],
    ]


async def test_the_queries_of_a_batch_share_their_documents(store: Sqlite) -> None:
    await store.upsert([entry(id, text, vector=[1.0, 0.5]) for id, text in TEXTS.items()])
    one, other = await asyncio.gather(
        store.search(Query(text="gull", leg="text")), store.search(Query(text="gull boat", leg="text"))
    )
    assert one[0].document is next(hit.document for hit in other if hit.document.id == "gull")


async def test_queries_of_two_scopes_or_deadlines_are_two_batches(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.upsert([entry("a", "sea", tenant="one"), entry("b", "sea", tenant="two")])
    reads, soon = count_reads(store, monkeypatch), time.monotonic() + 60
    one, two, three = await asyncio.gather(
        store.search(Query(text="sea", leg="text", scope=Scope(tenant="one"), deadline=soon)),
        store.search(Query(text="sea", leg="text", scope=Scope(tenant="two"), deadline=soon)),
        store.search(Query(text="sea", leg="text", deadline=soon + 1)),
    )
    assert len(reads) == 3
    assert [sorted(hit.document.id for hit in hits) for hits in (one, two, three)] == [
        ["a"],
        ["b"],
        ["a", "b"],
    ]


async def test_a_query_that_fails_costs_the_others_of_its_batch_nothing(store: Sqlite) -> None:
    await store.upsert([entry("a", "sea", vector=[1.0, 0.0])])
    found = await asyncio.gather(
        store.search(Query(text="", leg="vector")),
        store.search(Query(text="", leg="vector", vector=[1.0, 2.0, 3.0])),
        store.search(Query(text="", leg="vector", vector=[1.0, 0.0])),
        return_exceptions=True,
    )
    assert [type(each) for each in found] == [SourceError, SourceError, list]
    assert "needs a query vector" in str(found[0])
    assert "3 dimensions" in str(found[1])


async def test_a_cancelled_query_leaves_the_others_of_its_batch(store: Sqlite) -> None:
    await store.upsert([entry("a", "sea")])
    left = asyncio.create_task(store.search(Query(text="sea", leg="text")))
    kept = asyncio.create_task(store.search(Query(text="sea", leg="text")))
    await asyncio.sleep(0)
    left.cancel()
    assert [hit.document.id for hit in await kept] == ["a"]
    with pytest.raises(asyncio.CancelledError):
        await left
    gone = [asyncio.create_task(store.search(Query(text="sea", leg="text"))) for _ in range(2)]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.wait(gone)
    assert [hit.document.id for hit in await store.search(Query(text="sea", leg="text"))] == ["a"]


async def test_a_deadline_that_is_over_ends_all_queries_of_a_batch(store: Sqlite) -> None:
    await store.upsert([entry("a", "sea")])
    over = time.monotonic() - 1
    queries = [Query(text=text, leg="text", deadline=over) for text in ("sea", "a")]
    found = await asyncio.gather(*map(store.search, queries), return_exceptions=True)
    assert [type(each) for each in found] == [SourceTimeout, SourceTimeout]


async def test_whole_documents_are_compressed_and_come_back_as_they_were(store: Sqlite) -> None:
    whole = Document(id="a", content="tide " * 500 + "\u6d77", url="https://e.org/a", metadata={"n": 1})
    parts = [whole.replace(id=f"a#{n}", content="tide", parent="a") for n in range(2)]
    await store.upsert([Entry(document=whole, chunks=parts)])
    stored = await store._file.read(
        lambda connection, _: connection.execute(
            "SELECT typeof(payload), length(payload) FROM documents"
        ).fetchone(),
        missing=None,
    )
    assert stored[0] == "blob"
    assert stored[1] < len(whole.content) / 4
    assert await store.fetch(["a", "a#1"]) == [whole, parts[1]]


async def test_a_store_of_version_3_is_read_and_written_on(store: Sqlite) -> None:
    """It keeps its table of filter values, in which each stood twice."""
    await store.upsert([entry("a", "sea", labels=("salt",)), entry("b", "sea", labels=("sweet",))])

    def grow_old(connection: Any) -> None:
        values = connection.execute("SELECT number, key, value FROM filter_values").fetchall()
        connection.execute("DROP TABLE filter_values")
        connection.execute(
            "CREATE TABLE filter_values (number INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL,"
            " UNIQUE (key, value))"
        )
        connection.executemany("INSERT INTO filter_values VALUES (?, ?, ?)", values)
        connection.execute("DELETE FROM meta WHERE key = 'last_filter'")
        connection.execute("PRAGMA user_version = 3")

    await store._file.write(lambda connection, _: grow_old(connection))

    async def found(label: str) -> list[str]:
        hits = await store.search(Query(text="sea", leg="text", filters={"labels": label}))
        return [hit.document.id for hit in hits]

    assert await found("salt") == ["a"]
    await store.upsert([entry("c", "sea", labels=("salt", "deep")), entry("b", "sea", labels=("sweet",))])
    assert [await found(label) for label in ("salt", "sweet", "deep")] == [["a", "c"], ["b"], ["c"]]
    numbers = await store._file.read(
        lambda connection, _: connection.execute("SELECT number FROM filter_values").fetchall(), missing=[]
    )
    assert len(set(numbers)) == len(numbers)
