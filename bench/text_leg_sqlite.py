"""The text leg of the embedded store: CPU time of a question at two sizes, of made and of real texts.

    python bench/text_leg_sqlite.py [--data FOLDER] [--folder DIRECTORY] [--sizes 10000 100000]
[--questions 100]

Texts are made (words drawn as in a language, none of them a stop word), and with `--data` those of all
collections there, cut into pieces of 70 words; where these are too few, cut again from another word on. Words of
a question are drawn from one text, or they are those of real questions of 10 to 15 words.

Cold: no postings are remembered, the file is in the page cache. Warm: the same questions before. `leg` is the
ranking of chunk numbers alone, all else is the store's `search`, with texts read. A question is asked four times
and the least CPU time of this process counts: others use the machine, too. Beside it stands the p95 of the same
questions without packed postings, from FTS5 alone; the hits have to be the same. Exits 1 where they are not, or
where a p95 is above the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

from corpora import generated, read

from contextrouter.builtin.providers.sqlite import Sqlite, packed_postings
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query
from contextrouter.scope import Scope
from contextrouter.text.stop_words import STOP_WORDS

LIMIT_MS = 10.0
LIMIT, BATCH, PIECE, TIMES = 30, 500, 70, 4
WORD, UNSPACED = re.compile(r"[a-z]{4,}"), re.compile(r"[\u4e00-\u9fff]")
TENTH, HALF = Scope(tenant="tenth"), Scope(tenant="half")


def pieces(data: Path, count: int) -> list[Document]:
    """Real texts in pieces, in an order that mixes the collections."""
    documents = [
        d for path in sorted(data.iterdir()) if (path / "corpus.jsonl.gz").exists() for d in read(path)
    ]
    found: list[Document] = []
    for offset in range(0, PIECE, 10):
        for document in documents:
            words = document.content.split()
            for start in range(offset, max(len(words), 1), PIECE):
                part = words[start : start + PIECE]
                if len(part) >= min(15, len(words)):
                    made = document.replace(id=f"{document.id}#{start}", content=" ".join(part))
                    found.append(made)
        if len(found) >= count:
            break
    random.Random(1).shuffle(found)
    return found[:count]


def asked_questions(data: Path, count: int) -> list[str]:
    """Real questions of 10 to 15 words, some of each collection."""
    found: set[str] = set()
    for path in sorted(data.glob("*/queries.dev.jsonl")):
        rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        texts = [row["text"] for row in rows if row.get("lang", "en") == "en"]
        texts = [text for text in texts if 10 <= len(text.split()) <= 15]
        found.update(random.Random(3).sample(texts, min(count, len(texts))))
    return random.Random(4).sample(sorted(found), min(count, len(found)))


def drawn_questions(documents: Sequence[Document], count: int, words: int) -> list[str]:
    """Words of one text each that are no stop words."""
    chance, found = random.Random(5), []
    while len(found) < count:
        document = chance.choice(documents)
        every = sorted({*WORD.findall(f"{document.title} {document.content}".lower())} - STOP_WORDS)
        if len(every) >= words:
            found.append(" ".join(chance.sample(every, words)))
    return found


def beginnings(documents: Sequence[Document], count: int) -> list[str]:
    """Single characters of a script without spaces: each stands for all terms that it begins."""
    every = sorted({each for document in documents[:20_000] for each in UNSPACED.findall(document.content)})
    return random.Random(6).sample(every, min(count, len(every)))


class Bench:
    """One store, and what was measured of it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.store, self.holds = name, Sqlite(path=str(path), embedder=None), True

    async def fill(self, documents: Sequence[Document]) -> None:
        """A tenth of the documents belongs to one tenant, a half to another."""
        await self.store.open()
        started = process_time()
        for start in range(0, len(documents), BATCH):
            labelled = [
                document.replace(tenant="half" if at % 2 else "tenth" if at % 10 == 0 else "other")
                for at, document in enumerate(documents[start : start + BATCH])
            ]
            await self.store.upsert([Entry(document=each, chunks=[each]) for each in labelled])
        size = int((await self.store.stats())["bytes"])
        spent = (process_time() - started) / len(documents) * 1e6
        print(
            f"\n{self.name}: {len(documents):,} chunks, {size / len(documents):,.0f} bytes and"
            f" {spent:,.0f} CPU-µs for each"
        )
        print(f"  {'CPU-ms of a question':<38}{'p50':>7}{'p95':>7}{'p99':>7}   p95 from FTS5 alone")

    async def measure(self, what: str, questions: Sequence[str], *, warm: bool = False, **asked: Any) -> None:
        """Print a line: the questions, cold or warm."""
        queries = [Query(text=text, leg="text", limit=LIMIT, **asked) for text in questions]

        async def search(query: Query) -> object:
            return [(hit.document.id, hit.score) for hit in await self.store.search(query)]

        await self._line(f"{what}, {'warm' if warm else 'cold'}", queries, search, warm)

    async def measure_leg(self, what: str, questions: Sequence[str]) -> None:
        """Print a line: the ranking of chunk numbers alone, cold."""
        queries = [Query(text=text, leg="text", limit=LIMIT) for text in questions]

        async def rank(query: Query) -> object:
            return await self.store._file.read(
                lambda connection, stop: self.store._snapshot(connection, stop).rank(query).ranked,
                missing=None,
            )

        await self._line(f"{what}, leg, cold", queries, rank, False)

    async def _line(
        self, what: str, queries: Sequence[Query], ask: Callable[[Query], Awaitable[object]], warm: bool
    ) -> None:
        costs, answers = await self._ask_all(queries, ask, warm)
        with without_packing():
            plain_costs, plain_answers = await self._ask_all(queries, ask, warm)
        p50, p95, p99, plain = *(share(costs, each) for each in (0.5, 0.95, 0.99)), share(plain_costs, 0.95)
        told = "" if p95 <= LIMIT_MS else f"   ABOVE THE LIMIT of {LIMIT_MS:g}"
        told += "" if answers == plain_answers else "   OTHER HITS"
        self.holds &= not told
        print(f"  {what:<38}{p50:7.2f}{p95:7.2f}{p99:7.2f}{plain:10.2f}{told}", flush=True)

    async def _ask_all(
        self, queries: Sequence[Query], ask: Callable[[Query], Awaitable[object]], warm: bool
    ) -> tuple[list[float], list[object]]:
        """The least CPU milliseconds of each question, and the answers."""
        costs, answers = [], []
        self.store._index._recent.forget()
        for query in queries:  # lengths and counts are read now, and postings for the warm questions
            answers.append(await ask(query))
        for query in queries:
            least = float("inf")
            for _ in range(TIMES):
                if not warm:
                    self.store._index._recent.forget()
                started = process_time()
                await ask(query)
                least = min(least, process_time() - started)
            costs.append(least * 1e3)
        return costs, answers


@contextmanager
def without_packing() -> Iterator[None]:
    """Have the store read from FTS5 alone."""
    kept = packed_postings.read_state
    packed_postings.read_state = lambda connection: None
    try:
        yield
    finally:
        packed_postings.read_state = kept


def share(values: Sequence[float], part: float) -> float:
    """The value that this part of the values stays below."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


async def measure(
    name: str, documents: Sequence[Document], real: Sequence[str], path: Path, count: int
) -> bool:
    """Measure one store; whether the limit holds everywhere."""
    bench = Bench(name, path)
    await bench.fill(documents)
    three, twelve = (drawn_questions(documents, count, words) for words in (3, 12))
    kinds = {"3 words": three, "12 words": twelve}
    if real:
        kinds["10 to 15 words, real"] = real
    for what, questions in kinds.items():
        await bench.measure(what, questions)
        await bench.measure(what, questions, warm=True)
        await bench.measure_leg(what, questions)
    await bench.measure("12 words, scope of a tenth", twelve, scope=TENTH)
    await bench.measure("12 words, scope of a half", twelve, scope=HALF)
    await bench.measure("12 words, filter of a half", twelve, filters={"tenant": "half"})
    if begun := beginnings(documents, count):
        await bench.measure("1 character, a beginning", begun)
    await bench.store.aclose()
    return bench.holds


async def main() -> int:
    parser = argparse.ArgumentParser(description="The text leg of the embedded store")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--questions", type=int, default=100)
    asked = parser.parse_args()
    held = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for size in asked.sizes:
            path = Path(folder) / f"made-{size}.db"
            held.append(await measure("made", generated(size), [], path, asked.questions))
            if asked.data:
                real = asked_questions(asked.data, asked.questions)
                path = path.with_name(f"real-{size}.db")
                held.append(await measure("real", pieces(asked.data, size), real, path, asked.questions))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
