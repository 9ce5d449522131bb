"""ContextRouter: one question in, the right context from many sources out, inside one deadline.

It owns the plugins' lifecycle and the cache. What happens to one question is in `pipeline/run.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from functools import cached_property, partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from contextrouter.cache import (
    EmbeddingCache,
    ResultCache,
    ScoreCache,
    SingleFlight,
    Versions,
    build_tiers,
    router_digest,
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
)
from contextrouter.errors import ContextRouterError
from contextrouter.model import Answer, Context, Document, Plan, Request, RequestFields, SourceReport
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Clock, Engine
from contextrouter.pipeline.interpretation import request_of
from contextrouter.pipeline.run import Run, run
from contextrouter.pipeline.whole_documents import whole_document
from contextrouter.runtime.abandoned_calls import consume_exception
from contextrouter.runtime.distribution import VERSION
from contextrouter.runtime.lifecycle import Instances
from contextrouter.runtime.registry import Registry
from contextrouter.runtime.shutdown import Running
from contextrouter.runtime.spans import trace_route, trace_run
from contextrouter.runtime.threads import work_aside
from contextrouter.scope import Scope
from contextrouter.settings import Settings
from contextrouter.text import tokens

if TYPE_CHECKING:
    from pathlib import Path

    from contextrouter.answering import Answering

log = logging.getLogger("contextrouter")


class ContextRouter:
    """The router. Use it as `async with ContextRouter.from_toml("settings.toml") as router`.

    `settings` is a mapping of the same tables as a settings file, or Settings; every other argument maps
    names to plugin instances made by hand, which the router opens and closes. `clock` tells the time, with
    its zone. One event loop owns a router between `open` and `aclose`.
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
        clock: Clock | None = None,
    ) -> None:
        instances: dict[str, Mapping[str, Plugin]] = {
            "provider": providers or {},
            "connector": connectors or {},
            "fact": facts or {},
            "interpreter": interpreters or {},
            "stage": stages or {},
            "embedder": embedders or {},
            "generator": generators or {},
        }
        from contextrouter.settings.sources import check_sources

        values, self.registry = _read(settings, registry, instances)
        self.instances = Instances(values, self.registry, instances)
        self.settings = check_sources(values, self.instances.sources)
        self.cache = build_tiers(self.settings)
        self._clock = clock
        self._make_caches()
        self._running = Running()
        self._loop: asyncio.AbstractEventLoop | None = None  # where it is being opened, or is open
        self._open_in: asyncio.AbstractEventLoop | None = None
        self._opening: SingleFlight[None]
        self._versions: Versions
        self.engine: Engine

    def _make_caches(self) -> None:
        """Make the caches of answers, scores and vectors. What instances made by hand give is shared with no
        other router, unless their model identifies them.
        """
        settings, token = self.settings, os.urandom(16).hex()
        digest = router_digest(settings, self.instances.given, version=VERSION, token=token)
        ttl = settings.rag.cache_ttl_seconds
        self._results = ResultCache(self.cache, router=digest, ttl=ttl)
        self._scores = (
            ScoreCache(self.cache, settings, self.instances.given, version=VERSION, token=token)
            if settings.rag.cache_enabled
            else None
        )
        self._embeddings = EmbeddingCache.from_settings(self.cache, settings, self.instances.given, token)

    @classmethod
    def from_toml(cls, path: str | Path = "settings.toml", **overrides: Any) -> Self:
        """Return a router for a settings file. `overrides` lie over it: tables (`rag={"rrf_k": 10}`) or keys
        (`rag__rrf_k=10`).

        Raises SettingsError with every problem of the file at once. What is only doubtful is logged as a
        warning.
        """
        from contextrouter.settings.loading import load

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

    async def open(self, kinds: Collection[str] | None = None) -> None:
        """Open every plugin, or only those of `kinds`, such as "interpreter"; a question opens the others
        that it needs. Called by `async with`, and by the first request where there is none; all wait for one
        opening.
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
        await self._opening.run(b"", math.inf, lambda: self._open(kinds))

    async def _open(self, kinds: Collection[str] | None) -> None:
        self.engine = Engine(
            self.settings, self.instances, scores=self._scores, embeddings=self._embeddings, clock=self._clock
        )
        self._versions = Versions(
            self.instances.sources, self.settings.cache.version_seconds, self.engine.limits.abandoned
        )
        self._running = Running()
        try:
            if self.settings.rag.cache_enabled:
                await self.cache.open()
            if kinds is None and self.settings.rag.token_budget:
                await work_aside(tokens.count, "")  # load the tokenizer before a question waits for it
            if kinds is None and self.settings.rag.calibrate:
                await work_aside(
                    import_module, "contextrouter.pipeline.calibration.calibrated_values"
                )  # or the first one would load it
            await self.instances.open(kinds)
            self._open_in = self._loop
        except BaseException:
            try:
                await self.instances.aclose()
            finally:
                self._loop = None
                await self.cache.aclose()
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
        parts = (self._running, self._results, self._versions, self.engine.limits, self.cache, self.instances)
        async with AsyncExitStack() as stack:  # what fails keeps nothing after it open
            for part in reversed(parts):
                stack.push_async_callback(part.aclose)

    async def route(self, question: str | Request, **fields: Unpack[RequestFields]) -> Context:
        """Answer `question` with numbered context. `fields` are those of a Request, such as `scope`,
        `sources`, `period`, `limit`, and `deadline`, in seconds from now.

        Raises RequestRefused (nothing ran), or AllSourcesFailed when every source that was asked failed.
        """
        request = request_of(question, fields)
        if self._open_in is not asyncio.get_running_loop():
            await self.open()
        until = self._deadline(request)
        return await trace_route(request, self.settings.telemetry, lambda: self._route(request, until))

    async def _route(self, request: Request, until: Deadline) -> Context:
        if not self.settings.rag.cache_enabled:
            return await self._compute(request, until)
        today = self.engine.now().date()
        key = self._results.key(request, today, await self._versions.now(until.at))
        return await self._results.answer(key, until.at, lambda: self._compute(request, until))

    async def plan(self, question: str | Request, **fields: Unpack[RequestFields]) -> Plan:
        """Return the plan for `question` without a search; sources that report statistics may be asked for
        these.
        """
        request = request_of(question, fields)
        await self.open()
        until = self._deadline(request)
        with self._running.track():
            return await Run(request, until, self.engine).make_plan()

    async def stream(
        self, question: str | Request, **fields: Unpack[RequestFields]
    ) -> AsyncIterator[SourceReport | Context]:
        """Yield source reports as they come, then the Context. Does not read the cache, so that there is
        something to see.
        """
        request = request_of(question, fields)
        await self.open()
        until = self._deadline(request)
        reports: asyncio.Queue[SourceReport | None] = asyncio.Queue()
        compute = partial(self._compute, request, until, reports.put_nowait)
        task = asyncio.get_running_loop().create_task(trace_route(request, self.settings.telemetry, compute))
        task.add_done_callback(lambda _: reports.put_nowait(None))
        task.add_done_callback(consume_exception)
        try:
            while (report := await reports.get()) is not None:
                yield report
            yield await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def document(self, source: str, id: str, *, scope: Scope | None = None) -> Document | None:
        """Return the whole document that a source has under an id, as `scope` may see it; None: there is
        none, or the source cannot read by id. A chunk has the id of its document in `parent`.

        Raises SourceError, and SourceTimeout after `[rag] timeout_seconds`.
        """
        await self.open()
        with self._running.track():
            seconds = self.settings.rag.timeout_seconds
            if source in self.engine.kinds:
                await self.instances.ready(self.engine.kinds[source], source)
            return await whole_document(self.engine, source, id, scope, seconds)

    @cached_property
    def answering(self) -> Answering:
        """What writes answers. Raises SettingsError for a file of examples that is wrong."""
        from contextrouter.answering import Answering  # a route alone needs none of it

        return Answering(self.settings, self.instances, self.registry)

    async def answer(self, question: str | Request, **fields: Unpack[RequestFields]) -> Answer:
        """Answer `question` in words, with citations, from the context that `route` gives; `fields` as there.

        The generator is that of the settings, `extractive` by default. Where there is nothing to answer from,
        the text says so, and `outcome` why. Raises what `route` raises, and PluginError when the generator
        fails and nothing writes in its place.
        """
        from contextrouter.answering import to_answer

        request = request_of(question, fields)
        context = await self.route(request)
        return to_answer(await self.answering.whole(self.answering.make_order(request), context), context)

    async def answer_stream(
        self, question: str | Request, **fields: Unpack[RequestFields]
    ) -> AsyncIterator[str | Answer]:
        """Yield the text of the answer in pieces, and last the Answer. Raises as `answer`."""
        from contextrouter.answering import Draft, to_answer, visible_pieces
        from contextrouter.answering.closing import closing

        request = request_of(question, fields)
        context = await self.route(request)
        writing = self.answering.pieces(self.answering.make_order(request), context)
        async with closing(visible_pieces(writing)) as pieces:
            async for piece in pieces:
                yield to_answer(piece, context) if isinstance(piece, Draft) else str(piece)

    def _deadline(self, request: Request) -> Deadline:
        return Deadline.after(request.deadline or self.settings.rag.timeout_seconds)

    async def _compute(
        self, request: Request, deadline: Deadline, on_report: Callable[[SourceReport], None] | None = None
    ) -> Context:
        with self._running.track():
            return await trace_run(
                self.settings.telemetry, lambda: run(request, deadline, self.engine, on_report)
            )


def _read(
    settings: Settings | Mapping[str, Any] | None,
    registry: Registry | None,
    instances: Mapping[str, Mapping[str, Plugin]],
) -> tuple[Settings, Registry]:
    """Return the settings with the instances, and the plugins they may name."""
    from pathlib import Path

    from contextrouter.settings.instances import add_provided
    from contextrouter.settings.loading import load

    if isinstance(settings, Settings):
        folders = [Path(settings.path).parent / path for path in settings.plugins.paths]
        return add_provided(settings, instances), registry or Registry(folders)
    values, plugins = load(
        settings or {}, Registry, by_hand={kind: list(plugins) for kind, plugins in instances.items()}
    )
    return add_provided(values, instances), registry or cast(Registry, plugins)
