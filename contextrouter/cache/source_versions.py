"""Cache invalidation: the versions of sources, a part of every cache key."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from time import monotonic
from typing import Any

from contextrouter.cache.single_flight import SingleFlight

log = logging.getLogger("contextrouter")

PATIENCE = 0.1
"""Seconds a source may take to say its version. One that is slower keeps the version it had."""
GRACE = 0.05
"""Seconds given to cancelled calls to end."""
SHARE = 0.2
"""Share of the time a request has left that it waits for versions at most."""


class Versions:
    """The versions of the sources that have one, asked for at most every `seconds`, by one caller for all."""

    def __init__(self, sources: Mapping[str, Any], seconds: float) -> None:
        # What the class calls `version` and cannot be called is the version of something else.
        self._sources = {
            name: source
            for name, source in sources.items()
            if callable(getattr(type(source), "version", None))
        }
        self._seconds = seconds
        self._versions: dict[str, str] = {}
        self._silent: set[str] = set()
        self._at = -math.inf
        self._flight: SingleFlight[None] = SingleFlight()

    async def now(self, until: float = math.inf) -> Mapping[str, str] | None:
        """Source -> version; None while a source has never said its own, so that nothing is kept under a
        version unknown.

        `until` is the deadline of who asks (on `time.monotonic()`), who waits for a share of what is left.
        """
        if self._sources and monotonic() - self._at >= self._seconds:
            try:
                async with asyncio.timeout(None if math.isinf(until) else (until - monotonic()) * SHARE):
                    await self._flight.run(b"", math.inf, self._ask)
            except TimeoutError:
                pass  # what was known holds
        return self._versions if len(self._versions) == len(self._sources) else None

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        tasks = {name: loop.create_task(self._version(name)) for name in self._sources}
        try:
            done, late = await asyncio.wait(tasks.values(), timeout=PATIENCE)
        finally:
            for task in tasks.values():
                task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE)
        versions = {
            n: version
            for n, t in tasks.items()
            if t in done and not t.cancelled() and (version := t.result()) is not None
        }
        self._versions = {**self._versions, **versions}
        self._at = monotonic()

    async def _version(self, name: str) -> str | None:
        """What the source says; None, with a word in the log, when that is no version."""
        try:
            version = await self._sources[name].version()
            if not isinstance(version, str):
                raise TypeError(f"version() returned a {type(version).__name__}")
        except Exception as error:
            if name not in self._silent:
                self._silent.add(name)
                why = type(error).__name__
                log.warning(
                    "Source %r does not say its version (%s); it must return a str from `async def version`.",
                    name,
                    why,
                )
            return None
        return version

    async def aclose(self) -> None:
        """End what is running."""
        await self._flight.aclose()
