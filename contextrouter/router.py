"""ContextRouter: one question in, the right context from many sources out, inside one deadline.

It owns the lifecycle, the cache and the trace. The eight steps stand in `_once`, in reading order; each is a
public function in a module of its own, and whoever needs another order writes those lines himself.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from zoneinfo import ZoneInfo

from contextrouter.cache import (
    Embedding,
    EmbeddingCache,
    ResultCache,
    ScoreCache,
    SingleFlight,
    Versions,
    of_router,
    tiers_of,
)
from contextrouter.contracts import (
    Connector,
    Embedder,
    FactSource,
    Generator,
    Interpreter,
    Plugin,
    Provider,
    Stage,
    StageContext,
)
from contextrouter.errors import AllSourcesFailed, ContextRouterError
from contextrouter.model import Context, Harvest, Plan, Request, SourceReport
from contextrouter.pipeline.assembly import assemble
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fan_out import OnReport, fan_out
from contextrouter.pipeline.fusion import fuse
from contextrouter.pipeline.hit_validation import all_sound, without_flawed
from contextrouter.pipeline.interpretation import failures, interpret, request_of
from contextrouter.pipeline.lanes import Lane, split
from contextrouter.pipeline.planning import Planner
from contextrouter.pipeline.ranking import rank
from contextrouter.pipeline.result import (
    GATED,
    Steps,
    behind_gate,
    context_of,
    distinct_facts,
    joined,
    raise_if_all_failed,
    with_reports,
)
from contextrouter.pipeline.selection import select
from contextrouter.pipeline.slots import Limits
from contextrouter.pipeline.stage_context import stage_context
from contextrouter.pipeline.term_statistics import Reported
from contextrouter.runtime.distribution import VERSION
from contextrouter.runtime.lifecycle import Instances, embedded
from contextrouter.runtime.registry import Registry
from contextrouter.runtime.shutdown import Running, looked_at
from contextrouter.scope import Scope
from contextrouter.settings import Rag, Settings, load
from contextrouter.settings.instances import with_given
from contextrouter.settings.sources import check_sources
from contextrouter.text import tokens

INTERPRET_SHARE = 0.3
"""Share of the request's time that the interpreters may use: one that hangs must not cost the answer."""
log = logging.getLogger("contextrouter")

FAN_OUT_SHARE = 0.9
"""Share of the request's time that the sources may use when ranking stages follow."""


P = TypeVar("P", bound=Plugin)


class ContextRouter:
    """The router. Use it as `async with ContextRouter.from_toml("settings.toml") as router`.

    `settings` is a mapping of the same tables as a settings file, or Settings; every other argument maps
    names to plugin instances made by hand, which the router opens and closes. One event loop owns a router
    between `open` and `aclose`.
    """

    def __init__(
        self,
        settings: Settings | Mapping[str, Any] | None = None,
        *,
        providers: Mapping[str, Provider] | None = None,
        connectors: Mapping[str, Connector] | None = None,
        facts: Mapping[str, FactSource] | None = None,
        interpreters: Mapping[str, Interpreter] | None = None,
        stages: Mapping[str, Stage] | None = None,
        embedders: Mapping[str, Embedder] | None = None,
        generators: Mapping[str, Generator] | None = None,
        registry: Registry | None = None,
    ) -> None:
        given: dict[str, Mapping[str, Plugin]] = {
            "provider": providers or {},
            "connector": connectors or {},
            "fact": facts or {},
            "interpreter": interpreters or {},
            "stage": stages or {},
            "embedder": embedders or {},
            "generator": generators or {},
        }
        if isinstance(settings, Settings):
            read, found = (
                settings,
                registry or Registry([Path(settings.path).parent / p for p in settings.plugins.paths]),
            )
        else:
            read, plugins = load(
                settings or {}, Registry, given={kind: list(named) for kind, named in given.items()}
            )
            found = registry or cast(Registry, plugins)
        self.settings = with_given(read, given)
        self.registry = found
        self.instances = Instances(self.settings, found, given)
        self.settings = check_sources(self.settings, self.instances.sources)
        self._sources = self.instances.sources
        self._order = list(self._sources)
        self._reported = Reported(self._sources)
        self._planner = Planner(self.settings, self._sources)
        self._interpreters = _named(self.settings.rag.interpreters, self.instances.interpreters)
        self._ways = {kind: self._way(self.settings.for_route(kind)[0]) for kind in self.settings.routes}
        self._usual = self._way(self.settings.rag)
        self._embedders = self.instances.embedders
        self._embedded = embedded(self._sources, self._embedders)
        self._keys = {
            kind: {n: i.keys for n, i in self.settings.instances(kind).items()}
            for kind in ("interpreter", "stage")
        }
        self._loop: asyncio.AbstractEventLoop | None = None  # where it is being opened, or is open
        self._open_in: asyncio.AbstractEventLoop | None = None
        self._opening: SingleFlight[None]
        self._running = Running()
        self._limits: Limits
        self._versions: Versions
        self.cache = tiers_of(self.settings)
        token = secrets.token_hex(
            16
        )  # what instances made by hand had a part in is shared with no other router
        own = of_router(self.settings, self.instances.given, version=VERSION, token=token)
        self._results = ResultCache(self.cache, router=own, ttl=self.settings.rag.cache_ttl_seconds)
        ttl = self.settings.rag.cache_ttl_seconds
        self._scores = (
            ScoreCache(self.cache, router=own, ttl=ttl) if self.settings.rag.cache_enabled else None
        )
        self._embeddings = EmbeddingCache.of(self.cache, self.settings, self.instances.given, token)
        self._zone = ZoneInfo(self.settings.rag.timezone)

    @classmethod
    def from_toml(cls, path: str | Path = "settings.toml", **overrides: Any) -> Self:
        """Return a router for a settings file. `overrides` lie over it: tables (`rag={"rrf_k": 10}`) or keys
        (`rag__rrf_k=10`).

        Raises SettingsError with every problem of the file at once. What is only doubtful is logged as a
        warning.
        """
        settings, registry = load(path, Registry, overrides=overrides)
        router = cls(settings, registry=cast(Registry, registry))
        for warning in (*router.settings.warnings, *router.registry.warnings):
            log.warning("%s", warning)
        return router

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Open every plugin. Called by `async with`, and by the first request where there is none; all wait
        for one opening.
        """
        loop = asyncio.get_running_loop()
        if self._open_in is loop:
            return
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise ContextRouterError(
                    "This router is open in another event loop. Close it there, or make one router per loop."
                )
            self._loop, self._opening = loop, SingleFlight()
        await self._opening.run(b"", math.inf, self._open)

    async def _open(self) -> None:
        keys = {name: instance.keys for name, instance in self.settings.sources.items()}
        rag, limits = self.settings.rag, self.settings.limits
        self._limits = Limits(
            keys,
            max_concurrency=rag.max_concurrency,
            max_waiting=limits.max_waiting,
            breaker_failures=limits.breaker_failures,
            breaker_seconds=limits.breaker_seconds,
            patience=rag.timeout_seconds / 2,
            secrets=self.settings.secrets,
            ready=self.instances.ready,
            closed=self.instances.closed,
        )
        self._versions = Versions(self._sources, self.settings.cache.version_seconds)
        self._running = Running()
        try:
            if self.settings.rag.cache_enabled:
                await self.cache.open()
            if self.settings.rag.token_budget:
                await asyncio.to_thread(tokens.count, "")  # load the tokenizer before a question waits for it
            if self.settings.rag.calibrate:
                await asyncio.to_thread(
                    import_module, "contextrouter.pipeline.calibration"
                )  # or the first one would load it
            await self.instances.open()
            self._open_in = self._loop
        except BaseException:
            try:
                await self.instances.aclose()
                await self.cache.aclose()
            finally:
                self._loop = None
            raise

    async def aclose(self) -> None:
        """End what runs, with a ContextRouterError for whoever waits, and let go of everything. `open` works
        again.
        """
        if self._loop is None:
            return
        await self._opening.aclose()
        if self._open_in is None:
            return
        self._loop = self._open_in = None
        await self._running.aclose()
        await self._results.aclose()
        await self._versions.aclose()
        await self._limits.aclose()
        await self.cache.aclose()
        await self.instances.aclose()

    async def route(
        self,
        question: str | Request,
        *,
        scope: Scope | None = None,
        sources: Sequence[str] | None = None,
        legs: Sequence[str] | None = None,
        deadline: float | None = None,
    ) -> Context:
        """Answer `question` with numbered context. `deadline` is in seconds from now.

        Raises RequestRefused (nothing ran), or AllSourcesFailed when every source that was asked failed.
        """
        request = request_of(question, scope, sources, legs, deadline)
        if self._open_in is not asyncio.get_running_loop():
            await self.open()
        until = monotonic() + (request.deadline or self.settings.rag.timeout_seconds)
        if not self.settings.rag.cache_enabled:
            return await self._compute(request, until)
        today = datetime.now(self._zone).date()
        key = self._results.key(request, today, await self._versions.now(until))
        return await self._results.answer(key, until, lambda: self._compute(request, until))

    async def plan(
        self,
        question: str | Request,
        *,
        scope: Scope | None = None,
        sources: Sequence[str] | None = None,
        legs: Sequence[str] | None = None,
        deadline: float | None = None,
    ) -> Plan:
        """Return the plan for `question` without a search; sources that report statistics may be asked for
        these.
        """
        request = request_of(question, scope, sources, legs, deadline)
        await self.open()
        until = monotonic() + (request.deadline or self.settings.rag.timeout_seconds)
        with self._running.one():
            return await self._planned(request, until, Steps())

    async def stream(
        self,
        question: str | Request,
        *,
        scope: Scope | None = None,
        sources: Sequence[str] | None = None,
        legs: Sequence[str] | None = None,
        deadline: float | None = None,
    ) -> AsyncIterator[SourceReport | Context]:
        """Yield source reports as they come, then the Context. Does not read the cache, so that there is
        something to see.
        """
        request = request_of(question, scope, sources, legs, deadline)
        await self.open()
        until = monotonic() + (request.deadline or self.settings.rag.timeout_seconds)
        reports: asyncio.Queue[SourceReport | None] = asyncio.Queue()
        task = asyncio.get_running_loop().create_task(self._compute(request, until, reports.put_nowait))
        task.add_done_callback(lambda _: reports.put_nowait(None))
        task.add_done_callback(looked_at)
        try:
            while (report := await reports.get()) is not None:
                yield report
            yield await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _compute(self, request: Request, until: float, on_report: OnReport | None = None) -> Context:
        with self._running.one():
            embedding = Embedding(self._embeddings)
            context = await self._once(request, until, on_report, embedding)
            if context.outcome in ("empty", GATED):
                context = await self._on_fallback(context, request, until, on_report, embedding)
            return context

    async def _on_fallback(
        self,
        context: Context,
        request: Request,
        until: float,
        on_report: OnReport | None,
        embedding: Embedding,
    ) -> Context:
        """Where a route found nothing, run the steps on its fallback, in the time that is left; and so on."""
        tried = {context.intent.kind}
        while context.outcome in ("empty", GATED):
            fallback = self.settings.for_route(context.intent.kind)[1].fallback
            if fallback is None or fallback in tried or monotonic() >= until:
                break
            tried.add(fallback)
            try:
                context = joined(
                    context, await self._once(request.replace(mode=fallback), until, on_report, embedding)
                )
            except AllSourcesFailed as error:  # the first route was answered, with nothing: that stands
                return with_reports(context, error.reports)
        return context

    async def _planned(self, request: Request, until: float, steps: Steps) -> Plan:
        left = (until - monotonic()) * INTERPRET_SHARE
        intent = await interpret(
            request,
            self._interpreters,
            keys=self._keys["interpreter"],
            deadline=asyncio.get_running_loop().time() + left,
            max_queries=self.settings.rag.queries,
            ready=self.instances.ready if self.instances.closed else None,
            secrets=self.settings.secrets,
        )
        steps.add("interpret", note=failures(intent))
        plan = self._planner.plan(intent, request)
        if self.settings.selection.sources != "all":
            from contextrouter.pipeline.source_selection import (
                choose,
            )  # whoever asks all sources does not load it

            plan = await choose(plan, self.settings.selection, self._sources, self._reported, until)
        steps.add("plan")
        return plan

    async def _once(
        self, request: Request, until: float, on_report: OnReport | None, embedding: Embedding
    ) -> Context:
        started = monotonic()
        steps = Steps()
        plan = await self._planned(request, until, steps)
        intent = plan.intent
        rag, named = self._ways.get(intent.kind, self._usual)
        stages = {name: stage for name, stage in named.items() if rag.runs(stage.switch)}
        share = FAN_OUT_SHARE if stages else 1.0
        harvest = await fan_out(
            plan,
            self._sources,
            self._embedders,
            deadline=started + (until - started) * share,
            limits=self._limits,
            on_report=on_report,
            embed=embedding,
        )
        hits = sum([len(ranked.hits) for ranked in harvest.lists])
        steps.add("fan_out", hits)
        raise_if_all_failed(harvest)
        facts, beyond = distinct_facts(harvest.facts, rag.max_graph_facts)
        if beyond:
            steps.add("facts", len(facts), note=f"{len(beyond)} facts beyond max_graph_facts", facts=beyond)
        told = (
            stage_context(request, intent, facts, self.settings, self._sources, self._scores)
            if stages
            else None
        )
        harvest, selected = await self._selected(harvest, rag, stages, told, request, embedding, until, steps)
        gated, harvest, facts = behind_gate(selected, harvest, facts, steps)
        done = assemble(
            selected, facts, budget=rag.token_budget, count=tokens.count, truncate=tokens.truncate
        )
        steps.add("assemble", len(done.envelopes), done.lost, done.note, done.lost_facts)
        return context_of(
            request,
            intent,
            plan,
            harvest,
            done,
            steps.all,
            started,
            hits=hits,
            embedded=embedding.embedded,
            gated=gated,
        )

    async def _selected(
        self,
        harvest: Harvest,
        rag: Rag,
        stages: Mapping[str, Stage],
        context: StageContext | None,
        request: Request,
        embedding: Embedding,
        until: float,
        steps: Steps,
    ) -> tuple[Harvest, Lane]:
        """Dedupe, fuse, rank and select. A hit that is not what its types say is left out, and its source's
        report names it.

        Stages look at everything, so everything is looked at before them; without stages only what was
        selected, and all of it when something is found, or when a step could not work with it.
        """
        sound = without_flawed(harvest) if stages else harvest
        before = len(steps.all)
        try:
            selected = await self._ranked(sound, rag, stages, context, request, embedding, until, steps)
            if stages or all_sound([envelope.document for envelope in selected.live]):
                return sound, selected
        except (TypeError, AttributeError, ValueError, OverflowError):
            sound = without_flawed(harvest)
            if stages or sound is harvest:
                raise  # a fault of this program
        del steps.all[before:]
        sound = without_flawed(harvest)
        return sound, await self._ranked(sound, rag, stages, context, request, embedding, until, steps)

    async def _ranked(
        self,
        harvest: Harvest,
        rag: Rag,
        stages: Mapping[str, Stage],
        context: StageContext | None,
        request: Request,
        embedding: Embedding,
        until: float,
        steps: Steps,
    ) -> Lane:
        envelopes = dedupe(harvest.lists, rag.identity)
        steps.add("dedupe", len(envelopes))
        profiles, asked = self._profiles(), request.question.strip()
        if rag.calibrate and len(harvest.lists) > 1:
            from contextrouter.pipeline.calibration import (
                calibrate,
            )  # whoever asks one source does not load it

            vectors = {name: vector for (name, text), vector in embedding.vectors.items() if text == asked}
            told = (self._reported, request.scope, profiles, until, vectors, self._embedders)
            if note := await calibrate(envelopes, rag, self._sources, *told):
                steps.add("calibrate", len(envelopes), note=note)
        live = steps.split(
            "fuse", fuse(envelopes, rag, profiles=profiles, sources=self._order, question=asked)
        )
        if context is not None:
            ranked = await rank(
                live,
                stages,
                context,
                keys=self._keys["stage"],
                deadline=_on_loop(until),
                steps=steps.all,
                secrets=self.settings.secrets,
                ready=self.instances.ready if self.instances.closed else None,
            )
            live = Lane(split(ranked)[0])
            steps.mark()
        return steps.split("select", select(live, rag))

    def _profiles(self) -> dict[str, Mapping[str, float]]:
        """Source -> leg weights of its embedder's profile."""
        return {name: embedder.leg_weights for name, embedder in self._embedded.items()}

    def _way(self, rag: Rag) -> tuple[Rag, dict[str, Stage]]:
        return rag, _named(rag.stages, self.instances.stages)


def _named(names: Sequence[str], plugins: Mapping[str, P]) -> dict[str, P]:
    return {name: plugins[name] for name in names if name in plugins}


def _on_loop(until: float) -> float:
    return asyncio.get_running_loop().time() + (until - monotonic())
