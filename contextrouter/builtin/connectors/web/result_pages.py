"""Web search results: reads the pages behind the results of a search engine, with a cache."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from time import monotonic

from contextrouter.builtin.connectors.pages.page_reader import Page, Reader
from contextrouter.builtin.connectors.web.search_engines import Result, SearchApi
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Query
from contextrouter.runtime.lru import Lru
from contextrouter.runtime.threads import Threads

KEPT_PAGES = 200


class ResultPages:
    """Asks a search engine and reads the pages of its results, those of the last `fresh_days` (0: any)."""

    def __init__(self, api: SearchApi, reader: Reader, refresh_seconds: float, fresh_days: int) -> None:
        self._api, self._reader = api, reader
        self._refresh, self._max_age = refresh_seconds, timedelta(days=fresh_days)
        self._pages: Lru[str, Page] = Lru(KEPT_PAGES)
        self.problems: list[str] = []  # all that the last search left out, and why

    def clear(self) -> None:
        """Forget the pages."""
        self._pages.clear()

    async def search(
        self, query: Query, until: float | None, threads: Threads
    ) -> tuple[list[Page], list[str]]:
        """Return the pages in the engine's order, and why some are missing. Raises SourceError if all are."""
        if not query.text.strip() or query.limit < 1:
            return [], []
        results = await self._api.results(query.text, self._reader.fetcher, threads, until)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._page(result, until, threads)) for result in results]
        pages = [task.result() for task in tasks]
        problems = [page.problem for page in pages if page.problem]
        stale = [page.url for page in pages if self._is_stale(page)]
        self.problems = [page.problem or page.skipped for page in pages if page.problem or page.skipped]
        self.problems += [f"{self._reader.fetcher.masked(url)} is older than `fresh_days`." for url in stale]
        if problems and all(page.problem for page in pages):
            late = all(page.late for page in pages)
            raise (SourceTimeout if late else SourceError)(" ".join(problems[:10]))
        return [page for page in pages if page.document is not None and page.url not in stale], problems

    def _is_stale(self, page: Page) -> bool:
        date = page.document.updated_at if page.document else None
        return bool(self._max_age and date and date < datetime.now(UTC) - self._max_age)

    async def _page(self, result: Result, until: float | None, threads: Threads) -> Page:
        """One result's page, read before or now."""
        before = self._pages.get(result.url)
        if before is not None and monotonic() - before.read < self._refresh:
            return before
        try:
            async with asyncio.timeout(None if until is None else until - monotonic()):
                page = await self._reader.read(result.url, threads, known=before, deadline=until)
        except TimeoutError:
            problem = f"{self._reader.fetcher.masked(result.url)} was not read before the deadline."
            return Page(result.url, monotonic(), problem=problem, late=True)
        if page.document is not None and not page.document.title:
            passages = tuple(passage.replace(title=result.title) for passage in page.passages)
            page = page._replace(document=page.document.replace(title=result.title), passages=passages)
        if not page.problem:
            self._pages.put(result.url, page)
        return page
