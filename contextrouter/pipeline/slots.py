"""Concurrency limit and overload limit: how many calls run, how many wait, and which are refused.

A quick refusal is worth more than a late answer.
"""

from __future__ import annotations

import asyncio
from collections import deque

from contextrouter.errors import SourceError


class Overloaded(SourceError):
    """Too many calls run and wait already; says nothing about the source itself."""


class Slots:
    """At most `size` at once, at most `waiting` in line. For one event loop; first come, first served.

    Whoever takes one of them also takes one of `within`, where given.
    """

    __slots__ = ("_free", "_line", "size", "waiting", "what", "within")

    def __init__(self, size: int, waiting: int, what: str, within: Slots | None = None) -> None:
        self.size, self.waiting, self.what, self.within = size, waiting, what, within
        self._free = size
        self._line: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a slot. Raises Overloaded at once when the line is full."""
        if self._free and not self._line:
            self._free -= 1
            return
        if len(self._line) >= self.waiting:
            raise Overloaded(
                f"overloaded: {self.size} calls to {self.what} run and {len(self._line)} wait already"
            )
        ticket = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():
                self.release()  # it was handed over in the same moment
            else:
                self._line.remove(ticket)
            raise

    async def __aenter__(self) -> None:
        await self.take()
        if self.within is not None:
            try:
                await self.within.take()
            except BaseException:
                self.release()
                raise

    async def __aexit__(self, *error: object) -> None:
        if self.within is not None:
            self.within.release()
        self.release()

    def release(self) -> None:
        """Hand the slot to the next in line, or back."""
        while self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1
