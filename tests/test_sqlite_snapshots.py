"""What searches keep of a SQLite store between them is right for every snapshot, older ones among them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
from support.stores import entry, ids

from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.providers.sqlite.rows import outermost
from contextrouter.builtin.providers.sqlite.snapshot_cache import ChunkLengths, LabelCounts
from contextrouter.contracts import Entry
from contextrouter.model import Document
from contextrouter.scope import Scope


async def test_lengths_and_counts_are_those_of_the_reader_s_snapshot(tmp_path: Path) -> None:
    """An old reader still sees the first of two chunks; a new one sees a third instead. Lengths are 1, 2, 3
    terms.
    """
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await store.open()
    texts = {"one": "moon", "two": "moon sun", "three": "moon sun star"}
    entries = [
        Entry(document=document, chunks=[document])
        for document in (Document(id=id, content=text, tenant=id) for id, text in texts.items())
    ]
    await store.upsert(entries[:2])
    with closing(sqlite3.connect(store.path)) as old, closing(sqlite3.connect(store.path)) as new:
        old.execute("BEGIN")
        assert old.execute("SELECT group_concat(number) FROM chunks").fetchone() == ("1,2",)
        await store.delete(["one"], "one")
        await store.upsert(entries[2:])
        lengths, counts = ChunkLengths(), LabelCounts()
        for connection, numbers, terms, shown in ((new, [2, 3], [2, 3], 0), (old, [1, 2], [1, 2], 1)) * 2:
            assert lengths.read_at(connection).of(np.array(numbers)).tolist() == terms
            visible = counts.visible(connection, Scope(tenant="one"))
            assert (visible.chunks, visible.average_length) == (shown, float(shown))
    await store.aclose()


async def test_scopes_hold_however_high_the_numbers_of_chunks_begin(tmp_path: Path) -> None:
    """Numbers go on when a store is cleared; conditions are remembered from the lowest number on."""
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await store.open()
    for round in range(3):
        tenants = {f"{round}{n}": "a" if n % 3 else "b" for n in range(10)}
        for id, tenant in tenants.items():
            await store.upsert([entry(id, "moon", tenant=tenant)])
            shown = [each for each in tenants if each <= id and tenants[each] == "a"]
            assert await ids(store, "moon", scope=Scope(tenant="a"), limit=20) == shown
        await store.clear()
    await store.aclose()


async def test_the_outermost_chunks_are_found_without_a_look_at_all(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await store.open()
    await store.upsert([entry(f"d{n}", "moon") for n in range(500)])
    await store.delete(["d0"])
    await store.aclose()
    steps: list[int] = []
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("SELECT count(*) FROM removed")  # reads the schema
        connection.set_progress_handler(lambda: steps.append(1), 1)
        assert outermost(connection) == (2, 500)
    assert len(steps) < 100
