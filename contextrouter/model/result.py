"""Report, harvest, citation, usage, trace and context: what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contextrouter.model.document import Envelope, RankedList
from contextrouter.model.fact import Entity, Facet, Fact
from contextrouter.model.noun import Noun
from contextrouter.model.request import Clarification, Intent, Plan
from contextrouter.pipeline.answerability import Answerability, judged

Status = Literal["ok", "partial", "timeout", "error", "skipped", "open"]


class SourceReport(Noun, frozen=True, kw_only=True, gc=False):
    """How one call ended. A failure is data. `elapsed` is in seconds."""

    source: str
    leg: str
    query: str
    status: Status
    elapsed: float = 0.0
    count: int = 0
    error: str = ""
    withheld: int = 0  # hits in scope that the kinds, filters, period or excluded words kept back on arrival
    # what was done otherwise than asked, such as words searched where a phrase found nothing, or the entities
    # that a hint stands for
    note: str = ""


class Harvest(Noun, frozen=True, kw_only=True):
    """What came back from the fan-out."""

    lists: tuple[RankedList, ...] = ()
    facts: tuple[Fact, ...] = ()
    facets: tuple[Facet, ...] = ()
    entities: tuple[Entity, ...] = ()
    reports: tuple[SourceReport, ...] = ()


class Citation(Noun, frozen=True, kw_only=True, gc=False):
    """`[number]` in the text stands for this document; `envelopes[number - 1]` is the same one."""

    number: int
    title: str
    url: str  # what opens: a page of the web, or a file, at the page of a PDF; else as the source gives it
    source: str
    job: str = ""  # the ingestion job that stored it; "": none
    path: tuple[str, ...] = ()  # the headings that it stands under, outermost first
    page: int | None = None  # where it begins, from 1
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
