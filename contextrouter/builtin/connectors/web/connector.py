"""The web: pages that are given, found in a sitemap, or on a site; or those that a search engine finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal, Self, Unpack

from contextrouter.builtin.connectors.example_site import ExampleSite
from contextrouter.builtin.connectors.pages.extraction import Extractor
from contextrouter.builtin.connectors.pages.page_reader import Page, Passages, Reader
from contextrouter.builtin.connectors.web.search_engines import Result, SearchApi
from contextrouter.builtin.connectors.web.site_crawler import Site
from contextrouter.contracts import Connector, Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import Fetcher, FetchKeys, FetchOptions, check_url
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.lru import Lru
from contextrouter.runtime.threads import Threads

MARGIN = 0.1
"""Share of the time left that is kept for ranking what has come."""
KEPT_PAGES = 200


class Web(Connector):
    """Searches web pages, passage by passage, by BM25. Two ways in, of which one is chosen.

    Pages: `urls`, the addresses in `sitemaps`, and what lies up to `crawl_depth` links behind them on the
    same hosts and on `allowed_domains`, as robots.txt allows; `max_pages` in all, read again after
    `refresh_seconds`. Can be ingested. Search: `search` names an engine whose API is asked, "custom" for any
    JSON API that `search_url`, `search_body` and `search_fields` describe; of its results, in
    `allowed_domains` and of the last `fresh_days` (0: any time), `max_results` pages are read. A search costs
    money, so it is made for the question alone unless `queries` in its table says otherwise.

    `page_passages` of one page are returned at most; `extract_seconds` is the time for reading one. The other
    keys are those of every connector that fetches. `.problems` says what was left out last, and why.
    """

    def __init__(
        self,
        *,
        urls: Sequence[str] = (),
        sitemaps: Sequence[str] = (),
        crawl_depth: int = 0,
        max_pages: int = 100,
        refresh_seconds: float = 3_600,
        search: Literal["", "searxng", "google", "brave", "tavily", "custom"] = "",
        search_url: str = "",
        search_key: str = "",
        search_engine_id: str = "",
        search_fields: Mapping[str, str] = {},
        search_body: Mapping[str, Any] = {},
        max_results: int = 5,
        fresh_days: int = 0,
        allowed_domains: Sequence[str] = (),
        page_passages: int = 3,
        document_kind: str = "web",
        extract_seconds: float = 5.0,
        **fetch: Unpack[FetchKeys],
    ) -> None:
        _check_lists(urls=urls, sitemaps=sitemaps, allowed_domains=allowed_domains)
        _check_ways(bool(urls or sitemaps), search, crawl_depth)
        _check_numbers(
            crawl_depth=(crawl_depth, 0),
            max_pages=(max_pages, 1),
            max_results=(max_results, 1),
            fresh_days=(fresh_days, 0),
            page_passages=(page_passages, 1),
            refresh_seconds=(refresh_seconds, 0),
            extract_seconds=(extract_seconds, 0.1),
        )
        options = FetchOptions(**fetch)
        options.check("Web")
        self._fetcher = Fetcher(options, extra="web", secrets=(search_key,))
        self._extractor = Extractor(extract_seconds)
        self._reader = Reader(self._fetcher, self._extractor, document_kind)
        self._api = (
            SearchApi(
                search,
                url=search_url,
                key=search_key,
                engine_id=search_engine_id,
                fields=search_fields,
                body=search_body,
                domains=allowed_domains,
                max_results=max_results,
                fresh_days=fresh_days,
            )
            if search
            else None
        )
        self._site = Site(
            self._reader,
            list(map(check_url, urls)),
            list(map(check_url, sitemaps)),
            depth=crawl_depth,
            max_pages=max_pages,
            refresh=refresh_seconds,
            domains=allowed_domains,
        )
        self.default_queries = 1 if search else None
        self._refresh, self._per_page, self._fresh = (
            refresh_seconds,
            page_passages,
            timedelta(days=fresh_days),
        )
        self._threads: Threads | None = None
        self._results: Lru[str, Page] = Lru(KEPT_PAGES)
        self._pool: tuple[int, Passages] | None = None
        self._example: ExampleSite | None = None
        self.problems: list[str] = []

    @classmethod
    def example(cls) -> Self:
        """Read two pages from a server of its own on this machine, which runs from open() to aclose()."""
        web = cls(urls=ExampleSite.urls, allow_private=["127.0.0.1/32"])
        web._example = ExampleSite()
        return web

    async def open(self) -> None:
        """Open the session; no page is fetched yet. Raises MissingDependency."""
        await self._extractor.open()
        if self._example is not None:
            self._fetcher.names = await self._example.open()
        await self._fetcher.open()
        self._threads = self._threads or Threads(2, "web")
        self._site.open(self._threads)

    async def aclose(self) -> None:
        """Stop reading, close the session and let go of the pages."""
        await self._site.aclose()
        await self._extractor.aclose()
        await self._fetcher.aclose()
        if self._example is not None:
            await self._example.aclose()
        if self._threads is not None:
            self._threads.close()
        self._threads, self._pool = None, None
        self._results.clear()

    async def ping(self) -> None:
        """Raise SourceError when no page can be read; a search API is not asked, since a search costs
        money.
        """
        self._opened()
        if self._api is None:
            await self._site.current(None)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the best passages of the pages that came before the deadline; `Partial` when some did
        not.
        """
        threads = self._opened()
        until = (
            None
            if query.deadline is None
            else query.deadline - MARGIN * max(0.0, query.deadline - monotonic())
        )
        if self._api is None:
            pages, missing = await self._site.current(until)
            self.problems = self._site.problems
            pool = await self._pooled(threads, pages)
        else:
            pages, missing = await self._searched(self._api, query, until, threads)
            pool = await threads.run(Passages, pages)
        hits = await threads.run(pool.best, query, self._per_page)
        if not hits and self._api is not None:
            hits = pool.first(query)
        return Partial(hits, " ".join(missing[:10])) if missing else hits

    async def crawl(self) -> AsyncIterator[Document]:
        """Yield every page, whole; raises SourceError at the end when some could not be read."""
        self._opened()
        if self._api is not None:
            raise SourceError(
                "Web with `search` has no list of pages to ingest; give `urls` or `sitemaps` instead."
            )
        pages, missing = await self._site.current(None)
        self.problems = self._site.problems
        for document in {
            page.document.id: page.document for page in pages if page.document is not None
        }.values():
            yield document
        if missing:
            raise SourceError(" ".join(missing[:10]))

    async def inspect(self, url: str) -> AsyncIterator[tuple[str, str]]:
        """Yield, step by step, what becomes of the page or feed at `url`: a step's name, and what is to be
        seen of it.
        """
        from contextrouter.builtin.connectors.web.inspection import inspected

        async for step in inspected(self._reader, self._opened(), url):
            yield step

    def _opened(self) -> Threads:
        if self._threads is None:
            raise SourceError("Web is not open; call `await open()` first.")
        return self._threads

    async def _pooled(self, threads: Threads, pages: list[Page]) -> Passages:
        generation = self._site.generation
        if self._pool is None or self._pool[0] != generation:
            self._pool = (generation, await threads.run(Passages, pages))
        return self._pool[1]

    async def _searched(
        self, api: SearchApi, query: Query, until: float | None, threads: Threads
    ) -> tuple[list[Page], list[str]]:
        """The pages that the engine finds, in its order, and what is missing of them. Raises SourceError when
        all are.
        """
        if not query.text.strip() or query.limit < 1:
            return [], []
        results = await api.results(query.text, self._fetcher, threads, until)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._page(result, until, threads)) for result in results]
        pages = [task.result() for task in tasks]
        oldest = datetime.now(UTC) - self._fresh
        stale = [page.url for page in pages if self._fresh and _before(page, oldest)]
        missing = [page.problem for page in pages if page.problem]
        self.problems = [page.problem or page.skipped for page in pages if page.problem or page.skipped]
        self.problems += [f"{self._fetcher.masked(url)} is older than `fresh_days`." for url in stale]
        if missing and all(page.problem for page in pages):
            late = all(page.late for page in pages)
            raise (SourceTimeout if late else SourceError)(" ".join(missing[:10]))
        return [page for page in pages if page.document is not None and page.url not in stale], missing

    async def _page(self, result: Result, until: float | None, threads: Threads) -> Page:
        """One result's page, read before or now."""
        known = self._results.get(result.url)
        if known is not None and monotonic() - known.read < self._refresh:
            return known
        try:
            async with asyncio.timeout(None if until is None else until - monotonic()):
                page = await self._reader.read(result.url, threads, known=known, deadline=until)
        except TimeoutError:
            shown = self._fetcher.masked(result.url)
            return Page(
                result.url, monotonic(), problem=f"{shown} was not read before the deadline.", late=True
            )
        if page.document is not None and not page.document.title:
            titled = tuple(passage.replace(title=result.title) for passage in page.passages)
            page = page._replace(document=page.document.replace(title=result.title), passages=titled)
        if not page.problem:
            self._results.put(result.url, page)
        return page


def _before(page: Page, oldest: datetime) -> bool:
    return (
        page.document is not None
        and page.document.updated_at is not None
        and page.document.updated_at < oldest
    )


def _check_lists(**lists: Sequence[str]) -> None:
    for key, given in lists.items():
        if isinstance(given, str):
            raise ValueError(f"Web.{key} {given!r} is one text; give a list.")


def _check_ways(pages: bool, search: str, depth: int) -> None:
    if pages and search:
        raise ValueError(
            "Web has both pages (`urls`, `sitemaps`) and `search`; give one, and the other in a table of its"
            " own."
        )
    if not pages and not search:
        raise ValueError("Web has nothing to read; give `urls`, `sitemaps` or `search`.")
    if search and depth:
        raise ValueError("Web.crawl_depth has no effect with `search`; take it out.")


def _check_numbers(**given: tuple[float, float]) -> None:
    for name, (value, least) in given.items():
        if not least <= value < 1e9:
            raise ValueError(f"Web.{name} is {value!r}; give a number of at least {least}.")
