"""Web crawler: reads given URLs, URLs of sitemaps, and their links, within limits."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence
from html import unescape
from time import monotonic
from urllib.parse import urljoin, urlsplit

from contextrouter.builtin.connectors.option_checks import check_numbers
from contextrouter.builtin.connectors.pages.page_reader import Page, Reader
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import check_url
from contextrouter.runtime.threads import Threads

AT_ONCE = 8
RETRY_SECONDS = 10.0
"""How long a page that failed is left alone; twice as long each next time."""
LONGEST_RETRY = 3_600.0
MOST_SITEMAPS = 20
_LOC = re.compile(r"<(?:\w+:)?loc>\s*(?:<!\[CDATA\[)?\s*([^<\]\s]+)", re.I)
_INDEX = re.compile(r"<(?:\w+:)?sitemapindex", re.I)
_NO_PAGE = re.compile(
    r"\.(?:jpe?g|png|gif|webp|svg|ico|css|js|json|xml|rss|atom|pdf|zip|gz|tar|mp[34]|webm|woff2?|exe|dmg|docx?|xlsx?|pptx?)$",
    re.I,
)


class Site:
    """Reads the pages in the background of whoever asks first; all who ask share the reading, which goes on
    when they give up.

    `depth` is how many links away from `urls` and sitemaps pages are read; beyond the given addresses
    robots.txt holds, and only hosts of the given addresses and of `domains` are visited.
    """

    def __init__(
        self,
        reader: Reader,
        urls: Sequence[str],
        sitemaps: Sequence[str],
        domains: Sequence[str],
        depth: int,
        max_pages: int,
        refresh: float,
    ) -> None:
        check_numbers("Web", 0, crawl_depth=depth, refresh_seconds=refresh)
        check_numbers("Web", 1, max_pages=max_pages)
        self._reader, self._domains = reader, tuple(domains)
        self._urls = tuple(dict.fromkeys(map(check_url, urls)))
        self._sitemaps = tuple(map(check_url, sitemaps))
        self._depth, self._max_pages, self._refresh = depth, max_pages, refresh
        self._hosts = {urlsplit(url).netloc.lower() for url in (*urls, *sitemaps)}
        self._threads: Threads | None = None
        self._task: asyncio.Task[None] | None = None
        self._pages: dict[str, Page] = {}
        self._again: dict[str, tuple[float, int]] = {}  # when a page is read next, and its failures in a row
        self._next = 0.0
        self._notes: list[str] = []  # what is wrong with sitemaps
        self._incomplete: list[str] = []
        self._sitemap_failures = 0
        self._places: asyncio.Semaphore
        self.generation = 0  # counts changes of what was read

    def open(self, threads: Threads) -> None:
        """Make ready, in the running event loop."""
        if self._threads is None:
            self._threads, self._places = threads, asyncio.Semaphore(AT_ONCE)

    async def aclose(self) -> None:
        """Stop reading and forget the pages."""
        task, self._task, self._threads = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._pages, self._again, self._next, self._notes = {}, {}, 0.0, []

    async def current(self, deadline: float | None) -> tuple[list[Page], list[str]]:
        """The pages there are, read again where it is time, and what is missing. Raises SourceError when
        there is none.
        """
        late = False
        if monotonic() >= self._next:
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._load())
            try:
                async with asyncio.timeout(None if deadline is None else deadline - monotonic()):
                    await asyncio.shield(self._task)
            except TimeoutError:
                late = True
        pages = [page for page in self._pages.values() if page.document is not None]
        problems = [page.problem for page in self._pages.values() if page.problem] + self._notes
        if late:
            absent = [url for url in self._urls if url not in self._pages]
            problems += [
                f"{self._reader.fetcher.masked(url)} was not read before the deadline." for url in absent
            ]
            problems += [] if absent else ["Some pages were not read before the deadline."]
        if not pages and problems:
            failed = [page for page in self._pages.values() if page.problem]
            slow = late or (bool(failed) and not self._notes and all(page.late for page in failed))
            raise (SourceTimeout if slow else SourceError)(" ".join(problems[:10]))
        return pages, problems

    @property
    def problems(self) -> list[str]:
        """All that was left out of the last reading, and why."""
        reasons = (page.problem or page.skipped for page in self._pages.values())
        return [*filter(None, reasons), *self._notes]

    async def _load(self) -> None:
        """Read level by level: what is given, what it leads to, and so on."""
        self._notes, self._incomplete = [], []
        level = dict.fromkeys(self._urls) | dict.fromkeys(await self._urls_in_sitemap())
        if self._notes:  # a sitemap that failed: what it named before is still there, as far as anybody knows
            level |= dict.fromkeys(self._pages)
        queue_of_urls: dict[str, None] = {}
        for depth in range(self._depth + 1):
            room = self._max_pages - len(queue_of_urls)
            new = [url for url in level if url not in queue_of_urls]
            if len(new) > room:
                self._incomplete.append(f"more than {self._max_pages} pages; raise `max_pages`.")
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._visit(url)) for url in new[:room]]
            queue_of_urls |= dict.fromkeys(new[:room])
            if depth == self._depth:
                break
            failed = [task.result().url for task in tasks if task.result().problem and not task.result().dead]
            if failed:
                address = self._reader.fetcher.masked(failed[0])
                self._incomplete.append(f"where {address} leads to is not known, since it was not read.")
            level = dict.fromkeys(
                link for task in tasks for link in task.result().links if self._inside(link)
            )
        self._forget([url for url in self._pages if url not in queue_of_urls])
        self._next = min((when for when, _ in self._again.values()), default=monotonic() + self._refresh)
        self._plan_sitemaps()

    def _forget(self, gone: Sequence[str]) -> None:
        for url in gone:
            del self._pages[url], self._again[url]
        self.generation += bool(gone)

    def _plan_sitemaps(self) -> None:
        """Ask sitemaps that failed again soon, and later each time."""
        if not self._notes:
            self._sitemap_failures = 0
            return
        pause = min(RETRY_SECONDS * 2 ** min(self._sitemap_failures, 10), LONGEST_RETRY)
        self._sitemap_failures += 1
        self._next = min(self._next, monotonic() + pause)

    @property
    def incomplete(self) -> list[str]:
        """Why the last reading did not list all pages; empty: it did."""
        return [*self._notes, *self._incomplete]

    def pages(self) -> list[Page]:
        """All pages of the last reading, also those without a document."""
        return list(self._pages.values())

    async def _visit(self, url: str) -> Page:
        page_before = self._pages.get(url)
        when, failures = self._again.get(url, (0.0, 0))
        if page_before is not None and monotonic() < when:
            return page_before
        threads = self._threads
        assert threads is not None
        is_configured = url in self._urls
        async with self._places:
            page = await self._reader.read(url, threads, known=page_before, polite=not is_configured)
        if page.dead and not is_configured:
            page = page._replace(problem="", skipped=page.problem)  # a dead link is no failure of ours
        if page.problem:
            pause = min(max(RETRY_SECONDS * 2 ** min(failures, 10), page.retry_after), LONGEST_RETRY)
            self._again[url] = (monotonic() + pause, failures + 1)
            if page_before is not None and page_before.document is not None:
                page = page_before._replace(
                    problem=f"{page.problem} Its text of {monotonic() - page_before.read:.0f} s ago is used."
                )
        else:
            self._again[url] = (monotonic() + self._refresh, 0)
        if page_before is None or page_before.document != page.document:
            self.generation += 1
        self._pages[url] = page
        return page

    def _inside(self, url: str) -> bool:
        """Whether a crawl may go there."""
        try:
            parts = urlsplit(check_url(url))
        except ValueError:
            return False
        if _NO_PAGE.search(parts.path):
            return False
        return parts.netloc.lower() in self._hosts or is_host_of(parts.hostname or "", self._domains)

    async def _urls_in_sitemap(self) -> list[str]:
        """The addresses that sitemaps name, of their own hosts and the allowed ones."""
        urls_of_site: dict[str, None] = {}
        waiting, done = list(self._sitemaps), 0
        while waiting and done < MOST_SITEMAPS and len(urls_of_site) < self._max_pages:
            url, done = waiting.pop(0), done + 1
            try:
                fetched = await self._reader.fetcher.get(url)
                body = _unpack(fetched.body, self._reader.fetcher.options.max_bytes)
            except (SourceError, ValueError) as error:
                self._notes.append(f"Sitemap {error}")
                continue
            text = body.decode("utf-8", "replace")
            urls = [urljoin(fetched.url, unescape(loc)) for loc in _LOC.findall(text)]
            if _INDEX.search(text[:2_000]):
                waiting += [loc for loc in urls if urlsplit(loc).netloc.lower() in self._hosts]
            else:
                urls_of_site |= dict.fromkeys(filter(self._inside, urls))
            if len(urls_of_site) >= self._max_pages and waiting:
                self._incomplete.append(f"more than {self._max_pages} pages; raise `max_pages`.")
            if not urls:
                self._notes.append(f"Sitemap {self._reader.fetcher.masked(url)} names no address.")
        if waiting and done >= MOST_SITEMAPS:
            self._incomplete.append(f"more than {MOST_SITEMAPS} sitemaps; the others were not read.")
        return list(urls_of_site)


def is_host_of(host: str, domains: Sequence[str]) -> bool:
    """Whether a host is one of the domains, or below one."""
    host = host.lower().rstrip(".")
    names = (domain.lower().strip(".") for domain in domains)
    return any(host == name or host.endswith("." + name) for name in names)


def _unpack(body: bytes, limit: int) -> bytes:
    """A sitemap that is a gzip file, unpacked. Raises ValueError when it is larger than `limit` bytes, or
    damaged.
    """
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
        text = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError(f"is damaged ({error}).") from None
    if len(text) > limit:
        raise ValueError(f"is longer than `max_bytes` = {limit}.")
    return text
