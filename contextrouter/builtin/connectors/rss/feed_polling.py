"""RSS polling: reads feeds over HTTP or from disk, at a refresh interval and with back-off on failure."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from contextrouter.builtin.connectors.pages.extraction import Extractor
from contextrouter.builtin.connectors.rss.item_pages import ItemPages
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import FEEDS, Fetcher, FetchFailed
from contextrouter.model import Document
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import Threads

RETRY_SECONDS = 10.0
"""How long a feed that failed is left alone, so that it is not asked by every query of a request; twice as
long each next time.
"""
LONGEST_RETRY = 3_600.0
GONE = 410


class Snapshot(NamedTuple):
    """The items of a feed as they were last read, and what is wrong with the feed now.

    A feed that fails keeps the items it had. `failures` counts those in a row.
    """

    documents: tuple[Document, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""
    late: bool = False
    read: float = 0.0  # when the items were read, by time.monotonic(); 0 for never
    next_read: float = 0.0
    failures: int = 0


class FeedPolling:
    """Reads a feed when someone asks for it and it is time; all who ask share the reading."""

    def __init__(
        self,
        paths: Sequence[str],
        fetcher: Fetcher,
        extractor: Extractor,
        pages: ItemPages,
        *,
        max_items: int,
        refresh: float,
    ) -> None:
        self._paths, self._fetcher, self._extractor, self._pages = paths, fetcher, extractor, pages
        self._max_items, self._refresh = max_items, refresh
        self._tasks: dict[str, asyncio.Task[Snapshot]] = {}
        self.snapshots: dict[str, Snapshot] = {}

    async def aclose(self) -> None:
        """Stop reading and forget the items."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.snapshots, self._tasks = {}, {}

    async def snapshot(self, feed: str, deadline: float | None, threads: Threads) -> Snapshot:
        """Return a feed's items, read now where it is time. A reading goes on after the deadline, so that the
        next call has its result.
        """
        before = self.snapshots.get(feed, Snapshot())
        if monotonic() < before.next_read:
            return before
        task = self._tasks.get(feed)
        if task is None or task.done():
            reading = self._read_with_pages(feed, before, threads)
            task = self._tasks[feed] = asyncio.get_running_loop().create_task(reading)
        try:
            async with asyncio.timeout(None if deadline is None else deadline - monotonic()):
                return await asyncio.shield(task)
        except TimeoutError:
            now = self.snapshots.get(feed, before)
            if now is not before and not now.error:
                error = f"{mask(feed)}: not all pages of its items were read before the deadline."
                return now._replace(error=error, late=True)
            return before._replace(error=f"{mask(feed)} did not answer before the deadline.", late=True)

    async def _read_with_pages(self, feed: str, before: Snapshot, threads: Threads) -> Snapshot:
        snapshot = self.snapshots[feed] = await self._read(feed, before, threads)
        if not snapshot.error:
            problems = await self._pages.read(snapshot.documents, threads)
            snapshot = snapshot._replace(problems=(*snapshot.problems, *problems))
            self.snapshots[feed] = snapshot
        return snapshot

    async def _read(self, feed: str, before: Snapshot, threads: Threads) -> Snapshot:
        late, wait = False, 0.0
        seconds = self._fetcher.options.fetch_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._fetch_or_open(feed, before, threads)
        except (TimeoutError, SourceTimeout) as error:
            late, reason = True, str(error) or f"{feed} was not read within {seconds:g} seconds."
        except FetchFailed as error:
            reason, wait = str(error), LONGEST_RETRY if error.status == GONE else error.retry_after or 0.0
        except SourceError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{feed} cannot be read: {error.strerror or error}."
        except ValueError as error:
            reason = f"{mask(feed)} cannot be used: {error}"
        pause = min(max(RETRY_SECONDS * 2 ** min(before.failures, 10), wait), LONGEST_RETRY)
        now = monotonic()
        if before.read:
            reason += f" Its items of {now - before.read:.0f} s ago are used."
        return before._replace(error=reason, late=late, failures=before.failures + 1, next_read=now + pause)

    async def _fetch_or_open(self, feed: str, before: Snapshot, threads: Threads) -> Snapshot:
        snapshot = Snapshot(read=monotonic(), next_read=monotonic() + self._refresh)
        if feed in self._paths:
            address, url, kind = feed, "", ""
            body = await threads.run(self._file, feed)
        else:
            fetched = await self._fetcher.get(feed, accept=FEEDS)
            if fetched.unchanged and before.read:
                return snapshot._replace(documents=before.documents, problems=before.problems)
            address = url = fetched.url
            kind, body = fetched.content_type, fetched.body
        seconds = self._fetcher.options.fetch_seconds
        parsed = await self._extractor.feed(body, url, kind, self._max_items, seconds)
        problems = tuple(f"{mask(address)}: {problem}" for problem in parsed.problems)
        return snapshot._replace(documents=tuple(parsed.documents), problems=problems)

    def _file(self, path: str) -> bytes:
        limit = self._fetcher.options.max_bytes
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file.")
        if status.st_size > limit:
            raise ValueError(f"it is longer than `max_bytes` = {limit}.")
        with open(path, "rb") as file:
            return file.read(limit)
