"""One store file, several processes: some are killed, some write at once, and no committed document is lost."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.errors import SourceError
from contextrouter.model import Document, Query

_WRITER = """
import asyncio, sys
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.errors import SourceError
from contextrouter.model import Document, Fact, Query

async def main(path, name, rounds):
    store = Sqlite(path=path, busy_timeout=30.0)
    await store.open()
    for n in range(int(rounds)):
        id = f"{name}-{n}"
        document = Document(id=id, content=f"sun {name} {n} " * 40, links=("hub",))
        chunks = [document.replace(id=f"{id}#{part}", parent=id, content=f"sun {name} part {part}") for part in range(3)]
        fact = Fact(subject=id, predicate="is", object="there")
        vectors = {"vector": [[1.0, float(part)] for part in range(3)]}
        await store.upsert([Entry(document=document, chunks=chunks, vectors=vectors, facts=[fact], fingerprint=id)])
        print(id, flush=True)
        if sys.argv[4] == "search":
            for leg in ("text", "vector"):
                hits = await store.search(Query(text=f'"{name} part"', leg=leg, limit=1000, vector=[1.0, 0.0]))
                assert len(hits) == 3 * (n + 1), (leg, len(hits), n)
    await store.aclose()

asyncio.run(main(*sys.argv[1:4]))
"""


def _writer(path: Path, name: str, rounds: int, then: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), name, str(rounds), then],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _holder(path: str) -> subprocess.Popen[str]:
    """A process that takes the write lock, says so, and keeps it until it is told to go."""
    code = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\nprint(flush=True)\ninput()"
    )
    return subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def _whole(path: Path) -> set[str]:
    """Check that file, index and counts agree; return the ids of the documents, each with all that belongs to it."""
    store = Sqlite(path=str(path))
    await store.open()
    ids = set(await store.fingerprints())
    stats = await store.stats()
    assert [stats[key] for key in ("documents", "chunks", "vectors", "links", "facts")] == [
        len(ids), 3 * len(ids), 3 * len(ids), len(ids), len(ids),
    ]  # fmt: skip
    for leg in ("text", "vector"):
        hits = await store.search(Query(text="sun", leg=leg, limit=100_000, vector=[1.0, 0.0]))
        assert {hit.document.parent for hit in hits} == ids
        assert len(hits) == 3 * len(ids)
    assert (await store.statistics(["sun"])).frequencies == {"sun": 3 * len(ids)}
    await store.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.execute("INSERT INTO terms (terms) VALUES ('integrity-check')")
    connection.close()
    return ids


async def test_kill_9_loses_no_committed_document(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(7)
    told: set[str] = set()
    for life in range(5):
        process = _writer(path, f"life{life}", 1_000_000)
        assert process.stdout is not None
        told.add(process.stdout.readline().strip())  # it has begun
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        told.update(process.communicate()[0].split())
        found = await _whole(path)
        assert told <= found
        assert len(found - told) <= life + 1  # committed, but killed before it could say so
    assert len(told) > 5


async def test_sql_04_gra_10_four_processes_write_and_search_one_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    rounds = 15
    processes = [_writer(path, f"worker{n}", rounds, "search") for n in range(4)]
    results = [process.communicate(timeout=60) for process in processes]
    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, results, strict=True)] == [(0, "")] * 4
    assert await _whole(path) == {f"worker{n}-{m}" for n in range(4) for m in range(rounds)}


async def test_gra_09_readers_go_on_while_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"), busy_timeout=0.2)
    await store.open()
    document = Document(id="d", content="sun")
    await store.upsert([Entry(document=document, chunks=[document])])
    holder = _holder(store.path)
    assert holder.stdout is not None
    holder.stdout.readline()
    started = time.monotonic()
    for _ in range(20):
        assert [hit.document.id for hit in await store.search(Query(text="sun", leg="text"))] == ["d"]
    assert time.monotonic() - started < 2.0
    with pytest.raises(SourceError, match=r"locked by another writer for 0\.2 s .*raise `busy_timeout`"):
        await store.upsert([Entry(document=document, chunks=[document])])
    holder.communicate("\n")
    await store.upsert([Entry(document=document, chunks=[document])])
    await store.aclose()
