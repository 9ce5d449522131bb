"""Rate limit for each host: how many HTTP exchanges at the same time, and the pause between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from contextrouter.runtime.lru import Lru

MOST_HOSTS = 1_000
"""Idle hosts whose pause is remembered."""


class _Host:
    __slots__ = ("next", "slots", "users")

    def __init__(self, slots: int) -> None:
        self.slots, self.next, self.users = asyncio.Semaphore(slots), 0.0, 0


class HostQueue:
    """A queue of requests for each host. One event loop owns it."""

    def __init__(self, per_host: int, delay: float) -> None:
        self._per_host, self._delay = per_host, delay
        self._busy: dict[str, _Host] = {}
        self._idle: Lru[str, _Host] = Lru(MOST_HOSTS)  # each until its pause is over

    @asynccontextmanager
    async def slot(self, host: str, delay: float = 0.0) -> AsyncIterator[None]:
        """Wait for a free slot and for the pause between two requests. `delay` is the host's own
        `Crawl-delay`.
        """
        state = self._busy.get(host) or self._idle.pop(host) or _Host(self._per_host)
        self._busy[host] = state
        state.users += 1
        try:
            async with state.slots:
                begin = max(monotonic(), state.next)
                state.next = begin + max(self._delay, delay)
                if (wait := begin - monotonic()) > 0:
                    await asyncio.sleep(wait)
                yield
        finally:
            state.users -= 1
            if not state.users:
                del self._busy[host]
                self._idle.put(host, state, ttl=state.next - monotonic())
