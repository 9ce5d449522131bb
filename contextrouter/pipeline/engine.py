"""The engine: what all requests share. Plugins, settings, concurrency limits, circuit breakers and caches."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from contextrouter.cache import EmbeddingCache, ScoreCache
from contextrouter.contracts import Embedder, FactSource, Interpreter, Source, Stage
from contextrouter.contracts.kinds import source_kind
from contextrouter.pipeline.call_limits.circuit_breaker import CircuitBreaker
from contextrouter.pipeline.call_limits.failure_log import FailureLog
from contextrouter.pipeline.call_limits.slots import SourceSlots
from contextrouter.pipeline.connection_titles import Connections
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.fusion.leg_weights import Profiles
from contextrouter.pipeline.term_statistics import StatisticsCache
from contextrouter.runtime.abandoned_calls import AllAbandonedCalls
from contextrouter.settings import FactKeys, InterpreterKeys, Rag, Settings, SourceKeys, StageKeys
from contextrouter.text.time_zones import time_zone

log = logging.getLogger("contextrouter")

Sources = Mapping[str, Source | FactSource]


class Plugins(Protocol):
    """The plugin instances an engine works with, by name: `runtime.lifecycle.Instances`, or any like it."""

    @property
    def sources(self) -> Sources: ...
    @property
    def embedders(self) -> Mapping[str, Embedder]: ...
    @property
    def interpreters(self) -> Mapping[str, Interpreter]: ...
    @property
    def stages(self) -> Mapping[str, Stage]: ...
    @property
    def closed(self) -> Collection[tuple[str, str]]: ...

    async def ready(self, kind: str, name: str) -> None: ...


class OpenPlugins:
    """Plugin instances that are open already, made by hand."""

    def __init__(
        self,
        sources: Sources | None = None,
        embedders: Mapping[str, Embedder] | None = None,
        interpreters: Mapping[str, Interpreter] | None = None,
        stages: Mapping[str, Stage] | None = None,
    ) -> None:
        self.sources, self.embedders = sources or {}, embedders or {}
        self.interpreters, self.stages = interpreters or {}, stages or {}
        self.closed: Collection[tuple[str, str]] = ()

    async def ready(self, kind: str, name: str) -> None:
        """Do nothing: they are open."""


class CallLimits:
    """Bounds the calls to sources: slots overall and by source, a circuit breaker for each leg of a source.

    It also holds calls of all plugins that were cancelled and have not ended. Made for one event loop.
    """

    def __init__(self, settings: Settings, sources: Collection[str] = ()) -> None:
        rag, limits = settings.rag, settings.limits
        keys = {name: instance.keys.concurrency for name, instance in settings.sources.items()}
        at_once = {name: limit for name, limit in keys.items() if limit}
        self.slots = SourceSlots(rag.max_concurrency, limits.max_waiting, sources, at_once)
        self.patience = rag.timeout_seconds / 2
        """Seconds a source must have had for its lateness to count against it."""
        self._failures, self._seconds = limits.breaker_failures or math.inf, limits.breaker_seconds
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self.abandoned = AllAbandonedCalls(limits.max_abandoned)

    def breaker(self, source: str, leg: str) -> CircuitBreaker:
        """Return the circuit breaker of one leg of a source: a dead leg does not stop the others."""
        breaker = self._breakers.get((source, leg))
        if breaker is None:
            breaker = self._breakers[source, leg] = CircuitBreaker(self._failures, self._seconds)
        return breaker

    def paused(self, source: str) -> bool:
        """Whether the calls to a leg of this source pause, because it kept failing."""
        return any(not breaker.closed for (name, _), breaker in self._breakers.items() if name == source)

    async def aclose(self) -> None:
        """Wait a second for abandoned calls, and log how many still do not end."""
        await self.abandoned.aclose()


Clock = Callable[[], datetime]
"""Tells the time, aware of its zone."""


class Engine:
    """What the steps of all requests share.

    `scores` and `embeddings` are caches; None: nothing is kept. `clock` tells the time, with its zone.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        plugins: Plugins | None = None,
        *,
        scores: ScoreCache | None = None,
        embeddings: EmbeddingCache | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._clock, self._zone = clock or _utc_now, time_zone(self.settings.rag.timezone)
        self.plugins = plugins or OpenPlugins()
        self.sources, self.embedders = self.plugins.sources, self.plugins.embedders
        self.interpreters = self._interpreters()
        self.scores, self.embeddings = scores, embeddings
        self.limits = CallLimits(self.settings, self.sources)
        self.failures = FailureLog()
        self.statistics = StatisticsCache(self.sources, self.limits.abandoned)
        self.secrets = self.settings.secrets
        self.kinds = {name: source_kind(source) for name, source in self.sources.items()}
        self.source_keys = {name: self._keys_of(name, source) for name, source in self.sources.items()}
        self.profiles = Profiles(self.sources, self.embedders)
        self.connections = Connections(self.settings, self.sources)
        self.shadows = {name for name, keys in self.source_keys.items() if getattr(keys, "shadow", False)}

    def _keys_of(self, name: str, source: Source | FactSource) -> FactKeys:
        instance = self.settings.instances(source_kind(source)).get(name)
        if instance is not None:
            return instance.keys  # type: ignore[no-any-return]  # keys of a source's table are FactKeys
        return FactKeys() if isinstance(source, FactSource) else SourceKeys()

    def now(self) -> datetime:
        """Return the time, in the time zone of the settings."""
        return self._clock().astimezone(self._zone)

    def _interpreters(self) -> list[tuple[str, Interpreter, InterpreterKeys]]:
        """Return the interpreters that run, in the order of `[rag] interpreters`, with their router keys."""
        tables = self.settings.interpreters
        listed = self.settings.rag.interpreters
        every = self.plugins.interpreters
        plugins = [(name, every[name]) for name in listed if name in every]
        keyed = [(name, plugin, _keys(tables, name, InterpreterKeys)) for name, plugin in plugins]
        rag = self.settings.rag
        return [line for line in keyed if line[2].enabled and rag.runs(line[1].switch)]

    def stages(self, rag: Rag) -> list[tuple[str, Stage, StageKeys]]:
        """Return the stages that run on a route with these `[rag]` values, in order, with their router
        keys.
        """
        tables = self.settings.stages
        every = self.plugins.stages
        plugins = [(name, every[name]) for name in rag.stages if name in every]
        keyed = [(n, stage, _keys(tables, n, StageKeys)) for n, stage in plugins if rag.runs(stage.switch)]
        return [line for line in keyed if line[2].enabled]

    async def ensure_open(self, kind: str, name: str, deadline: Deadline) -> None:
        """Open a plugin that is not open yet. Raises what its `open()` raises, or TimeoutError."""
        if self.plugins.closed:
            async with deadline.timeout():
                await self.plugins.ready(kind, name)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _keys(tables: Mapping[str, Any], name: str, default: type[Any]) -> Any:
    return tables[name].keys if name in tables else default()
