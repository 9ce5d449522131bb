"""The data model: document, hit, envelope, fact, request, intent, query, plan, report, trace and context.

A question is a `Request`; interpreted, an `Intent`; planned, a `Plan` of `Call`s, each with a `Query`.
Sources answer with `Hit`s around `Document`s; they become `RankedList`s, then `Envelope`s with `Provenance`;
the `Context` holds the best. All are frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

import msgspec

from contextrouter.pipeline import request_validation
from contextrouter.pipeline.answerability import Answerability, judged
from contextrouter.scope import Scope

Vector = Sequence[float]
"""One embedding: a sequence of finite floats (a list, or a one-dimensional numpy array)."""

Status = Literal["ok", "partial", "timeout", "error", "skipped", "open"]
TRUSTS = ("authoritative", "reference", "volatile")  # highest first
SEARCH_TEXT = "search_text"  # key of a document's metadata: what is searched instead of its content
_NONE: Mapping[str, Any] = {}


class Noun(msgspec.Struct, frozen=True):
    """Frozen, and copied with changes."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)


class Document(Noun, frozen=True, kw_only=True, gc=False):
    """A retrievable text. A chunk is a document with `parent`, the id of the document it was cut from."""

    content: str
    id: str = ""
    url: str = ""
    title: str = ""
    snippet: str = ""  # stored; does not depend on the query
    kind: str = "document"  # book, video, qa, web, …: what quotas count
    path: tuple[str, ...] = ()  # heading path, outermost first
    parent: str | None = None
    media_type: str = "text/plain"
    language: str | None = None
    tenant: str | None = None  # None: unlabelled, takes the source's labels
    compartment: str | None = None
    sensitivity: str | None = None
    trust: str | None = None
    updated_at: datetime | None = None
    synced_at: datetime | None = None
    keywords: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = _NONE
    untrusted: bool = False  # written by strangers: fenced in the context, and never an instruction

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over url, snippet and content, each length-prefixed: no two triples encode alike."""
        digest = sha256()
        for part in (self.url, self.snippet, self.content):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:%b" % (len(data), data))
        return digest.hexdigest()


class Hit(Noun, frozen=True, kw_only=True, gc=False):
    """What a source says of one document. The order of hits is their rank."""

    document: Document
    score: float | None = None  # None: unscored
    vector: Vector | None = None  # None: not at hand
    highlights: tuple[str, ...] = ()  # query-dependent excerpts


class RankedList(Noun, frozen=True, kw_only=True, gc=False):
    """One answer of one source to one call, named so that every later number can be traced to it."""

    source: str
    leg: str
    query: str
    hits: Sequence[Hit]
    weight: float = 1.0  # the source's weight, for the fusion across sources
    score_range: tuple[float, float] | None = None  # declared by the source; beats min-max
    retrieved_at: datetime | None = None
    full: bool = False  # the source returned as many hits as it was asked for, so there may be more


class Provenance(Noun, frozen=True, kw_only=True, gc=False):
    """One ranked list's word on one document; stamped by the router alone."""

    source: str
    leg: str
    query: str
    rank: int  # from 1
    score: float | None  # raw, as the source gave it
    normalized: float | None = None  # in [0, 1] within its list; None: unscored
    weight: float = 1.0  # what the fusion multiplied the list by: weights of source, leg and query together
    retrieved_at: datetime | None = None
    place: int | None = None  # of the document in the order of its source, from 1; None: not fused
    source_score: float | None = None  # of the document within its source, which gave it that place
    # the value that this place was given beside other sources; None: one source
    calibrated: float | None = None


class Envelope(Noun, frozen=True, kw_only=True, gc=False):
    """A distinct document, sealed with its provenance: the one thing that moves from dedupe to assembly."""

    document: Document
    provenance: tuple[Provenance, ...] = ()  # best rank first
    score: float = 0.0  # of the last step that scored
    normalized: float = 0.0  # score ÷ the most it could be, in [0, 1]
    signals: Mapping[str, float] = _NONE
    highlights: tuple[str, ...] = ()
    vector: Vector | None = None
    dropped: str | None = None  # why it went no further; None: live

    @property
    def id(self) -> str:
        """The document's fingerprint."""
        return self.document.fingerprint

    def scored(self, score: float, normalized: float | None = None, **signals: float) -> Envelope:
        """Return a copy with a new score, and `signals` added to those there are."""
        known = self.normalized if normalized is None else normalized
        return self.replace(
            score=score, normalized=known, signals={**self.signals, **signals} if signals else self.signals
        )

    def drop(self, reason: str) -> Envelope:
        """Return a copy that says why it goes no further."""
        return self.replace(dropped=reason)


class Fact(Noun, frozen=True, kw_only=True, gc=False):
    """A directed triple. Facts are handed back beside the documents and never cited."""

    subject: str
    predicate: str
    object: str
    source: str = ""
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    tenant: str | None = None
    compartment: str | None = None
    sensitivity: str | None = None
    attributes: Mapping[str, Any] = _NONE


class Entity(Noun, frozen=True, kw_only=True, gc=False):
    """An answer to an attribute question."""

    id: str
    name: str
    kind: str = ""
    attributes: Mapping[str, Any] = _NONE
    source: str = ""
    tenant: str | None = None
    compartment: str | None = None
    sensitivity: str | None = None


class Facet(Noun, frozen=True, kw_only=True, gc=False):
    """An aggregate answer: how many documents have this value."""

    dimension: str
    value: str
    count: int


class Period(Noun, frozen=True, kw_only=True):
    """Inclusive days in a named zone, or instants. An end that is None is open."""

    start: date | datetime | None = None
    end: date | datetime | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        request_validation.check_period(self.start, self.end, self.zone)

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """The period as instants: [first, last), aware. A day ends where the next begins, also when clocks
        change.

        An end after which the calendar has nothing more is open.
        """
        zone = ZoneInfo(self.zone)

        def instant(value: date | datetime | None, *, days: int) -> datetime | None:
            if value is None:
                return None
            if isinstance(value, datetime):
                aware = value if value.tzinfo else value.replace(tzinfo=zone)
                return aware + timedelta(microseconds=days)
            return datetime.combine(value + timedelta(days=days), time(), zone)

        try:
            end = instant(self.end, days=1)
        except OverflowError:
            end = None
        return instant(self.start, days=0), end

    def contains(self, moment: datetime) -> bool:
        """Whether `moment` lies inside; a naive one is taken as UTC."""
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=ZoneInfo("UTC"))
        start, end = self.bounds()
        return (start is None or moment >= start) and (end is None or moment < end)


class Request(Noun, frozen=True, kw_only=True):
    """One call. `deadline` is in seconds from now. Wrong fields raise RequestRefused."""

    question: str
    history: tuple[Mapping[str, str], ...] = ()  # {"role": …, "content": …}, oldest first
    scope: Scope | None = None  # None: unrestricted
    profile: Mapping[str, Any] = _NONE
    sources: tuple[str, ...] | None = None  # None: every enabled one
    legs: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    filters: Mapping[str, Any] = _NONE  # metadata key -> value, or a list of allowed values
    deadline: float | None = None
    mode: str | None = None  # overrides the intent's kind, and with it the route

    def __post_init__(self) -> None:
        for name, value in request_validation.normalize_fields(self).items():
            msgspec.structs.force_setattr(self, name, value)


class Intent(Noun, frozen=True, kw_only=True):
    """What is really asked. `queries[0]` is the original question; `kind` names the route."""

    question: str
    queries: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()  # those of `queries` that rules made: they stand behind the question
    kind: str = "default"
    concepts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    period: Period | None = None
    language: str | None = None
    facets: tuple[str, ...] = ()
    lookup: str | None = None
    should_search: bool = True
    confidence: float = 1.0
    attributes: Mapping[str, Any] = _NONE


class Query(Noun, frozen=True, kw_only=True, gc=False):
    """What a source is asked. `deadline` is on `time.monotonic()`, a little before the router's own."""

    text: str
    leg: str = "default"
    limit: int = 30
    required: tuple[tuple[str, ...], ...] = ()  # phrases of `text`, on legs that they bind: one of each group
    excluded: tuple[str, ...] = ()  # words and phrases after "-", of `text` and the question; bind all legs
    vector: Vector | None = None
    deadline: float | None = None
    concepts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    period: Period | None = None
    language: str | None = None
    scope: Scope | None = None
    filters: Mapping[str, Any] = _NONE


class Call(Noun, frozen=True, kw_only=True, gc=False):
    """One line of a plan: ask `source` this `query`; leg "facts" asks a fact source."""

    source: str
    query: Query
    weight: float = 1.0
    timeout: float | None = None


class Plan(Noun, frozen=True, kw_only=True):
    """The fan-out as a value that can be looked at before it runs."""

    intent: Intent
    route: str = "default"
    calls: tuple[Call, ...] = ()
    excluded: Mapping[str, str] = _NONE  # source, or source/leg -> why it is not asked


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
    note: str = ""  # what was done otherwise than asked, such as words searched where a phrase found nothing


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
    url: str
    source: str
    tokens: int | None = None  # of its block; None: there is no budget, so none are counted


class Usage(Noun, frozen=True, kw_only=True, gc=False):
    """The cost of one request. `cache` names the tier it came from. `tokens` None: none were counted."""

    calls: int = 0
    hits: int = 0
    embedded: int = 0
    tokens: int | None = None
    seconds: float = 0.0
    # memory, disk, redis, joined; then what else stands here is the cost of this answer, not of the first
    cache: str = ""


class Step(Noun, frozen=True, kw_only=True):
    """One step of a request: its seconds, the envelopes still live after it, and those lost in it."""

    name: str
    elapsed: float
    live: int
    lost: Sequence[Envelope] = ()
    note: str = ""
    lost_facts: tuple[Fact, ...] = ()
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
    outcome: str  # answered, facts_only, empty, confidence_gated_fallback, not_searched
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

    @property
    def degraded(self) -> bool:
        """Whether a source, or a part of one, is missing, or a stage or interpreter failed."""
        failed = ("timeout", "error", "open", "partial")
        return any(r.status in failed for r in self.coverage) or any(s.failed for s in self.trace.steps)

    @property
    def answerability(self) -> Answerability:
        """How well this can answer the question; judged anew each time it is asked for."""
        return judged(self.intent.question, self.envelopes, searched=self.intent.should_search)
