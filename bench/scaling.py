"""What a chunk and a question cost: the constants of `docs/scaling.md`.

    python bench/scaling.py [--documents 1250,5000] [--questions 100] [--stores sqlite,postgres]

Writes generated Markdown files, each of four chunks of about 80 words, and ingests them as `contextrouter ingest`
does: chunks, key phrases, vectors of the shipped table. Then it asks questions of three words with the default
settings and without the cache, one after the other. CPU is that of this process and of the processes of Postgres.
Prints a row for each store and size: milliseconds of CPU a chunk and a question, and megabytes. It has no limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter, process_time

import asyncpg
import psutil

from contextrouter import ContextRouter
from contextrouter.builtin.providers.postgres import embedded
from contextrouter.ingest import run

WORDS, HEADINGS, LENGTH = 20_000, 4, 80
HEAD = f"{'store':<10}{'chunks':>8}  " + "  ".join(
    f"{name:>11}" for name in ("ingest ms", "server ms", "disk MB", "ask ms", "server ms", "p50 ms", "p95 ms")
)


def words(count: int, chance: random.Random) -> list[str]:
    """Words of three syllables and a number, small numbers most: one of them is in about a hundredth of the
    chunks.
    """
    syllables = "ba de fi go lu ma ne po ri su ta ve zo ka li mu".split()
    return [
        "".join(chance.choices(syllables, k=3)) + str(int(chance.paretovariate(0.9)) % WORDS)
        for _ in range(count)
    ]


def write_files(folder: Path, store: str, documents: int) -> None:
    """Write the settings and the documents. Postgres may run as another user, who must reach its folder."""
    folder.chmod(0o755)
    (folder / "settings.toml").write_text(settings(store, folder))
    write_documents(folder / "notes", documents)


def write_documents(folder: Path, count: int) -> None:
    chance = random.Random(7)
    folder.mkdir()
    for number in range(count):
        parts = [f"# Document {number}\n"]
        for heading in range(HEADINGS):
            parts.append(
                f"## Part {heading} of {' '.join(words(2, chance))}\n\n{' '.join(words(LENGTH, chance))}.\n"
            )
        (folder / f"{number}.md").write_text("\n".join(parts))


def settings(store: str, folder: Path) -> str:
    place = f'path = "{folder}/store.db"' if store == "sqlite" else f'dsn = "embedded:{folder}/pg"'
    return f"""
[rag]
cache_enabled = false
[providers.docs]
use = "{store}"
{place}
[transforms.headings]
[transforms.keywords]
[ingest.notes]
from = "{folder}/notes"
to = "docs"
transforms = ["headings", "keywords"]
"""


def bytes_of_files(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("store.db*"))


async def size_of(store: str, folder: Path) -> int:
    """Bytes of the store: of its files, or of the database."""
    if store == "sqlite":
        return bytes_of_files(folder)
    connection = await asyncpg.connect(embedded.start(f"{folder}/pg"))
    try:
        size: int = await connection.fetchval("SELECT pg_database_size(current_database())")
    finally:
        await connection.close()
    return size


def server_cpu(folder: Path) -> float:
    """CPU seconds of the server of Postgres in a folder: of its first process and all below, ended ones too."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "postgres" and f"{folder}/pg" in (process.info["cmdline"] or ()):
            times = process.cpu_times()
            total: float = times.user + times.system + times.children_user + times.children_system
            for child in process.children():
                with contextlib.suppress(psutil.Error):
                    spent = child.cpu_times()
                    total += spent.user + spent.system
            return total
    return 0.0


async def measured(work: Callable[[], Awaitable[object]], folder: Path) -> tuple[float, float]:
    """CPU seconds of this process and of Postgres."""
    ours, theirs = process_time(), server_cpu(folder)
    await work()
    return process_time() - ours, server_cpu(folder) - theirs


async def measure(store: str, documents: int, questions: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, store, documents)
        chunks = documents * HEADINGS
        ours, theirs = await measured(lambda: run(folder / "settings.toml"), folder)
        async with ContextRouter.from_toml(folder / "settings.toml") as router:
            chance, seconds = random.Random(11), []
            texts = [" ".join(words(3, chance)) for _ in range(questions + 5)]

            async def ask() -> None:
                for text in texts[5:]:
                    started = perf_counter()
                    await router.route(text)
                    seconds.append(perf_counter() - started)

            for text in texts[:5]:
                await router.route(text)
            asked, answered = await measured(ask, folder)
        seconds.sort()
        figures = (
            ours / chunks * 1000,
            theirs / chunks * 1000,
            await size_of(store, folder) / 1e6,
            asked / questions * 1000,
            answered / questions * 1000,
            statistics.median(seconds) * 1000,
            seconds[int(0.95 * len(seconds))] * 1000,
        )
        return f"{store:<10}{chunks:>8}  " + "  ".join(f"{figure:>11.2f}" for figure in figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", default="1250,5000")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--stores", default="sqlite,postgres")
    options = parser.parse_args()
    print(HEAD)
    for store in options.stores.split(","):
        for documents in map(int, options.documents.split(",")):
            print(asyncio.run(measure(store, documents, options.questions)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
