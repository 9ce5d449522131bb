"""contextrouter: a SQLite store for each source, and the settings as they come but for the deadline."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from task import DEADLINE, HANGS, Ask, Embed, Row, Sources

from contextrouter import Connector, ContextRouter, Document, Hit, Query
from contextrouter.ingest import ingest


class Faulty(Connector):
    """A source that raises, or that does not answer for a while."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    async def search(self, query: Query) -> Sequence[Hit]:
        if self.fault == "raise":
            raise ConnectionError("no answer")
        await asyncio.sleep(HANGS)
        return []


# What a user writes: counted from here.
class Rows:
    """A source that lists rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    async def crawl(self) -> AsyncIterator[Document]:
        for row in self.rows:
            yield Document(id=row.id, title=row.title, content=row.text)


async def build(sources: Sources, embed: Embed, fault: str, option: str) -> Ask:
    """Fill the stores; return a function that asks."""
    folder = Path(tempfile.mkdtemp())
    settings = {
        "rag": {"timeout_seconds": DEADLINE},
        "embedders": {"default": {"use": "static"}},
        "providers": {name: {"use": "sqlite", "path": str(folder / f"{name}.db")} for name in sources},
    }
    router = ContextRouter(settings, connectors={"faulty": Faulty(fault)} if fault else {})
    await router.open()
    embedder = router.instances.embedders["default"]
    for name, rows in sources.items():
        store = router.instances.sources[name]
        await store.embedded_by(embedder.model, embedder.dimensions)
        await ingest(Rows(rows), store, [], embedder, origin=name, batch=1000)

    async def ask(question: str) -> list[str]:
        context = await router.route(question)
        return [(envelope.document.parent or "").partition(":")[2] for envelope in context.envelopes]

    return ask
