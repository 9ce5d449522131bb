"""Request, intent, query, call and plan: a question on its way to the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, TypedDict

import msgspec

from contextrouter.errors import RequestRefused
from contextrouter.model.noun import EMPTY, Noun, Vector, equal_nouns
from contextrouter.pipeline import request_validation
from contextrouter.scope import Scope
from contextrouter.text.time_zones import time_zone


class Period(Noun, frozen=True, kw_only=True):
    """Inclusive days in a named zone, or instants. An end that is None is open."""

    start: date | datetime | None = None
    end: date | datetime | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        request_validation.check_period(self.start, self.end, self.zone)

    @classmethod
    def of_texts(cls, start: str | None, end: str | None, zone: str) -> Period | None:
        """Return the period between two days or instants in ISO 8601; None: both are open. Raises
        RequestRefused.
        """
        if not start and not end:
            return None
        start_day = request_validation.read_day(start, "The start of the period") if start else None
        end_day = request_validation.read_day(end, "The end of the period") if end else None
        try:
            period = cls(start=start_day, end=end_day, zone=zone)
        except ValueError as error:
            raise RequestRefused(str(error)) from None
        first, last = period.bounds()
        if first is not None and last is not None and first >= last:
            raise RequestRefused(f"The period ends ({end}) before it begins ({start}). Exchange the two.")
        return period

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """The period as instants: [first, last), aware. A day ends where the next begins, also when clocks
        change.

        An end after which the calendar has nothing more is open.
        """
        zone = time_zone(self.zone)

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
            moment = moment.replace(tzinfo=UTC)
        start, end = self.bounds()
        return (start is None or moment >= start) and (end is None or moment < end)


class Request(Noun, frozen=True, kw_only=True):
    """One call. `deadline` is in seconds from now. Wrong fields raise RequestRefused."""

    question: str
    history: tuple[Mapping[str, str], ...] = ()  # {"role": …, "content": …}, oldest first
    scope: Scope | None = None  # None: unrestricted
    profile: Mapping[str, Any] = EMPTY
    sources: tuple[str, ...] | None = None  # None: every enabled one
    legs: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    filters: Mapping[str, Any] = EMPTY  # metadata key -> value, or a list of allowed values
    deadline: float | None = None
    mode: str | None = None  # overrides the intent's kind, and with it the route
    # What the caller demands: it holds on every leg, route and fallback, in place of what is inferred.
    period: Period | None = None  # documents of this time; facts that held in it
    labels: tuple[str, ...] = ()  # documents that carry one of them
    as_of: datetime | None = None  # facts as they stood then; None: now, or in the period
    limit: int | None = None  # the most documents, 1 to 1000; None: as the settings say

    def __post_init__(self) -> None:
        for name, value in request_validation.normalize_fields(self).items():
            msgspec.structs.force_setattr(self, name, value)


class RequestFields(TypedDict, total=False):
    """The fields of a Request beside the question, as keywords; None leaves a field as it is."""

    history: Sequence[Mapping[str, str]] | None
    scope: Scope | None
    profile: Mapping[str, Any] | None
    sources: Sequence[str] | None
    legs: Sequence[str] | None
    kinds: Sequence[str] | None
    filters: Mapping[str, Any] | None
    deadline: float | None
    mode: str | None
    period: Period | None
    labels: Sequence[str] | None
    as_of: datetime | None
    limit: int | None


class Clarification(Noun, frozen=True, kw_only=True, gc=False):
    """A question to ask back, and why: "vague", "no_match" or "weak"."""

    question: str
    reason: str = "vague"


class Intent(Noun, frozen=True, kw_only=True):
    """What is really asked. `queries[0]` is the original question; `kind` names the route.

    `text` is what is searched, embedded, reranked and judged: the question, unless an interpreter translated
    it or made it understandable on its own. `labels`, `filters` and `period` are inferred: a fallback may
    ignore them.
    """

    question: str
    text: str = ""  # "": becomes the question
    queries: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()  # those of `queries` that rules made: they stand behind the question
    kind: str = "default"
    concepts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    period: Period | None = None
    language: str | None = None
    facets: tuple[str, ...] = ()
    filters: Mapping[str, Any] = EMPTY  # metadata key -> value, or a list of allowed values
    lookup: str | None = None
    attribute: str | None = None  # the property of a named thing that is asked for
    should_search: bool = True
    confidence: float = 1.0
    clarify: Clarification | None = None  # asked back instead of a search
    attributes: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        if not self.text:
            msgspec.structs.force_setattr(self, "text", self.question)


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
    filters: Mapping[str, Any] = EMPTY
    attribute: str | None = None  # on the leg "entities": the attribute that is asked for

    def __eq__(self, other: object) -> bool:
        return equal_nouns(self, other)

    __hash__ = None  # type: ignore[assignment]  # it holds mappings and vectors


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
    excluded: Mapping[str, str] = EMPTY  # source, or source/leg -> why it is not asked
    note: str = ""  # what was inferred and is not used
    preferred: Period | None = None  # inferred: documents of it stand higher, others are returned too
