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
from contextrouter.fetch.body import read
from contextrouter.fetch.host_queue import Turns
from contextrouter.fetch.http_cache import Copies, Copy
from contextrouter.fetch.options import FetchOptions, secret_parts
from contextrouter.fetch.response import Fetched, FetchFailed, FetchLate, Request, retry_after
from contextrouter.fetch.robots_cache import RobotsCache
from contextrouter.fetch.ssrf import check_url, origin
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import Threads

if TYPE_CHECKING:
    from contextrouter.fetch.http_session import Answer, Wire

T = TypeVar("T")
FAST = 2.0
"""Seconds within which a failure counts as fast, and may be tried again."""
PAUSE = 0.2
"""Seconds before the first retry where the server names none; twice as long before the next."""
_REDIRECTS = (301, 302, 303, 307, 308)
_UNREAD_ROBOTS = "of its site could not be read, which forbids everything until it can."
_TRANSIENT = (429, 502, 503, 504)


class Fetcher:
    """Fetches over one HTTP session. Proxies of the environment and cookies are not used, unless the options
    say so.
    """

    def __init__(self, options: FetchOptions, *, extra: str, secrets: Sequence[str] = ()) -> None:
        self.options, self._extra = options, extra
        self.names: Mapping[
            str, tuple[str, int]
        ] = {}  # hosts that lead to an address and port of this machine: for examples
        self._secrets = (*options.secrets, *secret_parts(secrets))
        self._wire: Wire | None = None
        self._turns: Turns
        self._copies = Copies(options.cache_path)
        self._disk: Threads | None = None
        self._robots: RobotsCache

    async def open(self) -> None:
        """Open the session, in the running event loop, and make the cache folder."""
        if self._wire is not None:
            return
        try:
            from contextrouter.fetch.http_session import Wire, context_of
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] != "aiohttp":
                raise
            raise MissingDependency("aiohttp", self._extra) from None
        try:
            context = await context_of(self.options)
        except OSError as error:  # of a file that is not there, or holds no certificate
            raise SourceError(
                f"`ca_file` {self.options.ca_file!r} cannot be used: {error}; give a PEM file."
            ) from error
        if self._copies.on_disk:
            self._disk = Threads(1, "fetch-copies")
            try:
                await self._disk.run(self._copies.open)
            except OSError as error:
                raise SourceError(
                    f"`cache_path` {self.options.cache_path!r} cannot be made: {error.strerror}."
                ) from error
        self._turns = Turns(self.options.per_host, self.options.host_delay)
        self._robots = RobotsCache(
            self.options.user_agent, lambda url, steps: self._follow_redirects(Request("GET", url), steps)
        )
        self._wire = Wire(self.options, context, self.names)

    async def aclose(self) -> None:
        """Close the session."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.aclose()
        if self._disk is not None:
            self._disk.close()
        self._disk = None

    def masked(self, text: str) -> str:
        """The text without credentials."""
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
        return await self._run(Request("GET", url, accept, headers or {}, polite=polite, keep=keep), deadline)

    async def post(
        self,
        url: str,
        body: bytes,
        *,
        accept: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> Fetched:
        """Send `body` with POST: once, whatever comes of it, and without following redirects. Raises as `get`
        does.
        """
        return await self._run(Request("POST", url, accept, headers or {}, body), deadline)

    async def rules(self, url: str, deadline: float | None = None) -> robots.Rules:
        """What robots.txt of the site of `url` says to us. Raises SourceTimeout."""
        return await self._within(lambda steps: self._robots.rules(check_url(url), steps), url, deadline)

    async def _run(self, request: Request, deadline: float | None) -> Fetched:
        until = monotonic() + self.options.fetch_seconds
        until = until if deadline is None else min(until, deadline)
        return await self._within(
            lambda steps: self._with_retries(request, until, steps), request.url, deadline
        )

    async def _within(self, work: Callable[[list[str]], Awaitable[T]], url: str, deadline: float | None) -> T:
        """Do the work inside the fetch's own time and the caller's; every failure says which address it is
        about.
        """
        if self._wire is None:
            raise SourceError(
                f"{self.masked(url)} was asked of a session that is not open; call `await open()` first."
            )
        own = self.options.fetch_seconds
        left = own if deadline is None else min(own, deadline - monotonic())
        steps: list[str] = []
        try:
            async with asyncio.timeout(left):
                return await work(steps)
        except TimeoutError as error:
            when = f"within {own:g} seconds" if left == own else "before the deadline"
            raise FetchLate(f"{self.masked(url)} did not answer {when}.", tuple(steps)) from error
        except FetchFailed as failed:
            failed.args = (f"{self.masked(url)} could not be fetched: {self.masked(str(failed))}",)
            failed.steps = tuple(steps)
            raise
        except (
            ValueError,
            UnicodeError,
        ) as error:  # an address that is none, in the settings or in a redirect
            raise FetchFailed(
                f"{self.masked(url)} could not be fetched: {self.masked(str(error))}"
            ) from error

    async def _with_retries(self, request: Request, until: float, steps: list[str]) -> Fetched:
        """Fetch, and once more what failed fast and may work a moment later."""
        attempt = 0
        while True:
            begun = monotonic()
            try:
                return await self._follow_redirects(request, steps)
            except FetchFailed as failed:
                wait = failed.retry_after
                if wait is None:
                    wait = PAUSE * 2**attempt * (1 + random.random())  # noqa: S311 - no secret hangs on it
                last = attempt >= self.options.retries or request.method != "GET" or not failed.again
                if last or monotonic() - begun > FAST or monotonic() + wait >= until:
                    raise
                steps.append(f"{self.masked(str(failed))} Again in {wait:.1f} s.")
            await asyncio.sleep(wait)
            attempt += 1

    async def _follow_redirects(self, request: Request, steps: list[str]) -> Fetched:
        url, seen = check_url(request.url), set[str]()
        home = origin(url)
        key = Copies.key(
            request.url, *map("".join, sorted(request.headers.items())), *self.options.credentials.values()
        )
        copy = await self._copy(key) if request.keep else None
        for _ in range(self.options.max_redirects + 1):
            if url in seen:
                raise FetchFailed(f"it redirects in a circle, to {url}.")
            seen.add(url)
            outcome = await self._exchange(request, url, home, copy, steps)
            if isinstance(outcome, str):
                url = outcome
                continue
            fetched, fresh = outcome
            if request.keep and fresh is not None:
                await self._keep(key, fresh)
            return fetched._replace(steps=tuple(steps))
        raise FetchFailed(f"it redirects more than {self.options.max_redirects} times.")

    async def _exchange(
        self, request: Request, url: str, home: tuple[str, str, int], copy: Copy | None, steps: list[str]
    ) -> str | tuple[Fetched, Copy | None]:
        """One exchange: the address to go on with, or what came, and what to keep of it."""
        rules = await self._robots.rules(url, steps) if request.polite else robots.OPEN
        if not rules.allows(url):
            reason = f"of {origin(url)[1]} does not allow it." if rules.paths else _UNREAD_ROBOTS
            raise FetchFailed(f"robots.txt {reason}")
        conditions = copy.conditions() if copy is not None and copy.url == url else {}
        headers = {"Accept": "*/*", **conditions, **self._private_headers(request, url, home)}
        _, host, port = origin(url)
        begun = monotonic()
        async with (
            self._turns.turn(f"{host}:{port}", rules.delay),
            self._send(request, url, headers) as answer,
        ):
            steps.append(
                f"{request.method} {self.masked(url)}: {answer.status} after"
                f" {(monotonic() - begun) * 1000:.0f} ms"
            )
            if answer.status in _REDIRECTS:
                return self._redirect_target(request, url, answer)
            if answer.status == 304 and copy is not None and conditions:
                return Fetched(copy.url, copy.content_type, copy.body, unchanged=True), None
            self._refuse(request, answer)
            kind = answer.headers.get("Content-Type", "")
            body = await self._body(answer)
            steps.append(f"{len(body)} bytes of {kind or 'no stated type'}")
            return Fetched(url, kind, body), _copy_of(url, kind, body, answer)

    async def _body(self, answer: Answer) -> bytes:
        try:
            return await read(
                answer.chunks, answer.headers.get("Content-Encoding", ""), self.options.max_bytes
            )
        except ValueError as error:
            raise FetchFailed(str(error)) from error

    @asynccontextmanager
    async def _send(self, request: Request, url: str, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
        from contextrouter.fetch.http_session import WireError

        if self._wire is None:
            raise FetchFailed("the session was closed meanwhile.")
        try:
            async with self._wire.exchange(request.method, url, headers, request.body) as answer:
                yield answer
        except WireError as error:
            raise FetchFailed(str(error), again=error.again) from error

    def _private_headers(self, request: Request, url: str, home: tuple[str, str, int]) -> dict[str, str]:
        """Credentials and the caller's headers: they go to the origin of the request, and never along with a
        redirect.
        """
        if origin(url) != home:
            return {}
        scheme, host, port = home
        default = port == (443 if scheme == "https" else 80)
        return {**self.options.authorization(host, port, default), **request.headers}

    def _redirect_target(self, request: Request, url: str, answer: Answer) -> str:
        if request.method != "GET":
            raise FetchFailed(
                f"it redirects a {request.method}, which is not followed; give the address it leads to."
            )
        target = answer.headers.get("Location", "")
        if not target:
            raise FetchFailed(f"it redirects (status {answer.status}) and does not say where to.")
        return check_url(urlunsplit(urlsplit(urljoin(url, target.strip()))._replace(fragment="")))

    def _refuse(self, request: Request, answer: Answer) -> None:
        """Raise for an answer whose body is of no use, before it is read."""
        status = answer.status
        if not 200 <= status < 300 or status == 206:
            wait = retry_after(answer.headers.get("Retry-After", ""))
            raise FetchFailed(
                f"it answered with status {status}.",
                status=status,
                retry_after=wait,
                again=status in _TRANSIENT,
            )
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind and request.accept and not any(_is_accepted(kind, each) for each in request.accept):
            raise FetchFailed(
                f"its content type is {kind[:80]!r}; read are {', '.join(request.accept)}.", status=status
            )

    async def _copy(self, key: str) -> Copy | None:
        copy = self._copies.recent(key)
        if copy is None and self._disk is not None:
            copy = await self._disk.run(self._copies.read, key)
            if copy is not None and len(copy.body) <= self.options.max_bytes:
                self._copies.keep(key, copy)
        return copy if copy is not None and len(copy.body) <= self.options.max_bytes else None

    async def _keep(self, key: str, copy: Copy) -> None:
        self._copies.keep(key, copy)
        if self._disk is not None:
            await self._disk.run(self._copies.write, key, copy)


def _is_accepted(kind: str, accepted: str) -> bool:
    return kind.endswith(accepted) if accepted.startswith("+") else kind.startswith(accepted)


def _copy_of(url: str, kind: str, body: bytes, answer: Answer) -> Copy | None:
    """What to keep of an answer; None when its server gave no validator, or forbids it."""
    etag, modified = answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", "")
    if not (etag or modified) or "no-store" in answer.headers.get("Cache-Control", "").lower():
        return None
    return Copy(url=url, content_type=kind, etag=etag, modified=modified, body=body)
