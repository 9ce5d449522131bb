"""Any JSON API: its address, what is sent, and where in the answer the documents stand, by settings alone."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Literal, NamedTuple, Self, Unpack
from urllib.parse import urlencode, urljoin

import msgspec

from contextrouter.builtin.connectors import url_template
from contextrouter.builtin.connectors.example_site import HOST, ExampleSite
from contextrouter.builtin.connectors.http_api.field_mapping import Mapped
from contextrouter.builtin.connectors.matching import matches
from contextrouter.contracts import Connector, Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import JSON, Fetcher, FetchKeys, FetchOptions, check_url
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.threads import Threads

NAMES = ("query", "limit", "page", "offset", "cursor", "language")
"""What may stand in braces in `url`, `parameters` and `body`."""
QUERY_CHARACTERS = 1_000


class _Found(NamedTuple):
    """What one page of an answer holds."""

    documents: list[tuple[Document, float | None]]
    items: int  # the usable and the others
    problems: list[str]
    cursor: str
    following: str  # the address of the next page


class HttpApi(Connector):
    """Asks a JSON API and makes documents of its answer, in the API's order.

    `url`, the values of `parameters` and, with `method` POST, of `body` are templates with {query}, {limit},
    {page}, {offset}, {cursor} and {language}; a parameter whose template comes out empty is not sent.
    `headers` go to that API alone. `results` is a JMESPath expression for the list of items, `fields` one for
    each field of a document (content, id, url, title, snippet, language, labels, keywords, updated_at,
    score); other names become metadata. `markup` says that texts are HTML. At most `max_pages` pages of
    `page_size` items are asked for: by {page}, which begins at `first_page`, by {offset}, by the `cursor`
    that an answer holds, or by the `next_url` in it. `per_minute` is how many requests are made at most (0:
    any).
    """

    def __init__(
        self,
        *,
        url: str,
        method: Literal["GET", "POST"] = "GET",
        parameters: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        body: Mapping[str, Any] = {},
        results: str = "",
        fields: Mapping[str, str],
        markup: bool = False,
        document_kind: str = "document",
        max_pages: int = 1,
        page_size: int = 20,
        first_page: int = 1,
        cursor: str = "",
        next_url: str = "",
        per_minute: float = 0.0,
        **fetch: Unpack[FetchKeys],
    ) -> None:
        url_template.check([url, parameters, body], NAMES, "HttpApi.url, parameters or body")
        check_url(url_template.in_url(url, dict.fromkeys(NAMES, "1")))
        if not {"content", "title", "snippet"} & set(fields):
            raise ValueError(
                "HttpApi.fields says nothing of the content; give a JMESPath expression for `content`."
            )
        if body and method == "GET":
            raise ValueError(
                'HttpApi.body has no effect with method = "GET"; set "POST", or use `parameters`.'
            )
        for name, number, least in (
            ("max_pages", max_pages, 1),
            ("page_size", page_size, 1),
            ("per_minute", per_minute, 0),
        ):
            if not least <= number < 1e6:
                raise ValueError(f"HttpApi.{name} is {number!r}; give a number of at least {least}.")
        paged = bool(url_template.names([url, parameters, body]) & {"page", "offset", "cursor"}) or bool(
            next_url
        )
        if max_pages > 1 and not paged:
            raise ValueError(
                "HttpApi.max_pages has no effect: put {page}, {offset} or {cursor} into it, or give"
                " `next_url`."
            )
        _check_headers(headers)
        options = FetchOptions(**fetch)
        options.check("HttpApi")
        self._url, self._method, self._parameters, self._headers, self._body = (
            url,
            method,
            parameters,
            headers,
            body,
        )
        self._mapped = Mapped(results, fields, document_kind, markup)
        self._pagination = {name: text for name, text in (("cursor", cursor), ("next_url", next_url)) if text}
        self._max_pages, self._size, self._first = max_pages, page_size, first_page
        self._pause = 60.0 / per_minute if per_minute else 0.0
        self._free = 0.0  # when the next request may be made
        self._fetcher = Fetcher(
            options, extra="http", secrets=[value for value in headers.values() if len(value) >= 12]
        )
        self._threads: Threads | None = None
        self._example: ExampleSite | None = None
        self.default_queries = 1
        self.problems: list[str] = []

    @classmethod
    def example(cls) -> Self:
        """Ask a server of its own on this machine, which runs from open() to aclose()."""
        fields = {"content": "about", "id": "id", "url": "link", "title": "name", "updated_at": "when"}
        api = cls(
            url=f"http://{HOST}/items?q={{query}}",
            results="found.items",
            fields=fields,
            allow_private=["127.0.0.1/32"],
        )
        api._example = ExampleSite()
        return api

    async def open(self) -> None:
        """Compile the expressions and open the session. Raises MissingDependency, SettingsError for what is
        no expression.
        """
        self._mapped.open(self._pagination)
        if self._example is not None:
            self._fetcher.names = await self._example.open()
        await self._fetcher.open()
        self._threads = self._threads or Threads(2, "http-api")

    async def aclose(self) -> None:
        """Close the session."""
        await self._fetcher.aclose()
        if self._example is not None:
            await self._example.aclose()
        if self._threads is not None:
            self._threads.close()
        self._threads, self._free = None, 0.0

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what the API finds, in its order; `Partial` when a later page of it, or some of its items,
        are missing.
        """
        threads = self._opened()
        if not query.text.strip() or query.limit < 1:
            return []
        found: dict[str, tuple[Document, float | None]] = {}
        problems: list[str] = []
        cursor, following = "", ""
        for number in range(self._max_pages):
            values = {
                "query": self._asked(query.text),
                "limit": min(self._size, query.limit) if self._max_pages == 1 else self._size,
                "page": self._first + number,
                "offset": number * self._size,
                "cursor": cursor,
                "language": query.language or "",
            }
            try:
                page = await self._page(values, following, query.deadline, threads)
            except SourceError as error:
                if not found:
                    raise
                problems.append(f"Page {number + 1}: {error}")
                break
            problems += page.problems
            before = len(found)
            for document, score in page.documents:
                if matches(document, query):
                    found.setdefault(document.id, (document, score))
            cursor, following = page.cursor, page.following
            if (
                len(found) >= query.limit
                or self._over(page)
                or (page.documents and len(found) == before and number)
            ):
                break
        self.problems = problems
        hits = _in_order(list(found.values())[: query.limit])
        return Partial(hits, " ".join(problems[:10])) if problems else hits

    def _over(self, page: _Found) -> bool:
        """Whether there are no more pages."""
        if "next_url" in self._pagination:
            return not page.following
        if "cursor" in self._pagination:
            return not page.cursor
        return page.items < self._size

    def _opened(self) -> Threads:
        if self._threads is None:
            raise SourceError("HttpApi is not open; call `await open()` first.")
        return self._threads

    def _asked(self, text: str) -> str:
        return " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())[
            :QUERY_CHARACTERS
        ]

    async def _page(
        self, values: Mapping[str, Any], following: str, deadline: float | None, threads: Threads
    ) -> _Found:
        await self._turn(deadline)
        url = following or self._address(values)
        if self._method == "GET":
            fetched = await self._fetcher.get(url, accept=JSON, headers=self._headers, deadline=deadline)
        else:
            headers = {"Content-Type": "application/json", **self._headers}
            body = msgspec.json.encode(url_template.filled(self._body, values))
            fetched = await self._fetcher.post(url, body, accept=JSON, headers=headers, deadline=deadline)
        return await threads.run(self._read, fetched.body, fetched.url)

    async def _turn(self, deadline: float | None) -> None:
        """Wait until `per_minute` allows another request. Raises SourceTimeout when that is not before the
        deadline.
        """
        now = monotonic()
        begin = max(now, self._free)
        if deadline is not None and begin > deadline:
            raise SourceTimeout(
                f"HttpApi may ask again in {begin - now:.1f} s (`per_minute`), which is after the deadline."
            )
        self._free = begin + self._pause
        if begin > now:
            await asyncio.sleep(begin - now)

    def _address(self, values: Mapping[str, Any]) -> str:
        url = url_template.in_url(self._url, values)
        given = {name: str(url_template.filled(text, values)) for name, text in self._parameters.items()}
        parameters = urlencode({name: value for name, value in given.items() if value})
        return f"{url}{'&' if '?' in url else '?'}{parameters}" if parameters else url

    def _read(self, body: bytes, url: str) -> _Found:
        """What one answer holds. Runs in a thread. Raises SourceError."""
        shown = self._fetcher.masked(url)
        try:
            answer = msgspec.json.decode(body.decode("utf-8-sig", "replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise SourceError(f"{shown} answered with what is no JSON ({error}).") from None
        items = self._mapped.items(answer)
        if items is None:
            raise SourceError(
                f"{shown} has no list of items where `results` says; its answer begins {body[:80]!r}."
            )
        made = [self._mapped.document(item, url) for item in items]
        bad = [each for each in made if isinstance(each, str)]
        problems = (
            [f"{shown}: {len(bad)} of {len(items)} items were left out; the first: {bad[0]}"] if bad else []
        )
        cursor = self._mapped.find("cursor", answer) if "cursor" in self._pagination else ""
        following = self._mapped.find("next_url", answer) if "next_url" in self._pagination else ""
        documents = [each for each in made if not isinstance(each, str)]
        return _Found(
            documents, len(items), problems, str(cursor or ""), self._following(url, following, problems)
        )

    def _following(self, url: str, target: Any, problems: list[str]) -> str:
        """The address of the next page; one of another origin is refused, since the headers are for this
        one.
        """
        if not isinstance(target, str) or not target:
            return ""
        try:
            absolute = check_url(urljoin(url, target))
        except ValueError as error:
            problems.append(str(error))
            return ""
        if absolute.split("/")[:3] != url.split("/")[:3]:
            problems.append(
                f"`next_url` leads to another host ({self._fetcher.masked(absolute)}) and is not followed."
            )
            return ""
        return absolute


def _in_order(found: Sequence[tuple[Document, float | None]]) -> list[Hit]:
    """Hits in the API's order; its scores only where they say the same."""
    scores = [score for _, score in found if score is not None and math.isfinite(score)]
    usable = len(scores) == len(found) and all(high >= low for high, low in itertools.pairwise(scores))
    return [Hit(document=document, score=score if usable else None) for document, score in found]


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name or not (name + value).isascii() or not (name + value).isprintable() or ":" in name:
            raise ValueError(
                f"HttpApi.headers {name!r} cannot be sent; a name and a value of printable ASCII are"
                " expected."
            )
