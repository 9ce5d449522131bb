"""HTTP fetch options (timeout, retry, size limit, credentials): keys of every connector that fetches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypedDict, Unpack

import msgspec

from contextrouter.contracts import FilePath
from contextrouter.fetch.ssrf import networks

FEEDS = ("application/", "text/")
PAGES = (
    "text/html",
    "application/xhtml+xml",
    "application/xml",
    "text/xml",
    "text/plain",
    "text/markdown",
    "text/x-markdown",
)
JSON = ("application/json", "+json", "text/json", "text/javascript", "application/javascript", "text/plain")
"""Content types that are read: how they begin, or after a `+` end. A body without one is read, too."""

_HEADER = re.compile(r"([A-Za-z0-9-]+): (.+)")


class FetchKeys(TypedDict, total=False):
    """The keywords of a connector that fetches: `**fetch: Unpack[FetchKeys]`. `FetchOptions` has their
    defaults.
    """

    user_agent: str
    max_bytes: int
    fetch_seconds: float
    max_redirects: int
    retries: int
    per_host: int
    host_delay: float
    allow_private: Sequence[str]
    credentials: Mapping[str, str]
    ca_file: FilePath
    environment_proxies: bool
    cache_path: FilePath


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and credentials of a fetcher. Times are in seconds, sizes in bytes."""

    user_agent: str = "contextrouter"
    max_bytes: int = 5_000_000  # of one body, decoded
    fetch_seconds: float = 10.0  # of one fetch, redirects and retries included
    max_redirects: int = 5
    retries: int = 1
    per_host: int = 4  # exchanges with one host at the same time
    host_delay: float = 0.0  # between the beginnings of two exchanges with one host
    allow_private: Sequence[str] = ()
    credentials: Mapping[str, str] = {}
    ca_file: str = ""
    environment_proxies: bool = False
    cache_path: str = ""

    @classmethod
    def build(cls, owner: str, **fetch: Unpack[FetchKeys]) -> Self:
        """Return the options of a connector. Raises ValueError for invalid ones; `owner` is its
        class name.
        """
        options = cls(**fetch)
        options.check(owner)
        return options

    def check(self, owner: str) -> None:
        """Raise ValueError for invalid options; `owner` is the connector's class name."""
        for name, minimum in (("max_bytes", 1), ("max_redirects", 0), ("retries", 0), ("per_host", 1)):
            value = getattr(self, name)
            if value < minimum:
                raise ValueError(f"{owner}.{name} is {value!r}; give a number of at least {minimum}.")
        if not 0 < self.fetch_seconds < 1e6:
            raise ValueError(f"{owner}.fetch_seconds is {self.fetch_seconds!r}; give a number above 0.")
        if not 0 <= self.host_delay < 1e6:
            raise ValueError(f"{owner}.host_delay is {self.host_delay!r}; give a number of at least 0.")
        if not self.user_agent.isascii() or not self.user_agent.isprintable() or not self.user_agent.strip():
            raise ValueError(
                f"{owner}.user_agent {self.user_agent!r} cannot stand in a header; use printable ASCII."
            )
        networks(self.allow_private, f"{owner}.allow_private")
        for host, credential in self.credentials.items():
            if (
                not host
                or "/" in host
                or not credential.strip()
                or not (credential.isascii() and credential.isprintable())
            ):
                raise ValueError(
                    f'{owner}.credentials of {host!r} cannot be sent; give host = "Bearer …" or host ='
                    ' "Header-Name: value", the host without scheme and path.'
                )

    def authorization(self, host: str, port: int, default_port: bool) -> dict[str, str]:
        """Return the header with the credentials of one host. A key without a port is for the ports 80 and
        443.
        """
        credentials = {name.lower(): value for name, value in self.credentials.items()}
        value = credentials.get(f"{host}:{port}") or (credentials.get(host) if default_port else None)
        if not value:
            return {}
        header = _HEADER.fullmatch(value)
        return {header[1]: header[2]} if header else {"Authorization": value}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that no message may contain."""
        return secret_parts(self.credentials.values())


def secret_parts(values: Iterable[str]) -> tuple[str, ...]:
    """Return the secrets in values such as "Bearer …", the longest first, so that masking leaves no part."""
    parts = {part for value in values for part in (value, *value.split(" ")[1:]) if len(part) >= 4}
    return tuple(sorted(parts, key=len, reverse=True))
