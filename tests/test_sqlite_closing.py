"""A SQLite store that is closed, or whose file is replaced, while it is read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.closing import give_up_closing

from contextrouter import Document, Query, SourceError
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.provider import Sqlite
from contextrouter.contracts import Entry

ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000000)"
    " SELECT count(*) FROM n"
)
"""Takes a minute."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Sqlite]:
    store = await filled(tmp_path / "store.db", "old")
    yield store
    await store.aclose()


async def filled(path: Path, name: str) -> Sqlite:
    store = Sqlite(path=str(path), embedder=None, threads=2)
    await store.open()
    document = Document(id=name, content="sun")
    await store.upsert([Entry(document=document, chunks=[document])])
    return store


async def found(store: Sqlite) -> list[str]:
    return [hit.document.id for hit in await store.search(Query(text="sun", leg="text"))]


def put_in_place(other: Path, path: str) -> None:
    for ending in ("-wal", "-shm"):
        Path(path + ending).unlink(missing_ok=True)
    other.replace(path)


def open_files(path: Path) -> list[str]:
    """The open files of this process at a path, and beside it."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # it was closed meanwhile
            continue
    return [name for name in names if name.startswith(str(path))]


@pytest.mark.case("OPS-05")
async def test_closing_stops_every_read_and_reads_in_line_do_not_begin(store: Sqlite) -> None:
    begun = threading.Semaphore(0)

    def endless(connection: sqlite3.Connection, stop: Stop) -> None:
        begun.release()
        with stop.finishing():  # what is read for all questions ends as well
            connection.execute(ENDLESS).fetchone()

    reads = [asyncio.create_task(store._file.read(endless, missing=None)) for _ in range(4)]
    left = asyncio.create_task(store._file.read(endless, missing=None))
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=60)
    left.cancel()
    in_line = [asyncio.create_task(found(store)) for _ in range(4)]
    await asyncio.sleep(0)
    await store.aclose()
    ends = await asyncio.gather(*reads, *in_line, return_exceptions=True)
    assert {type(end) for end in ends} == {SourceError}
    assert all("closed" in str(end) for end in ends)
    assert open_files(Path(store.path)) == []
    with pytest.raises(SourceError, match=r"is not open; call open\(\) first"):
        await found(store)
    await store.open()
    assert await found(store) == ["old"]


async def test_writes_in_line_are_told_that_the_store_was_closed(store: Sqlite) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection, _: None) -> str:
        begun.set()
        go.wait(60)
        return "written"

    first = asyncio.create_task(store._file.write(slow))
    assert await asyncio.to_thread(begun.wait, 60)
    second = asyncio.create_task(store.delete(["old"]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.aclose())
    with pytest.raises(SourceError, match="closed"):
        await second
    go.set()
    await closing
    assert await first == "written"
    await store.open()
    assert await found(store) == ["old"]


async def test_a_file_replaced_during_a_read_is_not_read_again(store: Sqlite, tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection, stop: Stop) -> str:
        begun.set()
        go.wait(60)
        return str(connection.execute("SELECT id FROM documents").fetchone()[0])

    reading = asyncio.create_task(store._file.read(slow, missing=""))
    assert await asyncio.to_thread(begun.wait, 60)
    other = await filled(tmp_path / "other.db", "new")
    await other.aclose()
    put_in_place(tmp_path / "other.db", store.path)
    assert await found(store) == ["new"]
    go.set()
    assert await reading == "old"  # one read is of one file
    assert [await found(store) for _ in range(3)] == [["new"]] * 3


async def test_closing_that_is_given_up_closes_the_file_all_the_same(store: Sqlite) -> None:
    """Amid a run, whose turn is given back first."""
    assert await store.take_turn() == ""
    await give_up_closing(store)
    with pytest.raises(SourceError, match="was closed or is not open"):
        await found(store)
