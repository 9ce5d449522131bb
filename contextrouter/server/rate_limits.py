"""Rate limits and limits of requests at once, of each caller and of all.

With several workers, each takes its share of every limit. With Redis, the rates are counted there for all
servers together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from contextrouter.cache.outage import Outage
from contextrouter.cache.shared_rates import RedisRates
from contextrouter.pipeline.call_limits.slots import Slots
from contextrouter.runtime.lru import Lru
from contextrouter.server.auth import Caller
from contextrouter.server.error_responses import Refused
from contextrouter.server.worker_share import ALONE, Worker
from contextrouter.settings import Serve, Settings

MOST_BUCKETS = 100_000
"""Callers whose rate is kept; of more, the one that has not asked for longest begins anew."""


def make_slots(serve: Serve, worker: Worker = ALONE) -> Slots:
    """Make the slots that limit how many questions run at once; the others wait.

    A question is done sooner than if all ran at once. Its deadline counts from the moment it gets a slot.
    """
    return Slots(worker.share(serve.max_running), worker.share(serve.max_requests), "the router")


class RequestLimits:
    """The requests of each caller at once and in a minute, and those of all callers at once."""

    def __init__(self, settings: Settings, worker: Worker = ALONE) -> None:
        self.worker = worker
        self._running = 0
        self._running_by_caller: dict[str, int] = {}
        # caller -> (budget, time of its last update); of those who bring tokens, there is no end
        self._buckets: Lru[str, tuple[float, float]] = Lru(MOST_BUCKETS)
        self._shared: RedisRates | None = None
        self._place: tuple[str, str, float] | None = None  # where `_shared` counts
        self._opened: list[RedisRates] = []
        self._outage: Outage
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Take the limits of these settings. What is counted goes on."""
        self.max_requests = self.worker.share(settings.serve.max_requests)
        cache = settings.cache
        place = (cache.url, cache.namespace, cache.timeout_seconds) if cache.tier == "redis" else None
        if place == self._place:  # a reload keeps the connections
            return
        self._place, self._shared = place, None
        if place is not None:
            self._shared = RedisRates(cache.url, namespace=cache.namespace, timeout=cache.timeout_seconds)
            self._opened.append(self._shared)
            self._outage = Outage(
                "Redis fails, so each process counts its share of the rates itself",
                "Redis counts the rates again.",
                settings.secrets,
            )

    @contextmanager
    def admit(self, caller: Caller) -> Iterator[None]:
        """Count a request as running for the length of a block. Raises Refused (429, 503) with the seconds
        after which to retry.
        """
        running = self._running_by_caller.get(caller.name, 0)
        if self._running >= self.max_requests:
            detail = "The server has as many requests as it takes at once."
            raise Refused(503, "overloaded", detail, headers={"Retry-After": "1"})
        if caller.max_requests is not None and running >= self.worker.share(caller.max_requests):
            detail = f"This caller may have {caller.max_requests} requests at once."
            raise Refused(429, "too_many_at_once", detail, headers={"Retry-After": "1"})
        self._running += 1
        self._running_by_caller[caller.name] = running + 1
        try:
            yield
        finally:
            self._running -= 1
            self._running_by_caller[caller.name] -= 1
            if not self._running_by_caller[caller.name]:
                del self._running_by_caller[caller.name]

    async def take(self, caller: Caller) -> None:
        """Take one request from the rate of a caller. Raises Refused (429)."""
        rate = caller.rate_per_minute
        if not rate:
            return
        wait = await self._take_shared(caller.name, rate)
        if wait is None:
            wait = self._take_here(caller.name, rate / self.worker.count)
        if wait > 0:
            detail = f"This caller may ask {rate} times a minute."
            raise Refused(429, "rate_limited", detail, headers={"Retry-After": str(int(wait) + 1)})

    async def _take_shared(self, name: str, rate: int) -> float | None:
        """Return the seconds to wait, as Redis counts them; None: it does not count now."""
        if self._shared is None or self._outage.pauses:
            return None
        try:
            # a caller's name may be an address of e-mail, which is nothing to leave in a server for caches
            wait = await self._shared.take(hashlib.sha256(name.encode()).hexdigest(), rate)
        except Exception as error:
            self._outage.begin(error)
            return None
        self._outage.end()
        return wait

    def _take_here(self, name: str, rate: float) -> float:
        """Take one request from the token bucket of this process. Return the seconds to wait."""
        now, size = monotonic(), max(1.0, rate)
        budget, since = self._buckets.get(name) or (size, now)
        budget = min(size, budget + (now - since) * rate / 60)
        self._buckets.put(name, (budget if budget < 1 else budget - 1, now))
        return (1 - budget) * 60 / rate if budget < 1 else 0.0

    async def aclose(self) -> None:
        """Close the connections to Redis, those of former settings too: requests may have used them."""
        for rates in self._opened:
            await rates.aclose()
