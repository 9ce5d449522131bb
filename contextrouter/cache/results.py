"""Result cache: answers kept for the next equal question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import date
from time import monotonic

import msgspec

from contextrouter.cache import codec, keys
from contextrouter.cache.single_flight import SingleFlight
from contextrouter.cache.size import bytes_of
from contextrouter.cache.tiers import Tiers
from contextrouter.model import Context, Request, Step, Trace, Usage

MEMORY, JOINED = "memory", "joined"


class ResultCache:
    """Answers by key, in `tiers`, for `ttl` seconds; equal questions at once are one computation.

    `router` is the digest of all that stays the same for every request (`keys.of_router`).
    """

    def __init__(self, tiers: Tiers, *, router: bytes, ttl: float) -> None:
        self.tiers = tiers
        self._router, self._ttl = router, ttl
        self._flights: SingleFlight[Context] = SingleFlight()
        self._prefix: tuple[date | None, Mapping[str, str] | None, bytes] = (None, None, b"")

    def key(self, request: Request, today: date, versions: Mapping[str, str] | None) -> bytes | None:
        """Everything the answer depends on; None when that cannot be told exactly, so that nothing is
        kept.
        """
        if versions is None:
            return None
        try:
            day, last_versions, start = self._prefix
            if today != day or versions is not last_versions:
                start = b"".join(
                    (b"r", self._router, today.isoformat().encode(), keys.encoded(versions).encode())
                )
                self._prefix = (today, versions, start)
            return start + keys.of_request(request)
        except (TypeError, ValueError, RecursionError):
            return None

    async def answer(
        self, key: bytes | None, until: float, compute: Callable[[], Awaitable[Context]]
    ) -> Context:
        """Return what is kept under `key`, or what `compute` gives, which is kept unless it is degraded."""
        if key is None:
            return await compute()
        hit: Context | None = self.tiers.memory.get(key)
        if hit is not None:
            return hit
        started = monotonic()
        context, joined = await self._flights.run(key, until, lambda: self._look_up(key, compute))
        return as_hit(context, JOINED, monotonic() - started) if joined and not context.cached else context

    async def _look_up(self, key: bytes, compute: Callable[[], Awaitable[Context]]) -> Context:
        started = monotonic()
        entry = await self.tiers.fetch(key, codec.decoded)
        if entry is not None and self.tiers.outer is not None:
            kept, left = entry
            self._fill(key, kept, min(left, self._ttl))
            return as_hit(kept, self.tiers.outer.name, monotonic() - started)
        context = await compute()
        if not context.degraded:
            self._fill(key, context, self._ttl)
            self.tiers.keep(key, lambda: codec.encoded(context), self._ttl)
        return context

    def _fill(self, key: bytes, context: Context, ttl: float) -> None:
        self.tiers.memory.put(key, as_hit(context, MEMORY, 0.0), size=bytes_of(context), ttl=ttl)

    async def aclose(self) -> None:
        """End what is being computed."""
        await self._flights.aclose()


def as_hit(context: Context, tier: str, elapsed: float) -> Context:
    """The answer as it is handed out again: it asked nobody and embedded nothing, and its trace begins with
    where it was.
    """
    usage = Usage(tokens=context.usage.tokens, seconds=elapsed, cache=tier)
    step = Step(name="cache", elapsed=elapsed, live=len(context.envelopes), note=tier)
    trace = Trace(plan=context.trace.plan, steps=(step, *context.trace.steps))
    return msgspec.structs.replace(context, cached=True, usage=usage, trace=trace)
