"""News: the items that feeds hold at this moment, searched by BM25."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self, Unpack

from contextrouter.builtin.connectors.bm25 import Bm25
from contextrouter.builtin.connectors.matching import matches
from contextrouter.builtin.connectors.pages.extraction import Extractor
from contextrouter.builtin.connectors.pages.feed_parser import distinct
from contextrouter.builtin.connectors.pages.page_reader import Page, Reader
from contextrouter.contracts import Connector, FilePath, Partial
from contextrouter.errors import MissingDependency, SourceError, SourceTimeout
from contextrouter.fetch import FEEDS, Fetcher, FetchFailed, FetchKeys, FetchOptions, check_url
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import Threads

RETRY_SECONDS = 10.0
"""How long a feed that failed is left alone, so that it is not asked by every query of a request; twice as
long each next time.
"""
LONGEST_RETRY = 3_600.0
GONE = 410
EXTRACT_SECONDS = 5.0
"""The most that reading the page of one item may take."""
TITLE, BODY = 3.0, 1.0
_OLDEST = datetime.min.replace(tzinfo=UTC)


class _Loaded(NamedTuple):
    """A feed as it was last read: when the reading began (time.monotonic()), its items, and what is wrong
    now, if anything is.

    A feed that fails keeps the items it had. `failures` counts those in a row, `again` says when it is asked
    next.
    """

    begun: float
    documents: tuple[Document, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""
    late: bool = False
    read: float = 0.0  # when the items were read
    failures: int = 0
    again: float = 0.0


class _Pool(NamedTuple):
    """The items of all feeds, newest first, and the readings they are from."""

    readings: tuple[float, ...]  # of the feeds, and how many pages were read
    documents: tuple[Document, ...]
    ranking: Bm25


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
    """

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
        for key, given in (("urls", urls), ("paths", paths)):
            if isinstance(given, str):
                raise ValueError(f"Rss.{key} {given!r} is one text; give a list.")
        if not urls and not paths:
            raise ValueError("Rss has no feed to read; give `urls` or `paths`.")
        for key, number, least in (("max_items", max_items, 1), ("full_text", full_text, 0)):
            if number < least:
                raise ValueError(f"Rss.{key} is {number!r}; give a number of at least {least}.")
        for name, seconds in (("max_age_hours", max_age_hours), ("refresh_seconds", refresh_seconds)):
            if not 0 <= seconds < 1e9:
                raise ValueError(f"Rss.{name} is {seconds!r}; give a number of at least 0.")
        options = FetchOptions(**fetch)
        options.check("Rss")
        self._urls = tuple(dict.fromkeys(check_url(url) for url in urls))
        self._paths = tuple(dict.fromkeys(paths))
        self._max_age = timedelta(hours=max_age_hours)
        self._max_items, self._refresh = max_items, refresh_seconds
        self._fetcher = Fetcher(options, extra="rss")
        self._full_text = full_text
        self._extractor = Extractor(EXTRACT_SECONDS)
        self._reader = Reader(self._fetcher, self._extractor, "web")
        self._pages: dict[str, Page] = {}
        self._threads: Threads | None = None
        self._readings: dict[str, asyncio.Task[_Loaded]] = {}
        self._loaded: dict[str, _Loaded] = {}
        self._pool: _Pool | None = None
        self.problems: list[str] = []

    @classmethod
    def example(cls) -> Self:
        """Read the feed that comes with the package."""
        return cls(paths=[str(Path(__file__).parents[1] / "example" / "feed.xml")])

    async def open(self) -> None:
        """Import the parser, open the session and the threads that parse. Fetches nothing yet."""
        try:
            import feedparser  # noqa: F401
        except ImportError:
            raise MissingDependency("feedparser", "rss") from None
        await self._extractor.open(pages=bool(self._full_text))
        if self._urls or self._full_text:
            await self._fetcher.open()
        self._threads = self._threads or Threads(2, "rss")

    async def aclose(self) -> None:
        """Stop reading, close the session and let go of the threads and the items."""
        readings = list(self._readings.values())
        for task in readings:
            task.cancel()
        if readings:
            await asyncio.wait(readings)
        await self._extractor.aclose()
        await self._fetcher.aclose()
        if self._threads is not None:
            self._threads.close()
        self._threads, self._pool = None, None
        self._loaded, self._readings, self._pages = {}, {}, {}

    async def ping(self) -> None:
        """Raise SourceError when no feed can be read."""
        await self._current(None)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the items that match, from every feed that answered before the deadline; `Partial` when some
        did not.
        """
        threads = self._opened()
        loaded = await self._current(query.deadline)
        pool = await threads.run(self._pooled, loaded)
        hits = await threads.run(self._rank, pool, query)
        missing = [one.error for one in loaded if one.error]
        return Partial(hits, " ".join(missing)) if missing else hits

    def _opened(self) -> Threads:
        if self._threads is None:
            raise SourceError("Rss is not open; call `await open()` first.")
        return self._threads

    async def _current(self, deadline: float | None) -> list[_Loaded]:
        """Every feed's items, read now where they are too old. Raises when there is not one feed."""
        self._opened()
        feeds = (*self._urls, *self._paths)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._load(feed, deadline)) for feed in feeds]
        loaded = [task.result() for task in tasks]
        self.problems = [
            problem for one in loaded for problem in ((one.error,) if one.error else one.problems)
        ]
        if all(one.error and not one.documents for one in loaded):
            error = SourceTimeout if all(one.late for one in loaded) else SourceError
            raise error(" ".join(one.error for one in loaded))
        return loaded

    async def _load(self, feed: str, deadline: float | None) -> _Loaded:
        """One feed's items. All who wait share one reading, which goes on when they give up: the next finds
        it done.
        """
        known = self._loaded.get(feed)
        if known and time.monotonic() < known.again:
            return known
        reading = self._readings.get(feed)
        if reading is None or reading.done():
            reading = self._readings[feed] = asyncio.get_running_loop().create_task(self._reread(feed, known))
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                return await asyncio.shield(reading)
        except TimeoutError:
            now = self._loaded.get(feed)
            if now is not None and now is not known and not now.error:
                return now._replace(
                    error=f"{mask(feed)}: not all pages of its items were read before the deadline.",
                    late=True,
                )
            return (known or _Loaded(0.0))._replace(
                error=f"{mask(feed)} did not answer before the deadline.", late=True
            )

    async def _reread(self, feed: str, known: _Loaded | None) -> _Loaded:
        loaded = self._loaded[feed] = await self._read(feed, known or _Loaded(0.0))
        if self._full_text and not loaded.error:
            loaded = self._loaded[feed] = await self._with_pages(loaded)
        return loaded

    async def _with_pages(self, loaded: _Loaded) -> _Loaded:
        """Read the pages of the newest items that were not read before; one that fails leaves its item as the
        feed has it.
        """
        newest = sorted(loaded.documents, key=lambda document: document.updated_at or _OLDEST, reverse=True)[
            : self._full_text
        ]
        wanted = {document.url: document for document in newest if document.url}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._reader.read(url, self._opened()))
                for url in wanted
                if url not in self._pages
            ]
        read = {task.result().url: task.result() for task in tasks}
        self._pages.update((url, page) for url, page in read.items() if page.passages)
        failed = [page for page in read.values() if not page.passages]
        problems = tuple(
            f"item {wanted[page.url].title!r}: {page.problem or page.skipped}" for page in failed
        )
        return loaded._replace(problems=(*loaded.problems, *problems))

    def _texts(self, item: Document) -> list[Document]:
        """The item, or the passages of its page where that was read and says more."""
        page = self._pages.get(item.url) if self._full_text else None
        if page is None or page.document is None or len(page.document.content) <= len(item.content):
            return [item]
        hidden = page.document.metadata.get("hidden_characters")
        metadata = {**item.metadata, "hidden_characters": hidden} if hidden else item.metadata
        return [
            item.replace(
                content=passage.content,
                path=passage.path,
                snippet=passage.snippet,
                media_type=passage.media_type,
                language=item.language or passage.language,
                id=f"{item.id}#{number}",
                parent=item.id,
                metadata=metadata,
            )
            for number, passage in enumerate(page.passages)
        ]

    async def _read(self, feed: str, known: _Loaded) -> _Loaded:
        begun = time.monotonic()
        late, wait = False, 0.0
        try:
            async with asyncio.timeout(self._fetcher.options.fetch_seconds):
                if feed in self._paths:
                    return await self._parsed(begun, feed, "", "", await self._opened().run(self._file, feed))
                fetched = await self._fetcher.get(feed, accept=FEEDS)
                if fetched.unchanged and known.read:
                    return known._replace(
                        begun=begun, error="", late=False, read=begun, failures=0, again=begun + self._refresh
                    )
                return await self._parsed(begun, fetched.url, fetched.url, fetched.content_type, fetched.body)
        except (TimeoutError, SourceTimeout) as error:
            late, reason = (
                True,
                str(error) or f"{feed} was not read within {self._fetcher.options.fetch_seconds:g} seconds.",
            )
        except FetchFailed as error:
            reason, wait = str(error), LONGEST_RETRY if error.status == GONE else error.retry_after or 0.0
        except SourceError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{feed} cannot be read: {error.strerror or error}."
        except ValueError as error:
            reason = f"{mask(feed)} cannot be used: {error}"
        return self._failed(known, begun, reason, late, wait)

    def _failed(self, known: _Loaded, begun: float, reason: str, late: bool, wait: float) -> _Loaded:
        """The feed with the items it had, and when it is asked again: after what it asked for, else twice as
        long each time.
        """
        pause = min(max(RETRY_SECONDS * 2 ** min(known.failures, 10), wait), LONGEST_RETRY)
        if known.read:
            reason += f" Its items of {begun - known.read:.0f} s ago are used."
        return known._replace(
            begun=begun, error=reason, late=late, failures=known.failures + 1, again=time.monotonic() + pause
        )

    async def _parsed(self, begun: float, place: str, url: str, content_type: str, body: bytes) -> _Loaded:
        """The items of a body from `place`, a file or a `url`."""
        seconds = self._fetcher.options.fetch_seconds
        feed = await self._extractor.feed(body, url, content_type, self._max_items, seconds)
        problems = tuple(f"{mask(place)}: {problem}" for problem in feed.problems)
        return _Loaded(begun, tuple(feed.documents), problems, read=begun, again=begun + self._refresh)

    def _file(self, path: str) -> bytes:
        most = self._fetcher.options.max_bytes
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file.")
        if status.st_size > most:
            raise ValueError(f"it is longer than `max_bytes` = {most}.")
        with open(path, "rb") as file:
            return file.read(most)

    def _pooled(self, loaded: list[_Loaded]) -> _Pool:
        """The items of these readings, newest first (undated last), ready to be searched. Runs in a
        thread.
        """
        readings = (*(one.read for one in loaded), float(len(self._pages)))
        pool = self._pool
        if pool and pool.readings == readings:
            return pool
        items = distinct(document for one in loaded for document in one.documents)
        newest = sorted(items, key=lambda document: document.updated_at or _OLDEST, reverse=True)[
            : self._max_items
        ]
        urls = {document.url for document in newest}
        for gone in [url for url in self._pages if url not in urls]:
            del self._pages[gone]
        texts = tuple(text for document in newest for text in self._texts(document))
        pool = _Pool(readings, texts, Bm25([((d.title, TITLE), (d.content, BODY)) for d in texts]))
        self._pool = pool
        return pool

    def _rank(self, pool: _Pool, query: Query) -> list[Hit]:
        oldest = datetime.now(UTC) - self._max_age if self._max_age else _OLDEST

        def keep(number: int) -> bool:
            document = pool.documents[number]
            return (document.updated_at is None or document.updated_at >= oldest) and matches(document, query)

        return [
            Hit(document=pool.documents[n], score=score)
            for n, score in pool.ranking.search(query.text, query.limit, keep)
        ]
