"""Connections to the server: a cap on their number, and time limits for clients that send or read nothing.

A client that opens a connection and sends no request takes the place of one that does. So a request must
arrive whole within `header_seconds`, and an idle connection is closed after `IDLE_SECONDS`. Where the cap is
reached, the connection that has waited longest for a request gives way to the new one. A connection with a
request on it never gives way; the new one is then refused.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import cast

from contextrouter.server.logs import log

IDLE_SECONDS = 75.0
"""Seconds that a connection may be idle between two requests."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
)
_FILES_KEPT = 256
"""File descriptors that are left to sources and the program; where there are few, three of four are."""


class Connections:
    """All connections of one server. `protocol` wraps the protocol that reads requests."""

    def __init__(self, most: int, header_seconds: float) -> None:
        self.most, self.header_seconds = min(most, _affordable()), header_seconds
        if self.most < most:
            log.warning(
                "The process may open few files, so the server takes %d connections at once and not %d; raise"
                " the limit with `ulimit -n`.",
                self.most,
                most,
            )
        self._waiting: dict[Connection, None] = {}  # for a request, those that wait longest first
        self._open: dict[asyncio.BaseTransport, Connection] = {}

    def protocol(self, inner: Callable[[], asyncio.Protocol]) -> Callable[[], Connection]:
        """Return a factory of protocols for `create_server`."""
        return lambda: Connection(self, inner)

    def admit(self, connection: Connection, transport: asyncio.Transport) -> bool:
        """Admit a new connection, in place of one that waits where the cap is reached."""
        if len(self._open) >= self.most:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            longest.abort()
        self._open[transport] = connection
        return True

    def wait(self, connection: Connection) -> None:
        """Note that a connection waits for a request."""
        self._waiting[connection] = None

    def begin(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that a request has arrived on this connection."""
        connection = self._open.get(transport) if transport is not None else None
        if connection is not None:
            self._waiting.pop(connection, None)
            connection.begin()

    def end(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the answer to the request is written."""
        connection = self._open.get(transport) if transport is not None else None
        if connection is not None:
            connection.end()

    def forget(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Let go of a connection that is lost."""
        self._waiting.pop(connection, None)
        self._open.pop(transport, None)


class Connection(asyncio.Protocol):
    """One connection: passes everything to the protocol that reads requests, and keeps its time limits."""

    def __init__(self, connections: Connections, inner: Callable[[], asyncio.Protocol]) -> None:
        self._all, self._make = connections, inner
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self._receiving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or refuse it."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._all.admit(self, self._transport):
            self._transport.write(_FULL)
            self._transport.close()
            return
        self._inner = self._make()
        self._inner.connection_made(transport)
        self._receiving = True  # from the beginning on, a request is due
        self._all.wait(self)
        self._limit(self._all.header_seconds)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent. The first bytes of a request start its time limit."""
        if self._inner is None:
            return
        if not self._requests and not self._receiving:
            self._receiving = True
            self._limit(self._all.header_seconds)
        self._inner.data_received(data)

    def begin(self) -> None:
        """A request has arrived: no time limit of this connection runs while it is answered."""
        self._requests += 1
        self._receiving = False
        self._limit(None)

    def end(self) -> None:
        """The answer is written: the connection is idle."""
        self._requests -= 1
        if not self._requests and self._inner is not None:
            self._all.wait(self)
            self._limit(IDLE_SECONDS)

    def abort(self) -> None:
        """Close at once. What the client has not read is lost."""
        self._limit(None)
        if self._transport is not None:
            self._all.forget(self, self._transport)
            self._transport.abort()

    def _limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self.abort)

    def eof_received(self) -> bool | None:
        """The client sends nothing more."""
        return None if self._inner is None else self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the connection."""
        self._limit(None)
        if self._transport is not None:
            self._all.forget(self, self._transport)
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._inner is not None:
            self._inner.resume_writing()


def _affordable() -> int:
    """Return how many connections the limit of open files allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(1, soft - min(_FILES_KEPT, soft * 3 // 4))
