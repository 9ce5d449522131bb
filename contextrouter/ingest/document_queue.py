"""Documents in work: so many at once, and no more of them than memory is meant for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextrouter.contracts import Entry, Transform
from contextrouter.ingest.preparation import prepare
from contextrouter.model import Document
from contextrouter.text import tokens

AHEAD = 4
"""How many documents are cut and enriched at once, while others are embedded and stored."""
ROOM = 8_000_000
"""Characters of documents that are in work at once; a longer document is in work alone."""
_QUICK = 20_000  # characters whose tokens are counted faster than a thread is woken


class Prepared:
    """What became of one document: an entry, or why there is none."""

    __slots__ = ("document", "entry", "failure", "known", "problems", "tokens")

    def __init__(self, document: Document, known: bool) -> None:
        self.document, self.known = document, known
        self.entry: Entry | None = None
        self.problems: list[str] = []
        self.failure = ""
        self.tokens = 0

    async def by(self, transforms: Sequence[Transform], mark: str) -> Prepared:
        """Cut and enrich the document. Its failure must not end the run: it is kept as `failure`."""
        try:
            self.entry, self.problems = await prepare(self.document, transforms, mark)
            self.tokens = await _count(self.entry)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        return self


async def _count(entry: Entry) -> int:
    """The tokens of an entry's chunks."""
    texts = [chunk.content for chunk in entry.chunks]
    if sum(map(len, texts)) <= _QUICK:
        return sum(map(tokens.count, texts))
    return await asyncio.to_thread(lambda: sum(map(tokens.count, texts)))


class Room:
    """Characters that are free for documents. One task takes, others give back."""

    def __init__(self, size: int = ROOM) -> None:
        self.size, self.used = size, 0
        self._freed = asyncio.Event()

    def fits(self, length: int) -> bool:
        """Whether a document of this length can come into work now."""
        return not self.used or self.used + length <= self.size

    async def take(self, length: int) -> None:
        """Wait until it can, and count it."""
        while not self.fits(length):
            self._freed.clear()
            await self._freed.wait()
        self.used += length

    def give(self, length: int) -> None:
        """It is out of work."""
        self.used -= length
        self._freed.set()
