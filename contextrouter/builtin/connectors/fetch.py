"""Fetches over HTTP what strangers wrote: bounded in bytes and redirects, and never from a private address."""

from __future__ import annotations

import socket
import zlib
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from contextrouter.errors import MissingDependency, SourceError, mask

if TYPE_CHECKING:
    import aiohttp

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 65_536
_NAT64 = IPv6Network("64:ff9b::/96")


class Fetched(NamedTuple):
    """What came back: the address it came from after redirects, its `Content-Type`, and the decoded body."""

    url: str
    content_type: str
    body: bytes


class PrivateAddress(OSError):
    """A connection was about to be made to an address that is not public."""


def is_public(address: str) -> bool:
    """Whether an IP address is reachable by everybody; one that carries an IPv4 address inside is judged by that."""
    try:
        ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        inner = inner or (IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        if inner is not None:
            ip = inner
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _guarded_socket(info: tuple[Any, ...]) -> socket.socket:
    """Make the socket for one resolved address, or refuse: this is the very address that is connected to."""
    family, kind, protocol, _, place = info
    if not is_public(str(place[0])):
        raise PrivateAddress(f"{place[0]} is not a public address; set `allow_private` to fetch from it.")
    return socket.socket(family, kind, protocol)


def check_url(url: str) -> str:
    """Return `url`. Raises ValueError when it is not http(s) with a host."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"Address {mask(url)!r} is not http or https with a host; give one such as 'https://example.org/feed'.")
    return url


class Fetcher:
    """One HTTP session. `max_bytes` caps the decoded body; proxies and cookies are not used."""

    def __init__(self, *, user_agent: str, max_bytes: int, allow_private: bool) -> None:
        self._agent, self._max_bytes, self._allow_private = user_agent, max_bytes, allow_private
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the session, in the running event loop."""
        if self._session is not None:
            return
        try:
            import aiohttp
        except ImportError:
            raise MissingDependency("aiohttp", "rss") from None
        guard = None if self._allow_private else _guarded_socket
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=20, socket_factory=guard),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._agent, "Accept-Encoding": "gzip, deflate"},
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )

    async def aclose(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
        self._session = None

    async def get(self, url: str) -> Fetched:
        """Fetch `url`, following at most five redirects. Raises SourceError; waits as long as its caller lets it."""
        import aiohttp

        if self._session is None:
            raise SourceError(f"{mask(url)} was asked of a session that is not open; call `await open()` first.")
        try:
            return await self._follow(self._session, url)
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            raise SourceError(f"{mask(url)} could not be fetched: {mask(_reason(error))}") from error

    async def _follow(self, session: aiohttp.ClientSession, url: str) -> Fetched:
        here = check_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            async with session.get(here, allow_redirects=False) as response:
                if response.status not in _REDIRECTS:
                    if response.status != 200:
                        raise ValueError(f"it answered with status {response.status}.")
                    return Fetched(here, response.headers.get("Content-Type", ""), await self._body(response))
                here = check_url(urljoin(here, response.headers.get("Location", "")))
        raise ValueError(f"it redirects more than {MAX_REDIRECTS} times.")

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """Read the body while counting decoded bytes, so that no compressed body can grow past the cap in memory."""
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        chunks = response.content.iter_chunked(_CHUNK)
        body = bytearray()
        async for piece in inflated(chunks, encoding, self._max_bytes + 1):
            body += piece
            if len(body) > self._max_bytes:
                raise ValueError(f"it is longer than `max_bytes` = {self._max_bytes}.")
        return bytes(body)


async def inflated(chunks: AsyncIterator[bytes], encoding: str, most: int) -> AsyncIterator[bytes]:
    """Yield decoded pieces; of a compressed chunk at most `most` bytes, which is more than the caller takes."""
    if encoding in ("", "identity"):
        async for chunk in chunks:
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"its content encoding {encoding!r} was not asked for.")
    decoder = None
    async for chunk in chunks:
        if decoder is None:
            # The low nibble of a zlib header is 8; some servers send deflate without any header.
            bare = encoding == "deflate" and chunk[0] & 0x0F != 8
            decoder = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        yield decoder.decompress(chunk, most)


def _reason(error: BaseException) -> str:
    """The refusal at the bottom of a connection error, where there is one; else what the error says of itself."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PrivateAddress):
            return str(seen)
        seen = seen.__cause__ or seen.__context__
    return str(error) or type(error).__name__
