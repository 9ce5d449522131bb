"""HTTP client: GET and POST with redirects, retries, timeouts, robots.txt and conditional GET."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

from contextrouter.errors import MissingDependency, SourceError
from contextrouter.fetch import robots
from contextrouter.fetch.body import read_body
from contextrouter.fetch.host_queue import HostQueue
from contextrouter.fetch.http_cache import CachedBody, HttpCache
from contextrouter.fetch.options import FetchOptions, secret_parts
from contextrouter.fetch.response import Fetched, FetchFailed, FetchLate, FetchRequest, parse_retry_after
from contextrouter.fetch.robots_cache import RobotsCache
from contextrouter.fetch.ssrf import check_url, origin
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import Threads
from contextrouter.runtime.trace_context import traceparent

if TYPE_CHECKING:
    from contextrouter.fetch.http_session import HttpResponse, HttpSession

T = TypeVar("T")
FAST = 2.0
"""Seconds within which a failure counts as fast, and may be tried again."""
PAUSE = 0.2
"""Seconds before the first retry where the server names none; twice as long before the next."""
_REDIRECTS = (301, 302, 303, 307, 308)
_UNREAD_ROBOTS = "of its site could not be read, which forbids everything until it can."
_TRANSIENT = (429, 502, 503, 504)


class Fetcher:
    """Fetches over one HTTP session, without cookies. Proxies of the environment need an option.

    `configured` are the addresses of the settings: `allow_private` opens them, and nothing that they link to.
    None: whatever is fetched is of the settings.
    """

    def __init__(
        self,
        options: FetchOptions,
        *,
        extra: str,
        secrets: Sequence[str] = (),
        configured: Sequence[str] | None = None,
    ) -> None:
        self.options, self._extra = options, extra
        self._configured = None if configured is None else frozenset(origin(url) for url in configured if url)
        self.names: Mapping[
            str, tuple[str, int]
        ] = {}  # hosts that lead to an address and port of this machine: for examples
        self._secrets = (*options.secrets, *secret_parts(secrets))
        self._session: HttpSession | None = None
        self._queue: HostQueue
        self._cache = HttpCache(options.cache_path)
        self._disk: Threads | None = None
        self._robots: RobotsCache

    async def open(self) -> None:
        """Open the session, in the running event loop, and make the cache folder."""
        if self._session is not None:
            return
        try:
            from contextrouter.fetch.http_session import HttpSession, make_tls_context
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] != "aiohttp":
                raise
            raise MissingDependency("aiohttp", self._extra) from None
        try:
            context = await make_tls_context(self.options)
        except OSError as error:  # of a file that is not there, or holds no certificate
            raise SourceError(
                f"`ca_file` {self.options.ca_file!r} cannot be used: {error}; give a PEM file."
            ) from error
        if self._cache.on_disk:
            self._disk = Threads(1, "fetch-copies")
            try:
                await self._disk.run(self._cache.open)
            except OSError as error:
                raise SourceError(
                    f"`cache_path` {self.options.cache_path!r} cannot be made: {error.strerror}."
                ) from error
        self._queue = HostQueue(self.options.per_host, self.options.host_delay)
        self._robots = RobotsCache(
            self.options.user_agent,
            lambda url, steps: self._follow_redirects(FetchRequest("GET", url), steps),
        )
        self._session = HttpSession(self.options, context, self.names, self._configured)

    async def aclose(self) -> None:
        """Close the session."""
        wire, self._session = self._session, None
        if wire is not None:
            await wire.aclose()
        if self._disk is not None:
            self._disk.close()
        self._disk = None

    def masked(self, text: str) -> str:
        """Return the text without credentials."""
        return mask(text, self._secrets)

    async def get(
        self,
        url: str,
        *,
        accept: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
        polite: bool = False,
        keep: bool = True,
    ) -> Fetched:
        """Fetch `url` with GET. Raises FetchFailed or SourceTimeout, never later than `deadline` (on
        `time.monotonic()`).

        `accept` are the content types that are read, `headers` go to the origin of `url` alone. `polite`: as
        robots.txt of each site allows. `keep`: the body is kept, and asked for on a condition next time.
        """
        return await self._run(
            FetchRequest("GET", url, accept, headers or {}, polite=polite, keep=keep), deadline
        )

    async def post(
        self,
        url: str,
        body: bytes,
        *,
        accept: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
        repeatable: bool = False,
    ) -> Fetched:
        """Send `body` with POST, without following redirects. Raises as `get` does.

        It is sent once, whatever comes of it. A `repeatable` request, which changes nothing, has retries.
        """
        request = FetchRequest("POST", url, accept, headers or {}, body, repeatable=repeatable)
        return await self._run(request, deadline)

    async def rules(self, url: str, deadline: float | None = None) -> robots.Rules:
        """What robots.txt of the site of `url` says to us. Raises SourceTimeout."""
        return await self._run_with_timeout(
            lambda steps: self._robots.rules(check_url(url), steps), url, deadline
        )

    async def _run(self, request: FetchRequest, deadline: float | None) -> Fetched:
        until = monotonic() + self.options.fetch_seconds
        until = until if deadline is None else min(until, deadline)
        return await self._run_with_timeout(
            lambda steps: self._fetch_with_retries(request, until, steps), request.url, deadline
        )

    async def _run_with_timeout(
        self, work: Callable[[list[str]], Awaitable[T]], url: str, deadline: float | None
    ) -> T:
        """Run `work` within the fetch timeout and the caller's deadline. Every error names the URL."""
        if self._session is None:
            raise SourceError(
                f"{self.masked(url)} was asked of a session that is not open; call `await open()` first."
            )
        limit = self.options.fetch_seconds
        remaining = limit if deadline is None else min(limit, deadline - monotonic())
        steps: list[str] = []
        try:
            async with asyncio.timeout(remaining):
                return await work(steps)
        except TimeoutError as error:
            when = f"within {limit:g} seconds" if remaining == limit else "before the deadline"
            raise FetchLate(f"{self.masked(url)} did not answer {when}.", tuple(steps)) from error
        except FetchFailed as failure:
            failure.args = (f"{self.masked(url)} could not be fetched: {self.masked(str(failure))}",)
            failure.steps = tuple(steps)
            raise
        except (
            ValueError,
            UnicodeError,
        ) as error:  # an address that is none, in the settings or in a redirect
            raise FetchFailed(
                f"{self.masked(url)} could not be fetched: {self.masked(str(error))}"
            ) from error

    async def _fetch_with_retries(self, request: FetchRequest, until: float, steps: list[str]) -> Fetched:
        """Fetch, and retry a request that failed fast with a transient error."""
        attempt = 0
        while True:
            started = monotonic()
            try:
                return await self._follow_redirects(request, steps)
            except FetchFailed as failure:
                wait = failure.retry_after
                if wait is None:
                    wait = PAUSE * 2**attempt * (1 + random.random())  # noqa: S311 - it protects no secret
                final = attempt >= self.options.retries or not (request.repeatable and failure.transient)
                if final or monotonic() - started > FAST or monotonic() + wait >= until:
                    raise
                steps.append(f"{self.masked(str(failure))} Again in {wait:.1f} s.")
            await asyncio.sleep(wait)
            attempt += 1

    async def _follow_redirects(self, request: FetchRequest, steps: list[str]) -> Fetched:
        url, visited = check_url(request.url), set[str]()
        home = origin(url)
        key = HttpCache.key(
            request.url, *map("".join, sorted(request.headers.items())), *self.options.credentials.values()
        )
        copy = await self._copy(key) if request.keep else None
        for _ in range(self.options.max_redirects + 1):
            if url in visited:
                raise FetchFailed(f"it redirects in a circle, to {url}.")
            visited.add(url)
            outcome = await self._exchange(request, url, home, copy, steps)
            if isinstance(outcome, str):
                url = outcome
                continue
            fetched, new_copy = outcome
            if request.keep and new_copy is not None:
                await self._keep(key, new_copy)
            return fetched._replace(steps=tuple(steps))
        raise FetchFailed(f"it redirects more than {self.options.max_redirects} times.")

    async def _exchange(
        self,
        request: FetchRequest,
        url: str,
        home: tuple[str, str, int],
        copy: CachedBody | None,
        steps: list[str],
    ) -> str | tuple[Fetched, CachedBody | None]:
        """Send one request. Return the target of a redirect, or the response and its new cache entry."""
        rules = await self._robots.rules(url, steps) if request.polite else robots.OPEN
        if not rules.allows(url):
            reason = f"of {origin(url)[1]} does not allow it." if rules.paths else _UNREAD_ROBOTS
            raise FetchFailed(f"robots.txt {reason}", refused="robots.txt" if rules.paths else "")
        conditions = copy.conditions() if copy is not None and copy.url == url else {}
        headers = {"Accept": "*/*", **conditions, **self._private_headers(request, url, home)}
        _, host, port = origin(url)
        started = monotonic()
        async with (
            self._queue.slot(f"{host}:{port}", rules.delay),
            self._send(request, url, headers) as response,
        ):
            steps.append(
                f"{request.method} {self.masked(url)}: {response.status} after"
                f" {(monotonic() - started) * 1000:.0f} ms"
            )
            if response.status in _REDIRECTS:
                return self._redirect_target(request, url, response)
            if response.status == 304 and copy is not None and conditions:
                return Fetched(
                    copy.url, copy.content_type, copy.body, unchanged=True, modified=copy.modified
                ), None
            self._refuse(request, response)
            content_type = response.headers.get("Content-Type", "")
            body = await self._body(response)
            steps.append(f"{len(body)} bytes of {content_type or 'no stated type'}")
            modified = response.headers.get("Last-Modified", "")
            fetched = Fetched(url, content_type, body, modified=modified)
            return fetched, _make_copy(url, content_type, body, response)

    async def _body(self, response: HttpResponse) -> bytes:
        try:
            return await read_body(
                response.chunks, response.headers.get("Content-Encoding", ""), self.options.max_bytes
            )
        except ValueError as error:
            raise FetchFailed(str(error)) from error

    @asynccontextmanager
    async def _send(
        self, request: FetchRequest, url: str, headers: Mapping[str, str]
    ) -> AsyncIterator[HttpResponse]:
        from contextrouter.fetch.http_session import ExchangeError

        if self._session is None:
            raise FetchFailed("the session was closed meanwhile.")
        try:
            async with self._session.exchange(request.method, url, headers, request.body) as response:
                yield response
        except ExchangeError as error:
            raise FetchFailed(str(error), transient=error.transient) from error

    def _private_headers(self, request: FetchRequest, url: str, home: tuple[str, str, int]) -> dict[str, str]:
        """Return credentials and the caller's headers. They go to the first origin only, never to the target
        of a redirect elsewhere.
        """
        if origin(url) != home:
            return {}
        scheme, host, port = home
        default = port == (443 if scheme == "https" else 80)
        trace = {"traceparent": traceparent.get()} if traceparent.get() else {}
        return {**trace, **self.options.authorization(host, port, default), **request.headers}

    def _redirect_target(self, request: FetchRequest, url: str, response: HttpResponse) -> str:
        if request.method != "GET":
            raise FetchFailed(
                f"it redirects a {request.method}, which is not followed; give the address it leads to."
            )
        target = response.headers.get("Location", "")
        if not target:
            raise FetchFailed(f"it redirects (status {response.status}) and does not say where to.")
        return check_url(urlunsplit(urlsplit(urljoin(url, target.strip()))._replace(fragment="")))

    def _refuse(self, request: FetchRequest, response: HttpResponse) -> None:
        """Raise FetchFailed for a response that is not usable, before its body is read."""
        status = response.status
        if not 200 <= status < 300 or status == 206:
            wait = parse_retry_after(response.headers.get("Retry-After", ""))
            raise FetchFailed(
                f"it answered with status {status}.",
                status=status,
                retry_after=wait,
                transient=status in _TRANSIENT,
            )
        content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if (
            content_type
            and request.accept
            and not any(_is_accepted(content_type, prefix) for prefix in request.accept)
        ):
            raise FetchFailed(
                f"its content type is {content_type[:80]!r}; read are {', '.join(request.accept)}.",
                status=status,
                refused=content_type[:80],
            )

    async def _copy(self, key: str) -> CachedBody | None:
        copy = self._cache.recent(key)
        if copy is None and self._disk is not None:
            copy = await self._disk.run(self._cache.read, key)
            if copy is not None and len(copy.body) <= self.options.max_bytes:
                self._cache.keep(key, copy)
        return copy if copy is not None and len(copy.body) <= self.options.max_bytes else None

    async def _keep(self, key: str, copy: CachedBody) -> None:
        self._cache.keep(key, copy)
        if self._disk is not None:
            await self._disk.run(self._cache.write, key, copy)


def _is_accepted(content_type: str, pattern: str) -> bool:
    return content_type.endswith(pattern) if pattern.startswith("+") else content_type.startswith(pattern)


def _make_copy(url: str, content_type: str, body: bytes, response: HttpResponse) -> CachedBody | None:
    """Return the cache entry of a response; None without a validator or with `no-store`."""
    etag, modified = response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
    if not (etag or modified) or "no-store" in response.headers.get("Cache-Control", "").lower():
        return None
    return CachedBody(url=url, content_type=content_type, etag=etag, modified=modified, body=body)
