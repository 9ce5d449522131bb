"""Fan-out (step 4): asks all sources at once, inside one deadline. One task for each call.

The router uses every answer that arrives in time. It cancels late calls and reports them as `timeout`. A
failure is data: it becomes a report beside the answer, never an exception instead of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Any

from contextrouter.contracts import MENTIONS, STRUCTURED_LEGS, Embedder, Partial, Source, SupportsMentions
from contextrouter.errors import ContextRouterError, ContractError, PluginError, SourceTimeout
from contextrouter.filters import own_filters
from contextrouter.model import (
    Call,
    Facet,
    Harvest,
    Hit,
    Plan,
    Query,
    RankedList,
    SourceReport,
    Status,
    Vector,
)
from contextrouter.pipeline.admission import Admission, admit_hits
from contextrouter.pipeline.call_limits.blocking import Steps
from contextrouter.pipeline.call_limits.circuit_breaker import CircuitBreaker
from contextrouter.pipeline.call_limits.slots import Overloaded
from contextrouter.pipeline.deadline import GRACE, Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.fan_out.entity_hints import EntityHints, finds_by_meaning, resolve_hints
from contextrouter.pipeline.fan_out.outcomes import Outcome, declared_range, make_harvest, skipped_report
from contextrouter.pipeline.fan_out.structured_legs import ask_structured, note_cut
from contextrouter.pipeline.phrases import Phrases
from contextrouter.runtime.abandoned_calls import AbandonedCalls, consume_exception
from contextrouter.runtime.masking import mask
from contextrouter.runtime.plugin_calls import as_plain, containment, text_of
from contextrouter.runtime.spans import current_traceparent
from contextrouter.runtime.trace_context import traceparent

MARGIN = 0.05
"""Share of the time left that a source is told not to use, at most 50 ms, so that it can hand over what it
has.
"""

HINT_SHARE = 0.5
"""Share of the time left that the vectors of entity hints may take: exact names do not wait for them
longer.
"""

_ANSWERED = ("ok", "partial")
OnReport = Callable[[SourceReport], None]
Embed = Callable[[str, Embedder, Sequence[str]], Awaitable[Sequence[Vector]]]
"""Called with an embedder's name, itself, and the texts of queries; returns one vector per text."""


async def fan_out(
    plan: Plan,
    engine: Engine,
    deadline: Deadline | None = None,
    *,
    on_report: OnReport | None = None,
    embed: Embed | None = None,
    origin: float | None = None,
) -> Harvest:
    """Make the plan's calls and return what came back by `deadline`, lists in the order of the plan. `origin`
    is when the request began, on the clock of `monotonic`.

    Vector legs start as soon as their embedder has answered, the others at once.
    """
    fanning_out = _FanOut(plan, engine, deadline or Deadline(), on_report, embed)
    if origin is not None:
        fanning_out.origin = origin
    return await fanning_out.harvest()


class _FanOut:
    """One fan-out."""

    def __init__(
        self, plan: Plan, engine: Engine, deadline: Deadline, on_report: OnReport | None, embed: Embed | None
    ) -> None:
        self.plan, self.engine, self.deadline = plan, engine, deadline
        self.on_report, self.embed = on_report, embed
        self.started = self.origin = monotonic()
        self.source_deadline = deadline.at - min(0.05, deadline.left() * MARGIN)
        self.vectors: dict[str, asyncio.Task[Mapping[str, Vector]]] = {}
        self.ending = False
        self.phrases = Phrases(plan)

    async def harvest(self) -> Harvest:
        skipped = [skipped_report(name, why, self.plan.intent) for name, why in self.plan.excluded.items()]
        for report in skipped:
            self._publish(report)
        outcomes = [Outcome() for _ in self.plan.calls]
        if outcomes:
            await self._run(outcomes)
        return make_harvest(self.plan, outcomes, skipped, self.engine.sources)

    async def _run(self, outcomes: Sequence[Outcome]) -> None:
        loop = asyncio.get_running_loop()
        for name, texts in self._texts_to_embed().items():
            self.vectors[name] = loop.create_task(self._embed(name, texts))
        pairs = list(zip(self.plan.calls, outcomes, strict=True))
        calls = [Steps(self._ask(call, outcome)) for call, outcome in pairs]
        tasks = [loop.create_task(steps) for steps in calls]
        try:
            await self.deadline.wait(tasks)
        finally:
            self.ending = True
            of = self.engine.limits.abandoned.of
            late = {
                task: of("source", call.source)
                for (call, _), task in zip(pairs, tasks, strict=True)
                if not task.done()
            }
            embedding = {task: of("embedder", name) for name, task in self.vectors.items()}
            if late or embedding:
                await self._cancel({**late, **embedding})
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error  # a fault of this program, not of a source
        for steps, (call, outcome) in zip(calls, pairs, strict=True):
            if outcome.report is None:
                self._cut_off(call, outcome)
            elif outcome.report.status in _ANSWERED and (why := steps.blocked(self.deadline)):
                outcome.report = outcome.report.replace(status="partial", error=why)
        if self.phrases.parts:
            self._leave_out_parts(pairs)

    def _leave_out_parts(self, pairs: Sequence[tuple[Call, Outcome]]) -> None:
        """Take away what parts of the question without its phrases found, where a phrase was found."""
        successful = [
            call for call, outcome in pairs if outcome.ranked and outcome.ranked.hits and not outcome.note
        ]
        for call, outcome in pairs:
            if outcome.ranked is not None and self.phrases.is_outdone(call, successful):
                outcome.ranked = outcome.ranked.replace(hits=())
                if outcome.report is not None:
                    note = "not used: the question has a phrase, which was found"
                    outcome.report = outcome.report.replace(note=note)

    async def _cancel(self, tasks: Mapping[asyncio.Task[Any], AbandonedCalls]) -> None:
        """Cancel and wait a little. The embedding ends as well: nobody waits for it any more."""
        running = {task for task in tasks if not task.done()}
        for task in running:
            task.cancel()
        if running:
            _, stubborn = await asyncio.wait(running, timeout=GRACE)
            for task in stubborn:
                tasks[task].add({task})
        for task in tasks.keys() - running:
            consume_exception(task)

    def _texts_to_embed(self) -> dict[str, list[str]]:
        """Return the texts that each embedder is needed for: queries, and entities, which may be hints.

        Entities that prove to be exact names are embedded, too: what is embedded must not tell what a source
        holds.
        """
        texts: dict[str, dict[str, None]] = {}
        for call in self.plan.calls:
            source: Any = self.engine.sources[call.source]
            if (embedder := self._embedder_of(call)) is not None:
                texts.setdefault(embedder, {})[call.query.text] = None
            elif call.query.entities and _asks_of_entities(call) and finds_by_meaning(source):
                texts.setdefault(source.embedder, {}).update(dict.fromkeys(call.query.entities))
        return {name: list(distinct) for name, distinct in texts.items()}

    def _embedder_of(self, call: Call) -> str | None:
        """Return the name of the embedder whose vector this call needs."""
        if call.query.leg in STRUCTURED_LEGS:
            return None
        source: Any = self.engine.sources[call.source]  # a source with this leg has hits
        embedder: str | None = source.embedder
        return embedder if embedder and call.query.leg in source.vector_legs else None

    async def _embed(self, name: str, texts: list[str]) -> Mapping[str, Vector]:
        embedders = self.engine.embedders
        if name not in embedders:
            known = ", ".join(embedders) or "none"
            raise ContractError(f"embedder {name!r} is not defined; defined embedders: {known}")
        await self.engine.ensure_open("embedder", name, Deadline())
        self.engine.limits.abandoned.of("embedder", name).check()
        embedder = embedders[name]
        if self.embed is not None:
            vectors = await self.embed(name, embedder, texts)
        else:
            vectors = await embedder.embed(texts, query=True)
        if len(vectors) != len(texts):
            raise ContractError(f"embedder {name!r} returned {len(vectors)} vectors for {len(texts)} texts")
        return dict(zip(texts, vectors, strict=True))

    async def _ask(self, call: Call, outcome: Outcome) -> None:
        """Make one call and report how it ended, to the caller and to the circuit breaker."""
        started = monotonic()
        if call.source in self.engine.settings.telemetry.send_to:
            traceparent.set(current_traceparent())  # of this task alone
        limits = self.engine.limits
        breaker = limits.breaker(call.source, call.query.leg)
        if why := limits.abandoned.of("source", call.source).refusal() or breaker.refuses():
            self._report(call, outcome, "open", started, error=why)
            return
        try:
            with containment():
                if call.timeout is None:  # the deadline of the request ends it
                    await self._answer(call, outcome, started)
                else:
                    async with asyncio.timeout(call.timeout):
                        await self._answer(call, outcome, started)
            breaker.succeed()
        except asyncio.CancelledError:
            breaker.abandon()
            if not self.ending:
                why = "the source cancelled its own call"
                self._report(call, outcome, "error", started, error=why)
                breaker.fail(why)
            raise
        except Exception as error:
            self._fail(call, outcome, error, started, breaker)

    def _fail(
        self, call: Call, outcome: Outcome, error: Exception, started: float, breaker: CircuitBreaker
    ) -> None:
        elapsed = monotonic() - started
        late = isinstance(error, TimeoutError | SourceTimeout)
        why = f"no answer within {elapsed:.3f} s" if isinstance(error, TimeoutError) else self._why(error)
        self._report(call, outcome, "timeout" if late else "error", started, error=why)
        patience = self.engine.limits.patience
        if call.timeout is not None:
            patience = min(patience, 0.9 * call.timeout)
        # A caller in a hurry, or too many callers, prove nothing about the source.
        begun = outcome.begun
        if isinstance(error, Overloaded) or begun is None or (late and monotonic() - begun < patience):
            breaker.abandon()
        else:
            breaker.fail(why, at_once=isinstance(error, PluginError) and error.exhausted)

    def _cut_off(self, call: Call, outcome: Outcome) -> None:
        """Report a call that was cancelled at the deadline. It counts against a source that had enough
        time.
        """
        limits, begun = self.engine.limits, outcome.begun
        why = "no answer by the request's deadline" if begun else "no slot was free by the request's deadline"
        self._report(call, outcome, "timeout", self.started, error=why)
        if begun is not None and monotonic() - begun >= limits.patience:
            limits.breaker(call.source, call.query.leg).fail(why)

    def _why(self, error: Exception) -> str:
        text = text_of(error)
        if not isinstance(error, ContextRouterError):
            text = f"{type(error).__name__}: {text}"
        return " ".join(mask(text, self.engine.secrets).split())[:500]

    async def _answer(self, call: Call, outcome: Outcome, started: float) -> None:
        """Ask the source when there are slots for it, and keep what may go on."""
        engine, leg = self.engine, call.query.leg
        source: Any = engine.sources[call.source]
        answer: Any
        vector = None
        if self.vectors and (embedder := self._embedder_of(call)) is not None:
            outcome.begun = started  # a leg without its vector is of no use, so waiting for it counts
            vector = (await asyncio.shield(self.vectors[embedder]))[call.query.text]
            outcome.begun = None
        slots = engine.limits.slots
        await slots.take(call.source)
        try:
            outcome.begun = monotonic()
            if engine.plugins.closed:
                await engine.ensure_open(engine.kinds[call.source], call.source, Deadline())
            if _asks_of_entities(call):
                answer = await self._ask_of_entities(call, outcome, source)
            else:
                answer = await self._search(call, outcome, source, vector)
        finally:
            slots.release(call.source)
        admission = Admission(call.query, engine.source_keys.get(call.source))
        if leg in STRUCTURED_LEGS:
            answer = as_plain(answer)
            items = admission.facts(answer)
            outcome.items = [
                item if isinstance(item, Facet) else item.replace(source=call.source) for item in items
            ]
            outcome.cut = note_cut(call.query, answer)
            note = admission.note(len(items), "facts")
            status: Status = "partial" if note else "ok"
            self._report(
                call, outcome, status, started, count=len(items), error=note, withheld=admission.withheld
            )
        else:
            await self._keep_hits(call, outcome, answer, admission, started)

    async def _search(
        self, call: Call, outcome: Outcome, source: Source, vector: Vector | None
    ) -> Sequence[Hit]:
        """Return the hits for a query. Where no document has its phrases, ask for their words."""
        query = self._query(call, vector)
        answer = await source.search(query)
        if answer or not query.required:
            return answer
        fallback, outcome.note = self.phrases.fallback(call, query)
        return answer if fallback is None else await source.search(fallback)

    async def _ask_of_entities(self, call: Call, outcome: Outcome, source: Any) -> Sequence[Any]:
        """Return the answer to a query that names entities, after hints at them were resolved."""
        query = self._query(call, None)
        hints = await self._resolve_hints(call, source)
        outcome.hints, query = hints.note, hints.apply(query)
        if query.leg != MENTIONS:
            return await ask_structured(source, query, hints.names, self.plan.intent.facets)
        if not isinstance(source, SupportsMentions):
            raise ContractError(f"leg {MENTIONS!r} is not one this source has")
        return await source.mentions(query)

    async def _resolve_hints(self, call: Call, source: Any) -> EntityHints:
        at = self._source_deadline(call)
        seconds = None if at == inf else max(at - monotonic(), 0.0) * HINT_SHARE

        async def vectors(name: str) -> Mapping[str, Vector]:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self.vectors[name])

        hints = await resolve_hints(source, call.query, vectors, self.engine.embedders)
        return hints._replace(note=mask(hints.note, self.engine.secrets))

    async def _keep_hits(
        self, call: Call, outcome: Outcome, answer: Sequence[Hit], admission: Admission, started: float
    ) -> None:
        query = call.query
        hits = await admit_hits(admission, answer) if query.excluded else admission.hits(answer)
        outcome.ranked = RankedList(
            source=call.source,
            leg=query.leg,
            query=query.text,
            hits=hits,
            weight=call.weight,
            score_range=declared_range(self.engine.sources[call.source], query.leg),
            retrieved_at=datetime.now(UTC),
            full=len(as_plain(answer)) >= query.limit,
        )
        error = admission.note(len(hits))
        status: Status = "partial" if error else "ok"
        if isinstance(answer, Partial):
            status, missing = "partial", mask(answer.reason, self.engine.secrets)
            error = "; ".join(filter(None, (missing, error)))
        self._report(
            call, outcome, status, started, count=len(hits), error=error, withheld=admission.withheld
        )

    def _query(self, call: Call, vector: Vector | None) -> Query:
        """Return the query with its vector and the deadline of the source, a little before the router's
        own. Its filters are a copy: a source that changes them changes no other's.
        """
        at = self._source_deadline(call)
        return call.query.replace(
            vector=vector, deadline=None if at == inf else at, filters=own_filters(call.query.filters)
        )

    def _source_deadline(self, call: Call) -> float:
        if call.timeout is None:
            return self.source_deadline
        return min(self.source_deadline, monotonic() + call.timeout * (1 - MARGIN))

    def _report(self, call: Call, outcome: Outcome, status: Status, started: float, **values: Any) -> None:
        """Report how a call ended. `values` are fields of the report: count, error, withheld."""
        query = call.query
        elapsed = monotonic() - started
        outcome.report = SourceReport(
            source=call.source,
            leg=query.leg,
            query=query.text,
            status=status,
            started=started - self.origin,
            elapsed=elapsed,
            note="; ".join([note for note in (outcome.hints, outcome.note, outcome.cut) if note]),
            **values,
        )
        self._publish(outcome.report)

    def _publish(self, report: SourceReport) -> None:
        self.engine.failures.note(report)
        if self.on_report is not None:
            self.on_report(report)


def _asks_of_entities(call: Call) -> bool:
    return call.query.leg in STRUCTURED_LEGS or call.query.leg == MENTIONS
