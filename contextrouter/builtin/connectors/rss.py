"""News: the items that feeds hold at this moment, searched by BM25."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self

from contextrouter.builtin.connectors.bm25 import Bm25
from contextrouter.builtin.connectors.feed import distinct, parse_feed
from contextrouter.builtin.connectors.fetch import Fetcher, check_url
from contextrouter.builtin.connectors.matching import matches
from contextrouter.contracts import Connector, FilePath, Partial
from contextrouter.errors import MissingDependency, SourceError, SourceTimeout, mask
from contextrouter.model import Document, Hit, Query
from contextrouter.threads import Threads

FETCH_SECONDS = 10.0
"""The most that one feed may take, whatever the deadline."""
RETRY_SECONDS = 10.0
"""How long a feed that failed is left alone, so that it is not asked again by every query of a request."""
TITLE, BODY = 3.0, 1.0
_OLDEST = datetime.min.replace(tzinfo=UTC)


class _Loaded(NamedTuple):
    """A feed as it was last read: when the reading began (time.monotonic()), and its items or the error."""

    begun: float
    documents: tuple[Document, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""
    late: bool = False


class _Pool(NamedTuple):
    """The items of all feeds, newest first, and the readings they are from."""

    readings: tuple[float, ...]
    documents: tuple[Document, ...]
    ranking: Bm25


class Rss(Connector):
    """Searches the items of RSS, RDF, Atom and JSON feeds, newest first among equals.

    `urls` are fetched over HTTP, `paths` read from disk; at least one feed is needed. `max_age_hours` leaves out older
    items (0: none; an item without a date stays). `max_items` of all feeds are kept, the newest; a feed longer than
    `max_bytes` (decoded) is refused. Items are read again after `refresh_seconds`. Unless `allow_private`, no connection
    is made to an address that is not public. `.problems` says what is missing from the last answer and why; a feed that
    fails makes the answer partial, and an error only when all fail.
    """

    def __init__(
        self,
        *,
        urls: Sequence[str] = (),
        paths: Sequence[FilePath] = (),
        max_age_hours: float = 0,
        max_items: int = 500,
        max_bytes: int = 5_000_000,
        refresh_seconds: float = 300,
        user_agent: str = "contextrouter",
        allow_private: bool = False,
    ) -> None:
        for key, given in (("urls", urls), ("paths", paths)):
            if isinstance(given, str):
                raise ValueError(f"Rss.{key} {given!r} is one text; give a list.")
        if not urls and not paths:
            raise ValueError("Rss has no feed to read; give `urls` or `paths`.")
        for name, value, least in (("max_items", max_items, 1), ("max_bytes", max_bytes, 1)):
            if value < least:
                raise ValueError(f"Rss.{name} is {value!r}; give a number of at least {least}.")
        for name, seconds in (("max_age_hours", max_age_hours), ("refresh_seconds", refresh_seconds)):
            if not 0 <= seconds < 1e9:
                raise ValueError(f"Rss.{name} is {seconds!r}; give a number of at least 0.")
        if not user_agent.isascii() or not user_agent.isprintable():
            raise ValueError(f"Rss.user_agent {user_agent!r} cannot stand in a header; use printable ASCII.")
        self._urls = tuple(dict.fromkeys(check_url(url) for url in urls))
        self._paths = tuple(dict.fromkeys(paths))
        self._max_age = timedelta(hours=max_age_hours)
        self._max_items, self._max_bytes, self._refresh = max_items, max_bytes, refresh_seconds
        self._fetcher = Fetcher(user_agent=user_agent, max_bytes=max_bytes, allow_private=allow_private)
        self._threads: Threads | None = None
        self._locks: dict[str, asyncio.Lock] = {}
        self._loaded: dict[str, _Loaded] = {}
        self._pool: _Pool | None = None
        self.problems: list[str] = []

    @classmethod
    def example(cls) -> Self:
        """Read the feed that comes with the package."""
        return cls(paths=[str(Path(__file__).parent / "example" / "feed.xml")])

    async def open(self) -> None:
        """Import the parser, open the session and the threads that parse. Fetches nothing yet."""
        try:
            import feedparser  # noqa: F401
        except ImportError:
            raise MissingDependency("feedparser", "rss") from None
        if self._urls:
            await self._fetcher.open()
        if self._threads is None:
            self._threads = Threads(2, "rss")
            self._locks = {feed: asyncio.Lock() for feed in (*self._urls, *self._paths)}

    async def aclose(self) -> None:
        """Close the session and let go of the threads and the items."""
        await self._fetcher.aclose()
        if self._threads is not None:
            self._threads.close()
        self._threads, self._pool = None, None
        self._loaded, self._locks = {}, {}

    async def ping(self) -> None:
        """Raise SourceError when no feed can be read."""
        await self._current(None)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the items that match, from every feed that answered before the deadline; `Partial` when some did not."""
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
        asked = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._load(feed, asked, deadline)) for feed in self._locks]
        loaded = [task.result() for task in tasks]
        self.problems = [problem for one in loaded for problem in ((one.error,) if one.error else one.problems)]
        if all(one.error for one in loaded):
            error = SourceTimeout if all(one.late for one in loaded) else SourceError
            raise error(" ".join(one.error for one in loaded))
        return loaded

    async def _load(self, feed: str, asked: float, deadline: float | None) -> _Loaded:
        """One feed's items. Who comes first reads for all who wait; is he cancelled, the next one does."""
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()), self._locks[feed]:
                known = self._loaded.get(feed)
                if known and self._usable(known, asked):
                    return known
                self._loaded[feed] = await self._read(feed)
                return self._loaded[feed]
        except TimeoutError:
            return _Loaded(asked, error=f"{mask(feed)} did not answer before the deadline.", late=True)

    def _usable(self, known: _Loaded, asked: float) -> bool:
        keep = min(self._refresh, RETRY_SECONDS) if known.error else self._refresh
        return known.begun >= asked or time.monotonic() - known.begun < keep

    async def _read(self, feed: str) -> _Loaded:
        begun = time.monotonic()
        late = False
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                if feed in self._paths:
                    return await self._opened().run(self._parse, begun, feed, "", None)
                fetched = await self._fetcher.get(feed)
                return await self._opened().run(self._parse, begun, fetched.url, fetched.content_type, fetched.body)
        except TimeoutError:
            late, reason = True, f"{mask(feed)} did not answer within {FETCH_SECONDS:g} seconds."
        except SourceError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{feed} cannot be read: {error.strerror or error}."
        except ValueError as error:
            reason = f"{mask(feed)} cannot be used: {error}"
        return _Loaded(begun, error=reason, late=late)

    def _parse(self, begun: float, place: str, content_type: str, body: bytes | None) -> _Loaded:
        """Parse a fetched body, or the file at `place`. Runs in a thread."""
        data, url = (self._file(place), "") if body is None else (body, place)
        feed = parse_feed(data, url, content_type, self._max_items)
        return _Loaded(begun, tuple(feed.documents), tuple(f"{mask(place)}: {problem}" for problem in feed.problems))

    def _file(self, path: str) -> bytes:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file.")
        if status.st_size > self._max_bytes:
            raise ValueError(f"it is longer than `max_bytes` = {self._max_bytes}.")
        with open(path, "rb") as file:
            return file.read(self._max_bytes)

    def _pooled(self, loaded: list[_Loaded]) -> _Pool:
        """The items of these readings, newest first (undated last), ready to be searched. Runs in a thread."""
        readings = tuple(one.begun for one in loaded if not one.error)
        pool = self._pool
        if pool and pool.readings == readings:
            return pool
        items = distinct(document for one in loaded for document in one.documents)
        newest = sorted(items, key=lambda document: document.updated_at or _OLDEST, reverse=True)[: self._max_items]
        pool = _Pool(readings, tuple(newest), Bm25([((d.title, TITLE), (d.content, BODY)) for d in newest]))
        self._pool = pool
        return pool

    def _rank(self, pool: _Pool, query: Query) -> list[Hit]:
        oldest = datetime.now(UTC) - self._max_age if self._max_age else _OLDEST

        def keep(number: int) -> bool:
            document = pool.documents[number]
            return (document.updated_at is None or document.updated_at >= oldest) and matches(document, query)

        return [Hit(document=pool.documents[n], score=score) for n, score in pool.ranking.search(query.text, query.limit, keep)]
