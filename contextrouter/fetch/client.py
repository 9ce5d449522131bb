"""Fetcher: from an address to bytes, or to the reason why not, within the time there is."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

from contextrouter.errors import MissingDependency, SourceError, SourceTimeout
from contextrouter.fetch import robots
from contextrouter.fetch.body import read
from contextrouter.fetch.host_queue import Turns
from contextrouter.fetch.http_cache import Copies, Copy
from contextrouter.fetch.options import FetchOptions, secret_parts
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
ROBOTS_SECONDS = 3_600.0
MOST_SITES = 1_000
_REDIRECTS = (301, 302, 303, 307, 308)
_PASSING = (429, 502, 503, 504)


class Fetched(NamedTuple):
    """What came back: the address it came from after redirects, its `Content-Type`, the decoded body, and how
    it came.
    """

    url: str
    content_type: str
    body: bytes
    steps: tuple[str, ...] = ()  # one line for each exchange
    unchanged: bool = False  # the server said that the copy from before still holds


class _Asked(NamedTuple):
    """What is asked for, and how."""

    method: str
    url: str
    accept: Sequence[str]
    headers: Mapping[str, str]
    body: bytes | None
    polite: bool
    keep: bool


class FetchFailed(SourceError):
    """Nothing came of a fetch. `.status` is the server's, `.retry_after` the seconds it asked for; None where
    it said neither.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        again: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after, self.again = status, retry_after, again
        self.steps: tuple[str, ...] = ()


class FetchLate(SourceTimeout):
    """A fetch had not ended in its time. `.steps` are the exchanges made."""

    def __init__(self, message: str, steps: tuple[str, ...]) -> None:
        super().__init__(message)
        self.steps = steps


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
        self._rules: OrderedDict[str, tuple[float, robots.Rules]] = OrderedDict()
        self._asking: dict[str, asyncio.Lock] = {}

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
        self._rules, self._asking = OrderedDict(), {}
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
        return await self._timed(_Asked("GET", url, accept, headers or {}, None, polite, keep), deadline)

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
        return await self._timed(_Asked("POST", url, accept, headers or {}, body, False, False), deadline)

    async def rules(self, url: str, deadline: float | None = None) -> robots.Rules:
        """What robots.txt of the site of `url` says to us. Raises SourceTimeout."""
        return await self._within(lambda steps: self._rules_of(check_url(url), steps), url, deadline)

    async def _timed(self, asked: _Asked, deadline: float | None) -> Fetched:
        until = monotonic() + self.options.fetch_seconds
        until = until if deadline is None else min(until, deadline)
        return await self._within(lambda steps: self._tried(asked, until, steps), asked.url, deadline)

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

    async def _tried(self, asked: _Asked, until: float, steps: list[str]) -> Fetched:
        """Fetch, and once more what failed fast and may work a moment later."""
        attempt = 0
        while True:
            begun = monotonic()
            try:
                return await self._followed(asked, steps)
            except FetchFailed as failed:
                wait = failed.retry_after
                if wait is None:
                    wait = PAUSE * 2**attempt * (1 + random.random())  # noqa: S311 - no secret hangs on it
                last = attempt >= self.options.retries or asked.method != "GET" or not failed.again
                if last or monotonic() - begun > FAST or monotonic() + wait >= until:
                    raise
                steps.append(f"{self.masked(str(failed))} Again in {wait:.1f} s.")
            await asyncio.sleep(wait)
            attempt += 1

    async def _followed(self, asked: _Asked, steps: list[str]) -> Fetched:
        here, seen = check_url(asked.url), set[str]()
        home = origin(here)
        key = Copies.key(
            asked.url, *map("".join, sorted(asked.headers.items())), *self.options.credentials.values()
        )
        copy = await self._copy(key) if asked.keep else None
        for _ in range(self.options.max_redirects + 1):
            if here in seen:
                raise FetchFailed(f"it redirects in a circle, to {here}.")
            seen.add(here)
            found = await self._exchanged(asked, here, home, copy, steps)
            if isinstance(found, str):
                here = found
                continue
            fetched, fresh = found
            if asked.keep and fresh is not None:
                await self._keep(key, fresh)
            return fetched._replace(steps=tuple(steps))
        raise FetchFailed(f"it redirects more than {self.options.max_redirects} times.")

    async def _exchanged(
        self, asked: _Asked, here: str, home: tuple[str, str, int], copy: Copy | None, steps: list[str]
    ) -> str | tuple[Fetched, Copy | None]:
        """One exchange: the address to go on with, or what came, and what to keep of it."""
        rules = await self._rules_of(here, steps) if asked.polite else robots.OPEN
        if not rules.allows(here):
            raise FetchFailed(f"robots.txt of {origin(here)[1]} does not allow it." if rules.paths else _SHUT)
        conditions = copy.conditions() if copy is not None and copy.url == here else {}
        headers = {"Accept": "*/*", **conditions, **self._own(asked, here, home)}
        _, host, port = origin(here)
        begun = monotonic()
        async with (
            self._turns.turn(f"{host}:{port}", rules.delay),
            self._sent(asked, here, headers) as answer,
        ):
            steps.append(
                f"{asked.method} {self.masked(here)}: {answer.status} after"
                f" {(monotonic() - begun) * 1000:.0f} ms"
            )
            if answer.status in _REDIRECTS:
                return self._next(asked, here, answer)
            if answer.status == 304 and copy is not None and conditions:
                return Fetched(copy.url, copy.content_type, copy.body, unchanged=True), None
            self._refuse(asked, answer)
            kind = answer.headers.get("Content-Type", "")
            body = await self._body(answer)
            steps.append(f"{len(body)} bytes of {kind or 'no stated type'}")
            return Fetched(here, kind, body), _copy_of(here, kind, body, answer)

    async def _body(self, answer: Answer) -> bytes:
        try:
            return await read(
                answer.chunks, answer.headers.get("Content-Encoding", ""), self.options.max_bytes
            )
        except ValueError as error:
            raise FetchFailed(str(error)) from error

    @asynccontextmanager
    async def _sent(self, asked: _Asked, here: str, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
        from contextrouter.fetch.http_session import WireError

        if self._wire is None:
            raise FetchFailed("the session was closed meanwhile.")
        try:
            async with self._wire.exchange(asked.method, here, headers, asked.body) as answer:
                yield answer
        except WireError as error:
            raise FetchFailed(str(error), again=error.again) from error

    def _own(self, asked: _Asked, here: str, home: tuple[str, str, int]) -> dict[str, str]:
        """Credentials and the caller's headers: they go to the origin that was asked, and never along with a
        redirect.
        """
        if origin(here) != home:
            return {}
        scheme, host, port = home
        default = port == (443 if scheme == "https" else 80)
        return {**self.options.authorization(host, port, default), **asked.headers}

    def _next(self, asked: _Asked, here: str, answer: Answer) -> str:
        if asked.method != "GET":
            raise FetchFailed(
                f"it redirects a {asked.method}, which is not followed; give the address it leads to."
            )
        target = answer.headers.get("Location", "")
        if not target:
            raise FetchFailed(f"it redirects (status {answer.status}) and does not say where to.")
        return check_url(urlunsplit(urlsplit(urljoin(here, target.strip()))._replace(fragment="")))

    def _refuse(self, asked: _Asked, answer: Answer) -> None:
        """Raise for an answer whose body is of no use, before it is read."""
        status = answer.status
        if not 200 <= status < 300 or status == 206:
            wait = retry_after(answer.headers.get("Retry-After", ""))
            raise FetchFailed(
                f"it answered with status {status}.",
                status=status,
                retry_after=wait,
                again=status in _PASSING,
            )
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind and asked.accept and not any(_is(kind, each) for each in asked.accept):
            raise FetchFailed(
                f"its content type is {kind[:80]!r}; read are {', '.join(asked.accept)}.", status=status
            )

    async def _rules_of(self, url: str, steps: list[str]) -> robots.Rules:
        """robots.txt of the site of `url`, asked once for all that wait."""
        scheme, host, port = origin(url)
        site = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        async with self._asking.setdefault(site, asyncio.Lock()):
            known = self._rules.get(site)
            if known is None or known[0] < monotonic():
                rules = await self._fetched_rules(f"{site}/robots.txt", steps)
                seconds = ROBOTS_SECONDS if not rules.closed else 60.0
                known = self._rules[site] = (monotonic() + seconds, rules)
                if len(self._rules) > MOST_SITES:
                    gone, _ = self._rules.popitem(last=False)
                    self._asking.pop(gone, None)
        return known[1]

    async def _fetched_rules(self, url: str, steps: list[str]) -> robots.Rules:
        """RFC 9309: a site that has none allows everything, one that cannot answer forbids it."""
        try:
            fetched = await self._followed(_Asked("GET", url, (), {}, None, False, False), steps)
        except FetchFailed as failed:
            return (
                robots.OPEN
                if failed.status and 400 <= failed.status < 500 and failed.status != 429
                else robots.CLOSED
            )
        return robots.parse(
            fetched.body[: robots.MAX_BYTES].decode("utf-8", "replace"), self.options.user_agent
        )

    async def _copy(self, key: str) -> Copy | None:
        copy = self._copies.known(key)
        if copy is None and self._disk is not None:
            copy = await self._disk.run(self._copies.read, key)
            if copy is not None and len(copy.body) <= self.options.max_bytes:
                self._copies.keep(key, copy)
        return copy if copy is not None and len(copy.body) <= self.options.max_bytes else None

    async def _keep(self, key: str, copy: Copy) -> None:
        self._copies.keep(key, copy)
        if self._disk is not None:
            await self._disk.run(self._copies.write, key, copy)


_SHUT = "robots.txt of its site could not be read, which forbids everything until it can."


def _is(kind: str, accepted: str) -> bool:
    return kind.endswith(accepted) if accepted.startswith("+") else kind.startswith(accepted)


def _copy_of(url: str, kind: str, body: bytes, answer: Answer) -> Copy | None:
    """What to keep of an answer; None when its server gave no validator, or forbids it."""
    etag, modified = answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", "")
    if not (etag or modified) or "no-store" in answer.headers.get("Cache-Control", "").lower():
        return None
    return Copy(url=url, content_type=kind, etag=etag, modified=modified, body=body)


def retry_after(text: str) -> float | None:
    """The seconds that `Retry-After` asks for, given as a number or a date; None for nothing that makes
    sense.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
