"""Ingestion benchmark: throughput, the cost of a change, and retrieval of chunks beside whole documents and
fixed windows.

    [BENCH_DATA=folder] python bench/ingestion.py [--quick]

The documents of this package, and of the collection chunker-docs if BENCH_DATA has it, are ingested into a
`sqlite` store: with `chunk` alone, with key phrases, and with the default embedder. The run is repeated: with
nothing changed, with one changed paragraph, and with one removed file.

For each of the collections kgpacks-faq and multihop-rag-500, three stores are filled: with chunks of `chunk`,
with whole documents, and with windows of 512 tokens that overlap by 50. Each answers the same questions by
its legs for text and vectors. Measured is nDCG@10 over documents; a document has the rank of its best chunk.
The documents of kgpacks-faq are short. So its sources are also joined, each to one Markdown file of some
8,000 tokens; there the measure is how often the top 2,000 tokens of the results contain the answer.

Exits 1 if the second run embeds or writes anything, if a changed paragraph embeds more than two chunks, if a
removed file stays, or if chunks are worse than whole documents or windows: the 95 % interval of the
difference (paired bootstrap) lies below 0.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from time import perf_counter, process_time

import corpora
import numpy as np
from judged import Collection, read

from contextrouter import ContextRouter
from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.builtin.transforms.keywords import Keywords
from contextrouter.contracts import Embedder, Transform
from contextrouter.ingest import Report, ingest
from contextrouter.model import Document
from contextrouter.text import tokens

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "collections"
TARGET, OVERLAP, DEPTH, BUDGET, SAMPLES = 512, 50, 100, 2_000, 5_000


class Windows(Transform):
    """Windows of a fixed number of tokens, without regard to sentences."""

    async def transform(self, document: Document) -> Sequence[Document]:
        spans = tokens.spans(document.content)
        starts = range(0, max(len(spans) - OVERLAP, 1), TARGET - OVERLAP) if spans else ()
        windows = [(spans[start][0], spans[start : start + TARGET][-1][1]) for start in starts]
        return [
            document.replace(id=f"{document.id}#{number}", content=document.content[begin:end])
            for number, (begin, end) in enumerate(windows)
        ]


class Listing:
    """A source that lists these documents."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents

    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document


Timing = tuple[Report, float, float]
"""A report, CPU seconds of this process, wall seconds."""


async def time_run(
    folder: Path, store: Sqlite, transforms: Sequence[Transform], embedder: Embedder | None
) -> Timing:
    """Ingest a folder once."""
    if embedder is not None:
        await store.embedded_by(embedder.model, embedder.dimensions)
    source = Files(path=str(folder), max_files=1_000_000)
    await source.open()
    cpu, wall = process_time(), perf_counter()
    report = await ingest(source, store, transforms, embedder, origin="bench")
    cpu, wall = process_time() - cpu, perf_counter() - wall
    await source.aclose()
    return report, cpu, wall


async def speeds(folder: Path, stores: Path, embedder: Embedder) -> None:
    """Print documents and chunks per second, for three lists of transforms."""
    print(
        f"{'':<34}{'documents':>10}{'chunks':>8}{'tokens':>10}{'CPU s':>8}{'wall s':>8}{'documents/s':>13}{'chunks/s':>10}"
    )
    for name, transforms, with_vectors in (
        ("chunk", [Chunk()], False),
        ("chunk, keywords", [Chunk(), Keywords()], False),
        ("chunk, keywords, static embedder", [Chunk(), Keywords()], True),
    ):
        store = Sqlite(path=str(stores / f"{len(name)}.db"), embedder="default" if with_vectors else None)
        await store.open()
        report, cpu, wall = await time_run(folder, store, transforms, embedder if with_vectors else None)
        await store.aclose()
        print(
            f"{name:<34}{report.documents:>10}{report.chunks:>8}{report.tokens:>10}{cpu:>8.2f}{wall:>8.2f}"
            f"{report.documents / wall:>13.0f}{report.chunks / wall:>10.0f}"
        )


async def changes(folder: Path, stores: Path, embedder: Embedder) -> list[str]:
    """Repeat a run with nothing changed, with a changed file and with a removed file; return the faults."""
    store = Sqlite(path=str(stores / "changes.db"))
    await store.open()
    transforms = [Chunk(), Keywords()]
    initial, _, _ = await time_run(folder, store, transforms, embedder)
    version, faults = await store.version(), []
    second, _, wall = await time_run(folder, store, transforms, embedder)
    print(
        f"again: {second.unchanged} unchanged, {second.embedded} embedded, {second.documents} written,"
        f" {wall:.2f} s"
    )
    if second.embedded or second.documents or second.deleted or await store.version() != version:
        faults.append("a second run did something")
    page = folder / "docs" / "ingestion.md"
    text = page.read_text("utf-8")
    page.write_text(
        text.replace("A store is filled by jobs.", "A store is filled by jobs, one after the other.", 1),
        "utf-8",
    )
    third, _, _ = await time_run(folder, store, transforms, embedder)
    print(
        f"one paragraph changed: {third.changed} changed, {third.chunks} chunks, {third.embedded} texts"
        " embedded"
    )
    if third.changed != 1 or not 1 <= third.embedded <= 4:
        faults.append(f"a changed paragraph embedded {third.embedded} texts")
    page.unlink()
    fourth, _, _ = await time_run(folder, store, transforms, embedder)
    remaining = [id for id in await store.fingerprints() if id.endswith("ingestion.md")]
    print(
        f"one file removed: {fourth.deleted} removed, {fourth.embedded} embedded; {len(initial.skipped)}"
        " problems were reported"
    )
    if remaining or fourth.deleted != 1:
        faults.append("a removed file stayed")
    await store.aclose()
    return faults


Results = dict[str, list[Document]]
"""Question -> chunks, best first. Their parents have the ids of the collection."""


async def search_all(
    collection: Collection, documents: Sequence[Document], transforms: Sequence[Transform], path: Path
) -> Results:
    """Fill a store with the documents, and return the results of each judged question."""
    store, embedder = Sqlite(path=str(path)), Static()
    await store.open()
    await embedder.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    await ingest(Listing(documents), store, transforms, embedder, origin="c")
    rag = {
        "cache_enabled": False,
        "token_budget": 0,
        "merge_neighbours": False,  # what is measured is the order of the chunks
        "candidates": DEPTH,
        "general_retrieval_final_count": DEPTH,
        "timeout_seconds": 60.0,
    }
    results = {}
    async with ContextRouter(
        {"rag": rag}, providers={"store": store}, embedders={"default": embedder}
    ) as router:
        for question in collection.judged:
            context = await router.route(question.text, legs=["text", "vector"])
            results[question.id] = [envelope.document for envelope in context.envelopes]
    return results


def score_ranking(results: Results, collection: Collection) -> dict[str, float]:
    """Return nDCG@10 of each question over documents; a document has the rank of its best chunk."""
    values = {}
    for question, hits in results.items():
        grades = collection.grades[question]
        order = list(dict.fromkeys((hit.parent or hit.id).partition(":")[2] for hit in hits))[:10]
        ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:10]
        values[question] = _discounted([max(grades.get(id, 0), 0) for id in order]) / _discounted(ideal)
    return values


def _discounted(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 2) for rank, grade in enumerate(grades))


def score_answers(results: Results, collection: Collection, texts: dict[str, str]) -> dict[str, float]:
    """Return 1 for each question whose top 2,000 tokens of results contain the text of a relevant
    document.
    """
    values = {}
    for question, hits in results.items():
        budget, parts = BUDGET, []
        for hit in hits:
            parts.append(tokens.truncate(hit.content, budget))
            budget -= tokens.count(parts[-1])
            if budget <= 0:
                break
        text = "\n".join(parts)
        relevant = [
            texts[id] for id, grade in collection.grades[question].items() if grade > 0 and id in texts
        ]
        values[question] = float(any(passage in text for passage in relevant))
    return values


def compare(name: str, values: dict[str, dict[str, float]]) -> list[str]:
    """Print the means, and the differences of chunks to the others; return where chunks are worse."""
    means = {store: float(np.mean(list(by_question.values()))) for store, by_question in values.items()}
    worse, differences = [], []
    for rival in ("whole", "windows"):
        difference = np.array([values["chunks"][q] - values[rival][q] for q in sorted(values["chunks"])])
        picks = np.random.default_rng(7).integers(0, len(difference), (SAMPLES, len(difference)))
        low, high = np.quantile(difference[picks].mean(axis=1), (0.025, 0.975))
        differences.append(f"{difference.mean():+.4f} [{low:+.4f}, {high:+.4f}] to {rival}")
        if high < 0:
            worse.append(f"{name}: chunks are worse than {rival}")
    row = "  ".join(f"{store} {mean:.4f}" for store, mean in means.items())
    print(f"{name:<44}{len(values['chunks']):>5} questions   {row}   {'; '.join(differences)}")
    return worse


async def retrieval(data: Path, folder: Path, *, quick: bool) -> list[str]:
    """Compare chunks with whole documents and fixed windows on the collections; return where chunks are
    worse.
    """
    transforms: dict[str, Sequence[Transform]] = {"chunks": [Chunk()], "whole": [], "windows": [Windows()]}
    worse: list[str] = []
    for name in ("multihop-rag-500", "kgpacks-faq"):
        if not (data / name).is_dir():
            continue
        collection = read(data / name)
        if quick:
            collection.questions = collection.questions[::10]
        results = {
            store: await search_all(collection, collection.documents, steps, folder / f"{name}-{store}.db")
            for store, steps in transforms.items()
        }
        values = {store: score_ranking(hits, collection) for store, hits in results.items()}
        worse += compare(f"{name}, nDCG@10", values)
        if name == "kgpacks-faq":
            joined = join_sources(collection)
            results = {
                store: await search_all(collection, joined, steps, folder / f"books-{store}.db")
                for store, steps in transforms.items()
            }
            texts = {document.id: document.content for document in collection.documents}
            values = {store: score_answers(hits, collection, texts) for store, hits in results.items()}
            worse += compare(f"{name} joined, answer in {BUDGET:,} tokens", values)
    return worse


def join_sources(collection: Collection) -> list[Document]:
    """Return one Markdown file for each source, with a section for each title."""
    files = []
    for name, documents in collection.sources.items():
        sections: defaultdict[str, list[str]] = defaultdict(list)
        for document in documents:
            sections[document.title].append(document.content)
        text = "\n\n".join(f"## {title}\n\n" + "\n\n".join(texts) for title, texts in sections.items())
        files.append(
            Document(id=name, title=name, content=f"# {name}\n\n{text}\n", media_type="text/markdown")
        )
    return files


def copy_documents(data: Path | None, target: Path) -> Path:
    """Return a folder with a copy of the documents, because the benchmark changes some."""
    folder = target / "documents"
    shutil.copytree(HERE.parent / "docs", folder / "docs")
    shutil.copytree(
        HERE.parent / "contextrouter", folder / "code", ignore=shutil.ignore_patterns("__pycache__", "data")
    )
    for collection in corpora.unpacked(data, BUILD) if data else ():
        if collection.name == "chunker-docs":
            shutil.copytree(collection, folder / collection.name)
    return folder


async def main() -> int:
    parser = argparse.ArgumentParser(description="Ingestion")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    data = Path(os.environ["BENCH_DATA"]) if os.environ.get("BENCH_DATA") else None
    embedder = Static()
    await embedder.open()
    with tempfile.TemporaryDirectory() as name:
        stores = Path(name)
        folder = copy_documents(None if quick else data, stores)
        await speeds(folder, stores, embedder)
        faults = await changes(folder, stores, embedder)
        if data:
            faults += await retrieval(data, stores, quick=quick)
    await embedder.aclose()
    retrieved = (
        "chunks are no worse than whole documents or windows"
        if data
        else "retrieval is measured with BENCH_DATA"
    )
    print("; ".join(faults) or f"a second run did nothing, a change only what changed; {retrieved}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
