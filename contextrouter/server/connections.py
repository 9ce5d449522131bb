"""Limits of connections: how many are open, and how long the head of a first request may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from time import monotonic
from typing import Any

from aiohttp import web

from contextrouter.server.logs import log

FILES_SHARE = 0.75
"""Share of the files that the process may open which connections may use."""


class Connections:
    """The open connections of a server. At the limit, the one that waits longest for the head of its first
    request makes room; where all have sent one, a new connection is closed at once.
    """

    def __init__(self, most: int, head_seconds: float) -> None:
        self.most, self.head_seconds = min(most, _file_limit()), head_seconds
        self._waiting: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}

    def protocol(self, server: web.Server) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        if len(server.connections) >= self.most and not self._drop_oldest():
            return _Closed()
        handler = server()
        loop = asyncio.get_running_loop()
        self._waiting[handler] = loop.call_later(self.head_seconds, self._drop, handler)
        return handler

    def has_request(self, handler: asyncio.BaseProtocol) -> None:
        """Note that a connection has sent the head of a request."""
        if timer := self._waiting.pop(handler, None):
            timer.cancel()

    def close(self) -> None:
        """Forget all connections that wait."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _drop_oldest(self) -> bool:
        return any(self._drop(handler) for handler in list(self._waiting))

    def _drop(self, handler: asyncio.BaseProtocol) -> bool:
        """Close a connection that waits. False: it is closed already."""
        self.has_request(handler)
        transport = getattr(handler, "transport", None)
        if transport is None or transport.is_closing():
            return False
        transport.abort()
        return True


class LimitedSite(web.TCPSite):
    """A site whose connections are limited."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, connections: Connections) -> None:
        super().__init__(runner, host, port)
        self._connections = connections

    async def start(self) -> None:
        """Listen."""
        await web.BaseSite.start(self)
        server = self._runner.server
        assert isinstance(server, web.Server)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._connections.protocol(server), self._host, self._port, backlog=self._backlog
        )


class _Closed(asyncio.Protocol):
    """A connection that is closed as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _file_limit() -> int:
    try:
        import resource  # not on every system
    except ModuleNotFoundError:
        return 1_000_000
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, int(soft * FILES_SHARE)) if soft > 0 else 1_000_000


@contextlib.contextmanager
def few_accept_errors() -> Iterator[None]:
    """Log errors of accepting connections once a second: where files run out, there are thousands."""
    loop = asyncio.get_running_loop()
    before, logged = loop.get_exception_handler(), -1.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged
        if isinstance(context.get("exception"), OSError) and "accept" in context.get("message", ""):
            if monotonic() - logged >= 1:
                logged = monotonic()
                log.error("No connection can be accepted: %s", context["exception"])
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
