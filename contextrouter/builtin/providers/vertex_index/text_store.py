"""The store with the texts of an index: chunks by the ids of datapoints, and the datapoints of a document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec

from contextrouter.builtin.providers.vertex_index.datapoints import chunk_key
from contextrouter.contracts import Entry, Provider, SupportsFetch, SupportsTenants, SupportsUpsert
from contextrouter.errors import SourceError
from contextrouter.model import Document

PATIENCE, _PAUSE = 60.0, 0.1  # seconds that a write outside of a run waits for its turn, and looks again
_DATAPOINTS = "datapoints"  # key of a document's metadata: the ids that were written to the index


class Texts:
    """The store of `texts`. Raises ValueError where it cannot fetch by id."""

    def __init__(self, store: Provider) -> None:
        if not isinstance(store, SupportsFetch):
            raise ValueError("texts names a provider that cannot fetch by id; name a store such as `sqlite`.")
        self.store: Any = store
        self._has_turn = False

    async def take_turn(self) -> str:
        """Take the turn of the store, where it has turns; return "". If another has it, say who."""
        # the protocol of stores with turns is that of ingestion, which plugins do not import
        owner: str = await self.store.take_turn() if hasattr(self.store, "take_turn") else ""
        self._has_turn = self._has_turn or not owner
        return owner

    async def end_turn(self) -> None:
        """Give the turn back."""
        self._has_turn = False
        if hasattr(self.store, "end_turn"):
            await self.store.end_turn()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Write in a turn: two processes at once would mix their datapoints. In that of a run, none is taken.
        Raises SourceError where another process has it for long.
        """
        if self._has_turn:
            yield
            return
        limit = monotonic() + PATIENCE
        while owner := await self.take_turn():
            if monotonic() >= limit:
                raise SourceError(
                    f"The store of `texts` is being filled by {owner}; write again when it is done."
                )
            await asyncio.sleep(_PAUSE)
        try:
            yield
        finally:
            await self.end_turn()

    def fillable(self) -> SupportsUpsert:
        """Return the store. Raises SourceError where it cannot be filled."""
        if not isinstance(self.store, SupportsUpsert):
            raise SourceError("The store of `texts` cannot be filled; name a store such as `sqlite`.")
        return self.store

    async def by_datapoint(self, datapoints: Sequence[str]) -> Mapping[str, Document]:
        """Return datapoint id -> chunk, for those that the store has."""
        keys = {datapoint: chunk_key(datapoint) for datapoint in datapoints}
        fetched = await self.store.fetch(list(dict.fromkeys(id for _, id in keys.values())))
        documents: dict[tuple[str | None, str], Document] = {}
        for document in fetched:
            documents.setdefault((document.tenant or None, document.id), without_list(document))
        return {datapoint: documents[key] for datapoint, key in keys.items() if key in documents}

    async def datapoints_of(self, ids: Sequence[str], tenant: str | None) -> dict[str, list[str]]:
        """Return document id -> the ids of its datapoints."""
        if isinstance(self.store, SupportsTenants) and tenant not in await self.store.tenants():
            return {}  # a store that is not there yet refuses to fetch
        return {
            document.id: [str(item) for item in listed]
            for document in await self.store.fetch(list(ids))
            if (document.tenant or None) == tenant
            and isinstance(listed := document.metadata.get(_DATAPOINTS), list)
        }

    async def upsert(self, entries: Sequence[tuple[Entry, Sequence[str]]], embedder: str | None) -> None:
        """Store entries, with the ids of their datapoints. Vectors go along where the store has the same
        embedder.
        """
        store = self.fillable()
        same = embedder is not None and store.embedder == embedder
        await store.upsert(
            [_with_list(entry, ids, store.vector_legs if same else ()) for entry, ids in entries]
        )

    async def tenants(self) -> Sequence[str | None]:
        """Whose documents the store has."""
        if not isinstance(self.store, SupportsTenants):
            raise SourceError("The store of `texts` does not know whose documents it has.")
        return await self.store.tenants()


def without_list(document: Document) -> Document:
    """Return a document without the list of its datapoints, which is no business of a reader."""
    if _DATAPOINTS not in document.metadata:
        return document
    return document.replace(
        metadata={key: value for key, value in document.metadata.items() if key != _DATAPOINTS}
    )


def _with_list(entry: Entry, ids: Sequence[str], legs: Sequence[str]) -> Entry:
    document = entry.document
    return msgspec.structs.replace(
        entry,
        document=document.replace(metadata={**document.metadata, _DATAPOINTS: list(ids)}),
        vectors={leg: vectors for leg, vectors in entry.vectors.items() if leg in legs},
    )
