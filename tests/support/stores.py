"""Stores of every kind, empty and open, with short ways to fill and to search them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query

OpenEmpty = Callable[..., AbstractAsyncContextManager[Any]]
"""Opens an empty store; its arguments are keywords of the plugin."""


def entry(id: str, content: str, *, vector: Sequence[float] | None = None, **fields: Any) -> Entry:
    """An entry of one chunk, with the same vector on both vector legs."""
    document = Document(id=id, content=content, **fields)
    return Entry(
        document=document,
        chunks=[document],
        vectors={"vector": [vector], "keywords": [vector]} if vector else {},
    )


async def ids(store: Any, text: str, leg: str = "text", **query: Any) -> list[str]:
    """Ids of what a search finds, in order."""
    return [hit.document.id for hit in await store.search(Query(text=text, leg=leg, **query))]


@asynccontextmanager
async def open_memory(**keywords: Any) -> AsyncIterator[Memory]:
    """A store in memory that takes vectors."""
    store = Memory(**{"embedder": "default", **keywords})
    await store.open()
    yield store
    await store.aclose()


@asynccontextmanager
async def open_sqlite(**keywords: Any) -> AsyncIterator[Sqlite]:
    """A store in a file of its own; the file goes afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        store = Sqlite(**{"path": str(Path(folder) / "store.db"), **keywords})
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()
