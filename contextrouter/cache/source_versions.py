"""Cache invalidation: the versions of sources, a part of every cache key."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from time import monotonic
from typing import Any

from contextrouter.cache.single_flight import SingleFlight
from contextrouter.errors import SourceError
from contextrouter.runtime.abandoned_calls import AllAbandonedCalls
from contextrouter.runtime.plugin_calls import containment

log = logging.getLogger("contextrouter")

PATIENCE = 0.1
"""Seconds a source may take to return its version. A slower one keeps its previous version."""
GRACE = 0.05
"""Seconds given to cancelled calls to end."""
SHARE = 0.2
"""The largest share of a request's remaining time that it waits for versions."""


class Versions:
    """The versions of the sources that have one, refreshed at most every `seconds` by one caller for all."""

    def __init__(
        self, sources: Mapping[str, Any], seconds: float, abandoned: AllAbandonedCalls | None = None
    ) -> None:
        # An attribute `version` that is not callable is the version of something else.
        self._sources = {
            name: source
            for name, source in sources.items()
            if callable(getattr(type(source), "version", None))
        }
        self._seconds = seconds
        self._abandoned = abandoned or AllAbandonedCalls()
        self._versions: dict[str, str] = {}
        self._silent: set[str] = set()
        self._asked_at = -math.inf
        self._flight: SingleFlight[None] = SingleFlight()

    async def now(self, until: float = math.inf) -> Mapping[str, str] | None:
        """Return source -> version; None while the version of a source is unknown, so that nothing is cached.

        `until` is the caller's deadline (on `time.monotonic()`). The caller waits for a share of the
        remaining time.
        """
        if self._sources and monotonic() - self._asked_at >= self._seconds:
            try:
                async with asyncio.timeout(None if math.isinf(until) else (until - monotonic()) * SHARE):
                    await self._flight.run(b"", math.inf, self._ask)
            except TimeoutError:
                pass  # the previous versions stay valid
        return self._versions if len(self._versions) == len(self._sources) else None

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        abandoned = {name: self._abandoned.of("version of source", name) for name in self._sources}
        tasks = {
            name: loop.create_task(self._version(name))
            for name in self._sources
            if not abandoned[name].refusal()
        }
        if not tasks:
            return
        try:
            done, late = await asyncio.wait(tasks.values(), timeout=PATIENCE)
        finally:
            for task in tasks.values():
                task.cancel()
        if late:
            _, stubborn = await asyncio.wait(late, timeout=GRACE)
            for name, task in tasks.items():
                abandoned[name].add({task} & stubborn)
        versions = {
            n: version
            for n, t in tasks.items()
            if t in done and not t.cancelled() and (version := t.result()) is not None
        }
        self._versions = {**self._versions, **versions}
        self._asked_at = monotonic()

    async def _version(self, name: str) -> str | None:
        """Return the version of a source; None, with a warning in the log, when it returns none."""
        try:
            with containment():
                version = await self._sources[name].version()
            if not isinstance(version, str):
                raise TypeError(f"version() returned a {type(version).__name__}")
        except SourceError as error:  # it is down: each question tells so
            log.debug("Source %r does not say its version now (%s).", name, type(error).__name__)
            return None
        except Exception as error:
            if name not in self._silent:
                self._silent.add(name)
                advice = "it must return a str from `async def version`."
                log.warning("Source %r does not say its version (%s); %s", name, type(error).__name__, advice)
            return None
        return version

    async def aclose(self) -> None:
        """Cancel a running refresh."""
        await self._flight.aclose()
