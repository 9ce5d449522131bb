"""Report, harvest, citation, usage, trace and context: what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from contextrouter.model.document import Envelope, RankedList
from contextrouter.model.fact import Entity, Facet, Fact
from contextrouter.model.html_table import html_table, link_cell, text_cell
from contextrouter.model.noun import Noun
from contextrouter.model.plain_form import (
    Detail,
    brief,
    builtins,
    check_detail,
    encode_json,
    number_queries,
    shorten,
    with_noun,
)
from contextrouter.model.request import Clarification, Intent, Plan
from contextrouter.pipeline.answerability import Answerability, judged

Status = Literal["ok", "partial", "timeout", "error", "skipped", "open"]


class SourceReport(Noun, frozen=True, kw_only=True, gc=False):
    """How one call ended. A failure is data. `elapsed` is in seconds, and so is `started`, from the start of
    the request.
    """

    source: str
    leg: str
    query: str
    status: Status
    started: float = 0.0
    elapsed: float = 0.0
    count: int = 0
    error: str = ""
    withheld: int = 0  # hits in scope that the kinds, filters, period or excluded words kept back on arrival
    # what was done otherwise than asked, such as words searched where a phrase found nothing, or the entities
    # that a hint stands for
    note: str = ""


def brief_coverage(reports: Sequence[SourceReport]) -> list[dict[str, Any]]:
    """Return one report for the calls to a leg that ended alike: how many they are, what they found together,
    and the seconds of the slowest.
    """
    alike: dict[tuple[str, ...], list[SourceReport]] = {}
    for report in reports:
        how = (report.source, report.leg, report.status, report.error, report.note)
        alike.setdefault(how, []).append(report)
    coverage = []
    for calls in alike.values():
        together = calls[0].replace(
            query="",
            started=0.0,
            elapsed=max(report.elapsed for report in calls),
            count=sum(report.count for report in calls),
            withheld=sum(report.withheld for report in calls),
        )
        short = brief(together)
        del short["query"]
        coverage.append({**short, "calls": len(calls)})
    return coverage


class Harvest(Noun, frozen=True, kw_only=True):
    """What came back from the fan-out."""

    lists: tuple[RankedList, ...] = ()
    facts: tuple[Fact, ...] = ()
    facets: tuple[Facet, ...] = ()
    entities: tuple[Entity, ...] = ()
    reports: tuple[SourceReport, ...] = ()


class Citation(Noun, frozen=True, kw_only=True, gc=False):
    """`[number]` in the text stands for this document; `envelopes[number - 1]` is the same one."""

    BRIEF: ClassVar[frozenset[str]] = frozenset(
        ("number", "title", "url", "source", "job", "path", "page", "line", "seconds")
    )

    number: int
    title: str
    url: str  # what opens: a page of the web, or a file, at the page of a PDF; else as the source gives it
    source: str
    job: str = ""  # the ingestion job that stored it; "": none
    path: tuple[str, ...] = ()  # the headings below the title that it stands under, outermost first
    page: int | None = None  # from 1; of several, the one with most words of the question
    line: int | None = None  # of its file, from 1
    seconds: float | None = None  # of a recording
    file: str = ""  # the absolute path of its file on the machine of the router; "": it is none
    tokens: int | None = None  # of its block; None: there is no budget, so none are counted
    characters: int | None = None  # of the document's text that its block holds; None: all of it

    @property
    def place(self) -> str:
        """Where it begins, in words: "page 7", "1:02:03", "line 12"; "": nobody knows."""
        if self.page is not None:
            return f"page {self.page}"
        if self.seconds is not None:
            minutes, seconds = divmod(int(self.seconds), 60)
            hours, minutes = divmod(minutes, 60)
            return f"{hours}:{minutes:02}:{seconds:02}"
        return "" if self.line is None else f"line {self.line}"


class ModelUsage(Noun, frozen=True, kw_only=True, gc=False):
    """What the calls to one generator cost. Tokens None: its server does not say; cost None: it has no
    price.
    """

    generator: str  # its name in the settings
    model: str = ""
    calls: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None  # in the currency of `price_in` and `price_out`


class Usage(Noun, frozen=True, kw_only=True):
    """The cost of one request. `cache` names the tier it came from. `tokens` None: none were counted."""

    calls: int = 0
    hits: int = 0
    embedded: int = 0
    tokens: int | None = None
    seconds: float = 0.0
    # memory, disk, redis, joined; then what else stands here is the cost of this answer, not of the first
    cache: str = ""
    models: tuple[ModelUsage, ...] = ()  # the generators that interpreters, stages and the answer called


class Step(Noun, frozen=True, kw_only=True):
    """One step of a request: its seconds, the envelopes still live after it, and those lost in it."""

    name: str
    elapsed: float
    live: int
    started: float = 0.0  # seconds from the start of the request
    lost: Sequence[Envelope] = ()
    note: str = ""
    lost_facts: tuple[Fact, ...] = ()
    lost_entities: tuple[Entity, ...] = ()
    lost_facets: tuple[Facet, ...] = ()
    order: tuple[str, ...] = ()  # ids (or URLs) of the first 50, best first: after the fusion and each stage
    failed: bool = False  # an interpreter or a stage failed here and was skipped; `note` says why
    gated: bool = False  # a stage that withholds facts left no document here

    @property
    def dropped(self) -> dict[str, tuple[str, ...]]:
        """Ids of the documents lost here, by reason."""
        reasons: dict[str, list[str]] = {}
        for envelope in self.lost:
            reasons.setdefault(envelope.dropped or "", []).append(envelope.id)
        return {reason: tuple(ids) for reason, ids in reasons.items()}


class Trace(Noun, frozen=True, kw_only=True):
    """Everything that happened to one request."""

    plan: Plan
    steps: tuple[Step, ...] = ()

    def __repr__(self) -> str:
        steps = " ".join(f"{step.name}:{step.live}" for step in self.steps)
        return f"Trace(route {self.plan.route!r}, {with_noun(len(self.plan.calls), 'call')}, {steps})"

    @property
    def dropped(self) -> tuple[Envelope, ...]:
        """Every envelope that went no further, in the order they were lost."""
        return tuple(envelope for step in self.steps for envelope in step.lost)


class Context(Noun, frozen=True, kw_only=True):
    """The result. `envelopes[i]` is citation `[i + 1]`; `coverage` has one report for each call."""

    question: str
    intent: Intent
    outcome: str  # answered, facts_only, empty, confidence_gated_fallback, not_searched, clarify
    text: str = ""
    envelopes: tuple[Envelope, ...] = ()
    citations: tuple[Citation, ...] = ()
    facts: tuple[Fact, ...] = ()
    facets: tuple[Facet, ...] = ()
    entities: tuple[Entity, ...] = ()
    coverage: tuple[SourceReport, ...] = ()
    usage: Usage
    trace: Trace
    cached: bool = False
    clarification: Clarification | None = None  # the question to ask back, where the outcome is clarify

    @property
    def degraded(self) -> bool:
        """Whether a source, or a part of one, is missing, or a stage or interpreter failed."""
        failed = ("timeout", "error", "open", "partial")
        return any(r.status in failed for r in self.coverage) or any(s.failed for s in self.trace.steps)

    @property
    def answerability(self) -> Answerability:
        """How well the text that is handed over can answer the question, not what the budget cut from it;
        judged anew each time it is asked for.
        """
        envelopes: Sequence[Envelope] = self.envelopes
        for citation in self.citations[:1]:  # only the best document is ever cut
            if citation.characters is not None:
                document = envelopes[0].document
                content = document.content.strip()[: citation.characters]
                cut = envelopes[0].replace(document=document.replace(content=content))
                envelopes = (cut, *envelopes[1:])
        return judged(self.intent.text, envelopes, searched=self.intent.should_search)

    @property
    def route(self) -> str:
        """The route that the question took."""
        return self.trace.plan.route

    def to_dict(self, detail: Detail = "brief") -> dict[str, Any]:
        """Return the context as mappings, lists and scalars, as `POST /v1/route` has it.

        "brief": what `text` and the citations do not say already of each document, one report for equal
        calls, and nothing that is as it is by default; "full": every field; "trace": with the trace, which
        holds every document that was lost. "full" names each query of the provenance by its place in
        `queries`: a long question is not repeated for every document. No level has vectors. Raises ValueError
        for another one.
        """
        check_detail(detail)
        result = self._brief() if detail == "brief" else self._full(trace=detail == "trace")
        judgement = msgspec.to_builtins(self.answerability)
        return {**result, "route": self.route, "answerability": judgement, "degraded": self.degraded}

    def to_json(self, detail: Detail = "brief") -> str:
        """Return `to_dict` as JSON."""
        return encode_json(self.to_dict(detail)).decode()

    def __repr__(self) -> str:
        sources = dict.fromkeys(citation.source for citation in self.citations)
        documents = with_noun(len(self.envelopes), "document") + (
            f" of {', '.join(sources)}" if sources else ""
        )
        seconds = f"{self.usage.seconds:.3g} s"
        return (
            f"Context({shorten(self.question)!r}, {self.outcome}, {documents},"
            f" {with_noun(len(self.facts), 'fact')},"
            f" {self.answerability.level}{', degraded' if self.degraded else ''}, {seconds})"
        )

    def _repr_html_(self) -> str:
        """Return a table of the documents, which notebooks show."""
        rows = [
            (
                str(citation.number),
                link_cell(citation.title, citation.url),
                text_cell(citation.source),
                f"{envelope.normalized:.2f}",
                text_cell(envelope.document.content),
            )
            for citation, envelope in zip(self.citations, self.envelopes, strict=False)
        ]
        return html_table(repr(self), ("", "document", "source", "score", "text"), rows)

    def _brief(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name in self.__struct_fields__:
            if name not in ("trace", "coverage"):
                result[name] = brief(getattr(self, name))
        result["coverage"] = brief_coverage(self.coverage)
        result["intent"].pop("question")
        if self.intent.text == self.question:
            result["intent"].pop("text", None)
        return result

    def _full(self, *, trace: bool) -> dict[str, Any]:
        steps = self.trace.steps if trace else ()
        envelopes = [*self.envelopes, *[envelope for step in steps for envelope in step.lost]]
        sealed = [seal.query for envelope in envelopes for seal in envelope.provenance]
        numbers = {
            query: number for number, query in enumerate(dict.fromkeys([*self.intent.queries, *sealed]))
        }
        result: dict[str, Any] = {}
        for name in self.__struct_fields__:
            if name not in ("trace", "envelopes"):
                result[name] = builtins(getattr(self, name))
        result["envelopes"] = [builtins(envelope) for envelope in self.envelopes]
        number_queries(result["envelopes"], numbers)
        for report in result["coverage"]:
            report["query"] = shorten(report["query"])
        result["queries"] = list(numbers)
        if trace:
            result["trace"] = {"plan": builtins(self.trace.plan), "steps": [_step(step) for step in steps]}
            for step in result["trace"]["steps"]:
                number_queries(step["lost"], numbers)
        return result


def _step(step: Step) -> dict[str, Any]:
    lost = [builtins(envelope) for envelope in step.lost]
    return {**builtins(step.replace(lost=())), "lost": lost}
