"""Rate limits in Redis: one token bucket for each caller, shared by all servers of a namespace."""

from __future__ import annotations

import asyncio
from typing import Any

from contextrouter.cache.redis import make_client

# The clock of Redis counts, since those of the servers differ. A bucket that is full again is forgotten.
_TAKE = """
local size, rate = math.max(1, tonumber(ARGV[1])), tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'budget', 'since')
local budget, since = tonumber(state[1]) or size, tonumber(state[2]) or now
budget = math.min(size, budget + math.max(0, now - since) * rate / 60)
local wait = 0
if budget >= 1 then budget = budget - 1 else wait = (1 - budget) * 60 / rate end
redis.call('HSET', KEYS[1], 'budget', tostring(budget), 'since', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((size - budget) * 60000 / rate) + 1000)
return tostring(wait)
"""


class RedisRates:
    """The rates of callers in the Redis server at `url`. Each call ends within `timeout` seconds, or
    raises.
    """

    def __init__(self, url: str, *, namespace: str, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self._prefix = f"contextrouter-rate:{namespace}:"
        self._client: Any = None

    async def take(self, name: str, rate: int) -> float:
        """Take one request of `rate` a minute. Return 0, or the seconds until there is one to take. Raises
        TimeoutError, or errors of the client.
        """
        if self._client is None:
            self._client = make_client(self._url, self._timeout)
        async with asyncio.timeout(self._timeout):
            return float(await self._client.eval(_TAKE, 1, self._prefix + name, rate))

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
