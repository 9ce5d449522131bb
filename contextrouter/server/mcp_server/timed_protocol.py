"""HTTP/1.1 of uvicorn with what it lacks: time limits for clients, and a cap on connections."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol


class Limits(NamedTuple):
    """Seconds for the head of a request to arrive, and for a client to read; and the most connections."""

    header_seconds: float
    write_seconds: float
    connections: int


class TimedProtocol(H11Protocol):
    """One connection. Where there are too many, the one that has waited longest for a request gives way.

    `waiting` is shared by all connections of a server: those without a request, the longest first.
    """

    def __init__(self, limits: Limits, waiting: dict[TimedProtocol, None], **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._limits, self._waiting = limits, waiting
        self._timer: asyncio.TimerHandle | None = None  # for the client to send, or to be gone
        self._unread: asyncio.TimerHandle | None = None  # for the client to read
        self._receiving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Take a connection, in place of one that waits where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            longest = next(iter(self._waiting), self)
            longest.abort()
            if longest is self:
                return
        self._receiving = True
        self._wait(self._limits.header_seconds)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request. The first bytes of one start its time limit."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting.pop(self, None)
            self._receiving = False
            self._limit(None)
        elif not self._receiving:
            self._receiving = True
            self._wait(self._limits.header_seconds)

    def on_response_complete(self) -> None:
        """Wait for the next request. The base closes an idle connection, but a client that does not read
        would hold it open.
        """
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait(self.timeout_keep_alive + self._limits.write_seconds)

    def abort(self) -> None:
        """Close at once. What the client has not read is lost."""
        self._waiting.pop(self, None)
        self.transport.abort()

    def _wait(self, seconds: float) -> None:
        self._waiting[self] = None
        self._limit(seconds)

    def _limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.abort)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self._limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the connection."""
        self._waiting.pop(self, None)
        self._limit(None)
        self.resume_writing()
        super().connection_lost(exc)
