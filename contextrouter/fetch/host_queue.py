"""How many exchanges one host has to bear at the same time, and how soon after one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

MOST_HOSTS = 1_000


class _Host:
    __slots__ = ("next", "places", "users")

    def __init__(self, places: int) -> None:
        self.places, self.next, self.users = asyncio.Semaphore(places), 0.0, 0


class Turns:
    """The line before each host. One event loop owns it."""

    def __init__(self, per_host: int, delay: float) -> None:
        self._per_host, self._delay = per_host, delay
        self._hosts: dict[str, _Host] = {}

    @asynccontextmanager
    async def turn(self, host: str, delay: float = 0.0) -> AsyncIterator[None]:
        """Wait for a place, and for the time that lies between two beginnings; `delay` is what the host
        itself asks for.
        """
        line = self._hosts.pop(host, None) or _Host(self._per_host)
        self._hosts[host] = line  # the last asked stand last
        line.users += 1
        try:
            async with line.places:
                begin = max(monotonic(), line.next)
                line.next = begin + max(self._delay, delay)
                if (wait := begin - monotonic()) > 0:
                    await asyncio.sleep(wait)
                yield
        finally:
            line.users -= 1
            self._forget()

    def _forget(self) -> None:
        if len(self._hosts) > MOST_HOSTS:
            idle = next(
                (name for name, line in self._hosts.items() if not line.users and line.next <= monotonic()),
                None,
            )
            if idle is not None:
                del self._hosts[idle]
