"""The versions of sources, a part of every key."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from time import monotonic
from typing import Any

from contextrouter.cache.flight import SingleFlight
from contextrouter.contracts import SupportsVersion

PATIENCE = 0.1
"""Seconds a source may take to say its version. One that is slower keeps the version it had."""
GRACE = 0.05
"""Seconds given to cancelled calls to end."""


class Versions:
    """The versions of the sources that have one, asked for at most every `seconds`, by one caller for all."""

    def __init__(self, sources: Mapping[str, Any], seconds: float) -> None:
        self._sources = {name: source for name, source in sources.items() if isinstance(source, SupportsVersion)}
        self._seconds = seconds
        self._known: dict[str, str] = {}
        self._at = -math.inf
        self._flight: SingleFlight[None] = SingleFlight()

    async def now(self) -> Mapping[str, str] | None:
        """Source -> version; None while a source has never said its own, so that nothing is kept under a version unknown."""
        if self._sources and monotonic() - self._at >= self._seconds:
            await self._flight.run(b"", math.inf, self._ask)
        return self._known if len(self._known) == len(self._sources) else None

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        tasks = {name: loop.create_task(source.version()) for name, source in self._sources.items()}
        try:
            done, late = await asyncio.wait(tasks.values(), timeout=PATIENCE)
        finally:
            for task in tasks.values():
                task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE)
        found = {n: t.result() for n, t in tasks.items() if t in done and not t.cancelled() and t.exception() is None}
        self._known = {**self._known, **found}
        self._at = monotonic()

    async def aclose(self) -> None:
        """End what is running."""
        await self._flight.aclose()
