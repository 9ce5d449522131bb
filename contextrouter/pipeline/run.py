"""The pipeline of one request, from the question to the context. Every step, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TypeVar

from contextrouter.cache import RequestEmbeddings
from contextrouter.contracts import CLARIFY, GATED, Stage
from contextrouter.errors import AllSourcesFailed
from contextrouter.model import (
    Clarification,
    Context,
    Envelope,
    Fact,
    Harvest,
    Intent,
    Plan,
    RankedList,
    Request,
    SourceReport,
    Trace,
    Usage,
)
from contextrouter.model.read_only import read_only_context
from contextrouter.pipeline.assembly import Assembled, Beside, assemble
from contextrouter.pipeline.candidates import Candidates
from contextrouter.pipeline.connection_titles import describe_duplicates
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.deduplication import dedupe, distinct_facts
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.envelopes import Ranking, split
from contextrouter.pipeline.fan_out import fan_out
from contextrouter.pipeline.fan_out.shadow_sources import compare, take_out
from contextrouter.pipeline.fan_out.structured_legs import cut_counts
from contextrouter.pipeline.fusion import fuse
from contextrouter.pipeline.fusion.source_order import Queries
from contextrouter.pipeline.interpretation import failures, interpret
from contextrouter.pipeline.neighbour_merging import merge_neighbours
from contextrouter.pipeline.planning import MOST_DOCUMENTS, final_limit, make_plan
from contextrouter.pipeline.planning.route_choice import choose_route, join_contexts, next_route
from contextrouter.pipeline.preference import join_lists, lies_in, prefer
from contextrouter.pipeline.ranking import Stages, rank
from contextrouter.pipeline.selection import select
from contextrouter.pipeline.stage_context import stage_context
from contextrouter.pipeline.trace import TraceBuilder
from contextrouter.runtime.metering import model_usage, start_metering
from contextrouter.runtime.threads import work_aside
from contextrouter.settings import Rag
from contextrouter.text import tokens
from contextrouter.text.time_zones import time_zone

INTERPRETATION_SHARE = 0.3
"""Share of the request's time that the interpreters may use: one that hangs must not cost the answer."""
RANKING_SHARE = 0.1
"""Share of the request's time that is kept for what follows the sources: calibration and ranking stages."""
CALIBRATION_SECONDS = 0.25
"""The most of it that is kept for calibration alone."""
MODES = {"scores": "by scores", "weighted": "by weighted scores"}
"""What the trace says of a mode of fusion; of "rrf" it also says the constant."""
T = TypeVar("T")
AT_ONCE = 100_000
"""Characters of documents that are assembled in one step of the event loop; more are in a thread."""
NOTHING = ("empty", GATED, CLARIFY)
"""Outcomes of a route after which the next one is tried."""


class Run:
    """One request on one route: what was asked, how long it has, and what was found so far."""

    embedding: RequestEmbeddings
    intent: Intent | None  # None: the question is not interpreted yet
    plan: Plan
    rag: Rag
    harvest: Harvest
    stages: Stages
    facts: Sequence[Fact]

    def __init__(
        self,
        request: Request,
        deadline: Deadline,
        engine: Engine,
        *,
        on_report: Callable[[SourceReport], None] | None = None,
        before: Run | None = None,
    ) -> None:
        self.request, self.deadline, self.engine, self.on_report = request, deadline, engine, on_report
        self.embedding = before.embedding if before else RequestEmbeddings(engine.embeddings)
        self.intent, self.reason = None, ""
        self.trace: TraceBuilder = TraceBuilder(before.trace.origin if before else None)
        self.shadowed: list[RankedList] = []  # what shadow sources found
        self.now = engine.now()
        self.started = monotonic()

    async def context(self) -> Context:
        """Run the steps, in this order."""
        await self.make_plan()
        await self.fan_out()
        candidates = self.deduplicate()
        calibrated = await self.calibrate(candidates)
        ranked = await self.rank(self.prefer(self.fuse(candidates, calibrated)))
        return await self.assemble(await self.merge_neighbours(self.select(ranked)))

    async def make_plan(self) -> Plan:
        """Interpret the question, plan the calls, and leave out sources that cannot help."""
        engine, deadline = self.engine, self.deadline
        intent, unmet = choose_route(await self.interpret(), self.request, engine.settings)
        self.rag = engine.settings.for_route(intent.kind)[0]
        self.stages = engine.stages(self.rag)
        pool = max([keys.pool for _, _, keys in self.stages], default=1.0)
        plan = make_plan(intent, self.request, engine.settings, engine.sources, self.now, pool)
        if engine.settings.selection.sources != "all":
            from contextrouter.pipeline.source_selection import select_sources  # loaded only when it is used

            plan = await select_sources(plan, engine, deadline)
        self.trace.add("plan", note="; ".join(filter(None, (self.reason, unmet, plan.note))))
        self.plan = plan
        return plan

    async def interpret(self) -> Intent:
        """Return what is really asked. Only the first run of a request has to find it out."""
        if self.intent is None:
            rag = self.engine.settings.rag
            deadline = self.deadline.share(INTERPRETATION_SHARE)
            if rag.interpret_seconds is not None:
                deadline = self.deadline.within(rag.interpret_seconds)
            self.intent = await interpret(self.request, self.engine, deadline, now=self.now)
            note = failures(self.intent)
            self.trace.add("interpret", note=note, failed=bool(note))
        return self.intent

    async def fan_out(self) -> None:
        """Ask the sources. Raises AllSourcesFailed when none of those that were asked answered."""
        deadline = self.deadline
        if self.stages:
            deadline = deadline.reserve(RANKING_SHARE)
        elif self.rag.calibrate and len(self.engine.sources) > 1:
            deadline = deadline.reserve(RANKING_SHARE, CALIBRATION_SECONDS)
        self.harvest = await fan_out(
            self.plan,
            self.engine,
            deadline,
            on_report=self.on_report,
            embed=self.embedding,
            origin=self.trace.origin,
        )
        if shadows := self.engine.shadows:
            self.harvest, self.shadowed = take_out(self.harvest, shadows)
        notes = [f"{r.source}/{r.leg}: {r.note}" for r in self.harvest.reports if r.note]
        self.trace.add("fan_out", self.hits, note="; ".join(notes))
        _raise_if_all_failed(self.harvest)
        if self.plan.preferred is not None:
            self.harvest = self.harvest.replace(lists=tuple(join_lists(self.harvest.lists)))
        intent = self.plan.intent
        self.facts, beyond = distinct_facts(
            self.harvest.facts, self.rag.max_graph_facts, intent.text, intent.language
        )
        if beyond:
            note = f"{len(beyond)} facts beyond max_graph_facts"
            self.trace.add("facts", len(self.facts), note=note, lost_facts=tuple(beyond))
        if self.harvest.facets:
            counts, further = cut_counts(self.harvest.facets, self.rag.max_facets)
            if further:
                self.harvest = self.harvest.replace(facets=tuple(counts))
                note = f"{len(further)} counts beyond max_facets"
                self.trace.add("facets", len(counts), note=note, lost_facets=tuple(further))

    def deduplicate(self) -> Candidates:
        """Make equal documents one candidate."""
        candidates = dedupe(self.harvest.lists, self.rag.identity)
        self.trace.add("dedupe", len(candidates), note=describe_duplicates(candidates))
        return candidates

    async def calibrate(self, candidates: Candidates) -> Mapping[int, float]:
        """Put the documents of several sources on one scale. Return their values by number."""
        if not self.rag.calibrate or self.rag.levels == 1 or len(self.harvest.lists) < 2:
            return {}
        from contextrouter.pipeline.calibration.calibrated_values import (
            calibrate,
        )  # loaded only when it is used

        note, values = await calibrate(
            candidates,
            self.rag,
            self.engine,
            queries=self.queries,
            scope=self.request.scope,
            deadline=self.deadline,
        )
        if note:
            self.trace.add("calibrate", len(candidates), note=note)
        return values

    def fuse(self, candidates: Candidates, calibrated: Mapping[int, float]) -> Ranking:
        """Make one order out of all lists."""
        fused = fuse(
            candidates, self.rag, queries=self.queries, profiles=self.engine.profiles, calibrated=calibrated
        )
        mode = self.rag.hybrid_fusion
        note = f"by ranks, k = {self.rag.rrf_k:g}" if mode == "rrf" else MODES[mode]
        return self.trace.add_ranking("fuse", fused, note)

    def prefer(self, fused: Ranking) -> Ranking:
        """Let documents of the time that the question names stand higher."""
        period = self.plan.preferred
        if period is None or not fused.live:
            return fused
        inside = sum([lies_in(envelope, period) for envelope in fused.live])
        days = f"{period.start or '…'} to {period.end or '…'}"
        note = f"{inside} of {len(fused.live)} documents are of {days}, and stand higher"
        return self.trace.add_ranking("prefer", prefer(fused.live, period, self.rag.period_boost), note)

    @property
    def queries(self) -> Queries:
        """The queries as the fusion sees them."""
        intent = self.plan.intent
        return Queries(intent.text, frozenset(intent.derived), self.embedding.vectors, intent.question)

    async def rank(self, fused: Ranking) -> Ranking:
        """Let the stages rerank or drop documents."""
        if not self.stages:
            return fused
        context = stage_context(self.request, self.plan, self.facts, self.engine, self.now)
        ranked = await rank(fused, self.stages, context, self.engine, self.deadline, self.trace)
        return Ranking(split(ranked)[0])

    def select(self, ranked: Ranking) -> Ranking:
        """Keep the best, or a quota of each kind; no more than the caller wants."""
        limit = final_limit(self.request)
        note = ""
        if limit != self.request.limit:
            note = f"limit {self.request.limit} is not between 1 and {MOST_DOCUMENTS}: {limit} instead"
        return self.trace.add_ranking("select", select(ranked, self.rag, limit), note)

    async def merge_neighbours(self, selected: Ranking) -> Ranking:
        """Make neighbours of one document one block."""
        if not self.rag.merge_neighbours:
            return selected
        counted = (tokens.count, self._fits) if self.rag.token_budget else ()
        merged, saved = await _read_texts(selected, partial(merge_neighbours, selected, *counted))
        if len(merged.live) == len(selected.live):
            return selected
        note = "neighbours are one block" + (f": about {saved} tokens saved" if saved else "")
        return self.trace.add_ranking("merge", merged, note)

    def _fits(self, live: Sequence[Envelope]) -> Sequence[Envelope]:
        return self._text_of(live).envelopes

    def _text_of(self, selected: Sequence[Envelope]) -> Assembled:
        budget = self.rag.token_budget
        beside = Beside(
            self.harvest.entities,
            self.harvest.facets,
            self._facts_time,
            self.engine.connections.origin,
            self.intent.text if self.intent else "",
        )
        return assemble(
            selected, self.facts, beside=beside, budget=budget, count=tokens.count, truncate=tokens.truncate
        )

    async def assemble(self, selected: Ranking) -> Context:
        """Write the numbered context; behind a gate that let no document through, facts are withheld too."""
        gate = self._gate() if not selected.live else None
        if gate is not None:
            if self.facts or self.harvest.facets or self.harvest.entities:
                note = "facts, facets and entities are held back with the documents"
                self.trace.add(gate[0], note=note, lost_facts=tuple(self.facts))
            self.facts, self.harvest = (), self.harvest.replace(facets=(), entities=())
        result = await _read_texts(selected, partial(self._text_of, selected))
        self.trace.add(
            "assemble",
            len(result.envelopes),
            result.lost,
            note=result.note,
            lost_facts=tuple(result.lost_facts),
            lost_entities=tuple(result.lost_entities),
            lost_facets=tuple(result.lost_facets),
        )
        if self.shadowed:
            self.trace.add("shadow", note=compare(self.shadowed, result.envelopes))
        return self._context(result, gate[1] if gate else None)

    @property
    def _facts_time(self) -> datetime:
        """The moment by which facts hold or have ended: the one that the request demands, or now."""
        moment = self.request.as_of or self.now
        return moment if moment.tzinfo else moment.replace(tzinfo=time_zone(self.rag.timezone))

    def _gate(self) -> tuple[str, Stage] | None:
        """Return name and stage of the gate that let no document through; one that no source was asked for
        counts for nothing.
        """
        names = [step.name for step in self.trace.steps if step.gated]
        if not names or not self.harvest.lists:
            return None
        return next((name, stage) for name, stage, _ in self.stages if name == names[0])

    @property
    def hits(self) -> int:
        """How many hits were admitted."""
        return sum([len(ranked.hits) for ranked in self.harvest.lists])

    def _context(self, result: Assembled, gate: Stage | None) -> Context:
        intent, harvest = self.plan.intent, self.harvest
        usage = Usage(
            calls=len(self.plan.calls),
            hits=self.hits,
            embedded=self.embedding.embedded,
            tokens=result.tokens,
            seconds=monotonic() - self.started,
            models=model_usage(),  # of this request so far, a route before its fallback included
        )
        clarification = intent.clarify
        if gate is not None and gate.outcome == CLARIFY:
            clarification = Clarification(
                question=gate.clarification, reason="weak" if self.hits else "no_match"
            )
        return Context(
            question=self.request.question,
            intent=intent,
            outcome=_outcome(intent, harvest, result) if gate is None else gate.outcome,
            text=result.text,
            envelopes=tuple(result.envelopes),
            citations=tuple(result.citations),
            facts=tuple(result.facts),
            facets=tuple(result.facets),
            entities=tuple(result.entities),
            coverage=harvest.reports,
            usage=usage,
            trace=Trace(plan=self.plan, steps=tuple(self.trace.steps)),
            clarification=clarification,
        )


async def run(
    request: Request,
    deadline: Deadline,
    engine: Engine,
    on_report: Callable[[SourceReport], None] | None = None,
) -> Context:
    """Run a request. Where its route found nothing, plan again from the same intent on the next route, in the
    time that is left.
    """
    return read_only_context(await _run_routes(request, deadline, engine, on_report))


async def _run_routes(
    request: Request, deadline: Deadline, engine: Engine, on_report: Callable[[SourceReport], None] | None
) -> Context:
    start_metering()
    primary = Run(request, deadline, engine, on_report=on_report)
    context = await primary.context()
    tried = {context.intent.kind}
    while context.outcome in NOTHING and deadline.left() > 0:
        intent, reason = next_route(context.intent, tried, engine.settings)
        if intent is None:
            break
        tried.add(intent.kind)
        after = Run(request, deadline, engine, on_report=on_report, before=primary)
        after.intent, after.reason = intent, reason
        try:
            context = join_contexts(context, await after.context())
        except AllSourcesFailed as error:  # the first route was answered, with nothing: that stands
            return context.replace(coverage=(*context.coverage, *error.reports))
    return context


async def _read_texts(selected: Ranking, work: Callable[[], T]) -> T:
    """Return the result of work that reads the texts. Long ones are read in a thread: the event loop answers
    others meanwhile.
    """
    size = sum([len(envelope.document.content) for envelope in selected.live])
    return work() if size <= AT_ONCE else await work_aside(work)


def _raise_if_all_failed(harvest: Harvest) -> None:
    if any(report.status in ("ok", "partial") for report in harvest.reports):
        return
    if failed := [report for report in harvest.reports if report.status != "skipped"]:
        raise AllSourcesFailed(failed)


def _outcome(intent: Intent, harvest: Harvest, result: Assembled) -> str:
    if intent.clarify is not None:
        return CLARIFY
    if result.envelopes:
        return "answered"
    if result.facts or harvest.facets or harvest.entities:
        return "facts_only"
    return "empty" if intent.should_search else "not_searched"
