"""Query planning (step 2): which source is asked, on which leg, with which query. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any, cast

from contextrouter.contracts import ENTITIES, FACETS, FACTS, PATH, FactSource, Source, legs_of
from contextrouter.contracts.kinds import source_kind
from contextrouter.errors import RequestRefused
from contextrouter.model import Call, Intent, Plan, Query, Request
from contextrouter.pipeline.connection_titles import jobs_out_of_scope
from contextrouter.pipeline.planning.restrictions import Restrictions, may_ask, restrictions
from contextrouter.settings import FactKeys, Settings, SourceKeys
from contextrouter.text.analysis import says_something
from contextrouter.text.query_syntax import parse
from contextrouter.text.time_zones import time_zone

MOST_DOCUMENTS = 1000
"""The most documents that a request may want."""
MOST_COUNTS = 1000
"""The most values of a dimension that one of several sources is asked for."""
_OF_FACTS = frozenset((FACTS, ENTITIES, PATH))
"""Legs on which the period is the time in which facts held."""


def make_plan(
    intent: Intent,
    request: Request,
    settings: Settings,
    sources: Mapping[str, Source | FactSource],
    now: datetime | None = None,
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
    rag, route = settings.for_route(intent.kind)
    limits = restrictions(intent, request, rag, route, now or datetime.now(time_zone(rag.timezone)))
    planner = _Planner(intent, request, settings, limits, pool)
    for name, source in sources.items():
        if source_kind(source) == "fact":
            planner.add_facts(name, cast(FactSource, source))
        else:
            planner.add_source(name, cast(Source, source), sources)
    return Plan(
        intent=intent,
        route=intent.kind,
        calls=_with_more_counts(planner.calls),
        excluded=planner.excluded,
        note=limits.note,
        preferred=limits.preferred,
    )


def _with_more_counts(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls; where several sources count, each is asked for many values, for counts are cut only
    when they are added up.
    """
    if sum([call.query.leg == FACETS for call in calls]) < 2:
        return tuple(calls)
    return tuple(
        call.replace(query=call.query.replace(limit=MOST_COUNTS)) if call.query.leg == FACETS else call
        for call in calls
    )


class _Planner:
    """One plan as it grows."""

    def __init__(
        self, intent: Intent, request: Request, settings: Settings, limits: Restrictions, pool: float
    ) -> None:
        self.intent, self.request, self.settings, self.limits = intent, request, settings, limits
        self.pool = pool
        self.rag, self.route = settings.for_route(intent.kind)
        self.entities = () if "entities" in self.route.ignore else intent.entities
        self.candidates = max(self.rag.candidates, final_limit(request) or 0)
        self.named = self._legs_by_name()
        self.calls: list[Call] = []
        self.excluded: dict[str, str] = {}
        self._queries: dict[tuple[str, str, int, bool], Query] = {}

    def add_source(self, name: str, source: Source, sources: Collection[str]) -> None:
        """Add the calls to a provider or a connector among `sources`, or say why there are none."""
        kind = source_kind(source)
        keys = self._keys(kind, name, SourceKeys())
        if why := self._why_excluded(name, kind, keys) or self._why_not_live(name, kind, keys, sources):
            self.excluded[name] = why
            return
        for job in jobs_out_of_scope(self.settings, name, self.request.scope):
            self.excluded[f"{name}:{job}"] = "outside the caller's scope"
        limit = keys.limit or self.candidates
        if self.pool != 1:
            limit = ceil(round(limit * self.pool, 6))  # rounded first: 30 × 1.1 is 33.000000000000004
        texts = self._texts(min(self.rag.queries, keys.queries or source.default_queries or 3))
        for leg in source.legs:
            if why := self._leg_not_asked(leg, keys):
                self.excluded[f"{name}/{leg}"] = why
            else:
                binds = leg in source.phrase_legs
                queries = [self._query(text, leg, limit, phrases=binds) for text in texts]
                self._add(name, leg, [*queries, *self._preferred(source, queries[0])], keys)
        if self.named:
            self._add_named(name, source, limit, keys)

    def add_facts(self, name: str, source: FactSource) -> None:
        """Add the calls to a fact source, or say why there are none."""
        keys = self._keys("fact", name, FactKeys())
        if why := self._why_excluded(name, "fact", keys):
            self.excluded[name] = why
            return
        if why := self._facts_not_asked():
            self.excluded[f"{name}/{FACTS}"] = why
        else:
            self._ask(name, FACTS, keys.limit or self.rag.max_graph_facts, keys)
        if self.named:
            self._add_named(name, source, keys.limit or self.candidates, keys)

    def _preferred(self, source: Source, query: Query) -> list[Query]:
        """Return the query for documents of the preferred period alone, which a store is asked as well."""
        period = self.limits.preferred
        return [query.replace(period=period)] if period and source_kind(source) == "provider" else []

    def _texts(self, count: int) -> list[str]:
        """Return the queries, at most `count`. One query alone is the text that is searched."""
        intent = self.intent
        if count >= len(intent.queries):
            return list(intent.queries)
        others = [text for text in intent.queries if text != intent.text]
        return [intent.text, *others][:count]

    def _legs_by_name(self) -> set[str]:
        """Return the legs that a route or a request names, or that the intent asks for."""
        intent = self.intent
        named = {*(self.route.legs or ()), *(self.request.legs or ())}
        if intent.facets:
            named.add(FACETS)
        if intent.lookup or intent.attribute:
            named.add(ENTITIES)
        return named

    def _add_named(self, name: str, source: Source | FactSource, limit: int, keys: FactKeys) -> None:
        """Add the calls on named legs that the abilities of a source make."""
        own = len(source.legs) if isinstance(source, Source) else 1  # facts are asked for already
        for leg in legs_of(source)[own:]:
            if leg not in self.named:
                continue
            if why := self._not_among(leg):
                self.excluded[f"{name}/{leg}"] = why
            elif leg == PATH and len(self.entities) < 2:
                self.excluded[f"{name}/{leg}"] = "the question names fewer than two entities"
            else:
                self._ask(name, leg, self.rag.max_facets if leg == FACETS else limit, keys)

    def _keys(self, kind: str, name: str, default: Any) -> Any:
        instance = self.settings.instances(kind).get(name)
        return default if instance is None else instance.keys

    def _ask(self, source: str, leg: str, limit: int, keys: FactKeys) -> None:
        """Add a call with the text of the question alone."""
        self._add(source, leg, [self._query(self.intent.text, leg, limit)], keys)

    def _add(self, source: str, leg: str, queries: Sequence[Query], keys: FactKeys) -> None:
        weight = keys.weight if leg != FACETS and isinstance(keys, SourceKeys) else 1.0
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
            intent, parsed, limits = self.intent, parse(text), self.limits
            excluded = dict.fromkeys((*parse(intent.question).excluded, *parsed.excluded))
            query = self._queries[key] = Query(
                text=text,
                leg=leg,
                limit=limit,
                required=parsed.required if phrases else (),
                excluded=tuple(excluded),
                concepts=intent.concepts,
                labels=limits.labels_on(leg),
                entities=self.entities,
                period=limits.facts_period if leg in _OF_FACTS else limits.period,
                language=intent.language,
                scope=self.request.scope,
                filters=limits.filters_on(leg),
                attribute=intent.attribute,
            )
        return query

    def _why_excluded(self, name: str, kind: str, keys: FactKeys) -> str:
        """Why a source is not asked at all; empty: it is."""
        if self.intent.clarify is not None:
            return "the question is not clear: it is asked back"
        if not self.intent.should_search:
            if not says_something(self.intent.text):
                return "the question has no letter or digit to look for"
            confidence, minimum = self.intent.confidence, self.rag.least_confidence
            unsure = f"the intent's confidence {confidence:g} is below least_confidence {minimum:g}"
            return unsure if confidence < minimum else "the question needs no search"
        if self.request.sources is not None and name not in self.request.sources:
            return "not among the sources asked for"
        if self.route.sources is not None and name not in self.route.sources:
            return f"not on route {self.intent.kind!r}"
        if self.rag.provider is not None and kind == "provider":
            named = self.rag.provider
            if name not in ((named,) if isinstance(named, str) else named):
                return "not named in [rag] provider"
        return "" if may_ask(self.request.scope, keys) else "outside the caller's scope"

    def _why_not_live(self, name: str, kind: str, keys: SourceKeys, sources: Collection[str]) -> str:
        """Why a connector is not asked although others are: a store that is asked has its documents."""
        if kind != "connector" or keys.live or name in (self.request.sources or ()):
            return ""
        for job, store in self.settings.stores_of(name).items():
            if store in sources and not self._why_excluded(
                store, "provider", self._keys("provider", store, SourceKeys())
            ):
                return f"job {job!r} reads it into {store!r}, which is asked; live = true asks both"
        return ""

    def _leg_not_asked(self, leg: str, keys: SourceKeys) -> str:
        if leg == "text" and not self.rag.enable_fts:
            return "[rag] enable_fts is false"
        if keys.legs is not None and leg not in keys.legs:
            return "not among the source's legs"
        return self._not_among(leg)

    def _facts_not_asked(self) -> str:
        if not self.rag.max_graph_facts:
            return "[rag] max_graph_facts is 0"
        if not self.rag.graph_facts_enabled:
            return "[rag] graph_facts_enabled is false"
        return self._not_among(FACTS)

    def _not_among(self, leg: str) -> str:
        if self.route.legs is not None and leg not in self.route.legs:
            return "not among the route's legs"
        if self.request.legs is not None and leg not in self.request.legs:
            return "not among the legs asked for"
        return ""


def final_limit(request: Request) -> int | None:
    """Return how many documents the caller wants at most, from 1 to 1000; None: as the settings say."""
    return None if request.limit is None else min(max(request.limit, 1), MOST_DOCUMENTS)


def _check_names(request: Request, settings: Settings, sources: Mapping[str, Source | FactSource]) -> None:
    if request.mode not in (None, "default", *settings.routes):
        names = ", ".join(["default", *settings.routes])
        raise RequestRefused(f"Route {request.mode!r} is not defined. Defined routes: {names}.")
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
        legs = {leg for source in sources.values() for leg in legs_of(source)}
        for leg in request.legs:
            if leg not in legs:
                raise RequestRefused(
                    f"No source has a leg {leg!r}. Legs: {', '.join(sorted(legs)) or 'none'}."
                )
