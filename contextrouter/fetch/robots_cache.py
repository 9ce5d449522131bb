"""robots.txt cache: the rules of each site, fetched once for all that wait and kept for an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from contextrouter.fetch import robots
from contextrouter.fetch.response import Fetched, FetchFailed
from contextrouter.fetch.ssrf import origin
from contextrouter.runtime.lru import Lru

TTL_SECONDS = 3_600.0
CLOSED_TTL_SECONDS = 60.0
"""How long the rules are cached when robots.txt could not be read."""
MOST_SITES = 1_000


class RobotsCache:
    """The rules of sites for one `user_agent`; `fetch` is called with an address and the list of steps."""

    def __init__(self, user_agent: str, fetch: Callable[[str, list[str]], Awaitable[Fetched]]) -> None:
        self._user_agent, self._fetch = user_agent, fetch
        self._rules: Lru[str, robots.Rules] = Lru(MOST_SITES)
        self._locks: Lru[str, asyncio.Lock] = Lru(MOST_SITES)

    async def rules(self, url: str, steps: list[str]) -> robots.Rules:
        """Return the rules of the site of `url`."""
        scheme, host, port = origin(url)
        site = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        lock = self._locks.get(site) or asyncio.Lock()
        self._locks.put(site, lock)
        async with lock:
            rules = self._rules.get(site)
            if rules is None:
                rules = await self._read(f"{site}/robots.txt", steps)
                self._rules.put(site, rules, ttl=CLOSED_TTL_SECONDS if rules.closed else TTL_SECONDS)
        return rules

    async def _read(self, url: str, steps: list[str]) -> robots.Rules:
        """Fetch and parse robots.txt. RFC 9309: a missing file allows everything, a server error nothing."""
        try:
            fetched = await self._fetch(url, steps)
        except FetchFailed as failed:
            absent = failed.status and 400 <= failed.status < 500 and failed.status != 429
            return robots.OPEN if absent else robots.CLOSED
        return robots.parse_rules(
            fetched.body[: robots.MAX_BYTES].decode("utf-8", "replace"), self._user_agent
        )
