"""Laws of optional abilities of sources: crawl, fetch, neighbours, degrees, facets, statistics, version,
graph.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

from contextrouter.contracts import (
    LinkDegrees,
    SupportsCrawl,
    SupportsDegrees,
    SupportsEntities,
    SupportsFacets,
    SupportsFetch,
    SupportsFiles,
    SupportsGraph,
    SupportsNeighbours,
    SupportsStatistics,
    SupportsVersion,
)
from contextrouter.model import Document, Entity, Facet, Fact, Hit, Query
from contextrouter.scope import Scope
from contextrouter.testing.exercise import make_query
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

_STRANGER = Scope(tenant="kit-stranger")


async def _search_inputs(subject: Subject, plugin: Any) -> dict[str, Document]:
    """Return every document that the questions find, by id."""
    inputs = await subject.exercise.inputs(subject, plugin)
    return {hit.document.id: hit.document for query in inputs for hit in await plugin.search(query)}


def _visible(document: Document, scope: Scope) -> bool:
    return scope.allows(document if document.tenant else document.replace(tenant=scope.tenant))


@law_of(SupportsCrawl)
async def crawl_lists_every_document_once(subject: Subject) -> None:
    """crawl() yields Documents with unique ids, among them each document of a search, or its parent."""
    async with subject.open_plugin() as plugin:
        documents = [document async for document in plugin.crawl()]
        if not all(isinstance(document, Document) and document.id for document in documents):
            raise Broken("crawl() yields what is no document, or has no id")
        ids = [document.id for document in documents]
        if len(set(ids)) < len(ids):
            raise Broken(f"{next(i for i in ids if ids.count(i) > 1)!r} is listed twice")
        for id, document in (await _search_inputs(subject, plugin)).items():
            if id not in ids and document.parent not in ids:
                raise Broken(f"{id!r} is found by a search and not listed")


@law_of(SupportsCrawl)
async def crawl_says_the_same_twice(subject: Subject) -> None:
    """crawl() yields the same documents again while nothing changes."""
    async with subject.open_plugin() as plugin:
        before = [repr(document) async for document in plugin.crawl()]
        if before != [repr(document) async for document in plugin.crawl()]:
            raise Broken("the second crawl yields other documents")


@law_of(SupportsFetch)
async def fetch_returns_what_was_found(subject: Subject) -> None:
    """fetch() keeps the order of the requested ids, skips unknown ids, and respects the scope."""
    async with subject.open_plugin() as plugin:
        documents = await _search_inputs(subject, plugin)
        ids = sorted(documents, reverse=True)
        fetched = await plugin.fetch(["no such id", *ids, "'; --"])
        if [document.id for document in fetched] != ids:
            raise Broken(f"{ids[:3]} were asked for, {[document.id for document in fetched][:3]} came")
        for document in await plugin.fetch(ids, _STRANGER):
            if not _visible(document, _STRANGER):
                raise Broken(f"{document.id!r} was fetched in a scope that forbids it")


@law_of(SupportsNeighbours)
async def neighbours_keep_limit_and_scope(subject: Subject) -> None:
    """neighbours() returns Hits, at most `limit`, none that the scope forbids; an unknown id has none."""
    async with subject.open_plugin() as plugin:
        ids = [*await _search_inputs(subject, plugin)]
        for limit in (0, 1, 100):
            hits = await plugin.neighbours(ids, limit)
            if len(hits) > limit or not all(isinstance(hit, Hit) for hit in hits):
                raise Broken(f"with limit {limit} it returned {shorten(hits)}")
        if await plugin.neighbours(["no such id"], 10):
            raise Broken("an unknown id has neighbours")
        if any(not _visible(hit.document, _STRANGER) for hit in await plugin.neighbours(ids, 100, _STRANGER)):
            raise Broken("a neighbour came back in a scope that forbids it")


@law_of(SupportsFiles)
async def ids_are_paths_of_files(subject: Subject) -> None:
    """local_folder is a path, and the ids of whole documents are files below it, or its own name."""
    async with subject.open_plugin() as plugin:
        for document in (await _search_inputs(subject, plugin)).values():
            id = (document.parent or document.id).removesuffix(f"/{document.metadata.get('part', '')}")
            if not await asyncio.to_thread(_is_file_below, Path(plugin.local_folder), id):
                raise Broken(f"{id!r} is no file below {str(plugin.local_folder)!r}")


def _is_file_below(folder: Path, id: str) -> bool:
    return (folder / id).is_file() or (folder.is_file() and folder.name == id)


@law_of(SupportsDegrees)
async def degrees_are_counts(subject: Subject) -> None:
    """degrees() counts links of ids that exist, 0 or more, and a finite mean; a scope raises no count."""
    async with subject.open_plugin() as plugin:
        ids = [*await _search_inputs(subject, plugin), "no such id"]
        counted, scoped = await plugin.degrees(ids), await plugin.degrees(ids, _STRANGER)
        for answer in (counted, scoped):
            if not isinstance(answer, LinkDegrees) or not math.isfinite(answer.mean) or answer.mean < 0:
                raise Broken(f"it returned {shorten(answer)}")
        if "no such id" in counted.degrees or not set(counted.degrees) <= set(ids):
            raise Broken(f"{ids[:3]} were asked for, {sorted(counted.degrees)[:3]} came")
        if not all(isinstance(many, int) and many >= 0 for many in counted.degrees.values()):
            raise Broken(f"the degrees are {shorten(dict(counted.degrees))}")
        more = [id for id, many in scoped.degrees.items() if many > counted.degrees.get(id, -1)]
        if more:
            raise Broken(f"in a scope {more[0]!r} has more links than there are")


@law_of(SupportsFacets)
async def facets_count_before_any_limit(subject: Subject) -> None:
    """facets() counts everything, most first; then `query.limit` keeps the first of each dimension."""
    async with subject.open_plugin() as plugin:
        query = make_query(plugin, subject.active_questions[0], plugin.legs[0], subject, limit=1000)
        facets = list(await plugin.facets(query, ["kind", "id"]))
        names = [facet.dimension for facet in facets if isinstance(facet, Facet) and facet.count > 0]
        if len(names) < len(facets) or not set(names) <= {"kind", "id"}:
            raise Broken(f"it returned {shorten(facets)}")
        by_dimension = [[f for f in facets if f.dimension == name] for name in dict.fromkeys(names)]
        if any(
            [f.count for f in counts] != sorted([f.count for f in counts])[::-1] for counts in by_dimension
        ):
            raise Broken(f"the largest counts are not first: {shorten(facets)}")
        few = list(await plugin.facets(query.replace(limit=1), ["kind", "id"]))
        if few != [values[0] for values in by_dimension]:
            raise Broken(f"with limit 1 it returned {shorten(few)}, not the first of each dimension")


@law_of(SupportsStatistics)
async def statistics_are_of_the_terms_asked(subject: Subject) -> None:
    """statistics() counts each term, never above the number of documents; a scope raises no count."""
    async with subject.open_plugin() as plugin:
        terms = [*subject.active_questions[0].split()[:4], "nosuchtermanywhere"]
        statistics = await plugin.statistics(terms)
        if set(statistics.frequencies) != set(terms):
            raise Broken(f"{terms} were asked for, {sorted(statistics.frequencies)} came")
        if statistics.frequencies["nosuchtermanywhere"] or not all(
            0 <= n <= statistics.documents for n in statistics.frequencies.values()
        ):
            raise Broken(f"counts of {statistics.documents} documents are {dict(statistics.frequencies)}")
        scoped = await plugin.statistics(terms, _STRANGER)
        if scoped.documents > statistics.documents or any(
            scoped.frequencies[term] > statistics.frequencies[term] for term in terms
        ):
            raise Broken(
                f"in a scope it counts {scoped.documents} documents, {dict(scoped.frequencies)}: more than"
                " there are"
            )


@law_of(SupportsVersion)
async def version_is_stable(subject: Subject) -> None:
    """version() is a text that stays the same while nothing changes."""
    async with subject.open_plugin() as plugin:
        before = await plugin.version()
        await subject.answers(plugin)
        if not isinstance(before, str) or await plugin.version() != before:
            raise Broken(f"version {before!r} became {await plugin.version()!r} though nothing changed")


@law_of(SupportsEntities)
async def entities_keep_limit_and_scope(subject: Subject) -> None:
    """entities() returns Entities, at most `query.limit`, none that the scope forbids."""
    async with subject.open_plugin() as plugin:
        for query in await subject.exercise.inputs(subject, plugin):
            for limit in (0, 1, 100):
                entities = await plugin.entities(query.replace(limit=limit))
                if len(entities) > limit or not all(isinstance(entity, Entity) for entity in entities):
                    raise Broken(f"with limit {limit} it returned {shorten(entities)}")
            for entity in await plugin.entities(Query(text=query.text, limit=100, scope=_STRANGER)):
                if not _STRANGER.allows(entity if entity.tenant else entity.replace(tenant=_STRANGER.tenant)):
                    raise Broken(f"{entity.name!r} came back in a scope that forbids it")


@law_of(SupportsEntities)
async def attributes_come_alone(subject: Subject) -> None:
    """entities() returns `query.attribute` alone, in any case, and only of entities that have it."""
    async with subject.open_plugin() as plugin:
        for query in await subject.exercise.inputs(subject, plugin):
            for fact in await plugin.facts(query):
                about = query.replace(entities=(fact.subject,), limit=100)
                for entity in await plugin.entities(about.replace(attribute=fact.predicate.upper())):
                    if [name.casefold() for name in entity.attributes] != [fact.predicate.casefold()]:
                        raise Broken(f"of {fact.predicate!r} it returned {shorten(dict(entity.attributes))}")
                if await plugin.entities(about.replace(attribute="nosuchattribute")):
                    raise Broken("an entity came back for an attribute that none has")


@law_of(SupportsGraph)
async def ways_and_neighbours_keep_limit_and_scope(subject: Subject) -> None:
    """path() connects both ends of a fact, related() returns the other end; both respect limit and scope."""
    async with subject.open_plugin() as plugin:
        facts = [
            fact
            for query in await subject.exercise.inputs(subject, plugin)
            for fact in await plugin.facts(query)
        ]
        for fact in facts:
            ends = (fact.subject, fact.object)
            path = await plugin.path(*ends, Query(text=""))
            if not all(isinstance(step, Fact) for step in path) or (
                path and {path[0].subject, path[0].object}.isdisjoint(ends)
            ):
                raise Broken(f"from {ends[0]!r} to {ends[1]!r} the way is {shorten(path)}")
            for limit in (0, 1, 100):
                related = await plugin.related(ends[0], Query(text="", limit=limit))
                if len(related) > limit or not all(isinstance(step, Entity) for step in related):
                    raise Broken(f"with limit {limit} it returned {shorten(related)}")
            for step in await plugin.path(*ends, Query(text="", scope=_STRANGER)):
                if not _STRANGER.allows(step if step.tenant else step.replace(tenant=_STRANGER.tenant)):
                    raise Broken(f"{step.subject!r} came back in a scope that forbids it")


OF_SOURCES: tuple[Law, ...] = (
    crawl_lists_every_document_once,
    crawl_says_the_same_twice,
    fetch_returns_what_was_found,
    neighbours_keep_limit_and_scope,
    degrees_are_counts,
    facets_count_before_any_limit,
    statistics_are_of_the_terms_asked,
    version_is_stable,
)
OF_FACTS: tuple[Law, ...] = (
    version_is_stable,
    entities_keep_limit_and_scope,
    attributes_come_alone,
    ways_and_neighbours_keep_limit_and_scope,
)
