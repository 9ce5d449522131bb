"""One store file, several processes: some are killed, some write at once, and no committed document is
lost.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
                own = [hit for hit in hits if hit.document.id.startswith(name + "-")]  # phrases bind the text leg alone
                assert len(own) == 3 * (n + 1), (leg, len(own), n)
    await store.aclose()

asyncio.run(main(*sys.argv[1:4]))
"""

_CHANGER = """
import asyncio, random, sys
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.model import Document, Fact

def entry(id, version):
    document = Document(id=id, content=f"sun {id} {version} " * 40, links=("hub",))
    chunks = [document.replace(id=f"{id}#{part}", parent=id, content=f"sun {id} part {part} {version}") for part in range(3)]
    vectors = [[1.0, float(part), float(version % 7)] for part in range(3)]
    legs = {"vector": vectors, "keywords": vectors}
    return Entry(document=document, chunks=chunks, vectors=legs, facts=[Fact(subject=id, predicate="is", object="there")],
                 fingerprint=f"{version:06}")

async def main(path, name, known):
    chance = random.Random(name)
    store = Sqlite(path=path, busy_timeout=30.0)
    await store.open()
    mine = sorted(id for id in await store.fingerprints() if id.startswith(known))
    for version in range(int(name.split("-")[1]) * 10_000, 1_000_000):
        draw = chance.random()
        if draw < 0.05:
            await store.vacuum()
        elif draw < 0.2 and len(mine) > 3:
            id = mine.pop(chance.randrange(len(mine)))
            print("begin del", id, flush=True)
            await store.delete([id])
            print("done del", id, flush=True)
        else:
            new = draw < 0.7 or not mine
            pair = [f"{known}{version}a", f"{known}{version}b"] if new else [chance.choice(mine)]
            mine += pair if new else []
            print("begin put", f"{version:06}", *pair, flush=True)
            await store.upsert([entry(id, version) for id in pair])
            print("done put", f"{version:06}", *pair, flush=True)

asyncio.run(main(*sys.argv[1:4]))
"""


def _changer(path: Path, life: int, own: str) -> subprocess.Popen[str]:
    """A process that puts, replaces, deletes and vacuums without end, and says what it begins and what is
    done.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _CHANGER, str(path), f"life-{life}", own], stdout=subprocess.PIPE, text=True
    )


def _read(process: subprocess.Popen[str], lines: int) -> str:
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(lines))


def _told(said: str, before: Mapping[str, str]) -> list[dict[str, str]]:
    """What a store may hold, id -> version, after what a process said: what is done, and that with what was
    begun last.
    """
    held = [dict(before), dict(before)]
    for line in said.splitlines():
        for after in held if line.startswith("done") else held[1:]:
            match line.split()[1:]:
                case ["put", version, *ids]:
                    after.update(dict.fromkeys(ids, version))
                case ["del", id]:
                    after.pop(id, None)
    return held


def _writer(path: Path, name: str, rounds: int, then: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), name, str(rounds), then],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _holder(path: str) -> subprocess.Popen[str]:
    """A process that takes the write lock, says so, and keeps it until it is told to go."""
    code = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\nprint(flush=True)\ninput()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def _answers(store: Sqlite, leg: str) -> list[tuple[str, float | None]]:
    """Every chunk a leg finds, with its score."""
    size = int((await store.stats())["dimensions"])
    query = Query(text="sun", leg=leg, limit=100_000, vector=[1.0, 0.5, 0.25][:size])
    return [(hit.document.id, hit.score) for hit in await store.search(query)]


async def _whole(path: Path, legs: Sequence[str]) -> dict[str, str]:
    """Check that file, index and counts agree; return the documents' fingerprints, each having all that
    belongs to it.
    """
    store = Sqlite(path=str(path))
    await store.open()
    held = dict(await store.fingerprints())
    chunks = {f"{id}#{part}" for id in held for part in range(3)}
    stats = await store.stats()
    assert [stats[key] for key in ("documents", "chunks", "vectors", "links", "facts")] == [
        len(held),
        len(chunks),
        len(chunks),
        len(held),
        len(held),
    ]
    for leg in legs:
        found = [id for id, _ in await _answers(store, leg)]
        assert set(found) == chunks
        assert len(found) == len(chunks)
    assert (await store.statistics(["sun"])).frequencies == {"sun": len(chunks)}
    await store.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.execute("INSERT INTO terms (terms) VALUES ('integrity-check')")
    for leg in set(legs) - {"text"}:
        coded = connection.execute(f"SELECT chunk FROM {leg}_codes ORDER BY chunk").fetchall()
        assert (
            coded
            == connection.execute(
                f"SELECT chunk FROM vectors WHERE {leg} IS NOT NULL ORDER BY chunk"
            ).fetchall()
        )
    connection.close()
    return held


async def test_twenty_kill_9_lose_no_committed_document_and_leave_the_legs_consistent(tmp_path: Path) -> None:
    path, legs = tmp_path / "store.db", ("text", "vector", "keywords")
    chance = random.Random(7)
    watcher = Sqlite(path=str(path))  # a reader that lives on beside those that die
    await watcher.open()
    held: dict[str, str] = {}
    for life in range(10):
        processes = [_changer(path, 2 * life + n, "xy"[n]) for n in range(2)]
        begun = [_read(process, chance.randint(2, 40)) for process in processes]
        for process in chance.sample(processes, 2):
            await asyncio.sleep(chance.uniform(0.0, 0.03))
            process.send_signal(signal.SIGKILL)
        said = [first + process.communicate()[0] for first, process in zip(begun, processes, strict=True)]
        before, held = held, await _whole(path, legs)
        for own, words in zip("xy", said, strict=True):
            mine, then = ({id: v for id, v in all.items() if id.startswith(own)} for all in (held, before))
            assert mine in _told(words, then)
        fresh = Sqlite(path=str(path))
        await fresh.open()
        for leg in legs:
            assert await _answers(watcher, leg) == await _answers(fresh, leg)
        await fresh.aclose()
    assert len(held) > 20
    await watcher.aclose()


@pytest.mark.case("SQL-04", "GRA-10")
async def test_four_processes_write_and_search_one_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    rounds = 15
    processes = [_writer(path, f"worker{n}", rounds, "search") for n in range(4)]
    results = [process.communicate(timeout=60) for process in processes]
    assert [
        (process.returncode, errors) for process, (_, errors) in zip(processes, results, strict=True)
    ] == [(0, "")] * 4
    assert set(await _whole(path, ("text", "vector"))) == {
        f"worker{n}-{m}" for n in range(4) for m in range(rounds)
    }


@pytest.mark.case("GRA-09")
async def test_readers_go_on_while_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"), busy_timeout=0.2)
    await store.open()
    document = Document(id="d", content="sun")
    await store.upsert([Entry(document=document, chunks=[document])])
    holder = _holder(store.path)
    assert holder.stdout is not None
    holder.stdout.readline()
    for _ in range(20):
        assert [hit.document.id for hit in await store.search(Query(text="sun", leg="text"))] == ["d"]
    with pytest.raises(SourceError, match=r"locked by another writer for 0\.2 s .*raise `busy_timeout`"):
        await store.upsert([Entry(document=document, chunks=[document])])
    holder.communicate("\n")
    await store.upsert([Entry(document=document, chunks=[document])])
    await store.aclose()
