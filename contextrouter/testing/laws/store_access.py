"""Laws of stores on access control: a scope hides what it forbids from every search, lookup and count."""

from __future__ import annotations

from itertools import product
from typing import Any, Protocol, runtime_checkable

from contextrouter.contracts import (
    SupportsDegrees,
    SupportsFacets,
    SupportsFetch,
    SupportsNeighbours,
    SupportsStatistics,
    SupportsUpsert,
)
from contextrouter.model import Document
from contextrouter.scope import SENSITIVITIES, Scope
from contextrouter.testing.exercise import make_query
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.laws.store_documents import HUB, WORD, canaries, find_ids, find_texts, store_entry
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

_SCOPES = tuple(
    Scope(tenant=tenant, compartments=frozenset(rooms), ceiling=ceiling)
    for tenant, rooms, ceiling in product(
        (None, "acme", "globex", "nobody"), ((), ("hr",), ("hr", "legal")), SENSITIVITIES
    )
)


@runtime_checkable
class FetchingStore(SupportsUpsert, SupportsFetch, Protocol):
    """A store that returns documents by id."""


@runtime_checkable
class LinkedStore(SupportsUpsert, SupportsNeighbours, Protocol):
    """A store that knows which documents link to which."""


@runtime_checkable
class DegreeStore(SupportsUpsert, SupportsDegrees, Protocol):
    """A store that counts the links of its documents."""


@runtime_checkable
class FacetedStore(SupportsUpsert, SupportsFacets, Protocol):
    """A store that can count."""


@runtime_checkable
class CountedStore(SupportsUpsert, SupportsStatistics, Protocol):
    """A store that reports term statistics."""


@law_of(SupportsUpsert)
async def canaries_never_leave_their_scope(subject: Subject) -> None:
    """Every leg shows the documents that a scope allows and no other, for every combination of labels."""
    async with subject.open_plugin() as plugin:
        documents = canaries()
        await plugin.upsert([store_entry(subject, plugin, document) for document in documents])
        for scope, leg in product(_SCOPES, plugin.legs):
            allowed = {document.id for document in documents if scope.allows(document)}
            visible = {
                id
                for id in await find_ids(subject, plugin, leg, WORD, scope=scope)
                if id.startswith("canary-")
            }
            if extra := visible - allowed:
                document = next(document for document in documents if document.id in extra)
                raise Broken(f"{_labels(document)} was shown on {leg!r} in the scope {shorten(scope, 120)}")


async def _put_canaries(subject: Subject, plugin: Any) -> list[Document]:
    """Fill the store with canaries of the kind "canary", all linked with a hub, and the hub."""
    documents = [document.replace(kind="canary", links=(HUB,)) for document in canaries()]
    hub = Document(id=HUB, content=f"{WORD} hub")
    await plugin.upsert([store_entry(subject, plugin, document) for document in (*documents, hub)])
    return documents


@law_of(FetchingStore)
async def fetch_shows_what_the_scope_allows(subject: Subject) -> None:
    """fetch() in a scope returns the documents it allows, and no other."""
    async with subject.open_plugin() as plugin:
        documents = await _put_canaries(subject, plugin)
        for scope in _SCOPES:
            allowed = [document.id for document in documents if scope.allows(document)]
            fetched = [
                document.id for document in await plugin.fetch([document.id for document in documents], scope)
            ]
            if fetched != allowed:
                raise Broken(
                    f"{len(fetched)} documents were fetched where {len(allowed)} are allowed, in"
                    f" {shorten(scope, 120)}"
                )


@law_of(DegreeStore)
async def degrees_count_what_the_scope_allows(subject: Subject) -> None:
    """degrees() in a scope has no document that it forbids, and counts no link to one."""
    async with subject.open_plugin() as plugin:
        documents = await _put_canaries(subject, plugin)
        ids = [HUB, *(document.id for document in documents)]
        for scope in _SCOPES:
            allowed = {document.id for document in documents if scope.allows(document)}
            degrees = (await plugin.degrees(ids, scope)).degrees
            if strangers := set(degrees) - allowed - {HUB}:
                raise Broken(f"{min(strangers)!r} has a degree in {shorten(scope, 120)}")
            if degrees.get(HUB, 0) > len(allowed):
                raise Broken(
                    f"{HUB!r} has {degrees[HUB]} links where {len(allowed)} documents are allowed, in"
                    f" {shorten(scope, 120)}"
                )


@law_of(LinkedStore)
async def neighbours_never_leave_their_scope(subject: Subject) -> None:
    """neighbours() returns no document that the scope forbids, whatever the links are."""
    async with subject.open_plugin() as plugin:
        documents = {document.id: document for document in await _put_canaries(subject, plugin)}
        for scope in _SCOPES:
            for hit in await plugin.neighbours([HUB, *documents], 1000, scope):
                if not scope.allows(hit.document):
                    raise Broken(f"{_labels(hit.document)} was shown in the scope {shorten(scope, 120)}")


@law_of(FacetedStore)
async def facets_count_what_the_scope_allows(subject: Subject) -> None:
    """facets() in a scope counts the documents it allows, and no other."""
    async with subject.open_plugin() as plugin:
        documents = await _put_canaries(subject, plugin)
        for scope, leg in product(_SCOPES, plugin.legs[:1]):
            allowed = sum(scope.allows(document) for document in documents)
            facets = await plugin.facets(make_query(plugin, WORD, leg, subject, scope=scope), ["kind"])
            counted = sum(facet.count for facet in facets if facet.value == "canary")
            if counted != allowed:
                raise Broken(
                    f"{counted} were counted where {allowed} are allowed, in the scope {shorten(scope, 120)}"
                )


@law_of(CountedStore)
async def statistics_count_what_the_scope_allows(subject: Subject) -> None:
    """statistics() counts only documents of the scope: a hidden document changes no visible score."""
    async with subject.open_plugin() as plugin:
        before = {scope: await plugin.statistics([WORD], scope) for scope in _SCOPES}
        documents = canaries()
        await plugin.upsert([store_entry(subject, plugin, document) for document in documents])
        for scope in _SCOPES:
            statistics = await plugin.statistics([WORD], scope)
            counted = (statistics.documents - before[scope].documents, statistics.frequencies[WORD])
            allowed = sum(scope.allows(document) for document in documents)
            if counted != (allowed, allowed):
                raise Broken(
                    f"{counted} were counted where {allowed} are allowed, in the scope {shorten(scope, 120)}"
                )


@law_of(SupportsUpsert)
async def scope_narrows_before_the_limit(subject: Subject) -> None:
    """A scope narrows before the limit: a forbidden document takes no place in the list."""
    async with subject.open_plugin() as plugin:
        documents = canaries()
        await plugin.upsert([store_entry(subject, plugin, document) for document in documents])
        scope = Scope(tenant="globex", compartments=frozenset(("legal",)), ceiling="confidential")
        allowed = sum(scope.allows(document) for document in documents)
        for leg, limit in product(plugin.legs, (1, 3, allowed)):
            visible = await find_ids(subject, plugin, leg, WORD, scope=scope, limit=limit)
            if len(visible) < limit:
                raise Broken(
                    f"{len(visible)} of {allowed} documents that the scope allows came on {leg!r} with limit"
                    f" {limit}"
                )


@law_of(SupportsUpsert)
async def chunks_are_no_laxer_than_their_document(subject: Subject) -> None:
    """A chunk without labels has the labels of its document."""
    async with subject.open_plugin() as plugin:
        document = Document(id=WORD, content=WORD, tenant="acme", compartment="hr", sensitivity="restricted")
        await plugin.upsert(
            [store_entry(subject, plugin, document, [Document(id=f"{WORD}#0", content=f"{WORD} part")])]
        )
        see = Scope(tenant="acme", compartments=frozenset(("hr",)), ceiling="restricted")
        blind = (
            Scope(),
            Scope(tenant="acme", ceiling="restricted"),
            Scope(tenant="acme", compartments=frozenset(("hr",))),
        )
        for leg in plugin.legs:
            texts = [await find_texts(subject, plugin, leg, WORD, scope=scope) for scope in blind]
            if any(texts) or not await find_texts(subject, plugin, leg, WORD, scope=see):
                raise Broken(
                    f"a chunk without labels was shown on {leg!r} against its document's, or to nobody"
                )


def _labels(document: Document) -> str:
    return (
        f"a document of tenant {document.tenant!r}, compartment {document.compartment!r},"
        f" {document.sensitivity!r}"
    )


LAWS: tuple[Law, ...] = (
    canaries_never_leave_their_scope,
    fetch_shows_what_the_scope_allows,
    neighbours_never_leave_their_scope,
    degrees_count_what_the_scope_allows,
    facets_count_what_the_scope_allows,
    statistics_count_what_the_scope_allows,
    scope_narrows_before_the_limit,
    chunks_are_no_laxer_than_their_document,
)
