"""Filling a collection in an order that never shows a gap: new chunks, the document, then stale chunks go.

A collection has no transactions. A run that breaks off leaves old and new chunks side by side, and the old
fingerprint (of a new document: none); the next run does the rest, or removes what is in the source no more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from contextrouter.builtin.providers.vertex import lookup
from contextrouter.builtin.providers.vertex.collection import Collection
from contextrouter.builtin.providers.vertex.data_objects import NOTES, EntryRows, Row, owner_id
from contextrouter.errors import SourceError

VISIBLE = 30  # seconds that a removed object may still be listed


class Notes(NamedTuple):
    """What a collection notes of itself: a mark of its content, and how its vectors and terms were made."""

    generation: str = ""
    model: str = ""
    dimensions: int = 0
    languages: frozenset[str] = frozenset()

    def refuse_other_model(self, model: str, dimensions: int) -> None:
        """Raise SourceError when a model of another name or length filled the collection."""
        renamed = self.model and model and self.model != model
        if renamed or (self.dimensions and dimensions and self.dimensions != dimensions):
            raise SourceError(
                f"Collection was filled by the embedding model {self.model or 'unknown'!r} with"
                f" {self.dimensions} dimensions, the settings name {model or 'unknown'!r} with {dimensions};"
                " name the former as its `embedder`, or run `contextrouter ingest --rebuild`."
            )


async def read_notes(collection: Collection, deadline: float | None = None) -> Notes:
    """Return the notes of a collection; those of an empty one where there are none."""
    row = await collection.get(NOTES, deadline=deadline)
    if row is None:
        return Notes()
    return Notes(
        str(row.data.get("generation", "")),
        str(row.data.get("model", "")),
        int(number) if isinstance(number := row.data.get("dimensions"), float) else 0,
        frozenset(row.lists.get("languages", ())),
    )


async def write_notes(collection: Collection, notes: Notes) -> Notes:
    """Write notes with a new mark of the content; return them."""
    notes = notes._replace(generation=secrets.token_hex(8))
    data = {**notes._asdict(), "role": NOTES, "languages": sorted(notes.languages)}
    await collection.put([Row(NOTES, data)])
    return notes


async def replace_documents(collection: Collection, entries: Iterable[EntryRows]) -> None:
    """Put documents in place of what they were. Of two entries for one document the last counts."""
    latest = {entry.document.id: entry for entry in entries}
    stored = {row.id: row for row in await lookup.read_objects(collection, list(latest))}
    chunks = {row.id: row for entry in latest.values() for row in entry.chunks}
    heads = [entry.document for entry in latest.values()]
    # New documents come first, without a mark: a run that breaks off leaves no chunks of an unknown document.
    new = [head for head in heads if head.id not in stored]
    await collection.create([head._replace(data={**head.data, "fingerprint": ""}) for head in new])
    await collection.create([row for id, row in chunks.items() if id not in stored])
    await collection.put(heads)
    await collection.delete(
        [id for id, row in stored.items() if row.data["role"] == "chunk" and id not in chunks]
    )


async def remove_documents(collection: Collection, ids: Sequence[str], tenant: str | None) -> int:
    """Remove documents; return how many there were. A document's own object goes last: until then a run that
    broke off is repeated.
    """
    owners = [owner_id(tenant, id) for id in dict.fromkeys(ids)]
    rows = await lookup.read_objects(collection, owners)
    heads = [row.id for row in rows if row.data["role"] == "document"]
    await collection.delete([row.id for row in rows if row.data["role"] == "chunk"])
    await collection.delete(heads)
    return len(heads)


async def remove_all(collection: Collection) -> None:
    """Remove all objects, the notes last. Raises SourceError where objects are listed long after that."""
    removed, waits = set[str](), 0
    while rows := await collection.query([{"role": {"$in": ["chunk", "document"]}}], ["role"], pages=1):
        if ids := [row.id for row in rows if row.id not in removed]:
            await collection.delete(ids)
            removed.update(ids)
        elif waits < VISIBLE:
            waits += 1
            await asyncio.sleep(1.0)
        else:
            raise SourceError(
                f"Collection {collection.id!r} still lists {len(rows)} objects that were removed; run again."
            )
    await collection.delete([NOTES])
