"""The laws of what a source may be able to do beside searching."""

from __future__ import annotations

from typing import Any

from contextrouter.contracts import (
    SupportsCrawl,
    SupportsEntities,
    SupportsFacets,
    SupportsFetch,
    SupportsGraph,
    SupportsNeighbours,
    SupportsStatistics,
    SupportsVersion,
)
from contextrouter.model import Document, Entity, Facet, Fact, Hit, Query
from contextrouter.scope import Scope
from contextrouter.testing.exercise import asking
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

_STRANGER = Scope(tenant="kit-stranger")


async def _found(subject: Subject, plugin: Any) -> dict[str, Document]:
    """Every document the questions find, by id."""
    inputs = await subject.exercise.inputs(subject, plugin)
    return {hit.document.id: hit.document for query in inputs for hit in await plugin.search(query)}


def _visible(document: Document, scope: Scope) -> bool:
    return scope.allows(document if document.tenant else document.replace(tenant=scope.tenant))


@law_of(SupportsCrawl)
async def crawl_lists_every_document_once(subject: Subject) -> None:
    """crawl() yields Documents with ids of their own, among them every one a search finds (or the one it was
    cut from).
    """
    async with subject.opened() as plugin:
        listed = [document async for document in plugin.crawl()]
        if not all(isinstance(document, Document) and document.id for document in listed):
            raise Broken("crawl() yields what is no document, or has no id")
        ids = [document.id for document in listed]
        if len(set(ids)) < len(ids):
            raise Broken(f"{next(i for i in ids if ids.count(i) > 1)!r} is listed twice")
        for id, document in (await _found(subject, plugin)).items():
            if id not in ids and document.parent not in ids:
                raise Broken(f"{id!r} is found by a search and not listed")


@law_of(SupportsCrawl)
async def crawl_says_the_same_twice(subject: Subject) -> None:
    """Without a change in between, crawl() yields the same documents again."""
    async with subject.opened() as plugin:
        first = [repr(document) async for document in plugin.crawl()]
        if first != [repr(document) async for document in plugin.crawl()]:
            raise Broken("the second crawl yields other documents")


@law_of(SupportsFetch)
async def fetch_returns_what_was_found(subject: Subject) -> None:
    """fetch() returns documents that searches found, in the order asked; unknown ids are passed over,
    strangers see no label.
    """
    async with subject.opened() as plugin:
        found = await _found(subject, plugin)
        ids = sorted(found, reverse=True)
        fetched = await plugin.fetch(["no such id", *ids, "'; --"])
        if [document.id for document in fetched] != ids:
            raise Broken(f"{ids[:3]} were asked for, {[document.id for document in fetched][:3]} came")
        for document in await plugin.fetch(ids, _STRANGER):
            if not _visible(document, _STRANGER):
                raise Broken(f"{document.id!r} was fetched in a scope that forbids it")


@law_of(SupportsNeighbours)
async def neighbours_keep_limit_and_scope(subject: Subject) -> None:
    """neighbours() returns Hits, at most `limit`, none that the scope forbids; an unknown id has none."""
    async with subject.opened() as plugin:
        ids = [*await _found(subject, plugin)]
        for limit in (0, 1, 100):
            hits = await plugin.neighbours(ids, limit)
            if len(hits) > limit or not all(isinstance(hit, Hit) for hit in hits):
                raise Broken(f"with limit {limit} it returned {shorten(hits)}")
        if await plugin.neighbours(["no such id"], 10):
            raise Broken("an unknown id has neighbours")
        if any(not _visible(hit.document, _STRANGER) for hit in await plugin.neighbours(ids, 100, _STRANGER)):
            raise Broken("a neighbour came back in a scope that forbids it")


@law_of(SupportsFacets)
async def facets_count_before_any_limit(subject: Subject) -> None:
    """facets() returns counts above 0 of the dimensions asked for, and a smaller `query.limit` changes none
    of them.
    """
    async with subject.opened() as plugin:
        query = asking(plugin, subject.asked[0], plugin.legs[0], subject)
        facets = list(await plugin.facets(query, ["kind"]))
        if not all(
            isinstance(each, Facet) and each.dimension == "kind" and each.count > 0 for each in facets
        ):
            raise Broken(f"it returned {shorten(facets)}")
        if list(await plugin.facets(query.replace(limit=1), ["kind"])) != facets:
            raise Broken("with limit 1 the counts are others")


@law_of(SupportsStatistics)
async def statistics_are_of_the_terms_asked(subject: Subject) -> None:
    """statistics() has a count for each term, none above the number of documents; an unknown term counts 0; a
    scope adds none.
    """
    async with subject.opened() as plugin:
        terms = [*subject.asked[0].split()[:4], "nosuchtermanywhere"]
        told = await plugin.statistics(terms)
        if set(told.frequencies) != set(terms):
            raise Broken(f"{terms} were asked for, {sorted(told.frequencies)} came")
        if told.frequencies["nosuchtermanywhere"] or not all(
            0 <= n <= told.documents for n in told.frequencies.values()
        ):
            raise Broken(f"counts of {told.documents} documents are {dict(told.frequencies)}")
        shown = await plugin.statistics(terms, _STRANGER)
        if shown.documents > told.documents or any(
            shown.frequencies[term] > told.frequencies[term] for term in terms
        ):
            raise Broken(
                f"in a scope it counts {shown.documents} documents, {dict(shown.frequencies)}: more than"
                " there are"
            )


@law_of(SupportsVersion)
async def version_is_stable(subject: Subject) -> None:
    """version() is a text, and the same as long as nothing changes, however often it is searched."""
    async with subject.opened() as plugin:
        first = await plugin.version()
        await subject.answers(plugin)
        if not isinstance(first, str) or await plugin.version() != first:
            raise Broken(f"version {first!r} became {await plugin.version()!r} though nothing changed")


@law_of(SupportsEntities)
async def entities_keep_limit_and_scope(subject: Subject) -> None:
    """entities() returns Entities, at most `query.limit`, none that the scope forbids."""
    async with subject.opened() as plugin:
        for query in await subject.exercise.inputs(subject, plugin):
            for limit in (0, 1, 100):
                found = await plugin.entities(query.replace(limit=limit))
                if len(found) > limit or not all(isinstance(each, Entity) for each in found):
                    raise Broken(f"with limit {limit} it returned {shorten(found)}")
            for each in await plugin.entities(Query(text=query.text, limit=100, scope=_STRANGER)):
                if not _STRANGER.allows(each if each.tenant else each.replace(tenant=_STRANGER.tenant)):
                    raise Broken(f"{each.name!r} came back in a scope that forbids it")


@law_of(SupportsGraph)
async def ways_and_neighbours_keep_limit_and_scope(subject: Subject) -> None:
    """path() leads from one end of each fact to the other, related() has that other one; both keep limit and
    scope.
    """
    async with subject.opened() as plugin:
        told = [
            fact
            for query in await subject.exercise.inputs(subject, plugin)
            for fact in await plugin.facts(query)
        ]
        for fact in told:
            ends = (fact.subject, fact.object)
            way = await plugin.path(*ends, Query(text=""))
            if not all(isinstance(each, Fact) for each in way) or (
                way and {way[0].subject, way[0].object}.isdisjoint(ends)
            ):
                raise Broken(f"from {ends[0]!r} to {ends[1]!r} the way is {shorten(way)}")
            for limit in (0, 1, 100):
                near = await plugin.related(ends[0], Query(text="", limit=limit))
                if len(near) > limit or not all(isinstance(each, Entity) for each in near):
                    raise Broken(f"with limit {limit} it returned {shorten(near)}")
            for each in await plugin.path(*ends, Query(text="", scope=_STRANGER)):
                if not _STRANGER.allows(each if each.tenant else each.replace(tenant=_STRANGER.tenant)):
                    raise Broken(f"{each.subject!r} came back in a scope that forbids it")


OF_SOURCES: tuple[Law, ...] = (
    crawl_lists_every_document_once,
    crawl_says_the_same_twice,
    fetch_returns_what_was_found,
    neighbours_keep_limit_and_scope,
    facets_count_before_any_limit,
    statistics_are_of_the_terms_asked,
    version_is_stable,
)
OF_FACTS: tuple[Law, ...] = (
    version_is_stable,
    entities_keep_limit_and_scope,
    ways_and_neighbours_keep_limit_and_scope,
)
