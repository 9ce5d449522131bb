"""HTTP session, by aiohttp: its DNS resolver and sockets connect to checked addresses only.

Imported when a fetcher is opened, so that nothing else loads aiohttp.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from contextrouter.fetch.body import CHUNK, accept_encoding
from contextrouter.fetch.options import FetchOptions
from contextrouter.fetch.ssrf import Network, is_public, networks, origin
from contextrouter.runtime.threads import Threads, work_aside

MOST_CONNECTIONS = 100
KEEP_ALIVE = 15.0
_may_be_private: ContextVar[bool] = ContextVar("may_be_private", default=False)
"""Whether the address of the present exchange is one of the settings, which `allow_private` opens."""


class PrivateAddress(OSError):
    """The address of a connection is not public."""


class ExchangeError(Exception):
    """An exchange failed. `.transient` tells whether a retry may help."""

    def __init__(self, reason: str, *, transient: bool) -> None:
        super().__init__(reason)
        self.transient = transient


class HttpResponse(NamedTuple):
    """The head of a response, and its body as a stream."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class HttpSession:
    """One aiohttp session in the running event loop."""

    def __init__(
        self,
        options: FetchOptions,
        context: ssl.SSLContext | None,
        names: Mapping[str, tuple[str, int]],
        configured: Collection[tuple[str, str, int]] | None = None,
    ) -> None:
        self._configured = configured
        allowed = networks(options.allow_private, "allow_private")
        connector = aiohttp.TCPConnector(
            limit=MOST_CONNECTIONS,
            socket_factory=lambda info: _open_public_socket(info, allowed),
            ssl=context or True,
            resolver=_Resolver(names),
            ttl_dns_cache=10,
            keepalive_timeout=KEEP_ALIVE,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"User-Agent": options.user_agent, "Accept-Encoding": accept_encoding()},
            auto_decompress=False,
            trust_env=options.environment_proxies,
            read_bufsize=CHUNK,
        )
        self._session._retry_connection = (
            False  # it would retry behind our back, beyond `retries` and unseen in the steps
        )

    async def aclose(self) -> None:
        """Close the session and its connections."""
        await self._session.close()

    @asynccontextmanager
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[HttpResponse]:
        """Send one request and yield its response. Redirects are not followed. Raises ExchangeError, also
        while the body is read.
        """
        _may_be_private.set(self._configured is None or origin(url) in self._configured)
        try:
            async with self._session.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as response:
                yield HttpResponse(response.status, response.headers, response.content.iter_chunked(CHUNK))
        except (aiohttp.ClientError, OSError) as error:
            raise ExchangeError(_describe_error(error), transient=_is_transient(error)) from error


class _Resolver(AbstractResolver):
    """The system's DNS resolver in its own threads, so that a slow lookup blocks nothing else."""

    def __init__(self, names: Mapping[str, tuple[str, int]]) -> None:
        self._names = names  # what is known without asking anybody: name -> address, port
        self._threads = Threads(4, "resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if host in self._names:
            host, port = self._names[host]
        infos = await self._threads.run(
            lambda: socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=int(address_family),
                proto=proto,
                flags=socket.AI_NUMERICHOST,
            )
            for address_family, _, proto, _, address in infos
        ]

    async def close(self) -> None:
        self._threads.close()


def _open_public_socket(info: tuple[Any, ...], allowed: tuple[Network, ...]) -> socket.socket:
    """Make the socket for one resolved address. Raises PrivateAddress; the check is for the very address of
    the connection, so DNS rebinding has no effect.
    """
    family, kind, protocol, _, address = info
    if _may_be_private.get():
        if not is_public(str(address[0]), allowed):
            raise PrivateAddress(
                f"{address[0]} is not a public address; name its network in `allow_private` to fetch from it."
            )
    elif not is_public(str(address[0])):
        raise PrivateAddress(
            f"{address[0]} is not a public address; `allow_private` opens the addresses of the settings,"
            " not what they link to."
        )
    return socket.socket(family, kind, protocol)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def _describe_error(error: BaseException) -> str:
    """Return the message of a refusal or a certificate error among the causes, else that of the
    error itself.
    """
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, PrivateAddress):
            return str(cause)
    for cause in causes:
        if (
            type(cause) is ssl.SSLCertVerificationError
        ):  # aiohttp derives an error of its own from it, without the message
            return (
                f"its certificate does not hold ({cause.verify_message}). `ca_file` names an authority"
                " of your own."
            )
    message = str(error) or type(error).__name__
    return f"{' '.join(message.split())[:300]}."


def _is_transient(error: BaseException) -> bool:
    """Whether a retry may help. It does not help against certificate, DNS and SSRF errors."""
    causes = _causes(error)
    if any(isinstance(cause, PrivateAddress | ssl.SSLError | socket.gaierror) for cause in causes):
        return False
    if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientResponseError):
        return False
    return isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | ConnectionError)


async def make_tls_context(options: FetchOptions) -> ssl.SSLContext | None:
    """Return the TLS context for `ca_file`; None means the system's. Raises OSError or ssl.SSLError."""
    if not options.ca_file:
        return None
    return await work_aside(partial(ssl.create_default_context, cafile=options.ca_file))
