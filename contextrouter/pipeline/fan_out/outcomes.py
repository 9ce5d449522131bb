"""How calls ended: outcomes, and the harvest made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from contextrouter.contracts import ENTITIES, FACETS, FACTS, PATH, FactSource
from contextrouter.errors import ContractError
from contextrouter.model import Facet, Harvest, Intent, Plan, RankedList, SourceReport
from contextrouter.pipeline.fan_out.structured_legs import add_up_counts


class Outcome:
    """How one call ended: its report, and its ranked list or its facts."""

    __slots__ = ("begun", "cut", "hints", "items", "note", "ranked", "report")

    def __init__(self) -> None:
        self.begun: float | None = None  # when its source was asked; None: it still waits for a slot
        self.note = ""  # what was done with the phrases of the question
        self.cut = ""  # whether a limit cut facts, entities or counts
        self.hints = ""  # which entities its hints stand for
        self.report: SourceReport | None = None
        self.ranked: RankedList | None = None
        self.items: list[Any] = []


def make_harvest(
    plan: Plan, outcomes: Sequence[Outcome], skipped: list[SourceReport], sources: Mapping[str, Any]
) -> Harvest:
    """Return the answers of the calls that ended well, in the order of the plan, and all reports.

    Counts of several sources are added up: those of statements, by fact sources, and those of documents.
    """
    lists: list[RankedList] = []
    structured: dict[str, list[Any]] = {FACTS: [], ENTITIES: [], PATH: []}
    documents: list[list[Facet]] = []
    statements: list[list[Facet]] = []
    for call, outcome in zip(plan.calls, outcomes, strict=True):
        if outcome.report is None or outcome.report.status not in ("ok", "partial"):
            continue
        if outcome.ranked is not None:
            lists.append(outcome.ranked)
        elif call.query.leg == FACETS:
            of_facts = isinstance(sources[call.source], FactSource)
            (statements if of_facts else documents).append(outcome.items)
        else:
            structured[call.query.leg] += outcome.items
    reports = [outcome.report for outcome in outcomes if outcome.report is not None]
    return Harvest(
        lists=tuple(lists),
        facts=(*structured[PATH], *structured[FACTS]),
        facets=(*add_up_counts(documents), *add_up_counts(statements)),
        entities=tuple(structured[ENTITIES]),
        reports=(*reports, *skipped),
    )


def declared_range(source: Any, leg: str) -> tuple[float, float] | None:
    """Return the declared range of a leg's scores. Raises ContractError for what is no range."""
    declared = source.score_range
    if declared is not None and isinstance(declared, Mapping):
        declared = declared.get(leg)
    if declared is None:
        return None
    try:
        low, high = declared
        if isfinite(low) and isfinite(high) and low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    message = f"score_range is {declared!r:.80}; give the lowest and the highest score"
    raise ContractError(message, law="score_range is a range")


def skipped_report(name: str, why: str, intent: Intent) -> SourceReport:
    """Return the report of a source, or one of its legs, that is not asked."""
    source, _, leg = name.partition("/")
    return SourceReport(source=source, leg=leg or "*", query=intent.question, status="skipped", error=why)
