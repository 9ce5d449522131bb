"""Step 2: which source is asked, on which leg, with which query. A pure function, and its result can be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from contextrouter.contracts import ENTITIES, FACETS, FACTS, FactSource, Source, SupportsEntities, SupportsFacets
from contextrouter.errors import RequestRefused
from contextrouter.filters import wanted
from contextrouter.model import Call, Document, Intent, Plan, Query, Request
from contextrouter.settings import FactKeys, Instance, Rag, Route, Settings, SourceKeys


def make_plan(intent: Intent, request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]) -> Plan:
    """Return the calls to make for `intent`, and for every source or leg that is not asked, why.

    Of `sources` only `legs` and `default_queries` are read. Raises RequestRefused when the request names a source or a leg that
    does not exist.
    """
    rag, route = settings.for_route(intent.kind)
    _known(request, settings, sources)
    calls: list[Call] = []
    excluded: dict[str, str] = {}
    queries = _Queries(intent, request)
    for name, instance in settings.sources.items():
        if name not in sources:
            continue
        why = _not_asked(name, instance, intent, request, rag, route)
        if why:
            excluded[name] = why
            continue
        source = sources[name]
        if instance.kind == "fact":
            if why := _facts_not_asked(request, rag, route):
                excluded[f"{name}/{FACTS}"] = why
            calls += _fact_calls(name, cast(FactSource, source), instance.keys, intent, rag, queries, facts=not why)
        else:
            calls.extend(_calls(name, cast(Source, source), instance.keys, intent, request, rag, route, excluded, queries))
    return Plan(intent=intent, route=intent.kind, calls=tuple(calls), excluded=excluded)


def _known(request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]) -> None:
    for name in request.sources or ():
        if name in sources:
            continue
        for kind in ("provider", "connector", "fact"):
            if name in settings.instances(kind):
                raise RequestRefused(f"Source {name!r} is disabled: [{kind}s.{name}] says enabled = false.")
        raise RequestRefused(f"Source {name!r} is not defined. Defined sources: {', '.join(sources) or 'none'}.")
    if request.legs:
        legs = {leg for source in sources.values() for leg in (source.legs if isinstance(source, Source) else (FACTS,))}
        for leg in request.legs:
            if leg not in legs:
                raise RequestRefused(f"No source has a leg {leg!r}. Legs: {', '.join(sorted(legs)) or 'none'}.")


def _not_asked(name: str, instance: Instance, intent: Intent, request: Request, rag: Rag, route: Route) -> str:
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
        # A table without a tenant says nothing of the tenants of its documents, so the tenant is judged on arrival.
        tenant = keys.tenant or request.scope.tenant
        labels = Document(content="", tenant=tenant, compartment=keys.compartment, sensitivity=keys.sensitivity)
        if not request.scope.allows(labels):
            return "outside the caller's scope"
    return ""


def _calls(
    name: str,
    source: Source,
    keys: SourceKeys,
    intent: Intent,
    request: Request,
    rag: Rag,
    route: Route,
    excluded: dict[str, str],
    queries: _Queries,
) -> list[Call]:
    calls = []
    texts = intent.queries[: min(rag.queries, keys.queries or source.default_queries or 3)]
    limit = keys.limit or rag.candidates
    for leg in source.legs:
        why = _leg_not_asked(leg, keys, request, rag, route)
        if why:
            excluded[f"{name}/{leg}"] = why
            continue
        for text in texts:
            calls.append(Call(source=name, query=queries(text, leg, limit), weight=keys.weight, timeout=keys.timeout))
    if intent.facets and isinstance(source, SupportsFacets):
        query = queries(intent.question, FACETS, limit)
        calls.append(Call(source=name, query=query, timeout=keys.timeout))
    return calls


def _leg_not_asked(leg: str, keys: SourceKeys, request: Request, rag: Rag, route: Route) -> str:
    if leg == "text" and not rag.enable_fts:
        return "[rag] enable_fts is false"
    if keys.legs is not None and leg not in keys.legs:
        return "not among the source's legs"
    return _not_among(leg, request, route)


def _not_among(leg: str, request: Request, route: Route) -> str:
    for legs, why in ((route.legs, "not among the route's legs"), (request.legs, "not among the legs asked for")):
        if legs is not None and leg not in legs:
            return why
    return ""


def _facts_not_asked(request: Request, rag: Rag, route: Route) -> str:
    if not rag.max_graph_facts:
        return "[rag] max_graph_facts is 0"
    return _not_among(FACTS, request, route) if rag.graph_facts_enabled else "[rag] graph_facts_enabled is false"


def _fact_calls(
    name: str, source: FactSource, keys: FactKeys, intent: Intent, rag: Rag, queries: _Queries, *, facts: bool
) -> list[Call]:
    calls = []
    if facts:
        query = queries(intent.question, FACTS, keys.limit or rag.max_graph_facts)
        calls.append(Call(source=name, query=query, timeout=keys.timeout))
    if intent.lookup and isinstance(source, SupportsEntities):
        query = queries(intent.question, ENTITIES, keys.limit or rag.candidates)
        calls.append(Call(source=name, query=query, timeout=keys.timeout))
    if intent.facets and isinstance(source, SupportsFacets):
        query = queries(intent.question, FACETS, keys.limit or rag.candidates)
        calls.append(Call(source=name, query=query, timeout=keys.timeout))
    return calls


class _Queries:
    """The queries of one request. Sources that are asked the same thing share one."""

    def __init__(self, intent: Intent, request: Request) -> None:
        self.intent, self.scope = intent, request.scope
        self.filters = wanted(request)
        self.made: dict[tuple[str, str, int], Query] = {}

    def __call__(self, text: str, leg: str, limit: int) -> Query:
        key = (text, leg, limit)
        query = self.made.get(key)
        if query is None:
            intent = self.intent
            query = self.made[key] = Query(
                text=text, leg=leg, limit=limit, concepts=intent.concepts, labels=intent.labels, entities=intent.entities,
                period=intent.period, language=intent.language, scope=self.scope, filters=self.filters,
            )  # fmt: skip
        return query
