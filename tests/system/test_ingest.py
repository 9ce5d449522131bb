"""Ingestion that is killed, and ingestion of much: what takes minutes to find out."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KILLS, BATCH = 20, 16
GIGABYTES = float(os.environ.get("INGEST_GIGABYTES", "2"))  # all of them take twenty minutes
WORDS = (
    "tide moon sea wave shore sand harbour keel mast sail rope anchor gull storm cloud rain wind salt depth"
    " reef".split()
)
SETTINGS = """
[plugins]
paths = ["."]
[providers.store]
use = "sqlite"
path = "{store}"
embedder = "{embedder}"
[embedders.counting]
log = "{log}"
[ingest.all]
from = "{folder}"
to = "store"
transforms = {transforms}
[transforms.chunk]
target = {target}
overlap = 16
"""
COUNTING = """
from hashlib import sha256
from contextrouter import Embedder
class Counting(Embedder):
    "Writes down what it embeds."
    dimensions = 4
    model = "counting"
    def __init__(self, *, log: str) -> None:
        self.log = log
    async def embed(self, texts, *, query=False):
        made = [sha256(text.encode()).digest() for text in texts]
        with open(self.log, "a") as file:
            file.writelines(each.hex() + "\\n" for each in made)
        return [[byte / 255 + 0.01 for byte in each[:4]] for each in made]
"""
RUN = """
import asyncio, re, sys
from contextrouter.ingest import run
asyncio.run(run(sys.argv[1], batch=int(sys.argv[2])))
"""
PEAK = """
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""
"""The process's own most memory, in kB: getrusage would give the parent's too, or another child's."""
KILLED = (
    """
import os, signal, sqlite3, sys
begun, connect = open(os.path.join(os.path.dirname(sys.argv[1]), "statements"), "ab", buffering=0), sqlite3.connect
def count(statement):
    begun.write(b".")
    if begun.tell() == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
def counted(*arguments, **options):
    connection = connect(*arguments, **options)
    connection.set_trace_callback(count)
    return connection
sqlite3.connect = counted
"""
    + RUN
)
"""A run that kills itself before one of its statements: no clock decides where."""


def sentences(chance: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield " ".join(chance.choices(WORDS, k=12)).capitalize() + "."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 documents of 1 to 12 sections, one of 24."""
    chance, made = random.Random(7), tmp_path_factory.mktemp("texts")
    for number in range(60):
        sections = (
            f"## Part {n}\n\n" + " ".join(sentences(chance, 6))
            for n in range(24 if number == 30 else 1 + number % 12)
        )
        (made / f"{number:02}.md").write_text(f"# Page {number}\n\n" + "\n\n".join(sections) + "\n")
    (made / "facts.jsonl").write_text('{"subject": "moon", "predicate": "raises", "object": "tide"}\n')
    return made


def settings(
    at: Path,
    folder: Path,
    *,
    embedder: str = "counting",
    target: int = 64,
    transforms: str = '["chunk", "keywords"]',
) -> Path:
    at.mkdir()
    (at / "counting.py").write_text(COUNTING)
    values = {"embedder": embedder, "target": target, "transforms": transforms}
    (at / "settings.toml").write_text(SETTINGS.format(store="s.db", log=at / "log", folder=folder, **values))
    return at / "settings.toml"


def content(store: Path) -> list[tuple[Any, ...]]:
    """All that a store holds, whatever numbers its rows have."""
    sql = (
        "SELECT d.tenant, d.id, d.fingerprint, c.id, c.length, t.payload, v.vector, v.keywords FROM documents"
        " d LEFT JOIN chunks c ON c.document = d.number LEFT JOIN texts t ON t.chunk = c.number LEFT JOIN"
        " vectors v ON v.chunk = c.number"
    )
    connection = sqlite3.connect(store)
    found = sorted(connection.execute(sql), key=repr)
    connection.close()
    return found


def killed_at(path: Path, statement: int) -> tuple[int, int]:
    """The exit code of a run that kills itself before this statement, and how many statements it began."""
    command = [sys.executable, "-c", KILLED, str(path), str(BATCH), str(statement)]
    code = subprocess.run(command, check=False).returncode
    return code, (path.parent / "statements").stat().st_size


def test_a_killed_run_repeats_at_most_one_batch(folder: Path, tmp_path: Path) -> None:
    """The runs are killed at points all over their statements: within transactions and between them."""
    undisturbed = settings(tmp_path / "undisturbed", folder)
    code, statements = killed_at(undisturbed, 0)
    assert code == 0
    expected, once = (
        content(undisturbed.parent / "s.db"),
        Counter((undisturbed.parent / "log").read_text().split()),
    )
    largest = max(Counter(row[1] for row in expected).values())
    most = 0
    for number in range(KILLS):
        path = settings(tmp_path / str(number), folder)
        point = statements * (2 * number + 1) // (2 * KILLS)
        assert killed_at(path, point) == (-signal.SIGKILL, point)
        subprocess.run([sys.executable, "-c", RUN, str(path), str(BATCH)], check=True)
        assert content(path.parent / "s.db") == expected, number
        again = (Counter((path.parent / "log").read_text().split()) - once).total()
        # Each chunk of a batch has up to two texts; a batch is filled up to the end of the document that
        # fills it.
        assert again <= 2 * (BATCH + largest), (number, point, again)
        most = max(most, again)
    print(
        f"{KILLS} of {KILLS} runs were killed within {statements} statements; at most {most} texts were"
        f" embedded again, of {once.total()}"
    )


def test_two_gigabytes_pass_through_half_a_gigabyte_of_memory(tmp_path: Path) -> None:
    """Files of 4 kB to 18 MB, in paragraphs; one is a single line."""
    chance, big = random.Random(3), tmp_path / "big"
    big.mkdir()
    pool = [" ".join(sentences(chance, 40)) for _ in range(250)]
    written = number = 0
    while written < GIGABYTES * 1e9:
        size = (4_000, 60_000, 400_000, 3_000_000, 18_000_000)[number % 5]
        line = "\n\n" if number != 4 else " "
        count = max(size // 3200, 1)
        text = f"# Page {number}\n\n" + line.join(chance.choice(pool) for _ in range(count))
        written += (big / f"{number:05}.md").write_text(text)
        number += 1
    path = settings(tmp_path / "at", big, embedder="", target=512, transforms='["chunk"]')
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", RUN + PEAK, str(path), "64"], check=True, stdout=subprocess.PIPE, text=True
    )
    peak = int(done.stdout.split()[-1]) / 1024
    print(f"{number} files, {written / 1e9:.2f} GB in {time.monotonic() - began:.0f} s; peak {peak:.0f} MB")
    assert peak < 500
