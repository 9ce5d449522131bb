"""Result cache: keeps answers for equal questions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import date
from time import monotonic

import msgspec

from contextrouter.cache import codec, keys
from contextrouter.cache.single_flight import SingleFlight
from contextrouter.cache.size import estimate_bytes
from contextrouter.cache.tiers import Tiers
from contextrouter.errors import AllSourcesFailed
from contextrouter.model import Context, Request, Step, Trace, Usage
from contextrouter.model.read_only import read_only_context

MEMORY, JOINED = "memory", "joined"
WAIT_SHARE = 0.5
"""Share of the time left that a question waits for an equal one in another process."""
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.1
"""Seconds between two looks at whether the other process is done."""


class ResultCache:
    """Answers by key, in `tiers`, for `ttl` seconds. Equal questions at the same time are computed once, with
    Redis once for all processes.

    `router` is the digest of everything that is the same for every request (`keys.router_digest`).
    """

    def __init__(self, tiers: Tiers, *, router: bytes, ttl: float) -> None:
        self.tiers = tiers
        self._router, self._ttl = router, ttl
        self._flights: SingleFlight[Context] = SingleFlight()
        self._prefix: tuple[date | None, Mapping[str, str] | None, bytes] = (None, None, b"")

    def key(self, request: Request, today: date, versions: Mapping[str, str] | None) -> bytes | None:
        """Return the cache key of a request; None when it has no exact key, so that nothing is cached."""
        if versions is None:
            return None
        try:
            day, last_versions, start = self._prefix
            if today != day or versions is not last_versions:
                start = b"".join(
                    (b"r", self._router, today.isoformat().encode(), keys.canonical_json(versions).encode())
                )
                self._prefix = (today, versions, start)
            return start + keys.request_key(request)
        except (TypeError, ValueError, RecursionError):
            return None

    async def answer(
        self, key: bytes | None, until: float, compute: Callable[[], Awaitable[Context]]
    ) -> Context:
        """Return the cached answer, or compute one. A degraded answer is not cached."""
        if key is None:
            return await compute()
        hit: Context | None = self.tiers.memory.get(key)
        if hit is not None:
            return hit
        started = monotonic()
        context, joined = await self._flights.run(
            key, until, lambda: self._look_up(key, until, compute), _cut_short
        )
        if joined and not context.cached:
            return mark_cached(context, JOINED, monotonic() - started)
        return context

    async def _look_up(self, key: bytes, until: float, compute: Callable[[], Awaitable[Context]]) -> Context:
        cached = await self._fetch(key)
        if cached is not None:
            return cached
        token, waited = await self._take_turn(key, until)
        try:
            cached = await self._fetch(key) if waited else None
            return cached or await self._compute(key, compute)
        finally:
            if token:
                self.tiers.unlock(key, token)

    async def _fetch(self, key: bytes) -> Context | None:
        """Return the answer that the outer tier has."""
        started = monotonic()
        entry = await self.tiers.fetch(key, codec.decode)
        if entry is None or self.tiers.outer is None:
            return None
        decoded, remaining = entry
        cached = read_only_context(decoded)
        self._fill(key, cached, min(remaining, self._ttl))
        return mark_cached(cached, self.tiers.outer.name, monotonic() - started)

    async def _compute(self, key: bytes, compute: Callable[[], Awaitable[Context]]) -> Context:
        context = await compute()
        if not context.degraded:
            self._fill(key, context, self._ttl)
            self.tiers.keep(key, lambda: codec.encode(context), self._ttl)
        return context

    async def _take_turn(self, key: bytes, until: float) -> tuple[str | None, bool]:
        """Wait while another process computes this answer, for at most half of the time that is left: it may
        have died. Return what unlocks the key (None: nothing), and whether there was a wait.
        """
        give_up, pause = monotonic() + WAIT_SHARE * (until - monotonic()), FIRST_PAUSE
        waited = False
        while (token := await self.tiers.lock(key, until - monotonic())) == "":
            waited = True
            if monotonic() + pause >= give_up:
                return None, waited
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return token, waited

    def _fill(self, key: bytes, context: Context, ttl: float) -> None:
        self.tiers.memory.put(key, mark_cached(context, MEMORY, 0.0), size=estimate_bytes(context), ttl=ttl)

    async def aclose(self) -> None:
        """Cancel the running computations."""
        await self._flights.aclose()


def _cut_short(result: Context | Exception) -> bool:
    """Whether an answer lacks something because its time was over."""
    if isinstance(result, AllSourcesFailed):
        return any(report.status == "timeout" for report in result.reports)
    if isinstance(result, Context):
        steps = result.trace.steps
        return any(report.status == "timeout" for report in result.coverage) or any(s.failed for s in steps)
    return isinstance(result, TimeoutError)


def mark_cached(context: Context, tier: str, elapsed: float) -> Context:
    """Return a cached answer: its usage counts no calls and no embeddings, and its trace begins with the
    tier.
    """
    usage = Usage(tokens=context.usage.tokens, seconds=elapsed, cache=tier)
    step = Step(name="cache", elapsed=elapsed, live=len(context.envelopes), note=tier)
    trace = Trace(plan=context.trace.plan, steps=(step, *context.trace.steps))
    return msgspec.structs.replace(context, cached=True, usage=usage, trace=trace)
