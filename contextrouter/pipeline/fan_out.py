"""Step 3: ask every source at once, inside one deadline. All concurrency of the request path is in this file.

What has arrived is used; what is late is reported, cancelled and awaited; a failure is data. The scope is
enforced on everything that arrives, whatever the source did with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from time import monotonic
from typing import Any

from contextrouter.contracts import (
    ENTITIES,
    FACETS,
    FACTS,
    Embedder,
    FactSource,
    Partial,
    Provider,
    Source,
    SupportsEntities,
    SupportsFacets,
)
from contextrouter.errors import ContextRouterError, ContractError, SourceTimeout
from contextrouter.model import (
    Call,
    Entity,
    Facet,
    Fact,
    Harvest,
    Hit,
    Intent,
    Plan,
    Query,
    RankedList,
    SourceReport,
    Vector,
)
from contextrouter.pipeline.admission import Arrival, checked
from contextrouter.pipeline.slots import Limits, Overloaded
from contextrouter.runtime.masking import mask

MARGIN = 0.05
"""Share of the time left that a source is told not to use, at most 50 ms, so that it can hand over what it
has.
"""
GRACE = 0.05
"""Seconds given to cancelled calls to end. One that does not is kept an eye on, and ended with the router."""

_STRUCTURED = frozenset((FACTS, FACETS, ENTITIES))

OnReport = Callable[[SourceReport], None]
Embed = Callable[[str, Embedder, Sequence[str]], Awaitable[Sequence[Vector]]]
"""Called with an embedder's name, itself, and the texts of queries; returns one vector per text."""


async def fan_out(
    plan: Plan,
    sources: Mapping[str, Source | FactSource],
    embedders: Mapping[str, Embedder],
    *,
    deadline: float | None = None,
    limits: Limits | None = None,
    on_report: OnReport | None = None,
    embed: Embed | None = None,
) -> Harvest:
    """Make the plan's calls and return what came back by `deadline` (on `time.monotonic()`), lists in the
    order of the plan.

    Vector legs start as soon as their embedder has answered, the others at once.
    """
    run = _Run(plan, sources, embedders, deadline, limits or Limits(), on_report, embed)
    return await run.harvest()


class _Run:
    """One fan-out."""

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, Source | FactSource],
        embedders: Mapping[str, Embedder],
        deadline: float | None,
        limits: Limits,
        on_report: OnReport | None,
        embed: Embed | None = None,
    ) -> None:
        self.plan, self.embedders = plan, embedders
        self.sources: Mapping[str, Any] = sources  # what a call asks of one is what its leg says it has
        self.deadline, self.limits, self.on_report, self.embed = deadline, limits, on_report, embed
        self.started = monotonic()
        left = None if deadline is None else max(0.0, deadline - self.started)
        self.told = None if left is None or deadline is None else deadline - min(0.05, left * MARGIN)
        self.results: list[Any] = [None] * len(plan.calls)
        self._queries: dict[int, Query] = {}
        self.reports: list[SourceReport | None] = [None] * len(plan.calls)
        self.vectors: dict[str, asyncio.Task[Mapping[str, Vector]]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.to_make = iter(enumerate(plan.calls))  # calls that nobody has begun
        self.left: int
        self.over: asyncio.Future[None]
        self.timer: asyncio.TimerHandle | None = None
        self.ending = False

    async def harvest(self) -> Harvest:
        skipped = [_skipped(name, why, self.plan.intent) for name, why in self.plan.excluded.items()]
        if self.on_report is not None:
            for report in skipped:
                self.on_report(report)
        if self.plan.calls:
            await self._run()
        return self._gathered(skipped)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for name, texts in self._texts().items():
            self.vectors[name] = loop.create_task(self._embed(name, texts))
        self.left, self.over = len(self.plan.calls), loop.create_future()
        self.tasks.append(loop.create_task(self._in_turn()))
        loop.call_soon(self._spread)  # runs after the first step of that task
        try:
            await self.over
        finally:
            self.ending = True
            if self.timer is not None:
                self.timer.cancel()
            late = [task for task in self.tasks if not task.done()]
            if late or self.vectors:
                await self._end({*late, *self.vectors.values()})
        for task in self.tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error  # a fault of this program, not of a source
        for index, call in enumerate(self.plan.calls):
            if self.reports[index] is None:
                self._cut_off(index, call)

    async def _in_turn(self) -> None:
        """Make calls one after the other for as long as each is answered without waiting: a task for each
        would cost more.
        """
        task = asyncio.current_task()
        for index, call in self.to_make:
            await self._ask(index, call)
            if task is None or task.cancelling():  # the source's doing; it must not reach the next call
                return

    def _spread(self) -> None:
        """A call waits: give each of those behind it a task, so that all wait at once, until the deadline."""
        if self.ending or not self.left:
            return
        loop = asyncio.get_running_loop()
        if self.deadline is not None:
            self.timer = loop.call_later(self.deadline - monotonic(), self._cut)
        for index, call in self.to_make:
            self.tasks.append(loop.create_task(self._ask(index, call)))

    def _cut(self) -> None:
        """No longer wait: every call has ended, or the time is over."""
        if not self.over.done():
            self.over.set_result(None)

    async def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Cancel, and wait a little. Ends the embedding as well: whoever waits for it has ended."""
        running = {task for task in tasks if not task.done()}
        for task in running:
            task.cancel()
        if running:
            _, left = await asyncio.wait(running, timeout=GRACE)
            self.limits.keep(left)
        for task in tasks - running:
            if not task.cancelled():
                task.exception()

    def _texts(self) -> dict[str, list[str]]:
        """The texts each embedder is needed for."""
        texts: dict[str, dict[str, None]] = {}
        for call in self.plan.calls:
            if call.query.leg in _STRUCTURED:
                continue
            source = self.sources[call.source]
            if source.embedder and call.query.leg in source.vector_legs:
                texts.setdefault(source.embedder, {})[call.query.text] = None
        return {name: list(found) for name, found in texts.items()}

    async def _embed(self, name: str, texts: list[str]) -> Mapping[str, Vector]:
        if name not in self.embedders:
            raise ContractError(
                f"embedder {name!r} is not defined; defined embedders: {', '.join(self.embedders) or 'none'}"
            )
        if self.limits.ready is not None:
            await self.limits.ready("embedder", name)
        embedder = self.embedders[name]
        vectors = await (
            self.embed(name, embedder, texts) if self.embed else embedder.embed(texts, query=True)
        )
        if len(vectors) != len(texts):
            raise ContractError(f"embedder {name!r} returned {len(vectors)} vectors for {len(texts)} texts")
        return dict(zip(texts, vectors, strict=True))

    async def _ask(self, index: int, call: Call) -> None:
        """Make one call and report how it ended, to the caller and to the breaker."""
        started = monotonic()
        breaker = self.limits.breaker(call.source, call.query.leg)
        try:
            if not breaker.closed and (why := breaker.refuses()):
                self._report(index, call, "open", started, error=why)
                return
            if call.timeout is None:
                await self._answer(index, call, started)
            else:
                async with asyncio.timeout(call.timeout):
                    await self._answer(index, call, started)
            breaker.worked()
        except asyncio.CancelledError:
            breaker.left()
            if not self.ending:
                why = "the source cancelled its own call"
                self._report(index, call, "error", started, error=why)
                breaker.failed(why)
            raise
        except Exception as error:
            late = isinstance(error, TimeoutError | SourceTimeout)
            why = (
                f"no answer within {monotonic() - started:.3f} s"
                if isinstance(error, TimeoutError)
                else self._why(error)
            )
            self._report(index, call, "timeout" if late else "error", started, error=why)
            if isinstance(error, Overloaded) or (late and monotonic() - started < self._patience(call)):
                breaker.left()
            else:
                breaker.failed(why)
        finally:
            self.left -= 1
            if not self.left:
                self._cut()

    def _patience(self, call: Call) -> float:
        """Seconds a call must have had for its lateness to count against the source; a hurried caller proves
        nothing.
        """
        return self.limits.patience if call.timeout is None else min(self.limits.patience, 0.9 * call.timeout)

    def _cut_off(self, index: int, call: Call) -> None:
        """Report a call that was cut at the deadline. It counts against a source that had its time."""
        why = "no answer by the request's deadline"
        self._report(index, call, "timeout", error=why)
        if monotonic() - self.started >= self.limits.patience:
            self.limits.breaker(call.source, call.query.leg).failed(why)

    def _why(self, error: Exception) -> str:
        text = str(error) or repr(error)
        if not isinstance(error, ContextRouterError):
            text = f"{type(error).__name__}: {text}"
        return " ".join(mask(text, self.limits.secrets).split())[:500]

    async def _answer(self, index: int, call: Call, started: float) -> None:
        """Ask when there are slots for it, and keep what came back."""
        limits, source = self.limits, self.sources[call.source]
        own, overall = limits.per_source.get(call.source), limits.overall
        if own is not None and not own.taken_at_once():
            await own.take()
        try:
            if not overall.taken_at_once():
                await overall.take()
            try:
                if limits.closed and limits.ready is not None:
                    await limits.ready(_kind(source), call.source)
                if call.query.leg in _STRUCTURED:
                    answer = await self._structured(source, self._told(call.query, call.timeout, None))
                else:
                    vector = await self._vector(source, call.query) if source.embedder else None
                    answer = await source.search(self._told(call.query, call.timeout, vector))
            finally:
                overall.give()
        finally:
            if own is not None:
                own.give()
        if call.query.leg in _STRUCTURED:
            self._keep_structured(index, call, answer, started)
        else:
            self._keep_hits(index, call, answer, started)

    async def _vector(self, source: Source, query: Query) -> Vector | None:
        if source.embedder is None or query.leg not in source.vector_legs:
            return None
        return (await asyncio.shield(self.vectors[source.embedder]))[query.text]

    def _keep_hits(self, index: int, call: Call, found: Sequence[Hit], started: float) -> None:
        query, name, withheld = call.query, call.source, 0
        if (
            name in self.limits.labelled
            or query.scope is not None
            or query.period is not None
            or query.filters
            or query.labels
        ):
            arrival = Arrival(query, self.limits.keys.get(name))
            hits, withheld = arrival.hits(found), arrival.withheld
        else:
            hits = checked(found)
            if len(hits) > query.limit:
                hits = hits[: query.limit]
        scale = _scale(self.sources[name], query.leg)
        self.results[index] = RankedList(
            source=name,
            leg=query.leg,
            query=query.text,
            hits=hits,
            weight=call.weight,
            score_range=scale,
            retrieved_at=datetime.now(UTC),
        )
        if isinstance(found, Partial):
            reason = mask(found.reason, self.limits.secrets)
            self._report(index, call, "partial", started, count=len(hits), withheld=withheld, error=reason)
        else:
            self._report(index, call, "ok", started, count=len(hits), withheld=withheld)

    def _keep_structured(self, index: int, call: Call, found: Sequence[Any], started: float) -> None:
        arrival = Arrival(call.query, self.limits.keys.get(call.source))
        answer = arrival.labelled(found)
        self.results[index] = [
            item if isinstance(item, Facet) else item.replace(source=call.source) for item in answer
        ]
        self._report(index, call, "ok", started, count=len(answer))

    async def _structured(self, source: Source | FactSource, query: Query) -> Sequence[Any]:
        if query.leg == FACTS and isinstance(source, FactSource):
            return await source.facts(query)
        if query.leg == FACETS and isinstance(source, SupportsFacets):
            return await source.facets(query, self.plan.intent.facets)
        if query.leg == ENTITIES and isinstance(source, SupportsEntities):
            return await source.entities(query)
        raise ContractError(f"leg {query.leg!r} is not one this source has")

    def _told(self, query: Query, timeout: float | None, vector: Vector | None) -> Query:
        """The query with its vector and the deadline the source is told."""
        told = self.told
        if timeout is None and vector is None:
            known = self._queries.get(id(query))
            if known is not None:
                return known
        if timeout is not None:
            own = monotonic() + timeout * (1 - MARGIN)
            told = own if told is None else min(told, own)
        made = Query(
            text=query.text,
            leg=query.leg,
            limit=query.limit,
            vector=vector,
            deadline=told,
            concepts=query.concepts,
            labels=query.labels,
            entities=query.entities,
            period=query.period,
            language=query.language,
            scope=query.scope,
            filters=query.filters,
        )
        if timeout is None and vector is None:
            self._queries[id(query)] = made  # sources share a query; the plan keeps it alive
        return made

    def _report(
        self,
        index: int,
        call: Call,
        status: Any,
        started: float | None = None,
        *,
        count: int = 0,
        error: str = "",
        withheld: int = 0,
    ) -> None:
        report = SourceReport(
            source=call.source,
            leg=call.query.leg,
            query=call.query.text,
            status=status,
            count=count,
            error=error,
            elapsed=monotonic() - (self.started if started is None else started),
            withheld=withheld,
        )
        self.reports[index] = report
        if self.on_report is not None:
            self.on_report(report)

    def _gathered(self, skipped: list[SourceReport]) -> Harvest:
        lists: list[RankedList] = []
        facts: list[Fact] = []
        facets: list[Facet] = []
        entities: list[Entity] = []
        structured: dict[str, list[Any]] = {FACTS: facts, FACETS: facets, ENTITIES: entities}
        for call, result, report in zip(self.plan.calls, self.results, self.reports, strict=True):
            if result is None or report is None or report.status not in ("ok", "partial"):
                continue
            if isinstance(result, RankedList):
                lists.append(result)
            else:
                structured[call.query.leg].extend(result)
        reports = tuple(report for report in self.reports if report is not None)
        return Harvest(
            lists=tuple(lists),
            facts=tuple(facts),
            facets=tuple(facets),
            entities=tuple(entities),
            reports=(*reports, *skipped),
        )


def _scale(source: Source, leg: str) -> tuple[float, float] | None:
    """The range of a leg's scores, where its source declares one. Raises ContractError for what is no
    range.
    """
    declared: Any = source.score_range
    if declared is None:
        return None
    if isinstance(declared, Mapping):
        declared = declared.get(leg)
        if declared is None:
            return None
    try:
        low, high = declared
        if isfinite(low) and isfinite(high) and low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise ContractError(
        f"score_range is {declared!r:.80}; give the lowest and the highest score",
        law="score_range is a range",
    )


def _kind(source: Source | FactSource) -> str:
    if isinstance(source, FactSource):
        return "fact"
    return "provider" if isinstance(source, Provider) else "connector"


def _skipped(name: str, why: str, intent: Intent) -> SourceReport:
    source, _, leg = name.partition("/")
    return SourceReport(source=source, leg=leg or "*", query=intent.question, status="skipped", error=why)
