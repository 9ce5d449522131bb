"""Redis cache tier: one cache for many processes and machines."""

from __future__ import annotations

import asyncio
import secrets
from importlib.util import find_spec
from typing import Any

from contextrouter.errors import MissingDependency, Problem, SettingsError

CONNECTIONS = 16
BATCH = 500
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


def make_client(url: str, timeout: float) -> Any:
    """Return a client of a Redis server; it connects on first use. Raises MissingDependency, or SettingsError
    for a bad `url`.
    """
    if find_spec("redis") is None:
        raise MissingDependency("redis", "redis", what="Cache tier 'redis'")
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
    except ValueError:
        message = "url is none of a Redis server. Write redis://[user:password@]host[:port][/database]."
        raise SettingsError([Problem(message, key="cache.url")]) from None
    return Redis.from_pool(pool)


class RedisTier:
    """Entries in the Redis server at `url`, under keys that begin with `contextrouter:<namespace>:`.

    Every operation ends within `timeout` seconds, or raises.
    """

    name = "redis"
    max_bytes: int | None = None  # the server's `maxmemory`, and its to keep

    def __init__(self, url: str, *, namespace: str, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self._prefix = f"contextrouter:{namespace}:"
        self._flights = f"contextrouter-flight:{namespace}:"
        self._client: Any = None

    async def open(self) -> None:
        """Make the client; it connects on first use. Raises MissingDependency, or SettingsError for a bad
        `url`.
        """
        if self._client is None:
            self._client = make_client(self._url, self._timeout)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _redis_key(self, address: bytes) -> str:
        return self._prefix + address.hex()

    async def get(self, address: bytes) -> bytes | None:
        """Return the entry. Raises TimeoutError, or errors of the client."""
        async with asyncio.timeout(self._timeout):
            entry = await self._client.get(self._redis_key(address))
        return entry if type(entry) is bytes else None

    async def put(self, address: bytes, entry: bytes, ttl: float) -> None:
        """Keep `entry` for `ttl` seconds, in whole milliseconds."""
        async with asyncio.timeout(self._timeout):
            await self._client.set(self._redis_key(address), entry, px=max(1, int(ttl * 1000)))

    async def lock(self, address: bytes, seconds: float) -> str:
        """Lock an address for at most `seconds`. Return what unlocks it; "": another process has the lock."""
        token = secrets.token_hex(8)
        async with asyncio.timeout(self._timeout):
            milliseconds = max(1, int(seconds * 1000))
            taken = await self._client.set(self._flights + address.hex(), token, px=milliseconds, nx=True)
        return token if taken else ""

    async def unlock(self, address: bytes, token: str) -> None:
        """Unlock an address, unless the lock has ended and is another one now."""
        async with asyncio.timeout(self._timeout):
            await self._client.eval(_UNLOCK, 1, self._flights + address.hex(), token)

    async def clear(self) -> int:
        """Remove the namespace's entries; return how many there were."""
        count = 0
        async for keys in self._batches():
            async with asyncio.timeout(self._timeout):
                count += await self._client.unlink(*keys)
        return count

    async def size(self) -> tuple[int, int]:
        """Return the number of entries in the namespace and the bytes of their values."""
        count = total = 0
        async for keys in self._batches():
            pipeline = self._client.pipeline(transaction=False)
            for key in keys:
                pipeline.strlen(key)
            async with asyncio.timeout(self._timeout):
                lengths = await pipeline.execute()
            count += len(keys)
            total += sum(lengths)
        return count, total

    async def _batches(self) -> Any:
        """Yield the keys of the namespace in batches, without duplicates."""
        cursor, visited = 0, set[bytes]()
        while True:
            async with asyncio.timeout(self._timeout):
                cursor, keys = await self._client.scan(cursor, match=self._prefix + "*", count=BATCH)
            fresh = [key for key in dict.fromkeys(keys) if key not in visited]
            visited.update(fresh)
            if fresh:
                yield fresh
            if not cursor:
                return
