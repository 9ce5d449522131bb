"""The embedded store at scale: filling, changing, opening and searching it, beside floors written here.

    python bench/store.py PATH... [--generated 100000] [--dimensions 384] [--questions 200] [--folder
DIRECTORY]

PATH is a `corpus.jsonl.gz` (lines of {"id", "title", "text"}) or a folder that holds one; several are put in
one store, embedded by the shipped table. `--generated` makes documents of words drawn as in a language, and
vectors in clusters. Times are CPU of this process; a search is measured in turns with its floor, question by
question. The vector floor scans int8 codes in memory and scores the best 300 again from float32 in memory;
the text floor is FTS5's `ORDER BY bm25() LIMIT 30` over the same words. Exits 1 above a limit; those of the
ratios count from 100,000 documents.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import simsimd
from corpora import Clusters, generated, read

from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Embedder, Entry
from contextrouter.ingest import ingest
from contextrouter.model import Document, Query, Vector
from contextrouter.scope import Scope
from contextrouter.text.stop_words import STOP_WORDS

VECTOR_RATIO, RECALL, TEXT_RATIO = 1.5, 0.99, 2.0
# documents from which the ratios are limits: below, what a search costs apart from the scan shows
LARGE = 100_000
LIMIT = 30
RESCORED = 300
SUMMED = ("vector leg", "vector leg, recall@30 against exact", "text leg, three words")
BATCH = 500
WORD = re.compile(r"[a-z]{4,}")


class Listed:
    """Documents as a source to ingest."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents

    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document


class Counted(Embedder):
    """Another embedder, with its calls counted and its vectors kept by text."""

    def __init__(self, inner: Embedder) -> None:
        self.inner, self.calls = inner, 0
        self.dimensions, self.model = inner.dimensions, inner.model
        self.vectors: dict[str, Vector] = {}

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        self.calls += 1
        made = await self.inner.embed(texts, query=query)
        self.vectors.update(zip(texts, made, strict=True))
        return made


class Clocked:
    """A store that adds up the CPU seconds of its upserts."""

    def __init__(self, store: Sqlite) -> None:
        self.store, self.seconds = store, 0.0
        self.embedder, self.vector_legs = store.embedder, ("vector",)

    async def upsert(self, entries: Sequence[Entry]) -> None:
        started = process_time()
        await self.store.upsert(entries)
        self.seconds += process_time() - started

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        return await self.store.fingerprints(tenant)

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        return await self.store.delete(ids, tenant)


class VectorFloor:
    """All vectors in memory, at eight bits and at thirty-two."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        widest = np.abs(rows).max(axis=1, keepdims=True)
        self.codes, self.scales = np.rint(rows * (127.0 / widest)).astype(np.int8), (widest / 127.0)[:, 0]

    def search(self, vector: Any) -> Any:
        """Indexes of the LIMIT nearest."""
        levels = np.rint(vector * (127.0 / np.abs(vector).max())).astype(np.int8)
        rough = np.asarray(simsimd.cdist(levels[None], self.codes, "dot"))[0] * self.scales
        chosen = (
            np.argpartition(rough, -RESCORED)[-RESCORED:] if len(rough) > RESCORED else np.arange(len(rough))
        )
        exact = self.rows[chosen] @ vector
        return chosen[np.argsort(-exact)[:LIMIT]]


class TextFloor:
    """The same texts in a table of FTS5."""

    def __init__(self, path: Path, documents: Sequence[Document]) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.execute(
            "CREATE VIRTUAL TABLE texts USING fts5 (title, body, tokenize = 'porter unicode61')"
        )
        rows = ((document.title, document.content) for document in documents)
        self.connection.executemany("INSERT INTO texts VALUES (?, ?)", rows)
        self.connection.commit()
        self.connection.execute("INSERT INTO texts (texts) VALUES ('optimize')")
        self.connection.commit()

    def search(self, words: Sequence[str]) -> list[tuple[Any, ...]]:
        """Title, text and score of the LIMIT best with any of the words."""
        sql = (
            "SELECT title, body, bm25(texts) FROM texts WHERE texts MATCH ? ORDER BY bm25(texts) LIMIT"
            f" {LIMIT}"
        )
        return self.connection.execute(sql, (" OR ".join(f'"{word}"' for word in words),)).fetchall()


class Bench:
    """One collection in one store; `rows` are the lines of the table."""

    def __init__(self, folder: Path, documents: Sequence[Document], inner: Embedder, questions: int) -> None:
        self.path, self.documents, self.embedder = folder / "store.db", documents, Counted(inner)
        self.folder, self.questions, self.small = folder, questions, len(documents) < LARGE
        self.rows: list[tuple[str, str, bool]] = []
        self.chance = random.Random(5)

    def tell(self, what: str, figure: str, holds: bool = True) -> None:
        """Add a line to the table."""
        self.rows.append((what, figure, holds))
        print(f"  {what:<44} {figure}{'' if holds else '   ABOVE THE LIMIT'}", flush=True)

    async def opened(self) -> Sqlite:
        """The store as a new process would open it."""
        store = Sqlite(path=str(self.path))
        await store.open()
        await store.embedded_by(self.embedder.model, self.embedder.dimensions)
        return store

    async def fill(self) -> None:
        """Ingest everything, then again with nothing changed, and count what is written."""
        store = await self.opened()
        clocked = Clocked(store)
        await ingest(Listed(self.documents), clocked, (), self.embedder, origin="bench", batch=BATCH)
        rate = len(self.documents) / clocked.seconds
        self.tell("bulk upsert", f"{rate:,.0f} documents per CPU second")
        size = (await store.stats())["bytes"]
        self.tell(
            "size on disk",
            f"{int(size) / 2**20:,.0f} MiB, {int(size) / len(self.documents):,.0f} bytes a document",
        )
        calls, before = self.embedder.calls, await self._traces(store)
        started = process_time()
        report = await ingest(Listed(self.documents), clocked, (), self.embedder, origin="bench", batch=BATCH)
        nothing = await self._traces(store) == before and self.embedder.calls == calls
        nothing &= (report.documents, report.deleted, report.unchanged) == (0, 0, len(self.documents))
        again = (
            f"{'nothing' if nothing else 'something'} written or embedded, {process_time() - started:.1f}"
            " CPU-s"
        )
        self.tell("ingestion again, nothing changed", again, nothing)
        await store.aclose()

    async def _traces(self, store: Sqlite) -> object:
        """What any write would change: the version, and time and length of the files."""
        files = [Path(f"{self.path}{end}") for end in ("", "-wal")]
        return await store.version(), [(f.stat().st_mtime_ns, f.stat().st_size) for f in files if f.exists()]

    async def open_again(self) -> None:
        """The first question of each leg after opening."""
        for leg in ("vector", "text"):
            store = await self.opened()
            vector = next(iter(self.embedder.vectors.values()))
            started = process_time()
            await store.search(Query(text=" ".join(self._words()), leg=leg, vector=vector, limit=LIMIT))
            self.tell(f"re-open, first question, {leg} leg", f"{(process_time() - started) * 1e3:.0f} CPU-ms")
            await store.aclose()

    async def change(self) -> None:
        """Single upserts with a search behind each, then a thousand deletions, then a vacuum."""
        store = await self.opened()
        vector = next(iter(self.embedder.vectors.values()))
        query = Query(text="", leg="vector", vector=vector, limit=LIMIT)
        await store.search(query)
        writing, searching = [], []
        for document in self.chance.sample(list(self.documents), min(100, len(self.documents))):
            entry = self._entry(document)
            writing.append(await timed(lambda e=entry: store.upsert([e])))
            searching.append(await timed(lambda: store.search(query)))
        self.tell(
            "upsert of one document",
            f"{statistics.median(writing):.2f} CPU-ms; the search after it, vector leg, "
            f"{statistics.median(searching):.2f}",
        )
        gone = [
            f"bench:{d.id}"
            for d in self.chance.sample(list(self.documents), min(1000, len(self.documents) // 10))
        ]
        started = process_time()
        await store.delete(gone)
        self.tell(
            "delete",
            f"{len(gone) / (process_time() - started):,.0f} documents per CPU second, {len(gone):,} at once",
        )
        before, started, clock = (await store.stats())["bytes"], process_time(), perf_counter()
        await store.vacuum()
        cost = f"{process_time() - started:.1f} CPU-s, {perf_counter() - clock:.1f} s"
        self.tell(
            "vacuum",
            f"{cost}, {int(before) / 2**20:,.0f} to {int((await store.stats())['bytes']) / 2**20:,.0f} MiB",
        )
        wanted = set(gone)
        await store.upsert([self._entry(d) for d in self.documents if f"bench:{d.id}" in wanted])
        await store.aclose()

    async def vector_leg(self) -> None:
        """Our leg, scoped and not, beside the floor; recall against all exact scores."""
        store = await self.opened()
        names = [f"bench:{document.id}" for document in self.documents]
        rows = np.array([self.embedder.vectors[text(document)] for document in self.documents], dtype="<f4")
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        kept = np.flatnonzero(np.abs(rows).max(axis=1) > 0)
        rows, names = rows[kept], [names[place] for place in kept]
        floor = VectorFloor(rows)
        mine: list[float] = []
        scoped: list[float] = []
        theirs: list[float] = []
        recalls: list[float] = []
        for vector in await self._vectors():
            query = Query(text="", leg="vector", vector=vector, limit=LIMIT)
            mine.append(await timed(lambda q=query: store.search(q)))
            theirs.append(clocked(lambda v=vector: floor.search(v)))
            scoped.append(await timed(lambda q=query: store.search(q.replace(scope=Scope()))))
            exact = rows @ vector
            least = np.sort(exact)[-LIMIT] - 1e-6
            true = {names[place] for place in np.flatnonzero(exact >= least)}
            hits = await store.search(query)
            recalls.append(len({hit.document.parent or hit.document.id for hit in hits} & true) / LIMIT)
        self.compare("vector leg", mine, theirs, "int8 scan and rescoring", VECTOR_RATIO)
        self.tell("vector leg with a scope", f"{statistics.median(scoped[1:]):.2f} CPU-ms")
        recall = statistics.mean(recalls)
        self.tell(f"vector leg, recall@{LIMIT} against exact", f"{recall:.4f}", recall >= RECALL)
        await store.aclose()

    async def text_leg(self) -> None:
        """Our leg beside FTS5's own ranking, three words a question, any of which suffices."""
        store = await self.opened()
        floor = TextFloor(self.folder / "floor.db", self.documents)
        mine: list[float] = []
        theirs: list[float] = []
        for _ in range(self.questions):
            words = self._words()
            query = Query(text=" ".join(words), leg="text", limit=LIMIT)
            mine.append(await timed(lambda q=query: store.search(q)))
            theirs.append(clocked(lambda w=words: floor.search(w)))
        self.compare("text leg, three words", mine, theirs, "FTS5 bm25", TEXT_RATIO)
        floor.connection.close()
        await store.aclose()

    def compare(
        self, what: str, mine: Sequence[float], theirs: Sequence[float], floor: str, limit: float
    ) -> None:
        """Tell medians, and how the sums relate: the first question, which loads, left out."""
        ratio = sum(mine[1:]) / sum(theirs[1:])
        each = statistics.median(a / b for a, b in zip(mine[1:], theirs[1:], strict=True))
        costs = f"{statistics.median(mine[1:]):.2f} CPU-ms, {floor} {statistics.median(theirs[1:]):.2f}"
        figure = f"{costs}: {ratio:.2f} of the floor (by question {each:.2f}; at most {limit})"
        self.tell(what, figure, self.small or ratio <= limit)

    async def _vectors(self) -> list[Any]:
        """Unit vectors to ask with: of three words, or of generated documents with noise."""
        texts = [" ".join(self._words()) for _ in range(self.questions)]
        made = np.array(await self.embedder.inner.embed(texts, query=True), dtype="<f4")
        norms = np.linalg.norm(made, axis=1, keepdims=True)
        return list((made / np.maximum(norms, 1e-9))[norms[:, 0] > 0])

    def _words(self) -> list[str]:
        """Three words of one document that tell something."""
        while True:
            document = self.chance.choice(self.documents)
            words = sorted(set(WORD.findall(text(document).lower())) - STOP_WORDS)
            if len(words) >= 3:
                return self.chance.sample(words, 3)

    def _entry(self, document: Document) -> Entry:
        stored = document.replace(id=f"bench:{document.id}")
        vectors = {"vector": [self.embedder.vectors[text(document)]]}
        return Entry(document=stored, chunks=[stored], vectors=vectors, fingerprint="again")


def text(document: Document) -> str:
    """What is embedded of a document that is its own chunk."""
    return "\n".join(part for part in (document.title, document.content) if part)


async def timed(call: Callable[[], Any]) -> float:
    """CPU milliseconds of an awaited call."""
    started = process_time()
    await call()
    return (process_time() - started) * 1e3


def clocked(call: Callable[[], object]) -> float:
    """CPU milliseconds of a call."""
    started = process_time()
    call()
    return (process_time() - started) * 1e3


async def measure(
    name: str, documents: Sequence[Document], inner: Embedder, questions: int, folder: Path
) -> bool:
    """Measure one collection; whether every limit holds."""
    print(f"\n{name}: {len(documents):,} documents, {inner.dimensions} dimensions")
    bench = Bench(folder, documents, inner, questions)
    for step in (bench.fill, bench.open_again, bench.vector_leg, bench.text_leg, bench.change):
        await step()
    figures = {what: figure for what, figure, _ in bench.rows}
    print("; ".join(f"{what}: {figures[what]}" for what in SUMMED if what in figures))
    return all(holds for _, _, holds in bench.rows)


async def main() -> int:
    parser = argparse.ArgumentParser(description="The embedded store at scale")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--generated", type=int, default=0)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    held = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        if asked.paths:
            static = Static()
            await static.open()
            documents = [document for path in asked.paths for document in read(path)]
            (place := Path(folder) / "read").mkdir()
            held.append(await measure("read", documents, static, asked.questions, place))
        if asked.generated or not asked.paths:
            (place := Path(folder) / "generated").mkdir()
            many, inner = asked.generated or 20_000, Clusters(asked.dimensions)
            held.append(await measure("generated", generated(many), inner, asked.questions, place))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
