"""API keys, authentication and authorization of callers.

A key is 256 random bits, so one round of SHA-256 protects it: a dictionary attack has nothing to try.
Authentication fails closed. A server with keys refuses every request without one. A server without keys
answers only this machine, under a name of this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from contextrouter.errors import SettingsError
from contextrouter.scope import Scope
from contextrouter.server.error_responses import Refused
from contextrouter.server.signed_tokens import SignedTokens
from contextrouter.settings import AccessKey, Settings

PREFIX = "cr_"
FORWARDED = re.compile(
    r"forwarded|via|x-(?:original-)?forwarded.*|(?:x-|true-|cf-|fastly-)(?:real|client|connecting|cluster-client)-ip"
    r"|x-envoy-external-address",
    re.IGNORECASE,
)
"""Headers by which proxies say for whom they ask."""
NO_PROXY = (
    "Without keys this server answers programs of this machine only, and this request came through a proxy."
    " Make a key with `contextrouter keys new NAME`, or name the proxy in [serve] trusted_proxies."
)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A caller and its rights. A `scope` of None sees everything."""

    name: str
    scope: Scope | None = None
    sources: tuple[str, ...] | None = None
    generator: str | None = None
    rate_per_minute: int = 0
    max_requests: int | None = None


def new_key() -> tuple[str, str]:
    """Make an API key. Returns the key, and its hash for the settings."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """Return the hash of an API key, as it stands in the settings."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether a host of the settings or of a Host header names only this machine."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port; empty for what is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def check_host(access: Access, host: str) -> None:
    """Raise SettingsError for a server without API keys that would listen to other machines."""
    if access.keyless and not is_loopback(host):
        raise SettingsError(
            f"Without keys the server listens to this machine only, not to {host!r}. Make one with"
            " `contextrouter keys new NAME`, put it into the settings, or leave host at 127.0.0.1."
        )


class Access:
    """Authentication: the API keys of the settings, and the callers they stand for."""

    def __init__(self, settings: Settings) -> None:
        self._default_rate = settings.serve.rate_per_minute
        self._hosts = frozenset(map(str.casefold, settings.serve.allowed_hosts))
        self._proxies = [
            ipaddress.ip_network(proxy, strict=False) for proxy in settings.serve.trusted_proxies
        ]
        self._callers = [
            (key.hash, self._caller(name, key)) for name, key in settings.keys.items() if key.enabled
        ]
        self._tokens = SignedTokens(settings.jwt) if settings.jwt.enabled else None
        # disabled keys count: with only such keys, nobody has access
        self.keyless = not settings.keys and self._tokens is None

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

    async def prepare(self, authorization: str) -> None:
        """Get what the check of a signed token needs from elsewhere: the keys of its issuer."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if self._tokens is not None and scheme.casefold() == "bearer" and self._tokens.looks_like(token):
            await self._tokens.prepare(token)

    def caller(self, authorization: str, host: str, headers: Iterable[str] = (), peer: str = "") -> Caller:
        """Return the caller of a request with these names of `headers`, over a connection from the address
        `peer`. Raises Refused (401, 403).
        """
        if self.keyless:
            if any(map(FORWARDED.fullmatch, headers)) and not self._trusts(peer):
                raise Refused(403, "forwarded_request", NO_PROXY)
            name = _host_name(host)
            if not (is_loopback(name) or name in self._hosts):  # a page of the web, whose name leads here
                detail = (
                    "Without keys this server answers to names of this machine only. If"
                    f" {name[:80]!r} is one, add it to [serve] allowed_hosts."
                )
                raise Refused(403, "host_not_allowed", detail)
            return Caller(name="local", rate_per_minute=self._default_rate)
        scheme, _, key = authorization.partition(" ")
        key = key.strip() if scheme.casefold() == "bearer" else ""
        if self._tokens is not None and self._tokens.looks_like(key):
            grant = self._tokens.verify(key)
            return Caller(name=grant.name, scope=grant.scope, rate_per_minute=self._default_rate)
        caller = self._find_caller(hash_key(key)) if key else None
        if caller is None:
            or_token = ", or a signed token in its place" if self._tokens else ""
            detail = f"The API key is missing or wrong. Send `Authorization: Bearer <key>`{or_token}."
            raise Refused(401, "invalid_api_key", detail, headers={"WWW-Authenticate": "Bearer"})
        return caller

    def _trusts(self, peer: str) -> bool:
        """Whether a proxy asks that the settings name."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:  # a socket without an address
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._proxies)

    def _find_caller(self, digest: str) -> Caller | None:
        """Find the caller of a hash; None: there is none.

        Every key is compared, each in constant time, so that the duration reveals nothing.
        """
        match = None
        for expected, caller in self._callers:
            if hmac.compare_digest(expected, digest):
                match = caller
        return match


def narrow_scope(caller: Caller, scope: Scope | None) -> Scope | None:
    """Return the scope of one request. Raises Refused (403) when it is wider than the caller's."""
    allowed = caller.scope
    if scope is None or allowed is None:
        return scope or allowed
    if (
        scope.tenant != allowed.tenant
        or not scope.compartments <= allowed.compartments
        or scope.ceiling not in allowed.levels()
    ):
        raise Refused(
            403,
            "scope_exceeded",
            "The scope asked for is wider than the API key's. Ask for less, or leave it out.",
        )
    return scope
