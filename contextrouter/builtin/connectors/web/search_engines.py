"""Web search engine APIs (SearXNG, Google, Brave, Tavily): requests and result fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from contextrouter.builtin.connectors import url_template
from contextrouter.builtin.connectors.web.site_crawler import is_host_of
from contextrouter.errors import SourceError
from contextrouter.fetch import JSON, Fetched, Fetcher, check_url
from contextrouter.runtime.threads import Threads

NAMES = ("query", "limit", "days", "key")
"""What may stand in braces in the URL and body of a search API described by settings."""
_FIELDS = {"results": "results", "url": "url", "title": "title"}
_ENGINES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "searxng": ("", _FIELDS),
    "google": (
        "https://www.googleapis.com/customsearch/v1",
        {"results": "items", "url": "link", "title": "title"},
    ),
    "brave": (
        "https://api.search.brave.com/res/v1/web/search",
        {"results": "web.results", "url": "url", "title": "title"},
    ),
    "tavily": ("https://api.tavily.com/search", _FIELDS),
    "custom": ("", _FIELDS),
}
_MOST = {"google": 10, "brave": 20, "tavily": 20}


class Result(NamedTuple):
    """One line of a search engine's answer."""

    url: str
    title: str


class SearchRequest(NamedTuple):
    """A request to a search API: POST when there is a body."""

    url: str
    headers: Mapping[str, str]
    body: Any = None


class SearchApi:
    """One search engine as the settings describe it."""

    def __init__(
        self,
        engine: str,
        *,
        url: str,
        key: str,
        engine_id: str,
        fields: Mapping[str, str],
        body: Mapping[str, Any],
        domains: Sequence[str],
        max_results: int,
        fresh_days: int,
    ) -> None:
        default, paths = _ENGINES[engine]
        self._engine, self._key, self._id, self._body = engine, key, engine_id, body
        self._url = url or default
        self._fields = {**paths, **fields}
        self._domains, self._max, self._days = tuple(domains), max_results, fresh_days
        self._check(fields)

    def _check(self, fields: Mapping[str, str]) -> None:
        if not self._url:
            example = (
                "http://localhost:8080"
                if self._engine == "searxng"
                else "https://search.example.org/api?q={query}"
            )
            raise ValueError(
                f"Web.search_url is missing; give the address of the search API, such as {example!r}."
            )
        if self._engine == "custom":
            url_template.check([self._url, self._body], NAMES, "Web.search_url or search_body")
        elif self._body:
            raise ValueError(
                f'Web.search_body has no effect with search = "{self._engine}"; take it out, or use "custom".'
            )
        is_template = self._engine == "custom"
        check_url(url_template.fill_url(self._url, dict.fromkeys(NAMES, "x")) if is_template else self._url)
        unknown = sorted(set(fields) - set(_FIELDS))
        if unknown:
            raise ValueError(
                f"Web.search_fields holds {unknown[0]!r}; it maps {', '.join(_FIELDS)} to where they stand."
            )
        if self._engine in ("google", "brave", "tavily") and not self._key:
            raise ValueError(
                f"Web.search_key is missing, which {self._engine} needs; give a secret such as"
                ' "${SEARCH_KEY}".'
            )
        if self._engine == "google" and not self._id:
            raise ValueError(
                "Web.search_engine_id is missing; give the id (cx) of the Programmable Search engine."
            )

    async def results(
        self, query: str, fetcher: Fetcher, threads: Threads, deadline: float | None
    ) -> list[Result]:
        """Ask; return the results that may be used, best first. Raises SourceError."""
        request = self.request(query)
        if request.body is None:
            fetched = await fetcher.get(
                request.url, accept=JSON, headers=request.headers, deadline=deadline, keep=False
            )
        else:
            headers = {"Content-Type": "application/json", **request.headers}
            body = msgspec.json.encode(request.body)
            fetched = await fetcher.post(request.url, body, accept=JSON, headers=headers, deadline=deadline)
        return await threads.run(self._read, fetched, fetcher)

    def request(self, query: str) -> SearchRequest:
        """The request for one query."""
        query = " ".join(query.encode("utf-8", "replace").decode().split())[:400]
        limit = min(self._max, _MOST.get(self._engine, self._max))
        sites = " OR ".join(f"site:{domain}" for domain in self._domains)
        words = f"{query} ({sites})" if len(self._domains) > 1 else f"{query} {sites}".strip()
        if self._engine == "custom":
            values = {"query": query, "limit": limit, "days": self._days or "", "key": self._key}
            filled_body = url_template.fill(self._body, values) if self._body else None
            return SearchRequest(url_template.fill_url(self._url, values), {}, filled_body)
        if self._engine == "tavily":
            body = {"query": query, "max_results": limit, "include_domains": list(self._domains)}
            if self._days:
                body |= {"topic": "news", "days": self._days}
            return SearchRequest(self._url, {"Authorization": f"Bearer {self._key}"}, body)
        if self._engine == "brave":
            fresh = {"freshness": _span(self._days, ("pd", "pw", "pm", "py"))} if self._days else {}
            url = url_template.add_parameters(self._url, {"q": words, "count": limit, **fresh})
            return SearchRequest(url, {"X-Subscription-Token": self._key})
        if self._engine == "google":
            fresh = {"dateRestrict": f"d{self._days}"} if self._days else {}
            parameters = {"key": self._key, "cx": self._id, "q": words, "num": limit, **fresh}
            return SearchRequest(url_template.add_parameters(self._url, parameters), {})
        fresh = {"time_range": _span(self._days, ("day", "week", "month", "year"))} if self._days else {}
        address = self._url.rstrip("/") + "/search"
        parameters = {"q": words, "format": "json", **fresh}
        return SearchRequest(url_template.add_parameters(address, parameters), {})

    def _read(self, fetched: Fetched, fetcher: Fetcher) -> list[Result]:
        """The results in an answer, without those that no page can be fetched of. Runs in a thread."""
        shown_url = fetcher.masked(fetched.url)
        try:
            answer = msgspec.json.decode(fetched.body.decode("utf-8-sig", "replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise SourceError(f"{shown_url} answered with what is no JSON ({error}).") from None
        items = _value_at(answer, self._fields["results"])
        if items is None:
            return []  # some engines leave the list out when there is none
        if not isinstance(items, list):
            at = self._fields["results"]
            raise SourceError(
                f"{shown_url} has no list of results at {at!r}; say in `search_fields` where they stand."
            )
        results: dict[str, Result] = {}
        for item in items:
            url, title = _value_at(item, self._fields["url"]), _value_at(item, self._fields["title"])
            if isinstance(url, str) and self._usable(url):
                results.setdefault(url, Result(url, title if isinstance(title, str) else ""))
        return list(results.values())[: self._max]

    def _usable(self, url: str) -> bool:
        try:
            check_url(url)
        except ValueError:
            return False
        return not self._domains or is_host_of(urlsplit(url).hostname or "", self._domains)


def _span(days: int, names: tuple[str, str, str, str]) -> str:
    """The shortest of an engine's spans (day, week, month, year) that holds so many days."""
    return next(
        (name for longest, name in zip((1, 7, 31), names, strict=False) if days <= longest), names[-1]
    )


def _value_at(value: Any, path: str) -> Any:
    """What stands at a dotted path; None for nothing. An empty path is the value itself."""
    for part in filter(None, path.split(".")):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
