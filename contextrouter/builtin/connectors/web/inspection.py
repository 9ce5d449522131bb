"""Inspection of one web page or feed: robots.txt, fetch and extraction, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import monotonic

from contextrouter.builtin.connectors.pages.page_reader import Reader
from contextrouter.errors import SourceError
from contextrouter.fetch import FEEDS, Fetched, FetchFailed, FetchLate
from contextrouter.runtime.threads import Threads

_FEED = ("<rss", "<feed", "<rdf:rdf", "jsonfeed.org")
ITEMS = 500
SHOWN_ITEMS = 5


async def inspect(reader: Reader, threads: Threads, url: str) -> AsyncIterator[tuple[str, str]]:
    """Yield a step's name and what is to be seen of it. Raises SourceError at the end when nothing came of
    it.
    """
    fetcher = reader.fetcher
    try:
        rules = await fetcher.rules(url)
        allowed = "allows" if rules.allows(url) else "does not allow"
        if rules.closed:
            allowed = "could not be read, which does not allow"
        pace = f", every {rules.delay:g} s" if rules.delay else ""
        yield "robots", f"robots.txt {allowed} a crawler to read it{pace}"
        fetched = await fetcher.get(url, accept=FEEDS)
    except (FetchFailed, FetchLate) as failed:
        for step in failed.steps:
            yield "fetch", step
        raise
    for step in fetched.steps:
        yield "fetch", step
    head = fetched.body[:2_000].decode("latin-1").lower()
    if any(mark in head for mark in _FEED):
        try:
            kind, seconds = fetched.content_type, fetcher.options.fetch_seconds
            feed = await reader.extractor.feed(fetched.body, fetched.url, kind, ITEMS, seconds)
        except ValueError as error:
            raise SourceError(f"{fetcher.masked(url)} cannot be used: {error}") from error
        yield "feed", f"{feed.title!r}: {len(feed.documents)} items"
        for problem in feed.problems:
            yield "problem", problem
        for item in feed.documents[:SHOWN_ITEMS]:
            day = f"{item.updated_at:%Y-%m-%d}" if item.updated_at else "undated"
            yield "item", f"{day} {item.title}"
        return
    async for line in _page(reader, threads, fetched):
        yield line


async def _page(reader: Reader, threads: Threads, fetched: Fetched) -> AsyncIterator[tuple[str, str]]:
    extract = await reader.extract(fetched, threads)
    if extract.text:
        size = f"{len(extract.text)} characters, {extract.how} extraction"
        yield "extract", f"{size}; {extract.linked:.0%} of it are links"
    for name in ("title", "author", "date", "site", "language", "description"):
        if value := getattr(extract, name):
            yield name, value
    if extract.hidden:
        yield "hidden", f"{extract.hidden} characters that no reader of the page sees were taken out"
    if rules := [name for name in ("noindex", "nofollow") if getattr(extract, name)]:
        yield "robots", f"its meta element says {' and '.join(rules)}"
    page = reader.make_page(fetched.url, monotonic(), fetched, extract, False)
    if page.document is None:
        raise SourceError(page.problem or page.skipped)
    yield "passages", f"{len(page.passages)}"
    for passage in page.passages:
        heading_path = " > ".join(passage.path)
        yield "passage", f"[{heading_path}] {passage.snippet}" if heading_path else passage.snippet
