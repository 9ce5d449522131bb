"""HTTP API connector: any REST API with a JSON answer, by URL templates and JMESPath expressions."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Literal, NamedTuple, Self, Unpack
from urllib.parse import urljoin

import msgspec

from contextrouter.builtin.connectors import url_template
from contextrouter.builtin.connectors.example_site import HOST, ExampleSite
from contextrouter.builtin.connectors.http_api.field_mapping import FieldMapping
from contextrouter.builtin.connectors.matching import matches
from contextrouter.builtin.connectors.option_checks import check_headers, check_numbers
from contextrouter.contracts import Connector, Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import JSON, Fetcher, FetchFailed, FetchKeys, FetchOptions, check_url
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.threads import Threads

NAMES = ("query", "limit", "page", "offset", "cursor", "language")
"""What may stand in braces in `url`, `parameters` and `body`."""
QUERY_CHARACTERS = 1_000
_BEYOND = (404, 416)
"""What some APIs answer for the page behind the last one."""


class _AnswerPage(NamedTuple):
    """What one page of an answer holds."""

    documents: list[tuple[Document, float | None]]
    items: int  # the usable and the others
    problems: list[str]
    cursor: str
    next_url: str
    unmatched: set[str]  # names of fields that no item has


class HttpApi(Connector):
    """Asks a JSON API and makes documents of its answer, in the API's order.

    `url`, the values of `parameters` and, with `method` POST, of `body` are templates with {query}, {limit},
    {page}, {offset}, {cursor} and {language}; a parameter whose template comes out empty is not sent.
    `headers` go to that API alone. `results` is a JMESPath expression for the list of items, `fields` one for
    each field of a document (content, id, url, title, snippet, language, labels, keywords, updated_at,
    score); other names become metadata; `.problems` names a field that no item has. `markup` says that texts
    are HTML. At most `max_pages` pages of `page_size` items are asked for, until one is empty or brings
    nothing new: by {page}, which begins at `first_page`, by {offset}, which counts the items read, by the
    `cursor` that an answer holds, or by the `next_url` in it. `per_minute` is how many requests are made at
    most (0: any).
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
        check_url(url_template.fill_url(url, dict.fromkeys(NAMES, "1")))
        check_numbers("HttpApi", 1, max_pages=max_pages, page_size=page_size)
        check_numbers("HttpApi", 0, per_minute=per_minute)
        _check_effect(method, body, fields)
        _check_pagination(max_pages, url_template.placeholders([url, parameters, body]), next_url)
        check_headers("HttpApi", headers)
        self._url, self._method, self._parameters = url, method, parameters
        self._headers, self._body = headers, body
        self._mapping = FieldMapping(results, fields, document_kind, markup)
        self._pagination = {name: text for name, text in (("cursor", cursor), ("next_url", next_url)) if text}
        self._max_pages, self._size, self._first = max_pages, page_size, first_page
        self._pause = 60.0 / per_minute if per_minute else 0.0
        self._free = 0.0  # when the next request may be made
        secrets = [value for value in headers.values() if len(value) >= 12]
        self._fetcher = Fetcher(
            FetchOptions.build("HttpApi", **fetch), extra="http", secrets=secrets, configured=[url]
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
        self._mapping.open(self._pagination)
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
        threads = self._require_open()
        if not query.text.strip() or query.limit < 1:
            return []
        usable: dict[str, tuple[Document, float | None]] = {}
        problems: list[str] = []
        items, known_ids = 0, set[str]()
        unmatched: set[str] | None = None
        cursor, next_url = "", ""
        for number in range(self._max_pages):
            values = {
                "query": _one_line(query.text),
                "limit": min(self._size, query.limit) if self._max_pages == 1 else self._size,
                "page": self._first + number,
                "offset": items,
                "cursor": cursor,
                "language": query.language or "",
            }
            try:
                page = await self._page(values, next_url, query.deadline, threads)
            except SourceError as error:
                if items and isinstance(error, FetchFailed) and error.status in _BEYOND:
                    break
                if not usable:
                    raise
                problems.append(f"Page {number + 1}: {error}")
                break
            problems += page.problems
            for document, score in page.documents:
                if matches(document, query):
                    usable.setdefault(document.id, (document, score))
            cursor, next_url = page.cursor, page.next_url
            items += page.items
            if page.items:
                unmatched = page.unmatched if unmatched is None else unmatched & page.unmatched
            ids = {document.id for document, _ in page.documents}
            repeats = bool(ids) and ids <= known_ids
            known_ids |= ids
            if len(usable) >= query.limit or self._is_last(page) or repeats:
                break
        self.problems = [*problems, *self._mapping.unmatched_problems(unmatched or set(), items)]
        hits = _sort_documents(list(usable.values())[: query.limit])
        return Partial(hits, " ".join(problems[:10])) if problems else hits

    def _is_last(self, page: _AnswerPage) -> bool:
        """Whether no page follows. A short page may have one behind it: many APIs give fewer items than they
        are asked for.
        """
        if "next_url" in self._pagination:
            return not page.next_url
        if "cursor" in self._pagination:
            return not page.cursor
        return not page.items

    def _require_open(self) -> Threads:
        if self._threads is None:
            raise SourceError("HttpApi is not open; call `await open()` first.")
        return self._threads

    async def _page(
        self, values: Mapping[str, Any], next_url: str, deadline: float | None, threads: Threads
    ) -> _AnswerPage:
        await self._wait_for_rate_limit(deadline)
        url = next_url or self._address(values)
        if self._method == "GET":
            fetched = await self._fetcher.get(url, accept=JSON, headers=self._headers, deadline=deadline)
        else:
            headers = {"Content-Type": "application/json", **self._headers}
            body = msgspec.json.encode(url_template.fill(self._body, values))
            fetched = await self._fetcher.post(url, body, accept=JSON, headers=headers, deadline=deadline)
        return await threads.run(self._read, fetched.body, fetched.url)

    async def _wait_for_rate_limit(self, deadline: float | None) -> None:
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
        url = url_template.fill_url(self._url, values)
        texts = {name: str(url_template.fill(text, values)) for name, text in self._parameters.items()}
        return url_template.add_parameters(url, {name: text for name, text in texts.items() if text})

    def _read(self, body: bytes, url: str) -> _AnswerPage:
        """What one answer holds. Runs in a thread. Raises SourceError."""
        masked_url = self._fetcher.masked(url)
        try:
            answer = msgspec.json.decode(body.decode("utf-8-sig", "replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise SourceError(f"{masked_url} answered with what is no JSON ({error}).") from None
        items = self._mapping.items(answer)
        if items is None:
            is_table = isinstance(answer, dict)
            shape = f"has the keys {', '.join(answer)}" if is_table else f"begins {body[:80]!r}"
            message = f"{masked_url} has no list of items where `results` says; its answer {shape[:500]}."
            raise SourceError(message)
        results = [self._mapping.document(item, url) for item in items]
        bad = [result for result in results if isinstance(result, str)]
        left_out = f"{masked_url}: {len(bad)} of {len(items)} items were left out; the first:"
        problems = [f"{left_out} {bad[0]}"] if bad else []
        cursor = self._mapping.find("cursor", answer) if "cursor" in self._pagination else ""
        target = self._mapping.find("next_url", answer) if "next_url" in self._pagination else ""
        return _AnswerPage(
            [result for result in results if not isinstance(result, str)],
            len(items),
            problems,
            str(cursor or ""),
            self._next_url(url, target, problems),
            self._mapping.unmatched(items),
        )

    def _next_url(self, url: str, target: Any, problems: list[str]) -> str:
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


def _one_line(text: str) -> str:
    """The words of a question, without what no URL can carry."""
    text = text.encode("utf-8", "replace").decode().replace("\0", " ")
    return " ".join(text.split())[:QUERY_CHARACTERS]


def _sort_documents(scored: Sequence[tuple[Document, float | None]]) -> list[Hit]:
    """Hits in the API's order; its scores only where they say the same."""
    scores = [score for _, score in scored if score is not None and math.isfinite(score)]
    usable = len(scores) == len(scored) and all(high >= low for high, low in itertools.pairwise(scores))
    return [Hit(document=document, score=score if usable else None) for document, score in scored]


def _check_effect(method: str, body: Mapping[str, Any], fields: Mapping[str, str]) -> None:
    if not {"content", "title", "snippet"} & set(fields):
        raise ValueError(
            "HttpApi.fields says nothing of the content; give a JMESPath expression for `content`."
        )
    if body and method == "GET":
        raise ValueError('HttpApi.body has no effect with method = "GET"; set "POST", or use `parameters`.')


def _check_pagination(max_pages: int, names: Collection[str], next_url: str) -> None:
    if max_pages > 1 and not next_url and not {"page", "offset", "cursor"} & set(names):
        raise ValueError(
            "HttpApi.max_pages has no effect: put {page}, {offset} or {cursor} into it, or give `next_url`."
        )
