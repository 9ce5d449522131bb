"""What only the store in one SQLite file does: the file, its transactions, its threads and its deadlines."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.stores import entry, ids

from contextrouter.builtin.providers.sqlite import Sqlite, text_leg
from contextrouter.builtin.providers.sqlite.volume import explain
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError, SourceError, SourceTimeout
from contextrouter.model import Document, Fact, Hit, Query


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Sqlite]:
    store = Sqlite(path=str(tmp_path / "store.db"))
    await store.open()
    yield store
    await store.aclose()


# Words.


async def test_of_many_words_the_commonest_are_left_out_beyond_twice_the_chunks(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_leg, "POSTINGS", 0)
    await store.upsert([entry(f"d{n:02}", "alpha beta gamma" + " rare" * (n == 7)) for n in range(20)])

    async def score(text: str) -> float | None:
        return (await store.search(Query(text=text, leg="text")))[0].score

    few, two = await score("alpha beta gamma rare"), await score("alpha rare")
    assert few is not None
    assert two is not None
    assert few > two  # 61 postings, but few words: all are read
    monkeypatch.setattr(text_leg, "FEW", 3)
    assert await score("alpha beta gamma rare") == two  # 1 + 20 of at most 40; 1 + 20 + 20 is more
    assert len(await ids(store, "alpha beta gamma rare")) == 20
    assert len(await ids(store, "alpha")) == 20


# Vectors.


async def test_the_matrix_follows_upserts_deletes_and_other_instances(store: Sqlite) -> None:
    other = Sqlite(path=store.path)
    await other.open()
    near: dict[str, Any] = {"leg": "vector", "vector": [1.0, 0.0]}
    await store.upsert([entry("a", "x", vector=[1.0, 0.0])])
    assert await ids(store, "", **near) == ["a"]
    await other.upsert([entry("b", "x", vector=[0.9, 0.1])])
    assert await ids(store, "", **near) == ["a", "b"]
    await other.upsert([entry("a", "x", vector=[0.0, 1.0])])
    assert await ids(store, "", **near) == ["b", "a"]
    await other.delete(["b"])
    assert await ids(store, "", **near) == ["a"]
    await other.clear()
    await other.upsert([entry("c", "x", vector=[1.0, 0.0, 0.0])])
    assert await ids(store, "", leg="vector", vector=[1.0, 0.0, 0.0]) == ["c"]
    await other.aclose()


async def test_concurrent_searches_during_writes_see_whole_generations(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", "x", vector=[1.0, float(n)]) for n in range(20)])

    async def read() -> None:
        for _ in range(30):
            assert len(await ids(store, "", "vector", vector=[1.0, 0.0], limit=50)) == 20
            assert len(await ids(store, "x", limit=50)) == 20

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(read())
        for _ in range(30):
            await store.upsert([entry(f"d{n}", "x", vector=[1.0, float(n)]) for n in range(20)])


async def test_vectors_of_two_lengths_are_refused(store: Sqlite) -> None:
    with pytest.raises(SourceError, match=r"with 2 dimensions.*with 3"):
        await store.upsert([entry("a", "x", vector=[1.0, 0.0]), entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert (await store.stats())["documents"] == 0


# Documents in and out.


@pytest.mark.case("ING-04")
async def test_a_document_written_again_adds_nothing(store: Sqlite) -> None:
    document = Document(id="d", content="one two three four five")
    chunks = [Document(content=word) for word in document.content.split()]
    fact = Fact(subject="One", predicate="precedes", object="Two")
    await store.upsert([Entry(document=document, chunks=chunks, facts=[fact], fingerprint="1")])
    assert [await ids(store, word) for word in ("one", "five")] == [["d#0"], ["d#4"]]
    before = await store.stats()
    await store.upsert([Entry(document=document, chunks=chunks, facts=[fact], fingerprint="1")])
    after = await store.stats()
    counts = ("documents", "chunks", "facts")
    assert [before[key] for key in counts] == [after[key] for key in counts] == [1, 5, 1]
    await store.upsert([Entry(document=document, chunks=chunks[:2], fingerprint="2")])
    assert await ids(store, "five") == []
    assert [(await store.stats())[key] for key in counts] == [1, 2, 0]
    assert await store.fingerprints() == {"d": "2"}
    assert [d.content for d in await store.fetch(["d#1", "none", "d"])] == ["two", document.content]


@pytest.mark.case("GRA-12")
async def test_nothing_of_a_deleted_document_is_left(store: Sqlite) -> None:
    fact = Fact(subject="a", predicate="b", object="c")
    document = Document(id="d", content="sun", links=("e",), metadata={"k": "v"})
    await store.upsert(
        [Entry(document=document, chunks=[document], vectors={"vector": [[1.0]]}, facts=[fact])]
    )
    assert await store.delete(["d", "d", "unknown"]) == 1
    await store.vacuum()
    await store.aclose()
    connection = sqlite3.connect(store.path)
    tables = (
        "documents",
        "chunks",
        "texts",
        "vectors",
        "filters",
        "filter_values",
        "links",
        "facts",
        "vocabulary",
    )
    assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables] == [
        0
    ] * len(tables)
    assert connection.execute("SELECT value FROM meta WHERE key IN ('chunks', 'length')").fetchall() == [
        (0,),
        (0,),
    ]
    connection.close()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (entry("d", "lone \ud800 surrogate"), "'d' holds a lone surrogate.*errors='replace'"),
        (entry("d", "x", vector=[[1.0], [2.0]]), r"'d' has a vector of shape \(2, 1\)"),  # type: ignore[list-item]  # a wrong type on purpose
    ],
)
async def test_an_entry_that_sqlite_cannot_hold_changes_nothing(
    store: Sqlite, broken: Entry, said: str
) -> None:
    await store.upsert([entry("before", "sun")])
    version = await store.version()
    with pytest.raises(IngestError, match=said):
        await store.upsert([entry("fine", "sun"), broken])
    assert await store.version() == version
    assert await ids(store, "sun") == ["before"]


# The file.


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"path": ""}, "path '' is no file name"),
        ({"path": ":memory:"}, "provider 'memory'"),
        ({"path": "a\0b"}, "no file name"),
        ({"path": "x", "title_weight": -1.0}, "title_weight -1.0"),
        ({"path": "x", "body_weight": float("nan")}, "body_weight nan"),
        ({"path": "x", "title_weight": 0, "path_weight": 0, "body_weight": 0}, "all 0"),
        ({"path": "x", "busy_timeout": -1}, "busy_timeout -1"),
        ({"path": "x", "threads": 0}, "threads 0.*1 to 64"),
    ],
)
def test_settings_out_of_range_are_refused(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sqlite(**keywords)


async def test_no_embedder_means_the_text_leg_alone(tmp_path: Path) -> None:
    for none in ("", None):
        store = Sqlite(path=str(tmp_path / "x.db"), embedder=none)
        assert (store.legs, store.vector_legs, store.embedder) == (("text",), (), None)
    await store.open()
    with pytest.raises(IngestError, match="leg 'vector', which this store does not have; name an `embedder`"):
        await store.upsert([entry("a", "x", vector=[1.0])])
    with pytest.raises(SourceError, match="'vector' is not one of this store's legs: text"):
        await store.search(Query(text="x", leg="vector"))
    await store.aclose()


async def test_a_store_that_is_not_there_is_said_and_not_made_by_reading(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "deep" / "er" / "store.db"))
    await store.open()
    for call in (store.search(Query(text="x", leg="text")), store.ping(), store.fetch(["x"]), store.stats()):
        with pytest.raises(SourceError, match="does not exist; fill it with `contextrouter ingest`"):
            await call
    assert (await store.fingerprints(), await store.version(), await store.delete(["x"])) == ({}, "", 0)
    assert not os.listdir(tmp_path)
    await store.upsert([])
    assert await ids(store, "x") == await ids(store, "x", "vector", vector=[1.0]) == []
    await store.ping()
    await store.aclose()


async def test_closed_is_closed_and_opens_again_in_another_loop(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"))
    with pytest.raises(SourceError, match="not open"):
        await store.upsert([])

    async def use() -> list[str]:
        await store.open()
        await store.open()
        await store.upsert([entry("a", "sun", vector=[1.0])])
        found = await ids(store, "sun") + await ids(store, "", "vector", vector=[1.0])
        await store.aclose()
        await store.aclose()
        return found

    for _ in range(2):
        assert await asyncio.to_thread(lambda: asyncio.run(use())) == ["a", "a"]
    with pytest.raises(SourceError, match="not open"):
        await store.search(Query(text="sun", leg="text"))


async def test_a_damaged_file_and_a_stranger_s_database_are_said(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(SourceError, match=r"damaged or no SQLite file.*ingest --rebuild"):
        await Sqlite(path=str(path)).open()
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE accounts (name)")
    connection.close()
    store = Sqlite(path=str(path))
    with pytest.raises(SourceError, match="no contextrouter store; choose another `path`"):
        await store.open()
    with pytest.raises(SourceError, match="no contextrouter store"):
        await store.upsert([entry("a", "x")])
    blocked = Sqlite(path=str(path / "store.db"))
    await blocked.open()
    with pytest.raises(SourceError, match="cannot be used"):
        await blocked.upsert([])
    await store.aclose()
    await blocked.aclose()


def _overwrite(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


async def test_pages_damaged_later_are_said(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", "sun " * 200) for n in range(50)])
    await store.aclose()
    _overwrite(store.path, 4096 * 40, b"\xff" * 4096 * 30)  # behind the list of tables
    await store.open()
    with pytest.raises(SourceError, match="damaged"):
        await store.search(Query(text="sun", leg="text"))


async def test_a_newer_schema_is_refused(store: Sqlite) -> None:
    await store.upsert([entry("a", "x")])
    await store.aclose()
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(
        SourceError, match="schema version 99, this contextrouter reads 5; upgrade contextrouter"
    ):
        await store.open()


async def test_a_file_put_in_place_of_another_is_noticed(store: Sqlite, tmp_path: Path) -> None:
    await store.upsert([entry("old", "sun", vector=[1.0])])
    assert await ids(store, "", "vector", vector=[1.0]) == ["old"]
    other = Sqlite(path=str(tmp_path / "other.db"))
    await other.open()
    await other.upsert([entry("new", "sun", vector=[1.0])])
    await other.aclose()
    for name in ("store.db-wal", "store.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "other.db").replace(store.path)
    assert await ids(store, "sun") == ["new"]
    assert await ids(store, "", "vector", vector=[1.0]) == ["new"]


async def test_an_index_made_by_other_analysis_is_made_again_before_it_is_changed(store: Sqlite) -> None:
    await store.upsert([entry("a", "suns"), entry("b", "moons")])
    await store.aclose()
    connection = sqlite3.connect(store.path)
    connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
    connection.execute("INSERT INTO terms (rowid, body) SELECT number, 'suns' FROM chunks")
    connection.execute("UPDATE meta SET value = 'other' WHERE key = 'analysis'")
    connection.commit()
    connection.close()
    await store.open()
    with pytest.raises(
        SourceError, match=r"version other of the text analysis.*`contextrouter ingest --rebuild`"
    ):
        await ids(store, "sun")
    await store.delete(["a"])
    assert (await ids(store, "suns"), await ids(store, "moon")) == ([], ["b"])
    assert (await store.statistics(["suns", "moon"])).frequencies == {"suns": 0, "moon": 1}


async def test_vacuum_gives_space_back_and_changes_no_answer(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", f"sun {n} " * 300) for n in range(200)])
    await store.delete([f"d{n}" for n in range(199)])
    await store.aclose()
    before = os.stat(store.path).st_size
    await store.open()
    await ids(store, "sun")  # a connection of a reader, too
    await store.vacuum()
    assert os.stat(store.path).st_size < before / 2
    assert os.stat(f"{store.path}-wal").st_size == 0
    assert await ids(store, "sun 199") == ["d199"]


# Deadlines and cancellation.

_SLOW = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def test_a_deadline_interrupts_the_running_statement(store: Sqlite) -> None:
    await store.upsert([entry("a", "x", vector=[1.0])])
    started = time.monotonic()
    with pytest.raises(SourceTimeout, match="deadline"):
        await store._file.read(
            lambda c, stop: c.execute(_SLOW).fetchone(), missing=None, deadline=started + 0.1
        )
    assert 0.1 <= time.monotonic() - started < 30
    for leg in store.legs:
        with pytest.raises(SourceTimeout):
            await store.search(Query(text="x", leg=leg, vector=[1.0], deadline=time.monotonic() - 1.0))
    assert await ids(store, "x", deadline=time.monotonic() + 60.0) == ["a"]


async def test_cancellation_and_closing_interrupt_the_running_statement(store: Sqlite) -> None:
    await store.upsert([entry("a", "x")])
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store._file.read(lambda c, stop: c.execute(_SLOW).fetchone(), missing=None)
    reading = asyncio.ensure_future(
        store._file.read(lambda c, stop: c.execute(_SLOW).fetchone(), missing=None)
    )
    await asyncio.sleep(0.1)
    await store.aclose()  # waits for both threads
    with pytest.raises(SourceError):
        await reading
    assert time.monotonic() - started < 60


async def test_searching_does_not_stall_the_event_loop(store: Sqlite) -> None:
    await store.upsert([entry("a", "x")])
    reading = asyncio.ensure_future(
        store._file.read(
            lambda c, stop: c.execute(_SLOW).fetchone(), missing=None, deadline=time.monotonic() + 0.3
        )
    )
    ticks = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        ticks += 1
    with pytest.raises(SourceTimeout):
        await reading
    assert ticks > 5


async def test_the_example_works_and_takes_its_folder_with_it() -> None:
    store = Sqlite.example()
    folder, name = os.path.split(store.path)
    await store.open()
    assert [type(hit) for hit in await store.search(Query(text="sea", leg="text"))] == [Hit]
    await store.aclose()
    assert name in os.listdir(folder)
    del store
    with pytest.raises(FileNotFoundError):
        os.listdir(folder)


def test_importing_the_store_imports_no_numpy() -> None:
    modules = "contextrouter.builtin.providers.sqlite.provider, contextrouter.builtin.facts.sqlite"
    code = f"import sys, {modules}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_folder_that_may_not_be_written_to_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its name is."""
    folder = tmp_path / "full"
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "make it writable" in explain(folder / "store.db")
