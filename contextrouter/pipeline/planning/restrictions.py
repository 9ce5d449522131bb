"""Restrictions of a search: labels, filters and period. What is demanded always holds; what is inferred may
be given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from contextrouter.filters import combine, request_filters
from contextrouter.model import Document, Intent, Period, Request
from contextrouter.scope import Scope
from contextrouter.settings import FactKeys, Rag, Route


class Restrictions(msgspec.Struct, frozen=True, kw_only=True):
    """What narrows the search of one request on one route.

    `labels` and `filters` are demanded, by the caller or the route. `inferred_labels` and `inferred_filters`
    come from interpreters; exact legs do without them. `period` reaches every leg; documents of `preferred`
    stand higher. `facts_period` is the time in which facts must have held.
    """

    labels: Sequence[str] = ()
    filters: Mapping[str, Any] = {}
    inferred_labels: Sequence[str] = ()
    inferred_filters: Mapping[str, Any] = {}
    period: Period | None = None
    preferred: Period | None = None
    facts_period: Period | None = None
    exact_legs: Sequence[str] = ()
    note: str = ""  # what was inferred and is not used, for the trace

    def labels_on(self, leg: str) -> tuple[str, ...]:
        """Return the labels of which a document on this leg must have one; those of the caller first."""
        return tuple(self.labels or (() if leg in self.exact_legs else self.inferred_labels))

    def filters_on(self, leg: str) -> Mapping[str, Any]:
        """Return the filters on this leg. A key that is demanded is not narrowed by what was inferred."""
        if leg in self.exact_legs or not self.inferred_filters:
            return self.filters
        return {**self.inferred_filters, **self.filters}


def restrictions(intent: Intent, request: Request, rag: Rag, route: Route, now: datetime) -> Restrictions:
    """Return what narrows the search for `intent`: demands of the caller, keys of the route, and what was
    inferred and the route does not ignore.
    """
    ignore = route.ignore
    inferred = None if "period" in ignore or request.period else intent.period
    period = inferred or request.period
    if period is None and route.period_days is not None:
        today = now.date()
        period = Period(start=today - timedelta(days=route.period_days - 1), end=today, zone=rag.timezone)
    preferred = inferred if rag.period_boost else None
    filters = request_filters(request)
    if route.kinds is not None:
        filters = combine({"kind": list(route.kinds)}, filters)
    if route.filters:
        filters = combine(route.filters, filters)
    as_of = request.as_of
    return Restrictions(
        labels=request.labels,
        filters=filters,
        inferred_labels=() if "labels" in ignore else intent.labels,
        inferred_filters={} if "filters" in ignore else intent.filters,
        period=None if preferred else period,
        preferred=preferred,
        facts_period=period if as_of is None else Period(start=as_of, end=as_of, zone=rag.timezone),
        exact_legs=rag.exact_legs,
        note=_note(intent, ignore),
    )


def _note(intent: Intent, ignore: Sequence[str]) -> str:
    names = [name for name in ignore if getattr(intent, name)]
    return f"inferred {', '.join(names)} not used on route {intent.kind!r}" if names else ""


def may_ask(scope: Scope | None, keys: FactKeys) -> bool:
    """Whether a caller may see anything of a source, by the labels in the table of that source.

    A table without a tenant says nothing of its documents' tenants: those are checked on arrival.
    """
    if scope is None:
        return True
    tenant = keys.tenant or scope.tenant
    return scope.allows(
        Document(content="", tenant=tenant, compartment=keys.compartment, sensitivity=keys.sensitivity)
    )
