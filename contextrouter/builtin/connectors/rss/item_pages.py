"""Full text of feed items: reads the web pages that the newest items link to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from contextrouter.builtin.connectors.pages.page_reader import Page, Reader
from contextrouter.model import Document
from contextrouter.runtime.threads import Threads

_OLDEST = datetime.min.replace(tzinfo=UTC)


def newest_first(documents: Iterable[Document]) -> list[Document]:
    """Sort by date; undated documents stand last."""
    return sorted(documents, key=lambda document: document.updated_at or _OLDEST, reverse=True)


class ItemPages:
    """The pages of the `count` newest items of each feed."""

    def __init__(self, reader: Reader, count: int) -> None:
        self._reader, self._count = reader, count
        self._pages: dict[str, Page] = {}

    def __len__(self) -> int:
        return len(self._pages)

    async def read(self, items: Iterable[Document], threads: Threads) -> list[str]:
        """Read the pages of the newest `items` that were not read before; return what could not be read."""
        linked = {item.url: item for item in newest_first(items)[: self._count] if item.url}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._reader.read(url, threads)) for url in linked if url not in self._pages
            ]
        pages = [task.result() for task in tasks]
        self._pages.update((page.url, page) for page in pages if page.passages)
        return [
            f"item {linked[page.url].title!r}: {page.problem or page.skipped}"
            for page in pages
            if not page.passages
        ]

    def texts(self, item: Document) -> list[Document]:
        """The passages of an item's page where that was read and says more; else the item itself."""
        page = self._longer_page(item)
        if page is None:
            return [item]
        return [
            _with_text(item, passage, page).replace(
                path=passage.path, id=f"{item.id}#{number}", parent=item.id
            )
            for number, passage in enumerate(page.passages)
        ]

    def whole(self, item: Document) -> Document:
        """The item with the whole text of its page where that was read and says more."""
        page = self._longer_page(item)
        return item if page is None or page.document is None else _with_text(item, page.document, page)

    def _longer_page(self, item: Document) -> Page | None:
        page = self._pages.get(item.url)
        if page is None or page.document is None or len(page.document.content) <= len(item.content):
            return None
        return page

    def keep_only(self, urls: Iterable[str]) -> None:
        """Forget the pages of other addresses."""
        for url in set(self._pages).difference(urls):  # a copy: a reading may add a page meanwhile
            self._pages.pop(url, None)


def _with_text(item: Document, text: Document, page: Page) -> Document:
    """The item with the text of its page, or of a passage of it."""
    hidden = page.document.metadata.get("hidden_characters") if page.document else None
    return item.replace(
        content=text.content,
        snippet=text.snippet,
        media_type=text.media_type,
        language=item.language or text.language,
        metadata={**item.metadata, "hidden_characters": hidden} if hidden else item.metadata,
    )
