"""Query planning (step 2): which source is asked, on which leg, with which query. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from contextrouter.contracts import (
    ENTITIES,
    FACETS,
    FACTS,
    FactSource,
    Provider,
    Source,
    SupportsEntities,
    SupportsFacets,
)
from contextrouter.errors import RequestRefused
from contextrouter.filters import request_filters
from contextrouter.model import Call, Document, Intent, Plan, Query, Request
from contextrouter.settings import FactKeys, Rag, Route, Settings, SourceKeys
from contextrouter.text.query_syntax import parse


def make_plan(
    intent: Intent,
    request: Request,
    settings: Settings,
    sources: Mapping[str, Source | FactSource],
    pool: float = 1.0,
) -> Plan:
    """Return the calls to make for `intent`, and for every source or leg that is not asked, why.

    `pool` multiplies the limit of every call that returns documents, rounded up: the largest `pool` of the
    stages that run.

    It walks `sources`; one without a table in `settings` has the default keys. Of a source only `legs`,
    `phrase_legs`, `default_queries` and its abilities are read. Raises RequestRefused when the request
    names a source or a leg that does not exist.
    """
    _check_names(request, settings, sources)
    planner = _Planner(intent, request, settings, pool)
    for name, source in sources.items():
        if isinstance(source, FactSource):
            planner.add_facts(name, source)
        else:
            planner.add_source(name, source)
    return Plan(intent=intent, route=intent.kind, calls=tuple(planner.calls), excluded=planner.excluded)


class _Planner:
    """One plan as it grows."""

    def __init__(self, intent: Intent, request: Request, settings: Settings, pool: float) -> None:
        self.intent, self.request, self.settings, self.pool = intent, request, settings, pool
        self.rag, self.route = settings.for_route(intent.kind)
        self.filters = request_filters(request)
        self.calls: list[Call] = []
        self.excluded: dict[str, str] = {}
        self._queries: dict[tuple[str, str, int, bool], Query] = {}

    def add_source(self, name: str, source: Source) -> None:
        """Add the calls to a provider or a connector, or say why there are none."""
        kind = "provider" if isinstance(source, Provider) else "connector"
        keys = self._keys(kind, name, SourceKeys())
        if why := self._why_excluded(name, kind, keys):
            self.excluded[name] = why
            return
        # rounded first: 30 × 1.1 is 33.000000000000004
        limit = ceil(round((keys.limit or self.rag.candidates) * self.pool, 6))
        count = min(self.rag.queries, keys.queries or source.default_queries or 3)
        for leg in source.legs:
            if why := _leg_not_asked(leg, keys, self.request, self.rag, self.route):
                self.excluded[f"{name}/{leg}"] = why
            else:
                binds = leg in source.phrase_legs
                texts = self.intent.queries[:count]
                self._add(name, leg, [self._query(text, leg, limit, phrases=binds) for text in texts], keys)
        if self.intent.facets and isinstance(source, SupportsFacets):
            self._ask(name, FACETS, limit, keys)

    def add_facts(self, name: str, source: FactSource) -> None:
        """Add the calls to a fact source, or say why there are none."""
        keys = self._keys("fact", name, FactKeys())
        if why := self._why_excluded(name, "fact", keys):
            self.excluded[name] = why
            return
        limit = keys.limit or self.rag.candidates
        if why := _facts_not_asked(self.request, self.rag, self.route):
            self.excluded[f"{name}/{FACTS}"] = why
        else:
            self._ask(name, FACTS, keys.limit or self.rag.max_graph_facts, keys)
        if self.intent.lookup and isinstance(source, SupportsEntities):
            self._ask(name, ENTITIES, limit, keys)
        if self.intent.facets and isinstance(source, SupportsFacets):
            self._ask(name, FACETS, limit, keys)

    def _keys(self, kind: str, name: str, default: Any) -> Any:
        instance = self.settings.instances(kind).get(name)
        return default if instance is None else instance.keys

    def _ask(self, source: str, leg: str, limit: int, keys: FactKeys) -> None:
        """Add a call with the question alone."""
        self._add(source, leg, [self._query(self.intent.question, leg, limit)], keys)

    def _add(self, source: str, leg: str, queries: Sequence[Query], keys: FactKeys) -> None:
        weight = keys.weight if isinstance(keys, SourceKeys) and leg != FACETS else 1.0
        queries = [query for query in queries if not parse(query.text).only_excludes]
        if not queries:
            self.excluded[f"{source}/{leg}"] = "the question only says what to leave out"
        for query in queries:
            self.calls.append(Call(source=source, query=query, weight=weight, timeout=keys.timeout))

    def _query(self, text: str, leg: str, limit: int, *, phrases: bool = False) -> Query:
        """Return the query; sources that are asked the same share one.

        `phrases`: those of the text must occur. Every query inherits what the question excludes.
        """
        key = (text, leg, limit, phrases)
        query = self._queries.get(key)
        if query is None:
            intent, parsed = self.intent, parse(text)
            excluded = dict.fromkeys((*parse(intent.question).excluded, *parsed.excluded))
            query = self._queries[key] = Query(
                text=text,
                leg=leg,
                limit=limit,
                required=parsed.required if phrases else (),
                excluded=tuple(excluded),
                concepts=intent.concepts,
                labels=intent.labels,
                entities=intent.entities,
                period=intent.period,
                language=intent.language,
                scope=self.request.scope,
                filters=self.filters,
            )
        return query

    def _why_excluded(self, name: str, kind: str, keys: FactKeys) -> str:
        """Why a source is not asked at all; empty: it is."""
        if not self.intent.should_search:
            return "the question needs no search"
        if self.request.sources is not None and name not in self.request.sources:
            return "not among the sources asked for"
        if self.route.sources is not None and name not in self.route.sources:
            return f"not on route {self.intent.kind!r}"
        if self.rag.provider is not None and kind == "provider":
            named = self.rag.provider
            if name not in ((named,) if isinstance(named, str) else named):
                return "not named in [rag] provider"
        scope = self.request.scope
        if scope is not None:
            # A table without a tenant says nothing of its documents' tenants: those are checked on arrival.
            tenant = keys.tenant or scope.tenant
            labels = Document(
                content="", tenant=tenant, compartment=keys.compartment, sensitivity=keys.sensitivity
            )
            if not scope.allows(labels):
                return "outside the caller's scope"
        return ""


def _check_names(request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]) -> None:
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
