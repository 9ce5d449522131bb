"""The queue between the reader of a source and the storer, and the memory limit for documents in work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from contextrouter.contracts import Entry, Transform
from contextrouter.ingest.changes import Change
from contextrouter.ingest.preparation import build_entry
from contextrouter.runtime.plugin_calls import containment, text_of
from contextrouter.runtime.threads import work_aside
from contextrouter.text import tokens
from contextrouter.text.characters import is_blank

AHEAD = 4
"""How many documents are chunked and enriched at once, while others are embedded and stored."""
MOST_CHARACTERS = 8_000_000
"""Characters of the documents that are in work at once. A longer document is in work alone."""
_QUICK = 20_000  # the tokens of so many characters are counted faster than a thread starts


class PreparedDocument:
    """The result of the transforms for one document: an entry, or the reason why there is none."""

    __slots__ = ("change", "entry", "failure", "problems", "tokens")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.entry: Entry | None = None
        self.problems: list[str] = []
        self.failure = ""
        self.tokens = 0


class Flush:
    """Message of the reader: store the documents that are ready, because the next one needs their memory."""


class End:
    """Message of the reader: no more documents come. Store those that are ready and stop."""


Message = asyncio.Task[PreparedDocument] | Flush | End
"""The reader sends a document that a task prepares, or one of two orders."""
DocumentQueue = asyncio.Queue[Message]


async def prepare_document(change: Change, transforms: Sequence[Transform]) -> PreparedDocument:
    """Chunk and enrich one document. If this fails, the result has the `failure` and no entry."""
    result = PreparedDocument(change)
    try:
        with containment():
            entry, result.problems = await build_entry(change.document, transforms, change.fingerprint)
        if not entry.chunks and not entry.facts and is_blank(change.document.content):
            result.failure = "holds no text and was left out."
        else:
            result.entry, result.tokens = await _count_tokens(entry)
    except Exception as error:  # the run goes on; the document is skipped, its stored version stays
        result.failure = f"{type(error).__name__}: {text_of(error)}"
    return result


async def _count_tokens(entry: Entry) -> tuple[Entry, int]:
    """Return the entry with the tokens of each chunk, for questions to come, and their sum."""
    if sum([len(chunk.content) for chunk in entry.chunks]) <= _QUICK:
        return _with_tokens(entry)
    return await work_aside(_with_tokens, entry)


def _with_tokens(entry: Entry) -> tuple[Entry, int]:
    counts = [tokens.count(chunk.content) if chunk.tokens is None else chunk.tokens for chunk in entry.chunks]
    if tokens.exact():  # an estimate is not kept: who reads the store may be able to count
        pairs = zip(entry.chunks, counts, strict=True)
        chunks = tuple([chunk.replace(tokens=number) for chunk, number in pairs])
        entry = msgspec.structs.replace(entry, chunks=chunks)
    return entry, sum(counts)


class CharacterBudget:
    """The characters of documents that may be in work at once. One task acquires, others release them."""

    def __init__(self, size: int = MOST_CHARACTERS) -> None:
        self.size, self.used = size, 0
        self._released = asyncio.Event()

    def fits(self, length: int) -> bool:
        """Return whether a document of this length can start now. Without others in work any can."""
        return not self.used or self.used + length <= self.size

    async def acquire(self, length: int) -> None:
        """Wait until a document of this length can start, and count it."""
        while not self.fits(length):
            self._released.clear()
            await self._released.wait()
        self.used += length

    def release(self, length: int) -> None:
        """Count a document of this length no more."""
        self.used -= length
        self._released.set()
