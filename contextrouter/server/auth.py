"""Authentication by API key: who asks, what they may see, and the rate limit of each caller.

A key is 256 random bits, so one round of SHA-256 keeps it: there is no dictionary to go through. Fails
closed: where keys are set, nothing is answered without one; where none is set, only this machine is, by a
name of this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from urllib.parse import urlsplit

import msgspec

from contextrouter.errors import SettingsError
from contextrouter.pipeline.slots import Slots
from contextrouter.scope import Scope
from contextrouter.server.error_responses import Refused
from contextrouter.settings import AccessKey, Serve, Settings

PREFIX = "cr_"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `scope` None sees everything."""

    name: str
    scope: Scope | None = None
    sources: tuple[str, ...] | None = None
    generator: str | None = None
    rate_per_minute: int = 0
    max_requests: int | None = None


def new_key() -> tuple[str, str]:
    """Return a new key, and the hash of it that stands in the settings."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hashed(key)


def hashed(key: str) -> str:
    """What the settings keep of a key."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether a host, as it stands in settings or in a Host header, is this machine alone."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(access: Access, host: str) -> None:
    """Raise SettingsError when a server without keys would listen to more than this machine."""
    if access.keyless and not is_loopback(host):
        raise SettingsError(
            f"Without keys the server listens to this machine only, not to {host!r}. Make one with"
            " `contextrouter keys new NAME`, put it into the settings, or leave host at 127.0.0.1."
        )


class Access:
    """The keys of the settings, and the callers they stand for."""

    def __init__(self, settings: Settings) -> None:
        self._default_rate = settings.serve.rate_per_minute
        self._callers = [
            (key.hash, self._caller(name, key)) for name, key in settings.keys.items() if key.enabled
        ]
        self.keyless = not settings.keys  # keys that are all disabled let nobody in, instead of everybody

    def _caller(self, name: str, key: AccessKey) -> Caller:
        scope = None
        if not key.unrestricted:
            scope = Scope(
                tenant=key.tenant, compartments=frozenset(key.compartments), ceiling=key.ceiling or "public"
            )
        rate = self._default_rate if key.rate_per_minute is None else key.rate_per_minute
        return Caller(
            name=name,
            scope=scope,
            sources=key.sources,
            generator=key.generator,
            rate_per_minute=rate,
            max_requests=key.max_requests,
        )

    def caller(self, authorization: str, host: str) -> Caller:
        """Return who asks. Raises Refused (401, 403)."""
        if self.keyless:
            if not is_loopback(
                urlsplit(f"//{host}").hostname or ""
            ):  # a page of the web that resolves its name to this machine
                raise Refused(
                    403, "host_not_allowed", "Without keys this server answers to names of this machine only."
                )
            return Caller(name="local", rate_per_minute=self._default_rate)
        scheme, _, key = authorization.partition(" ")
        found = self._known(hashed(key.strip())) if scheme.casefold() == "bearer" else None
        if found is None:
            detail = "The API key is missing or wrong. Send `Authorization: Bearer <key>`."
            raise Refused(401, "invalid_api_key", detail, headers={"WWW-Authenticate": "Bearer"})
        return found

    def _known(self, given: str) -> Caller | None:
        """The caller of a hash. Every key is compared, each in constant time, so that nothing is learnt from
        how long it takes.
        """
        found = None
        for expected, caller in self._callers:
            if hmac.compare_digest(expected, given):
                found = caller
        return found


def narrowed(caller: Caller, asked: Scope | None) -> Scope | None:
    """The scope of one request: the caller's, or less. Raises Refused (403)."""
    own = caller.scope
    if asked is None or own is None:
        return asked or own
    if (
        asked.tenant != own.tenant
        or not asked.compartments <= own.compartments
        or asked.ceiling not in own.levels()
    ):
        raise Refused(
            403,
            "scope_exceeded",
            "The scope asked for is wider than the API key's. Ask for less, or leave it out.",
        )
    return asked


def turns(serve: Serve) -> Slots:
    """How many questions are looked up at once. Each is sooner done than if all were, and its time runs from
    its turn on.
    """
    return Slots(serve.max_running, serve.max_requests, "the router")


class Pressure:
    """How much each caller asks: at once, and in a minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._of: dict[str, int] = {}
        self._buckets: dict[str, tuple[float, float]] = {}  # caller -> (tokens left, when that was counted)

    def enter(self, caller: Caller) -> None:
        """Let a request in. Raises Refused (429, 503) saying when to come back."""
        running = self._of.get(caller.name, 0)
        if self._running >= self._most:
            raise Refused(
                503,
                "overloaded",
                "The server has as many requests as it takes at once.",
                headers={"Retry-After": "1"},
            )
        if caller.max_requests is not None and running >= caller.max_requests:
            detail = f"This caller may have {caller.max_requests} requests at once."
            raise Refused(429, "too_many_at_once", detail, headers={"Retry-After": "1"})
        self._take(caller)
        self._running += 1
        self._of[caller.name] = running + 1

    @contextmanager
    def held(self, caller: Caller) -> Iterator[None]:
        """Let a request in, and out again."""
        self.enter(caller)
        try:
            yield
        finally:
            self.leave(caller)

    def leave(self, caller: Caller) -> None:
        """A request has ended."""
        self._running -= 1
        self._of[caller.name] -= 1

    def _take(self, caller: Caller) -> None:
        rate = caller.rate_per_minute
        if not rate:
            return
        now = monotonic()
        left, since = self._buckets.get(caller.name, (float(rate), now))
        left = min(float(rate), left + (now - since) * rate / 60)
        if left < 1:
            self._buckets[caller.name] = (left, now)
            wait = int((1 - left) * 60 / rate) + 1
            detail = f"This caller may ask {rate} times a minute."
            raise Refused(429, "rate_limited", detail, headers={"Retry-After": str(wait)})
        self._buckets[caller.name] = (left - 1, now)
