"""The vector legs at length: eight bits nominate, thirty-two decide, and nothing is read twice."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.builtin.providers.sqlite import Sqlite, vector_leg, write
from contextrouter.contracts import Entry
from contextrouter.errors import MissingDependency, SourceError, SourceTimeout
from contextrouter.model import Document, Query
from contextrouter.scope import Scope
from contextrouter.vectors import unit_array


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Sqlite]:
    store = Sqlite(path=str(tmp_path / "store.db"))
    await store.open()
    yield store
    await store.aclose()


def _entry(id: str, vector: Any, leg: str = "vector", **fields: Any) -> Entry:
    document = Document(id=id, content="x", **fields)
    return Entry(document=document, chunks=[document], vectors={leg: [vector]})


async def _fill(store: Sqlite, rows: Any, first: int = 0, **fields: Any) -> None:
    await store.upsert([_entry(f"{first + n:05}", row, **fields) for n, row in enumerate(rows)])


async def _found(store: Sqlite, vector: Any, limit: int = 30, **query: Any) -> list[tuple[str, float]]:
    hits = await store.search(Query(text="", leg="vector", vector=vector, limit=limit, **query))
    return [(hit.document.id, hit.score or 0.0) for hit in hits]


def _exact(rows: Any, vector: Any, limit: int = 30) -> list[tuple[str, float]]:
    """What a scan in float64 over the stored float32 finds."""
    units = [(row / np.linalg.norm(row)).astype("<f4").astype(float) for row in rows]
    asked = (vector / np.linalg.norm(vector)).astype("<f4").astype(float)
    scores = [(f"{n:05}", round(float(unit @ asked), 6)) for n, unit in enumerate(units)]
    return sorted(scores, key=lambda pair: (-pair[1], pair[0]))[:limit]


def _crowded(chance: np.random.Generator) -> Any:
    """Rows so near each other that eight bits cannot tell them apart."""
    return chance.standard_normal(48) + 1e-3 * chance.standard_normal((1500, 48))


def _spread(chance: np.random.Generator) -> Any:
    return chance.standard_normal((1500, 48))


def _spiky(chance: np.random.Generator) -> Any:
    """One dimension far above the others takes up the levels."""
    rows = chance.standard_normal((1500, 48))
    rows[:, 7] *= 60.0
    return rows


@pytest.mark.parametrize("rows", [_spread, _crowded, _spiky], ids=["spread", "crowded", "spiky"])
async def test_the_scan_over_codes_loses_nothing_of_an_exact_one(store: Sqlite, rows: Any) -> None:
    chance = np.random.default_rng(3)
    made = rows(chance)
    await _fill(store, made)
    flat = chance.standard_normal(48)
    flat[7] = 0.0  # finer levels than the spiky rows have
    for vector in (made[5], made[9] + 0.3 * chance.standard_normal(48), chance.standard_normal(48), flat):
        assert await _found(store, vector) == _exact(made, vector)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_code_is_its_vector_to_half_a_level(values: list[float]) -> None:
    row = unit_array(values)
    if row is None:
        assert not any(values)
        return
    coded = vector_leg.code(row)
    assert len(coded) == 4 + len(values)
    scale = np.frombuffer(coded[:4], "<f4")[0]
    levels = np.frombuffer(coded[4:], np.int8).astype(float)
    assert np.abs(levels).max() == 127
    widest = float(np.abs(row).max())
    assert np.abs(levels * widest / 127 - row).max() <= widest / 127 * 0.5001
    assert abs(scale - widest / 127) <= widest / 127 * 0.05 * len(values) ** 0.5


@pytest.mark.case("ACL-02")
async def test_a_scope_takes_nothing_from_the_limit_however_many_are_nearer(store: Sqlite) -> None:
    chance = np.random.default_rng(4)
    made = chance.standard_normal((1200, 16))
    await _fill(store, made[:1000] + 3 * made[0], tenant="other")
    await _fill(store, made[1000:], first=1000, tenant="own")
    found = await _found(store, made[0], scope=Scope(tenant="own"))
    own = [(f"{int(id) + 1000:05}", score) for id, score in _exact(made[1000:], made[0])]
    assert found == own
    assert len(found) == 30


@pytest.mark.parametrize("logged", [10_000, 0], ids=["log kept", "log cut at every write"])
async def test_readers_catch_up_with_writes_from_elsewhere(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch, logged: int
) -> None:
    monkeypatch.setattr(write, "LOGGED", logged)
    chance = np.random.default_rng(5)
    rows = chance.standard_normal((300, 8))
    writer = Sqlite(path=store.path)
    await writer.open()
    await _fill(writer, rows)
    live = {f"{n:05}": row for n, row in enumerate(rows)}
    asked = chance.standard_normal(8)
    scoped = Scope(tenant=None)
    for turn in range(40):
        some = chance.choice(sorted(live), size=int(chance.integers(1, 25)), replace=False).tolist()
        if turn % 2:
            await writer.delete(some)
            for id in some:
                del live[id]
        else:
            changed = [*some, f"{1000 + turn:05}"]
            live.update({id: chance.standard_normal(8) for id in changed})
            await writer.upsert([_entry(id, live[id]) for id in changed])
        ids = sorted(live)
        expected = [(ids[int(place)], score) for place, score in _exact([live[id] for id in ids], asked, 20)]
        assert await _found(store, asked, 20) == expected
        assert await _found(store, asked, 20, scope=scoped) == expected
        if turn == 20:
            await writer.vacuum()
    await writer.aclose()


async def test_after_a_write_only_what_is_new_is_read(store: Sqlite) -> None:
    await _fill(store, np.random.default_rng(6).standard_normal((500, 8)))
    await _found(store, [1.0] * 8)
    connection = sqlite3.connect(store.path)
    # Were the old codes read again, these would not have the right length.
    connection.execute("UPDATE vector_codes SET code = x'00' WHERE chunk <= 400")
    connection.commit()
    connection.close()
    await store.upsert([_entry("new", [1.0] * 8)])
    await store.delete(["00007"])
    found = await _found(store, [1.0] * 8, 1000)
    assert found[0] == ("new", 1.0)
    assert len(found) == 500
    other = Sqlite(path=store.path)
    await other.open()
    with pytest.raises(
        SourceError,
        match=r"vectors of other lengths than the 8 it notes; run `contextrouter ingest --rebuild`",
    ):
        await _found(other, [1.0] * 8)
    await other.aclose()


async def test_codes_are_loaded_though_the_deadline_is_too_short(store: Sqlite) -> None:
    """A later question uses them."""
    await _fill(store, np.random.default_rng(7).standard_normal((6000, 64)))
    other = Sqlite(path=store.path)
    await other.open()
    deadline, index, loads = time.monotonic() + 0.1, other._vector_indexes["", "vector"], 0
    load = index._new

    def late(connection: sqlite3.Connection, last: int, dimensions: int) -> Any:
        nonlocal loads
        loads += 1
        while time.monotonic() <= deadline:
            time.sleep(0.01)
        return load(connection, last, dimensions)

    index._new = late  # type: ignore[method-assign]  # loads as before, but after the deadline on any machine
    with pytest.raises(SourceTimeout):
        await _found(other, [1.0] * 64, deadline=deadline)
    assert len(await _found(other, [1.0] * 64)) == 30
    assert loads == 1
    await other.aclose()


async def test_ties_beyond_all_bounds_are_answered_all_the_same(store: Sqlite) -> None:
    await _fill(store, [[3.0, 4.0]] * 5000)
    assert await _found(store, [3.0, 4.0], 10) == [(f"{n:05}", 1.0) for n in range(10)]


async def test_twenty_searches_at_once_load_one_state_and_agree(store: Sqlite) -> None:
    rows = np.random.default_rng(8).standard_normal((800, 24))
    await _fill(store, rows)
    answers: list[Sequence[tuple[str, float]]] = []

    async def ask() -> None:
        answers.append(await _found(store, rows[0]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(ask())
    assert answers == [_exact(rows, rows[0])] * 20


async def test_a_package_that_is_missing_is_said_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "simsimd", None)
    store = Sqlite(path=str(tmp_path / "store.db"))
    with pytest.raises(
        MissingDependency, match=r"SQLite store with vectors needs the extra 'sqlite': pip install"
    ):
        await store.open()
    text_only = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await text_only.open()
    document = Document(id="d", content="sun")
    await text_only.upsert([Entry(document=document, chunks=[document])])
    assert len(await text_only.search(Query(text="sun", leg="text"))) == 1
    await text_only.aclose()


async def test_a_thousand_searches_leave_none_alone(tmp_path: Path) -> None:
    """Where None is counted, a call that takes one reference too many ends the process after some ten
    thousand searches.
    """
    store = Sqlite(path=str(tmp_path / "s.db"))
    await store.open()
    document = Document(id="a", content="moon")
    await store.upsert([Entry(document=document, chunks=[document], vectors={"vector": [[1.0, 0.0]]})])
    query = Query(text="moon", leg="vector", vector=[1.0, 0.0])
    await store.search(query)
    before = sys.getrefcount(None)
    for _ in range(1000):
        await store.search(query)
    assert sys.getrefcount(None) > before - 500
    await store.aclose()
