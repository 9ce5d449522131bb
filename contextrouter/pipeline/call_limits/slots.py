"""Concurrency limit and overload limit: how many calls run, how many wait, and which are refused.

A quick refusal is worth more than a late answer. A source that hangs holds its own slots and the common ones,
never those of another source.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping

from contextrouter.errors import SourceError


class Overloaded(SourceError):
    """Too many calls run and wait already; says nothing about the source itself."""


class Slots:
    """At most `size` at once, at most `waiting` in line. For one event loop; first come, first served."""

    __slots__ = ("_free", "_line", "size", "waiting", "what")

    def __init__(self, size: int, waiting: int, what: str) -> None:
        self.size, self.waiting, self.what = size, waiting, what
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
            elif ticket in self._line:  # `release` passes over those who gave up
                self._line.remove(ticket)
            raise

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Hand the slot to the next in line, or back."""
        while self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1


class SourceSlots:
    """The slots of all sources, `size` in all, but never fewer than sources. Half of them are shared out, so
    many to each source, at least one; the others are common, and a call takes one when the share of its
    source is in use.

    `limits` are the most calls of a source at once, where it has such a limit. At most `waiting` calls wait
    in the line of each source.
    """

    __slots__ = ("_common", "_lines", "_number", "_running", "limits", "share", "size", "waiting")

    def __init__(
        self, size: int, waiting: int, sources: Collection[str], limits: Mapping[str, int] = {}
    ) -> None:
        count = max(1, len(sources))
        self.size, self.waiting, self.limits = max(size, count), waiting, limits
        self.share = max(1, size // (2 * count))  # its own, however many others hang
        self._common = self.size - self.share * count
        self._running = dict.fromkeys(sources, 0)
        self._lines: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}  # of sources where calls wait
        self._number = 0

    async def take(self, source: str) -> None:
        """Wait for a slot, for which `release` must follow. Raises Overloaded at once when the line of the
        source is full.
        """
        waiting = len(self._lines.get(source, ()))
        if not waiting and self._may_run(source):
            self._start(source)
            return
        if waiting >= self.waiting:
            limit = self.limits.get(source)
            what = f"{self.size} calls to all sources"
            if limit is not None and self._running.get(source, 0) >= limit:
                what = f"{limit} calls to source {source!r}"
            raise Overloaded(f"overloaded: {what} run and {waiting} wait already")
        self._number += 1
        entry = (self._number, asyncio.get_running_loop().create_future())
        line = self._lines.setdefault(source, deque())
        line.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if entry[1].done() and not entry[1].cancelled():
                self.release(source)  # it was handed over in the same moment
            elif entry in line:
                line.remove(entry)
            raise

    def release(self, source: str) -> None:
        """Hand the slot to the call that waits longest among those that may have it, or back."""
        self._running[source] -= 1
        if self._running[source] >= self.share:
            self._common += 1
        if not self._lines:
            return
        heads = []
        for name, line in [*self._lines.items()]:
            while line and line[0][1].done():
                line.popleft()  # it gave up
            if not line:
                del self._lines[name]
            elif self._may_run(name):
                heads.append((line[0][0], name))
        if heads:
            _, name = min(heads)
            self._start(name)
            self._lines[name].popleft()[1].set_result(None)

    def _may_run(self, source: str) -> bool:
        running = self._running.get(source, 0)
        limit = self.limits.get(source)
        if limit is not None and running >= limit:
            return False
        return running < self.share or self._common > 0

    def _start(self, source: str) -> None:
        running = self._running.get(source, 0)
        if running >= self.share:
            self._common -= 1
        self._running[source] = running + 1
