"""Web connector: ranks the pages of a site, sitemap or crawl, or of a web search engine, by BM25."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

from contextrouter.builtin.connectors.example_site import ExampleSite
from contextrouter.builtin.connectors.option_checks import check_lists, check_numbers
from contextrouter.builtin.connectors.pages.extraction import Extractor
from contextrouter.builtin.connectors.pages.page_reader import Page, Passages, Reader
from contextrouter.builtin.connectors.web.result_pages import ResultPages
from contextrouter.builtin.connectors.web.search_engines import SearchApi
from contextrouter.builtin.connectors.web.site_crawler import Site
from contextrouter.contracts import Connector, Partial
from contextrouter.errors import SourceError
from contextrouter.fetch import Fetcher, FetchKeys, FetchOptions
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.threads import Threads

MARGIN = 0.1
"""Share of the time left that is kept for ranking what has come."""


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

    phrase_legs: Sequence[str] = ("default",)
    _results: ResultPages | None = None  # with `search`
    _threads: Threads | None = None
    _pool: tuple[int, Passages] | None = None  # of the site's pages, and their generation
    _example: ExampleSite | None = None
    _of_crawl: list[str] | None = None  # the problems of a crawl, until somebody searches
    unread: Sequence[str] = ()
    not_read: Mapping[str, int] = MappingProxyType({})

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
        check_lists("Web", urls=urls, sitemaps=sitemaps, allowed_domains=allowed_domains)
        _check_mode(bool(urls or sitemaps), search, crawl_depth)
        check_numbers("Web", 0, fresh_days=fresh_days)
        check_numbers("Web", 1, max_results=max_results, page_passages=page_passages)
        check_numbers("Web", 0.1, extract_seconds=extract_seconds)
        addresses, options = [*urls, *sitemaps, search_url], FetchOptions.build("Web", **fetch)
        self._fetcher = Fetcher(options, extra="web", secrets=(search_key,), configured=addresses)
        self._extractor = Extractor(extract_seconds)
        self._reader = Reader(self._fetcher, self._extractor, document_kind)
        if search:
            api = SearchApi(
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
            self._results = ResultPages(api, self._reader, refresh_seconds, fresh_days)
            self.default_queries = 1
            self.phrase_legs = ()
        self._site = Site(
            self._reader, urls, sitemaps, allowed_domains, crawl_depth, max_pages, refresh_seconds
        )
        self._per_page = page_passages

    @classmethod
    def example(cls) -> Self:
        """Read two pages from a server of its own on this machine, which runs from open() to aclose()."""
        web = cls(urls=ExampleSite.urls, allow_private=["127.0.0.1/32"])
        web._example = ExampleSite()
        return web

    @property
    def problems(self) -> list[str]:
        """All that the last reading left out, and why; after `crawl`, what failed of it."""
        if self._of_crawl is not None:
            return self._of_crawl
        return (self._results or self._site).problems

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
        try:
            await self._site.aclose()
        finally:  # also when this is cancelled while a reading ends: processes and connections do not stay
            threads, self._threads, self._pool = self._threads, None, None
            if threads is not None:
                threads.close()
            if self._results is not None:
                self._results.clear()
            await self._extractor.aclose()
            await self._fetcher.aclose()
            if self._example is not None:
                await self._example.aclose()

    async def ping(self) -> None:
        """Raise SourceError when no page can be read; a search API is not asked, since a search costs
        money.
        """
        self._require_open()
        if self._results is None:
            await self._site.current(None)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the best passages of the pages that came before the deadline; `Partial` when some did
        not.
        """
        threads = self._require_open()
        self._of_crawl = None
        until = query.deadline
        if until is not None:
            until -= MARGIN * max(0.0, until - monotonic())
        if self._results is None:
            pages, problems = await self._site.current(until)
            pool = await self._site_pool(threads, pages)
            hits = await threads.run(pool.best, query, self._per_page)
        else:
            pages, problems = await self._results.search(query, until, threads)
            pool = await threads.run(Passages, pages)
            # The engine has looked for the phrases. What pages show of themselves may lack them.
            ranked = await threads.run(partial(pool.best, query, self._per_page, phrases=False))
            hits = ranked or pool.first(query)
        return Partial(hits, " ".join(problems[:10])) if problems else hits

    async def crawl(self) -> AsyncIterator[Document]:
        """Yield every page, whole. Pages that could not be read are in `.unread`, those that are not read by
        rule are counted in `.not_read`; raises SourceError at the end when not all pages are known.
        """
        self._require_open()
        if self._results is not None:
            raise SourceError(
                "Web with `search` has no list of pages to ingest; give `urls` or `sitemaps` instead."
            )
        await self._site.current(None)
        pages = self._site.pages()
        for document in _distinct(pages):
            yield document
        self.not_read = Counter(page.kind for page in pages if page.kind)
        self.unread = [page.url for page in pages if page.problem and not page.dead]
        self._of_crawl = [page.problem for page in pages if page.problem]
        if reasons := self._site.incomplete:
            raise SourceError(f"The list of pages is not complete: {' '.join(reasons[:10])}")

    async def inspect(self, url: str) -> AsyncIterator[tuple[str, str]]:
        """Yield, step by step, what becomes of the page or feed at `url`: a step's name, and what is to be
        seen of it.
        """
        from contextrouter.builtin.connectors.web.inspection import inspect

        async for step in inspect(self._reader, self._require_open(), url):
            yield step

    def _require_open(self) -> Threads:
        if self._threads is None:
            raise SourceError("Web is not open; call `await open()` first.")
        return self._threads

    async def _site_pool(self, threads: Threads, pages: list[Page]) -> Passages:
        generation = self._site.generation
        if self._pool is None or self._pool[0] != generation:
            self._pool = (generation, await threads.run(Passages, pages))
        return self._pool[1]


def _distinct(pages: Sequence[Page]) -> list[Document]:
    """The documents of pages, one for each address: of several pages that give the same address as their own,
    the one that has it, else the first by its id, so that each run chooses the same.
    """
    documents = [page.document for page in pages if page.document is not None]
    by_address: dict[str, Document] = {}
    for document in sorted(documents, key=lambda each: (each.id != each.url, each.id)):
        by_address.setdefault(document.url, document)
    return [document for document in documents if by_address[document.url].id == document.id]


def _check_mode(pages: bool, search: str, depth: int) -> None:
    if pages and search:
        raise ValueError(
            "Web has both pages (`urls`, `sitemaps`) and `search`; give one, and the other in a table of its"
            " own."
        )
    if not pages and not search:
        raise ValueError("Web has nothing to read; give `urls`, `sitemaps` or `search`.")
    if search and depth:
        raise ValueError("Web.crawl_depth has no effect with `search`; take it out.")
