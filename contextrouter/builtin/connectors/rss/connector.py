"""RSS, Atom and JSON Feed connector: the items of news feeds, ranked by BM25."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self, Unpack

from contextrouter.builtin.connectors.matching import matches
from contextrouter.builtin.connectors.option_checks import check_lists, check_numbers
from contextrouter.builtin.connectors.pages.extraction import Extractor
from contextrouter.builtin.connectors.pages.feed_parser import LEFT_OUT, distinct
from contextrouter.builtin.connectors.pages.page_reader import Reader
from contextrouter.builtin.connectors.rss.feed_polling import FeedPolling, Snapshot
from contextrouter.builtin.connectors.rss.item_pages import ItemPages, newest_first
from contextrouter.contracts import Connector, FilePath, Partial
from contextrouter.errors import MissingDependency, SourceError, SourceTimeout
from contextrouter.fetch import Fetcher, FetchKeys, FetchOptions, check_url
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.threads import Threads
from contextrouter.text.bm25 import PassageIndex
from contextrouter.text.languages import language_terms

EXTRACT_SECONDS = 5.0
"""The most that reading the page of one item may take."""
TITLE, BODY = 3.0, 1.0


class _Index(NamedTuple):
    """The items of all feeds, newest first, ready to be searched."""

    version: tuple[float, ...]  # when each feed was read, and how many pages were
    documents: tuple[Document, ...]
    ranking: PassageIndex


class Rss(Connector):
    """Searches the items of RSS, RDF, Atom and JSON feeds, newest first among equals.

    `urls` are fetched over HTTP, `paths` read from disk; at least one feed is needed. `max_age_hours` leaves
    out older items (0: none; an item without a date stays). `max_items` of all feeds are kept, the newest; a
    feed longer than `max_bytes` (decoded) is refused. With `full_text` the pages of that many items of a
    feed, the newest, are read, too, and stand in their place passage by passage. Items are read again after
    `refresh_seconds`, on the condition that they changed; a feed that fails is left alone for longer each
    time, and its items of before are used. The other keys are those of every connector that fetches.
    `.problems` says what is missing from the last answer and why; a feed that fails makes the answer partial,
    and an error only when all fail.

    Can be ingested: item by item, whole. `.unread` says that items which left their feed still exist.
    """

    phrase_legs: Sequence[str] = ("default",)
    unread: Sequence[str] = ("",)  # a feed lists its newest items only, so no item is gone for good

    def __init__(
        self,
        *,
        urls: Sequence[str] = (),
        paths: Sequence[FilePath] = (),
        max_age_hours: float = 0,
        max_items: int = 500,
        refresh_seconds: float = 300,
        full_text: int = 0,
        **fetch: Unpack[FetchKeys],
    ) -> None:
        check_lists("Rss", urls=urls, paths=paths)
        if not urls and not paths:
            raise ValueError("Rss has no feed to read; give `urls` or `paths`.")
        check_numbers("Rss", 1, max_items=max_items)
        check_numbers(
            "Rss", 0, full_text=full_text, max_age_hours=max_age_hours, refresh_seconds=refresh_seconds
        )
        self._urls = tuple(dict.fromkeys(check_url(url) for url in urls))
        self._paths = tuple(dict.fromkeys(paths))
        self._max_age, self._max_items, self._full_text = timedelta(hours=max_age_hours), max_items, full_text
        self._fetcher = Fetcher(FetchOptions.build("Rss", **fetch), extra="rss", configured=self._urls)
        self._extractor = Extractor(EXTRACT_SECONDS)
        self._pages = ItemPages(Reader(self._fetcher, self._extractor, "web"), full_text)
        self._polling = FeedPolling(
            self._paths,
            self._fetcher,
            self._extractor,
            self._pages,
            max_items=max_items,
            refresh=refresh_seconds,
        )
        self._threads: Threads | None = None
        self._index: _Index | None = None
        self.problems: list[str] = []

    @classmethod
    def example(cls) -> Self:
        """Read the feed that comes with the package."""
        return cls(paths=[str(Path(__file__).parents[1] / "example" / "feed.xml")])

    async def open(self) -> None:
        """Import the parser, open the session and the threads that parse. Fetches nothing yet."""
        try:
            import feedparser  # noqa: F401 - loaded here, so that the first question need not wait for it
        except ImportError:
            raise MissingDependency("feedparser", "rss") from None
        await self._extractor.open(pages=bool(self._full_text))
        if self._urls or self._full_text:
            await self._fetcher.open()
        self._threads = self._threads or Threads(2, "rss")

    async def aclose(self) -> None:
        """Stop reading, close the session and let go of the threads and the items."""
        try:
            await self._polling.aclose()
        finally:  # also when this is cancelled while readings end: processes and connections do not stay
            threads, self._threads, self._index = self._threads, None, None
            if threads is not None:
                threads.close()
            self._pages.keep_only(())
            await self._extractor.aclose()
            await self._fetcher.aclose()

    async def ping(self) -> None:
        """Raise SourceError when no feed can be read."""
        await self._current(None)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the items that match, from every feed that answered before the deadline; `Partial` when some
        did not.
        """
        threads = self._require_open()
        snapshots = await self._current(query.deadline)
        index = await threads.run(self._make_index, snapshots)
        hits = await threads.run(self._rank, index, query)
        errors = [snapshot.error for snapshot in snapshots if snapshot.error]
        errors += [problem for snapshot in snapshots for problem in snapshot.problems if LEFT_OUT in problem]
        return Partial(hits, " ".join(errors[:10])) if errors else hits

    async def crawl(self) -> AsyncIterator[Document]:
        """Yield the items of all feeds, newest first, each with the text of its page if that was read.

        Raises SourceError when there is not one feed; a feed that fails is in `.problems`.
        """
        snapshots = await self._current(None)
        oldest = datetime.now(UTC) - self._max_age if self._max_age else None
        items = distinct(document for snapshot in snapshots for document in snapshot.documents)
        for item in newest_first(items)[: self._max_items]:
            if oldest is None or item.updated_at is None or item.updated_at >= oldest:
                document = self._pages.whole(item)
                dated = {"dated_by": "feed"} if document.updated_at else {}
                yield document.replace(metadata={**document.metadata, **dated})

    def _require_open(self) -> Threads:
        if self._threads is None:
            raise SourceError("Rss is not open; call `await open()` first.")
        return self._threads

    async def _current(self, deadline: float | None) -> list[Snapshot]:
        """Every feed's items, read now where they are too old. Raises when there is not one feed."""
        threads = self._require_open()
        feeds = (*self._urls, *self._paths)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._polling.snapshot(feed, deadline, threads)) for feed in feeds]
        snapshots = [task.result() for task in tasks]
        self.problems = [
            problem
            for snapshot in snapshots
            for problem in ((snapshot.error,) if snapshot.error else snapshot.problems)
        ]
        if all(snapshot.error and not snapshot.documents for snapshot in snapshots):
            error = SourceTimeout if all(snapshot.late for snapshot in snapshots) else SourceError
            raise error(" ".join(snapshot.error for snapshot in snapshots))
        return snapshots

    def _make_index(self, snapshots: list[Snapshot]) -> _Index:
        """Rank the items of all feeds, unless that was done for these snapshots. Runs in a thread."""
        version = (*(snapshot.read for snapshot in snapshots), float(len(self._pages)))
        if self._index and self._index.version == version:
            return self._index
        items = distinct(document for snapshot in snapshots for document in snapshot.documents)
        newest = newest_first(items)[: self._max_items]
        self._pages.keep_only({document.url for document in newest})
        texts = tuple(text for document in newest for text in self._pages.texts(document))
        ranking = PassageIndex(
            [((text.title, TITLE), (text.content, BODY)) for text in texts], [text.language for text in texts]
        )
        self._index = _Index(version, texts, ranking)
        return self._index

    def _rank(self, index: _Index, query: Query) -> list[Hit]:
        oldest = datetime.now(UTC) - self._max_age if self._max_age else None

        def keep(number: int) -> bool:
            document = index.documents[number]
            too_old = oldest and document.updated_at and document.updated_at < oldest
            return not too_old and matches(document, query)

        terms = language_terms(
            query.text, index.ranking.languages, required=query.required, excluded=query.excluded
        )
        return [
            Hit(document=index.documents[number], score=score)
            for number, score in index.ranking.search(terms, query.limit, keep)
        ]
