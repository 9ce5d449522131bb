"""Step 2: which source is asked, on which leg, with which query. A pure function, and its result can be
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from contextrouter.contracts import (
    ENTITIES,
    FACETS,
    FACTS,
    FactSource,
    Source,
    SupportsEntities,
    SupportsFacets,
)
from contextrouter.errors import RequestRefused
from contextrouter.filters import wanted
from contextrouter.model import Call, Document, Intent, Plan, Query, Request
from contextrouter.scope import Scope
from contextrouter.settings import FactKeys, Instance, Rag, Route, Settings, SourceKeys

KEPT = 256
"""Outlines of plans that a router keeps; when there are more, all are made anew."""
_Ask = tuple[str, int, int]
"""Leg, how many of the queries (0: the question itself), limit."""


def make_plan(
    intent: Intent, request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]
) -> Plan:
    """Return the calls to make for `intent`, and for every source or leg that is not asked, why.

    Of `sources` only `legs`, `default_queries` and what they can do beside are read. Raises RequestRefused
    when the request names a source or a leg that does not exist.
    """
    return Planner(settings, sources).plan(intent, request)


class Planner:
    """Makes plans. What the words of the question do not change is worked out once for requests that are
    alike, and kept.
    """

    def __init__(self, settings: Settings, sources: Mapping[str, Source | FactSource]) -> None:
        self._settings, self._sources = settings, sources
        self._outlines: dict[Any, _Outline] = {}

    def plan(self, intent: Intent, request: Request) -> Plan:
        """As `make_plan`."""
        key = _alike(intent, request)
        outline = None if key is None else self._outlines.get(key)
        if outline is None or not outline.holds():
            outline = _Outline(intent, request, self._settings, self._sources)
            if key is not None:
                if len(self._outlines) >= KEPT:
                    self._outlines.clear()
                self._outlines[key] = outline
        return outline.plan(intent, request)


def _alike(intent: Intent, request: Request) -> Any:
    """What requests have in common that share an outline; None for those that ask for more than most, and
    share none.
    """
    if intent.facets or intent.lookup or request.legs:
        return None
    if request.scope is not None and type(request.scope) is not Scope:
        return None  # nobody knows what that takes for equal
    key = intent.kind, bool(intent.should_search), request.sources, request.scope
    try:
        hash(key)
    except TypeError:
        return None
    return key


class _Outline:
    """Which source is asked on which leg: what the words of a question do not change."""

    def __init__(
        self, intent: Intent, request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]
    ) -> None:
        self.rag, self.route = settings.for_route(intent.kind)
        self.excluded: dict[str, str] = {}
        self._asks: dict[_Ask, int] = {}  # what is asked, and where it stands among what is asked
        self._lines: list[
            tuple[str, int, float, float | None]
        ] = []  # source, place of what it is asked, weight, timeout
        self._read: list[tuple[Source, tuple[str, ...], int | None]] = []
        _known(request, settings, sources)
        for name, instance in settings.sources.items():
            if name not in sources:
                continue
            why = _not_asked(name, instance, intent, request, self.rag, self.route)
            source = sources[name]
            if why:
                self.excluded[name] = why
            elif instance.kind == "fact":
                self._ask_facts(name, cast(FactSource, source), instance.keys, intent, request)
            else:
                self._ask(name, cast(Source, source), instance.keys, intent, request)

    def holds(self) -> bool:
        """Whether the sources still have the legs that were read; opening one may tell it what it can do."""
        return all(
            [
                tuple(source.legs) == legs and source.default_queries == queries
                for source, legs, queries in self._read
            ]
        )

    def plan(self, intent: Intent, request: Request) -> Plan:
        """The plan for the words of one request. Sources that are asked the same thing share a query."""
        filters, question = wanted(request), (intent.question,)
        queries = [
            [
                Query(
                    text=text,
                    leg=leg,
                    limit=limit,
                    concepts=intent.concepts,
                    labels=intent.labels,
                    entities=intent.entities,
                    period=intent.period,
                    language=intent.language,
                    scope=request.scope,
                    filters=filters,
                )
                for text in (intent.queries[:count] if count else question)
            ]
            for leg, count, limit in self._asks
        ]
        calls = [
            Call(source=source, query=query, weight=weight, timeout=timeout)
            for source, place, weight, timeout in self._lines
            for query in queries[place]
        ]
        return Plan(intent=intent, route=intent.kind, calls=tuple(calls), excluded=dict(self.excluded))

    def _add(
        self, source: str, leg: str, count: int, limit: int, weight: float, timeout: float | None
    ) -> None:
        place = self._asks.setdefault((leg, count, limit), len(self._asks))
        self._lines.append((source, place, weight, timeout))

    def _ask(self, name: str, source: Source, keys: SourceKeys, intent: Intent, request: Request) -> None:
        rag, legs, queries = self.rag, tuple(source.legs), source.default_queries
        self._read.append((source, legs, queries))
        limit = keys.limit or rag.candidates
        count = min(rag.queries, keys.queries or queries or 3)
        for leg in legs:
            why = _leg_not_asked(leg, keys, request, rag, self.route)
            if why:
                self.excluded[f"{name}/{leg}"] = why
            else:
                self._add(name, leg, count, limit, keys.weight, keys.timeout)
        if intent.facets and isinstance(source, SupportsFacets):
            self._add(name, FACETS, 0, limit, 1.0, keys.timeout)

    def _ask_facts(
        self, name: str, source: FactSource, keys: FactKeys, intent: Intent, request: Request
    ) -> None:
        rag = self.rag
        if why := _facts_not_asked(request, rag, self.route):
            self.excluded[f"{name}/{FACTS}"] = why
        else:
            self._add(name, FACTS, 0, keys.limit or rag.max_graph_facts, 1.0, keys.timeout)
        limit = keys.limit or rag.candidates
        if intent.lookup and isinstance(source, SupportsEntities):
            self._add(name, ENTITIES, 0, limit, 1.0, keys.timeout)
        if intent.facets and isinstance(source, SupportsFacets):
            self._add(name, FACETS, 0, limit, 1.0, keys.timeout)


def _known(request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]) -> None:
    for name in request.sources or ():
        if name in sources:
            continue
        for kind in ("provider", "connector", "fact"):
            if name in settings.instances(kind):
                raise RequestRefused(f"Source {name!r} is disabled: [{kind}s.{name}] says enabled = false.")
        raise RequestRefused(
            f"Source {name!r} is not defined. Defined sources: {', '.join(sources) or 'none'}."
        )
    if request.legs:
        legs = {
            leg
            for source in sources.values()
            for leg in (source.legs if isinstance(source, Source) else (FACTS,))
        }
        for leg in request.legs:
            if leg not in legs:
                raise RequestRefused(
                    f"No source has a leg {leg!r}. Legs: {', '.join(sorted(legs)) or 'none'}."
                )


def _not_asked(
    name: str, instance: Instance, intent: Intent, request: Request, rag: Rag, route: Route
) -> str:
    """Why a source is not asked at all; empty: it is."""
    if not intent.should_search:
        return "the question needs no search"
    if request.sources is not None and name not in request.sources:
        return "not among the sources asked for"
    if route.sources is not None and name not in route.sources:
        return f"not on route {intent.kind!r}"
    if rag.provider is not None and instance.kind == "provider":
        providers = (rag.provider,) if isinstance(rag.provider, str) else rag.provider
        if name not in providers:
            return "not named in [rag] provider"
    if request.scope is not None:
        keys: FactKeys = instance.keys
        # A table without a tenant says nothing of the tenants of its documents, so the tenant is judged on
        # arrival.
        tenant = keys.tenant or request.scope.tenant
        labels = Document(
            content="", tenant=tenant, compartment=keys.compartment, sensitivity=keys.sensitivity
        )
        if not request.scope.allows(labels):
            return "outside the caller's scope"
    return ""


def _leg_not_asked(leg: str, keys: SourceKeys, request: Request, rag: Rag, route: Route) -> str:
    if leg == "text" and not rag.enable_fts:
        return "[rag] enable_fts is false"
    if keys.legs is not None and leg not in keys.legs:
        return "not among the source's legs"
    return _not_among(leg, request, route)


def _not_among(leg: str, request: Request, route: Route) -> str:
    for legs, why in (
        (route.legs, "not among the route's legs"),
        (request.legs, "not among the legs asked for"),
    ):
        if legs is not None and leg not in legs:
            return why
    return ""


def _facts_not_asked(request: Request, rag: Rag, route: Route) -> str:
    if not rag.max_graph_facts:
        return "[rag] max_graph_facts is 0"
    return (
        _not_among(FACTS, request, route) if rag.graph_facts_enabled else "[rag] graph_facts_enabled is false"
    )
