"""From what the steps made to the Context that is handed back, and the trace of how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from time import monotonic
from typing import Any

from contextrouter.errors import AllSourcesFailed
from contextrouter.model import (
    Context,
    Envelope,
    Fact,
    Harvest,
    Intent,
    Plan,
    Request,
    SourceReport,
    Step,
    Trace,
    Usage,
)
from contextrouter.pipeline.assembly import Assembled
from contextrouter.pipeline.lanes import Lane, split

GATED = "confidence_gated_fallback"
"""The outcome where a gate let no document through."""


class Steps:
    """The trace as it grows."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self._since = monotonic()

    def mark(self) -> None:
        self._since = monotonic()

    def add(
        self,
        name: str,
        live: int = 0,
        lost: Sequence[Envelope] = (),
        note: str = "",
        facts: Sequence[Fact] = (),
    ) -> None:
        """Record a step that ends now, with `live` envelopes or hits; `facts` are those lost in it."""
        now = monotonic()
        self.all.append(
            Step(
                name=name, elapsed=now - self._since, live=live, lost=lost, note=note, lost_facts=tuple(facts)
            )
        )
        self._since = now

    def split(self, name: str, envelopes: Sequence[Envelope]) -> Lane:
        """Record a step; return the envelopes that are still live."""
        live, lost = split(envelopes)
        self.add(name, len(live), lost)
        return Lane(live)


def raise_if_all_failed(harvest: Harvest) -> None:
    if any(report.status in ("ok", "partial") for report in harvest.reports):
        return
    asked = [report for report in harvest.reports if report.status != "skipped"]
    if asked:
        raise AllSourcesFailed(asked)


def distinct_facts(facts: Sequence[Fact], limit: int) -> tuple[list[Fact], list[Fact]]:
    """One of each fact, at most `limit`, and those beyond; a fact's validity is a part of what it says.

    Each source's own order holds, for it alone knows how well a fact fits. The sources take turns, in the
    order of the settings: the first of each, the second of each, and so on.
    """
    if not facts:
        return [], []
    by_source: dict[str, list[Fact]] = {}
    for fact in facts:
        by_source.setdefault(fact.source, []).append(fact)
    known: dict[Any, Fact] = {}
    for turn in zip_longest(*by_source.values()):
        for each in turn:
            if each is not None:
                known.setdefault(
                    (each.subject, each.predicate, each.object, each.valid_from, each.valid_to), each
                )
    distinct = list(known.values())
    return distinct[:limit], distinct[limit:]


def behind_gate(
    selected: Lane, harvest: Harvest, facts: list[Fact], steps: Steps
) -> tuple[bool, Harvest, list[Fact]]:
    """Whether a gate let no document through; and then the rest is held back as well, for it would be all the
    context there is.
    """
    if selected.live or not any(
        (envelope.dropped or "").startswith("gate: ") for step in steps.all for envelope in step.lost
    ):
        return False, harvest, facts
    if facts or harvest.facets or harvest.entities:
        steps.add("gate", note="facts, facets and entities are held back with the documents", facts=facts)
    return True, harvest.replace(facets=(), entities=()), []


def context_of(
    request: Request,
    intent: Intent,
    plan: Plan,
    harvest: Harvest,
    done: Assembled,
    steps: Sequence[Step],
    started: float,
    *,
    hits: int = 0,
    embedded: int = 0,
    gated: bool = False,
) -> Context:
    if gated:
        outcome = GATED
    elif done.envelopes:
        outcome = "answered"
    elif done.facts or harvest.facets or harvest.entities:
        outcome = "facts_only"
    else:
        outcome = "empty" if intent.should_search else "not_searched"
    usage = Usage(
        calls=len(plan.calls), hits=hits, embedded=embedded, tokens=done.tokens, seconds=monotonic() - started
    )
    return Context(
        question=request.question,
        intent=intent,
        outcome=outcome,
        text=done.text,
        envelopes=tuple(done.envelopes),
        citations=tuple(done.citations),
        facts=tuple(done.facts),
        facets=harvest.facets,
        entities=harvest.entities,
        coverage=harvest.reports,
        usage=usage,
        trace=Trace(plan=plan, steps=tuple(steps)),
    )


def joined(before: Context, after: Context) -> Context:
    """The context of a fallback route, with what the route before it asked, cost and lost."""
    asked = tuple(report for report in before.coverage if report.status != "skipped")
    again = {report.source for report in asked}
    coverage = (*asked, *(r for r in after.coverage if r.status != "skipped" or r.source not in again))
    first, second = before.usage, after.usage
    usage = second.replace(
        calls=first.calls + second.calls,
        hits=first.hits + second.hits,
        seconds=first.seconds + second.seconds,
    )
    trace = after.trace.replace(steps=(*before.trace.steps, *after.trace.steps))
    return after.replace(coverage=coverage, usage=usage, trace=trace)


def with_reports(context: Context, reports: Sequence[SourceReport]) -> Context:
    """The context, with reports of calls that came to nothing."""
    return context.replace(coverage=(*context.coverage, *reports))
