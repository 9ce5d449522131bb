"""One measure of `compare.py`, in a process of its own: it imports the checkout that PYTHONPATH names.

    python -P compare_work.py (fill | files) FOLDER STORE
    python -P compare_work.py ask FOLDER STORE
    python -P compare_work.py cold STORE QUESTION

Prints one line of JSON. It uses only names that the package has had from its beginning.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from contextrouter import ContextRouter


class Listing:
    """A source that lists these documents."""

    def __init__(self, documents: Sequence[Any]) -> None:
        self.documents = documents

    async def crawl(self) -> AsyncIterator[Any]:
        for document in self.documents:
            yield document


def plugin(kind: str, name: str, **keywords: Any) -> Any:
    """A plugin by the name that settings have for it: its class moved between checkouts."""
    (found,) = entry_points(group=f"contextrouter.{kind}s", name=name)
    return found.load()(**keywords)


def cpu_seconds(who: int = RUSAGE_SELF) -> float:
    """CPU seconds of this process, or of those that it started and that have ended."""
    used = getrusage(who)
    return used.ru_utime + used.ru_stime


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, gzipped or plain."""
    data = path.read_bytes()
    return [
        json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    ]


async def fill(source: Any, store_path: str) -> dict[str, Any]:
    """Ingest a source; CPU seconds, and what was stored."""
    from contextrouter.ingest import ingest

    store, embedder = plugin("provider", "sqlite", path=store_path), plugin("embedder", "static")
    transforms = [plugin("transform", "chunk"), plugin("transform", "keywords")]
    await store.open()
    await embedder.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    start = cpu_seconds()
    report = await ingest(source, store, transforms, embedder, origin="c")
    for each in (source, store, embedder):
        if hasattr(each, "aclose"):  # a process that parses files counts when it has ended
            await each.aclose()
    seconds, parsing = cpu_seconds() - start, cpu_seconds(RUSAGE_CHILDREN)
    stored = {"documents": report.documents, "chunks": report.chunks}
    return {"seconds": seconds, "parsing": parsing, **stored}


async def fill_collection(folder: Path, store_path: str) -> dict[str, Any]:
    """Ingest the documents of a collection."""
    from contextrouter import Document

    rows = ((row, row.get("title") or "") for row in lines(folder / "corpus.jsonl.gz"))
    made = [Document(id=row["id"], title=title, content=row.get("text") or title) for row, title in rows]
    return await fill(Listing([document for document in made if document.content.strip()]), store_path)


async def fill_files(folder: Path, store_path: str) -> dict[str, Any]:
    """Ingest a folder of files."""
    source = plugin("connector", "files", path=str(folder), max_files=1_000_000)
    await source.open()
    return await fill(source, store_path)


def settings_of(store_path: str) -> dict[str, Any]:
    """The default settings over one store."""
    return {
        "embedders": {"default": {"use": "static"}},
        "providers": {"store": {"use": "sqlite", "path": store_path}},
    }


async def ask(folder: Path, store_path: str) -> dict[str, Any]:
    """Ask each question of a collection once: CPU seconds of one, the first left out, and the ids of each
    answer in their order.
    """
    questions = [row["text"] for row in lines(folder / "queries.dev.jsonl")]
    async with ContextRouter(settings_of(store_path)) as router:
        await router.route(questions[0])
        start = cpu_seconds()
        contexts = [await router.route(question) for question in questions[1:]]
        seconds = cpu_seconds() - start
        answers = [[envelope.document.id for envelope in context.envelopes] for context in contexts]
    return {"seconds": seconds / len(contexts), "answers": answers}


async def answer_first(store_path: str, question: str) -> dict[str, Any]:
    """Open a router and ask it one question: CPU seconds of the whole process so far."""
    async with ContextRouter(settings_of(store_path)) as router:
        await router.route(question)
    return {"seconds": cpu_seconds()}


def main() -> None:
    what, first, second = sys.argv[1:]
    work = {
        "fill": lambda: fill_collection(Path(first), second),
        "files": lambda: fill_files(Path(first), second),
        "ask": lambda: ask(Path(first), second),
        "cold": lambda: answer_first(first, second),
    }
    print(json.dumps(asyncio.run(work[what]())))


if __name__ == "__main__":
    main()
