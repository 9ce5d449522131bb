"""Rate limit for each host: how many HTTP exchanges at the same time, and the pause between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from contextrouter.runtime.lru import Lru

MOST_HOSTS = 1_000
"""Hosts whose pause is remembered while nobody waits for them."""


class _Host:
    __slots__ = ("next", "slots", "users")

    def __init__(self, slots: int) -> None:
        self.slots, self.next, self.users = asyncio.Semaphore(slots), 0.0, 0


class Turns:
    """The queue before each host. One event loop owns it."""

    def __init__(self, per_host: int, delay: float) -> None:
        self._per_host, self._delay = per_host, delay
        self._busy: dict[str, _Host] = {}
        self._idle: Lru[str, _Host] = Lru(MOST_HOSTS)  # each until its pause is over

    @asynccontextmanager
    async def turn(self, host: str, delay: float = 0.0) -> AsyncIterator[None]:
        """Wait for a free slot, and for the pause between two exchanges; `delay` is what the host itself asks
        for.
        """
        queue = self._busy.get(host) or self._idle.pop(host) or _Host(self._per_host)
        self._busy[host] = queue
        queue.users += 1
        try:
            async with queue.slots:
                begin = max(monotonic(), queue.next)
                queue.next = begin + max(self._delay, delay)
                if (wait := begin - monotonic()) > 0:
                    await asyncio.sleep(wait)
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._busy[host]
                self._idle.put(host, queue, ttl=queue.next - monotonic())
