"""Web page reader: fetches, decodes and extracts one page, and cuts it into passages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from time import monotonic
from typing import NamedTuple

from contextrouter.builtin.connectors.markup import SNIPPET_CHARACTERS, markdown_passages, text_passages
from contextrouter.builtin.connectors.matching import matches
from contextrouter.builtin.connectors.pages.charset import page_text
from contextrouter.builtin.connectors.pages.extraction import Extracted, Extractor
from contextrouter.builtin.connectors.pages.extraction_worker import LINKED
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import PAGES, Fetched, Fetcher, FetchFailed
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.threads import Threads
from contextrouter.text.bm25 import PassageIndex
from contextrouter.text.languages import language_terms

TITLE, HEADING, BODY = 3.0, 2.0, 1.0
LISTS = "lists of links"
"""Kind of pages that are left out because they lead to others and say little."""
_DEAD = (404, 410)
JUST_NOW = timedelta(minutes=5)
"""A page that was modified so short ago was made for the request, or its server has another clock."""
FIRST_YEAR = 1990
"""Dates before it are those of servers that know none, such as 1970."""


class Page(NamedTuple):
    """A page as it was read. Without a document there is a `problem`, or it was `skipped` for a reason that
    is nobody's fault.
    """

    url: str
    read: float  # time.monotonic()
    document: Document | None = None
    passages: tuple[Document, ...] = ()
    links: tuple[str, ...] = ()
    problem: str = ""
    skipped: str = ""
    late: bool = False
    dead: bool = False  # the server has no such page
    kind: str = ""  # of what was skipped: robots.txt, noindex, links, or a content type
    retry_after: float = 0.0
    digest: bytes = b""


class Reader:
    """Reads pages; the fetcher and the extractor are its own connector's, which opens and closes them."""

    def __init__(self, fetcher: Fetcher, extractor: Extractor, kind: str) -> None:
        self.fetcher, self.extractor, self._kind = fetcher, extractor, kind

    async def read(
        self,
        url: str,
        threads: Threads,
        *,
        known: Page | None = None,
        deadline: float | None = None,
        polite: bool = False,
    ) -> Page:
        """Read one page, as `known` when it did not change. Raises nothing that the page or its server could
        cause.
        """
        start = monotonic()
        try:
            fetched = await self.fetcher.get(url, accept=PAGES, deadline=deadline, polite=polite)
        except FetchFailed as failed:
            if failed.refused and polite:  # an address that somebody gave is missing, one of many is not
                return Page(url, start, skipped=str(failed), kind=failed.refused)
            dead = failed.status in _DEAD
            return Page(url, start, problem=str(failed), dead=dead, retry_after=failed.retry_after or 0.0)
        except SourceTimeout as late:
            return Page(url, start, problem=str(late), late=True)
        except SourceError as error:
            return Page(url, start, problem=str(error))
        digest = sha256(fetched.body).digest()
        if known is not None and known.document is not None and known.digest == digest:
            return known._replace(read=start, problem="", late=False)
        page = self.make_page(url, start, fetched, await self.extract(fetched, threads), polite)
        return page._replace(digest=digest)

    async def extract(self, fetched: Fetched, threads: Threads) -> Extracted:
        """What a fetched page says."""
        text = await threads.run(page_text, fetched.body, fetched.content_type)
        kind = fetched.content_type.partition(";")[0].strip().lower()
        if "html" in kind or "xml" in kind or (not kind and text.lstrip()[:1] == "<"):
            return await self.extractor.read(text, fetched.url)
        return self.extractor.plain(text)

    def make_page(self, url: str, start: float, fetched: Fetched, extract: Extracted, polite: bool) -> Page:
        """The page of what was extracted."""
        links = () if polite and extract.nofollow else tuple(extract.links)
        address = self.fetcher.masked(fetched.url)
        if polite and extract.noindex:
            reason = f"{address} does not want to be in an index."
            return Page(url, start, links=links, skipped=reason, kind="noindex")
        if not extract.text:
            return Page(url, start, links=links, problem=f"{address} has no text to read: {extract.why}")
        if extract.linked > LINKED:
            reason = f"{address} is a list of other pages ({extract.linked:.0%} of its text are links)."
            return Page(url, start, links=links, skipped=reason, kind=LISTS)
        document = _add_date(document_of(extract, url, fetched.url, self._kind), fetched.modified)
        return Page(url, start, document, passages_of(document), links)


def document_of(extract: Extracted, id: str, url: str, kind: str) -> Document:
    """The whole text of a page as one document. `id` is the address that was asked for, `url` the one that
    answered; where the page names another one of its host as its own, that is its url.
    """
    metadata = {
        name: value for name in ("author", "site", "description", "date") if (value := getattr(extract, name))
    }
    if extract.hidden:
        metadata["hidden_characters"] = extract.hidden
    if extract.how not in ("strict", "loose", "text"):
        metadata["extracted_by"] = extract.how  # not the article, but what could be had instead of it
    return Document(
        content=extract.text,
        id=id,
        url=extract.canonical or url,
        title=extract.title,
        kind=kind,
        snippet=extract.text[:SNIPPET_CHARACTERS],
        media_type="text/plain" if extract.how == "text" else "text/markdown",
        language=extract.language or None,
        updated_at=extract.moment,
        synced_at=datetime.now(UTC),
        metadata=metadata,
        untrusted=True,
    )


def _add_date(document: Document, modified: str) -> Document:
    """The document of a page with its date: its own, else that of `Last-Modified`, the server's header.

    A page that its server made just now, for this request, has no date.
    """
    dated_by, moment = "document", document.updated_at
    if moment is None:
        dated_by, moment = "server", _server_date(modified)
    if moment is None:
        return document
    return document.replace(updated_at=moment, metadata={**document.metadata, "dated_by": dated_by})


def _server_date(modified: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(modified)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    age = datetime.now(UTC) - moment
    return moment if age > JUST_NOW and moment.year >= FIRST_YEAR else None


def passages_of(document: Document) -> tuple[Document, ...]:
    """The passages of a page; each names the page as its parent."""
    cut = markdown_passages if document.media_type == "text/markdown" else text_passages
    return tuple(
        document.replace(
            content=piece.text,
            path=piece.path,
            id=f"{document.id}#{number}",
            parent=document.id,
            snippet=piece.text[:SNIPPET_CHARACTERS],
        )
        for number, piece in enumerate(cut(document.content, document.title))
    )


class Passages:
    """The passages of some pages, ready to be searched. Made and asked in threads."""

    def __init__(self, pages: Sequence[Page]) -> None:
        passages: dict[str, Document] = {}
        for page in pages:
            for passage in page.passages:
                passages.setdefault(passage.id, passage)
        self.all = tuple(passages.values())
        self._ranking = PassageIndex(
            [((p.title, TITLE), ("\n".join(p.path), HEADING), (p.content, BODY)) for p in self.all],
            [passage.language for passage in self.all],
        )

    def best(self, query: Query, per_page: int, *, phrases: bool = True) -> list[Hit]:
        """The passages that match, best first, at most so many of each page. `phrases`: those of the question
        must occur.
        """
        counts: dict[str | None, int] = {}
        hits: list[Hit] = []
        terms = language_terms(
            query.text, self._ranking.languages, required=query.required, excluded=query.excluded
        )
        if not phrases:
            terms = terms.without_phrases()
        best = self._ranking.search(terms, len(self.all), lambda number: matches(self.all[number], query))
        for number, score in best:
            passage = self.all[number]
            if len(hits) >= query.limit:
                break
            if counts.get(passage.parent, 0) < per_page:
                counts[passage.parent] = counts.get(passage.parent, 0) + 1
                hits.append(Hit(document=passage, score=score))
        return hits

    def first(self, query: Query) -> list[Hit]:
        """The first passage of each page, in the pages' order: what a search engine found without a word in
        common.
        """
        firsts = {passage.parent: passage for passage in reversed(self.all)}
        passages = [firsts[parent] for parent in dict.fromkeys(passage.parent for passage in self.all)]
        return [Hit(document=passage) for passage in passages if matches(passage, query)][: query.limit]
