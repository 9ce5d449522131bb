"""Sources whose methods are not those of the contract, or whose fields are not those of the data model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from breaking import breaks
from broken_common import Shelf
from broken_sources import Changing

from contextrouter.contracts import Connector, Entry
from contextrouter.model import Document, Hit, Query


@breaks("class_has_its_required_method")
class Misspelt(Connector):
    async def serch(self, query: Query) -> Sequence[Hit]:
        return []


@breaks("methods_are_spelt_right")
class ClosesUnderAnotherName(Shelf):
    async def close(self) -> None:
        self.documents = []


@breaks("methods_are_async")
class Plain(Shelf):
    def search(self, query: Query) -> Any:
        return self.found(query)[: query.limit]


@breaks("methods_are_async")
class CrawlsAtOnce(Shelf):
    async def crawl(self) -> list[Document]:
        return self.documents


@breaks("methods_take_their_arguments")
class TakesText(Shelf):
    async def search(self, text: str, limit: int) -> Sequence[Hit]:  # type: ignore[override]  # that is the fault
        return []


@breaks("fields_have_their_types")
class NumbersAsIds(Changing):
    def changed(self, document: Document, query: Query) -> Document:
        return document.replace(id=1 + [each.id for each in self.documents].index(document.id))


@breaks("fields_have_their_types")
class TextAsKeywords(Changing):
    def changed(self, document: Document, query: Query) -> Document:
        return document.replace(keywords="sea, moon")


@breaks("fields_of_abilities_have_their_types")
class CrawlsWithoutTitles(Shelf):
    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document.replace(title=None)


@breaks("abilities_are_whole")
class HalfAStore(Shelf):
    async def upsert(self, entries: Sequence[Entry]) -> None:
        self.documents += [entry.document for entry in entries]


@breaks("open_and_aclose_never_block")
class OpensSlowly(Shelf):
    """Blocks where somebody else waits, which spares the tests the time of all other openings."""

    async def open(self) -> None:
        if len(asyncio.all_tasks()) == 3:
            time.sleep(1.0)  # noqa: ASYNC251 - that is the fault
