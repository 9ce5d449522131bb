"""Ingestion: how much a second, what a change costs, and whether chunks are found as well as whole documents
and fixed windows.

    [BENCH_DATA=folder] python bench/ingestion.py [--quick]

The documents of this package, and of the collection chunker-docs where BENCH_DATA has it, are ingested into a
`sqlite` store: cut alone, cut with key phrases, and with the default embedder. Then again, after a paragraph
was changed, and after a file was removed. Of the collections kgpacks-faq and multihop-rag-500, three stores
are filled: with chunks as `chunk` makes them, with whole documents, and with windows of 512 tokens that share
50; each answers the same questions by its legs for text and vectors. Measured is nDCG@10 over documents, each
as good as its best chunk. Documents of kgpacks-faq are short, so its sources are also joined to one Markdown
file each, of some 8,000 tokens: there it counts how often what is found first, 2,000 tokens of it, holds the
answer.

Exits 1 when the second run embeds or writes anything, a changed paragraph embeds more than two chunks, a
removed file stays, or chunks are worse than either: the 95 % interval of the difference (paired bootstrap)
lies below 0.
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
    """Windows of a fixed number of tokens, whatever stands at their ends."""

    async def transform(self, document: Document) -> Sequence[Document]:
        found = tokens.spans(document.content)
        starts = range(0, max(len(found) - OVERLAP, 1), TARGET - OVERLAP)
        cuts = [(found[at][0], found[min(at + TARGET, len(found)) - 1][1]) for at in starts] if found else []
        return [
            document.replace(id=f"{document.id}#{n}", content=document.content[a:b])
            for n, (a, b) in enumerate(cuts)
        ]


class Given:
    """Lists documents."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents

    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document


Once = tuple[Report, float, float]
"""A report, CPU seconds of this process, wall seconds."""


async def once(
    folder: Path, store: Sqlite, transforms: Sequence[Transform], embedder: Embedder | None
) -> Once:
    """One run over a folder."""
    if embedder is not None:
        await store.embedded_by(embedder.model, embedder.dimensions)
    source = Files(path=str(folder), max_files=1_000_000)
    await source.open()
    cpu, wall = process_time(), perf_counter()
    report = await ingest(source, store, transforms, embedder, origin="bench")
    taken = process_time() - cpu, perf_counter() - wall
    await source.aclose()
    return report, *taken


async def speeds(folder: Path, at: Path, embedder: Embedder) -> None:
    """Print documents and chunks a second with less and more to do."""
    print(
        f"{'':<34}{'documents':>10}{'chunks':>8}{'tokens':>10}{'CPU s':>8}{'wall s':>8}{'documents/s':>13}{'chunks/s':>10}"
    )
    for name, transforms, with_vectors in (
        ("chunk", [Chunk()], False),
        ("chunk, keywords", [Chunk(), Keywords()], False),
        ("chunk, keywords, static embedder", [Chunk(), Keywords()], True),
    ):
        store = Sqlite(path=str(at / f"{len(name)}.db"), embedder="default" if with_vectors else None)
        await store.open()
        report, cpu, wall = await once(folder, store, transforms, embedder if with_vectors else None)
        await store.aclose()
        print(
            f"{name:<34}{report.documents:>10}{report.chunks:>8}{report.tokens:>10}{cpu:>8.2f}{wall:>8.2f}"
            f"{report.documents / wall:>13.0f}{report.chunks / wall:>10.0f}"
        )


async def changes(folder: Path, at: Path, embedder: Embedder) -> list[str]:
    """Run again over the same, over a changed and over a removed file; what was not as it should be."""
    store = Sqlite(path=str(at / "changes.db"))
    await store.open()
    transforms = [Chunk(), Keywords()]
    first, _, _ = await once(folder, store, transforms, embedder)
    before, wrong = await store.version(), []
    second, _, wall = await once(folder, store, transforms, embedder)
    print(
        f"again: {second.unchanged} unchanged, {second.embedded} embedded, {second.documents} written,"
        f" {wall:.2f} s"
    )
    if second.embedded or second.documents or second.deleted or await store.version() != before:
        wrong.append("a second run did something")
    page = folder / "docs" / "ingestion.md"
    text = page.read_text("utf-8")
    page.write_text(
        text.replace("A store is filled by jobs.", "A store is filled by jobs, one after the other.", 1),
        "utf-8",
    )
    third, _, _ = await once(folder, store, transforms, embedder)
    print(
        f"one paragraph changed: {third.changed} changed, {third.chunks} chunks, {third.embedded} texts"
        " embedded"
    )
    if third.changed != 1 or not 1 <= third.embedded <= 4:
        wrong.append(f"a changed paragraph embedded {third.embedded} texts")
    page.unlink()
    fourth, _, _ = await once(folder, store, transforms, embedder)
    left = [id for id in await store.fingerprints() if id.endswith("ingestion.md")]
    print(
        f"one file removed: {fourth.deleted} removed, {fourth.embedded} embedded; {len(first.skipped)}"
        " problems were reported"
    )
    if left or fourth.deleted != 1:
        wrong.append("a removed file stayed")
    await store.aclose()
    return wrong


Found = dict[str, list[Document]]
"""Question -> chunks, best first; their parents' ids are those of the collection."""


async def ranked(
    collection: Collection, documents: Sequence[Document], way: Sequence[Transform], at: Path
) -> Found:
    """What is found for each judged question."""
    store, embedder = Sqlite(path=str(at)), Static()
    await store.open()
    await embedder.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    await ingest(Given(documents), store, way, embedder, origin="c")
    rag = {
        "cache_enabled": False,
        "token_budget": 0,
        "candidates": DEPTH,
        "general_retrieval_final_count": DEPTH,
        "timeout_seconds": 60.0,
    }
    found = {}
    async with ContextRouter(
        {"rag": rag}, providers={"store": store}, embedders={"default": embedder}
    ) as router:
        for question in collection.judged:
            context = await router.route(question.text, legs=["text", "vector"])
            found[question.id] = [envelope.document for envelope in context.envelopes]
    return found


def gains(found: Found, collection: Collection) -> dict[str, float]:
    """nDCG@10 of each question over documents, each at the rank of its best chunk."""
    values = {}
    for question, hits in found.items():
        grades = collection.grades[question]
        order = list(dict.fromkeys((hit.parent or hit.id).partition(":")[2] for hit in hits))[:10]
        ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:10]
        values[question] = _discounted([max(grades.get(id, 0), 0) for id in order]) / _discounted(ideal)
    return values


def _discounted(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 2) for rank, grade in enumerate(grades))


def holds(found: Found, collection: Collection, texts: dict[str, str]) -> dict[str, float]:
    """Whether the first 2,000 tokens of what was found hold the text of a relevant document; whole ones are
    cut there.
    """
    values = {}
    for question, hits in found.items():
        left, shown = BUDGET, []
        for hit in hits:
            shown.append(tokens.truncate(hit.content, left))
            left -= tokens.count(shown[-1])
            if left <= 0:
                break
        read = "\n".join(shown)
        relevant = [
            texts[id] for id, grade in collection.grades[question].items() if grade > 0 and id in texts
        ]
        values[question] = float(any(text in read for text in relevant))
    return values


def compared(name: str, values: dict[str, dict[str, float]]) -> list[str]:
    """Print the means, and the differences of chunks to the others; where they are worse."""
    means = {way: float(np.mean(list(each.values()))) for way, each in values.items()}
    worse, said = [], []
    for other in ("whole", "windows"):
        difference = np.array([values["chunks"][q] - values[other][q] for q in sorted(values["chunks"])])
        picks = np.random.default_rng(7).integers(0, len(difference), (SAMPLES, len(difference)))
        low, high = np.quantile(difference[picks].mean(axis=1), (0.025, 0.975))
        said.append(f"{difference.mean():+.4f} [{low:+.4f}, {high:+.4f}] to {other}")
        if high < 0:
            worse.append(f"{name}: chunks are worse than {other}")
    row = "  ".join(f"{way} {mean:.4f}" for way, mean in means.items())
    print(f"{name:<44}{len(values['chunks']):>5} questions   {row}   {'; '.join(said)}")
    return worse


async def retrieval(data: Path, at: Path, *, quick: bool) -> list[str]:
    """Hold chunks against whole documents and fixed windows on the collections there are; where they are
    worse.
    """
    ways: dict[str, Sequence[Transform]] = {"chunks": [Chunk()], "whole": [], "windows": [Windows()]}
    worse: list[str] = []
    for name in ("multihop-rag-500", "kgpacks-faq"):
        if not (data / name).is_dir():
            continue
        collection = read(data / name)
        if quick:
            collection.questions = collection.questions[::10]
        asked = {
            w: await ranked(collection, collection.documents, way, at / f"{name}-{w}.db")
            for w, way in ways.items()
        }
        worse += compared(f"{name}, nDCG@10", {way: gains(found, collection) for way, found in asked.items()})
        if name == "kgpacks-faq":
            joined = books(collection)
            asked = {
                w: await ranked(collection, joined, way, at / f"books-{w}.db") for w, way in ways.items()
            }
            texts = {document.id: document.content for document in collection.documents}
            answered = {way: holds(found, collection, texts) for way, found in asked.items()}
            worse += compared(f"{name} joined, answer in {BUDGET:,} tokens", answered)
    return worse


def books(collection: Collection) -> list[Document]:
    """One Markdown file for each source, a section for each title."""
    made = []
    for name, documents in collection.sources.items():
        sections: defaultdict[str, list[str]] = defaultdict(list)
        for document in documents:
            sections[document.title].append(document.content)
        text = "\n\n".join(f"## {title}\n\n" + "\n\n".join(texts) for title, texts in sections.items())
        made.append(
            Document(id=name, title=name, content=f"# {name}\n\n{text}\n", media_type="text/markdown")
        )
    return made


def gathered(data: Path | None, at: Path) -> Path:
    """A copy of the documents that are ingested: these may be changed."""
    folder = at / "documents"
    shutil.copytree(HERE.parent / "docs", folder / "docs")
    shutil.copytree(
        HERE.parent / "contextrouter", folder / "code", ignore=shutil.ignore_patterns("__pycache__", "data")
    )
    for each in corpora.unpacked(data, BUILD) if data else ():
        if each.name == "chunker-docs":
            shutil.copytree(each, folder / each.name)
    return folder


async def main() -> int:
    parser = argparse.ArgumentParser(description="Ingestion")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    data = Path(os.environ["BENCH_DATA"]) if os.environ.get("BENCH_DATA") else None
    embedder = Static()
    await embedder.open()
    with tempfile.TemporaryDirectory() as name:
        at = Path(name)
        folder = gathered(None if quick else data, at)
        await speeds(folder, at, embedder)
        wrong = await changes(folder, at, embedder)
        if data:
            wrong += await retrieval(data, at, quick=quick)
    await embedder.aclose()
    found = (
        "chunks are no worse than whole documents or windows"
        if data
        else "retrieval is measured with BENCH_DATA"
    )
    print("; ".join(wrong) or f"a second run did nothing, a change only what changed; {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
