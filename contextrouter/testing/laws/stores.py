"""The laws of stores: sources that can be filled. Each law puts in what it looks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from itertools import product
from typing import Any, Protocol, runtime_checkable

from contextrouter.contracts import (
    Entry,
    SupportsFacets,
    SupportsFetch,
    SupportsNeighbours,
    SupportsStatistics,
    SupportsTenants,
    SupportsUpsert,
    SupportsVersion,
)
from contextrouter.filters import FIELDS, passes
from contextrouter.model import Document, Period
from contextrouter.scope import SENSITIVITIES, SHARED, Scope
from contextrouter.testing.exercise import asking, entry_for
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.messages import Broken, said
from contextrouter.testing.subject import Subject
from contextrouter.testing.texts import library

WORD = "quokka"
"""What all canaries have in common, and nothing else has."""
HUB = "kit-hub"
"""What all canaries link to."""
TENANTS = (None, "acme", "globex", SHARED)
COMPARTMENTS = (None, "hr", "legal")
LEVELS = (None, *SENSITIVITIES, "cosmic")
_SCOPES = tuple(
    Scope(tenant=tenant, compartments=frozenset(rooms), ceiling=ceiling)
    for tenant, rooms, ceiling in product(
        (None, "acme", "globex", "nobody"), ((), ("hr",), ("hr", "legal")), SENSITIVITIES
    )
)


@runtime_checkable
class VersionedStore(SupportsUpsert, SupportsVersion, Protocol):
    """A store that can say whether its content changed."""


@runtime_checkable
class TenantedStore(SupportsUpsert, SupportsTenants, Protocol):
    """A store that knows whose documents it holds."""


@runtime_checkable
class FetchingStore(SupportsUpsert, SupportsFetch, Protocol):
    """A store that returns documents by id."""


@runtime_checkable
class LinkedStore(SupportsUpsert, SupportsNeighbours, Protocol):
    """A store that knows which documents link to which."""


@runtime_checkable
class FacetedStore(SupportsUpsert, SupportsFacets, Protocol):
    """A store that can count."""


@runtime_checkable
class CountedStore(SupportsUpsert, SupportsStatistics, Protocol):
    """A store that reports term statistics."""


def canaries() -> list[Document]:
    """A document for every combination of labels; all say `WORD`."""
    return [
        Document(
            id=f"canary-{number}",
            content=f"The {WORD} number {number} is seen by few.",
            title=f"Canary {number}",
            tenant=tenant,
            compartment=room,
            sensitivity=level,
        )
        for number, (tenant, room, level) in enumerate(product(TENANTS, COMPARTMENTS, LEVELS))
    ]


def _entry(
    subject: Subject, plugin: Any, document: Document, chunks: Sequence[Document] = (), fingerprint: str = ""
) -> Entry:
    return entry_for(plugin, document, chunks, fingerprint=fingerprint, dimensions=subject.dimensions)


async def _ids(subject: Subject, plugin: Any, leg: str, text: str, **fields: Any) -> list[str]:
    hits = await plugin.search(asking(plugin, text, leg, subject, **{"limit": 1000, **fields}))
    return [hit.document.id for hit in hits]


def _texts(found: Sequence[Any], word: str) -> list[str]:
    return sorted(hit.document.content for hit in found if word in hit.document.content)


async def _holding(subject: Subject, plugin: Any, leg: str, word: str, **fields: Any) -> list[str]:
    """Texts with a word, among all a leg finds for it."""
    return _texts(await plugin.search(asking(plugin, word, leg, subject, **{"limit": 1000, **fields})), word)


@law_of(SupportsUpsert)
async def canaries_never_leave_their_scope(subject: Subject) -> None:
    """Of documents with every combination of labels a scope shows those it allows and no other, on every
    leg.
    """
    async with subject.opened() as plugin:
        given = canaries()
        await plugin.upsert([_entry(subject, plugin, document) for document in given])
        for scope, leg in product(_SCOPES, plugin.legs):
            allowed = {document.id for document in given if scope.allows(document)}
            shown = {
                id for id in await _ids(subject, plugin, leg, WORD, scope=scope) if id.startswith("canary-")
            }
            if extra := shown - allowed:
                document = next(document for document in given if document.id in extra)
                raise Broken(f"{_labels(document)} was shown on {leg!r} in the scope {said(scope, 120)}")


async def _put_canaries(subject: Subject, plugin: Any) -> list[Document]:
    """Fill the store with canaries of the kind "canary", all linked with a hub, and the hub."""
    given = [document.replace(kind="canary", links=(HUB,)) for document in canaries()]
    hub = Document(id=HUB, content=f"{WORD} hub")
    await plugin.upsert([_entry(subject, plugin, document) for document in (*given, hub)])
    return given


@law_of(FetchingStore)
async def fetch_shows_what_the_scope_allows(subject: Subject) -> None:
    """fetch() in a scope returns the documents it allows, and no other."""
    async with subject.opened() as plugin:
        given = await _put_canaries(subject, plugin)
        for scope in _SCOPES:
            allowed = [document.id for document in given if scope.allows(document)]
            shown = [
                document.id for document in await plugin.fetch([document.id for document in given], scope)
            ]
            if shown != allowed:
                raise Broken(
                    f"{len(shown)} documents were fetched where {len(allowed)} are allowed, in"
                    f" {said(scope, 120)}"
                )


@law_of(LinkedStore)
async def neighbours_never_leave_their_scope(subject: Subject) -> None:
    """neighbours() in a scope returns none that it forbids, whatever is linked."""
    async with subject.opened() as plugin:
        given = {document.id: document for document in await _put_canaries(subject, plugin)}
        for scope in _SCOPES:
            for hit in await plugin.neighbours([HUB, *given], 1000, scope):
                if not scope.allows(hit.document):
                    raise Broken(f"{_labels(hit.document)} was shown in the scope {said(scope, 120)}")


@law_of(FacetedStore)
async def facets_count_what_the_scope_allows(subject: Subject) -> None:
    """facets() in a scope counts the documents it allows, and no other."""
    async with subject.opened() as plugin:
        given = await _put_canaries(subject, plugin)
        for scope, leg in product(_SCOPES, plugin.legs[:1]):
            allowed = sum(scope.allows(document) for document in given)
            facets = await plugin.facets(asking(plugin, WORD, leg, subject, scope=scope), ["kind"])
            counted = sum(facet.count for facet in facets if facet.value == "canary")
            if counted != allowed:
                raise Broken(
                    f"{counted} were counted where {allowed} are allowed, in the scope {said(scope, 120)}"
                )


@law_of(CountedStore)
async def statistics_count_what_the_scope_allows(subject: Subject) -> None:
    """statistics() in a scope counts the documents it allows, and no other: what is hidden moves no score of
    what is shown.
    """
    async with subject.opened() as plugin:
        before = {scope: await plugin.statistics([WORD], scope) for scope in _SCOPES}
        given = canaries()
        await plugin.upsert([_entry(subject, plugin, document) for document in given])
        for scope in _SCOPES:
            told = await plugin.statistics([WORD], scope)
            counted = (told.documents - before[scope].documents, told.frequencies[WORD])
            allowed = sum(scope.allows(document) for document in given)
            if counted != (allowed, allowed):
                raise Broken(
                    f"{counted} were counted where {allowed} are allowed, in the scope {said(scope, 120)}"
                )


@law_of(SupportsUpsert)
async def scope_narrows_before_the_limit(subject: Subject) -> None:
    """A scope leaves the top of the list full: what it forbids takes no place of what it allows."""
    async with subject.opened() as plugin:
        given = canaries()
        await plugin.upsert([_entry(subject, plugin, document) for document in given])
        scope = Scope(tenant="globex", compartments=frozenset(("legal",)), ceiling="confidential")
        allowed = sum(scope.allows(document) for document in given)
        for leg, limit in product(plugin.legs, (1, 3, allowed)):
            shown = await _ids(subject, plugin, leg, WORD, scope=scope, limit=limit)
            if len(shown) < limit:
                raise Broken(
                    f"{len(shown)} of {allowed} documents that the scope allows came on {leg!r} with limit"
                    f" {limit}"
                )


def _labels(document: Document) -> str:
    return (
        f"a document of tenant {document.tenant!r}, compartment {document.compartment!r},"
        f" {document.sensitivity!r}"
    )


@law_of(SupportsUpsert)
async def filters_narrow_before_the_limit(subject: Subject) -> None:
    """Filters on metadata and on fields find the documents that pass, all of them, however small the
    limit.
    """
    async with subject.opened() as plugin:
        given = [
            Document(id=f"f{n}", content=f"{WORD} " * (9 - n), metadata={"year": n, "tags": ["a", f"t{n}"]})
            for n in range(8)
        ]
        await plugin.upsert([_entry(subject, plugin, document) for document in given])
        wanted: list[tuple[dict[str, Any], list[str]]] = [
            ({"year": 7}, ["f7"]),
            ({"year": [6, 7]}, ["f6", "f7"]),
            ({"tags": "t5"}, ["f5"]),
            ({"year": 5, "tags": "a"}, ["f5"]),
        ]
        for leg, (filters, expected) in product(plugin.legs, wanted):
            shown = sorted(await _ids(subject, plugin, leg, WORD, filters=filters, limit=len(expected)))
            if shown != expected:
                raise Broken(f"{filters} found {shown} on {leg!r}, not {expected}")


@law_of(SupportsUpsert)
async def metadata_does_not_shadow_fields(subject: Subject) -> None:
    """A metadata key named like a field changes nothing: a filter on the field finds what the check on
    arrival lets through.
    """
    async with subject.opened() as plugin:
        given = [_contrary(own, other) for own, other in (("one", "two"), ("two", "one"))]
        await plugin.upsert([_entry(subject, plugin, document) for document in given])
        for leg, field in product(plugin.legs, FIELDS):
            filters = {field: f"one-{field}"}
            expected = [document.id for document in given if passes(document, filters)]
            shown = await _ids(subject, plugin, leg, WORD, filters=filters)
            if shown != expected:
                raise Broken(f"a filter on {field} found {shown} on {leg!r}, not {expected}")


def _contrary(own: str, other: str) -> Document:
    """A document whose metadata says other things of it than its fields."""
    fields: dict[str, Any] = {field: f"{own}-{field}" for field in FIELDS}
    for many in ("labels", "keywords"):
        fields[many] = (fields[many],)
    return Document(
        content=f"{WORD} {own}", metadata={field: f"{other}-{field}" for field in FIELDS}, **fields
    )


@law_of(SupportsUpsert)
async def period_narrows_before_the_limit(subject: Subject) -> None:
    """A period finds the documents dated within it, its days whole and inclusive, however small the limit."""
    async with subject.opened() as plugin:
        moments = [datetime(2025, 3, day, 23, 59, 59, tzinfo=UTC) for day in range(1, 9)]
        given = [
            Document(id=f"p{n}", content=f"{WORD} " * (9 - n), updated_at=moment)
            for n, moment in enumerate(moments, 1)
        ]
        await plugin.upsert([_entry(subject, plugin, document) for document in given])
        for leg in plugin.legs:
            days = Period(start=date(2025, 3, 7), end=date(2025, 3, 8))
            shown = sorted(await _ids(subject, plugin, leg, WORD, period=days, limit=2))
            if shown != ["p7", "p8"]:
                raise Broken(f"7 and 8 March found {shown} on {leg!r}, not ['p7', 'p8']")


@law_of(SupportsUpsert)
async def document_is_replaced_whole(subject: Subject) -> None:
    """An upsert leaves nothing of what its document had before, and touches no other document."""
    async with subject.opened() as plugin:
        parts = [Document(id=f"{WORD}#{n}", parent=WORD, content=f"{WORD} old part {n}") for n in range(3)]
        await plugin.upsert([_entry(subject, plugin, Document(id=WORD, content=f"{WORD} old"), parts)])
        await plugin.upsert([_entry(subject, plugin, Document(id=WORD, content=f"{WORD} new"))])
        for leg in plugin.legs:
            if (shown := await _holding(subject, plugin, leg, WORD)) != [f"{WORD} new"]:
                raise Broken(f"after a document of 3 chunks was replaced by one of 1, {leg!r} finds {shown}")
        if not (await plugin.fingerprints()).keys() >= {"kit-tides", WORD}:
            raise Broken("an upsert of one document removed another")


@law_of(SupportsUpsert)
async def upsert_again_changes_no_answer(subject: Subject) -> None:
    """Entries put in twice, in one call or in two, are found once, and every answer is as before."""
    async with subject.opened() as plugin:
        before = await subject.answers(plugin)
        books = [_entry(subject, plugin, document) for document in library()]
        await plugin.upsert(books)
        await plugin.upsert([*books, books[0]])
        if await subject.answers(plugin) != before:
            raise Broken("after the same documents were put in again, the answers are others")


@law_of(SupportsUpsert)
async def upsert_of_nothing_is_harmless(subject: Subject) -> None:
    """An upsert of no entries, and a delete of no ids or unknown ones, change nothing."""
    async with subject.opened() as plugin:
        before = await subject.answers(plugin), dict(await plugin.fingerprints())
        await plugin.upsert([])
        removed = await plugin.delete([]) + await plugin.delete(["no such id", "'; --", ""])
        if removed or (await subject.answers(plugin), dict(await plugin.fingerprints())) != before:
            raise Broken(f"it removed {removed} documents, or the answers are others")


@law_of(SupportsUpsert)
async def fingerprints_are_those_stored(subject: Subject) -> None:
    """fingerprints() maps the ids of a tenant's documents to the fingerprints they were stored with last."""
    async with subject.opened() as plugin:
        before = dict(await plugin.fingerprints())
        first, second = (
            Document(id="print", content=f"{WORD} one"),
            Document(id="print", content=f"{WORD} two", tenant="acme"),
        )
        await plugin.upsert(
            [
                _entry(subject, plugin, first, fingerprint="1"),
                _entry(subject, plugin, second, fingerprint="2"),
            ]
        )
        await plugin.upsert([_entry(subject, plugin, first, fingerprint="3")])
        told = (
            dict(await plugin.fingerprints()),
            dict(await plugin.fingerprints("acme")),
            dict(await plugin.fingerprints("none")),
        )
        if told != ({**before, "print": "3"}, {"print": "2"}, {}):
            raise Broken(f"fingerprints of no tenant, 'acme' and 'none' are {said(told, 200)}")


@law_of(SupportsUpsert)
async def tenants_keep_documents_apart(subject: Subject) -> None:
    """The same id in two tenants is two documents: writing or removing one leaves the other."""
    async with subject.opened() as plugin:
        one, other = (
            Document(id="twin", content=f"{WORD} of {tenant}", tenant=tenant) for tenant in ("acme", "globex")
        )
        await plugin.upsert([_entry(subject, plugin, one), _entry(subject, plugin, other)])
        for leg in plugin.legs:
            if (shown := await _holding(subject, plugin, leg, WORD)) != [one.content, other.content]:
                raise Broken(f"of two tenants' documents {leg!r} finds {shown}")
        removed = await plugin.delete(["twin"], "acme")
        left = [await _holding(subject, plugin, leg, WORD) for leg in plugin.legs]
        if removed != 1 or left != [[other.content]] * len(left):
            raise Broken(f"after one tenant's document was removed (count {removed}), the legs find {left}")


@law_of(TenantedStore)
async def tenants_are_those_with_documents(subject: Subject) -> None:
    """tenants() names each tenant that has a document once, None for documents without one, and no other."""
    async with subject.opened() as plugin:
        before = set(await plugin.tenants())
        own = (None, "acme", SHARED)
        await plugin.upsert(
            [_entry(subject, plugin, Document(id=f"of-{t}", content=WORD, tenant=t)) for t in own]
        )
        await plugin.delete(["of-acme"], "acme")
        told = list(await plugin.tenants())
        if len(told) != len(set(told)) or set(told) != before - {"acme"} | {None, SHARED}:
            raise Broken(
                f"with documents of {sorted(map(str, before | {None, SHARED}))} it names {said(told, 200)}"
            )


@law_of(SupportsUpsert)
async def deleted_is_gone(subject: Subject) -> None:
    """delete() removes documents with all their chunks from every leg, and counts documents, each once."""
    async with subject.opened() as plugin:
        parts = [Document(id=f"{WORD}#{n}", parent=WORD, content=f"{WORD} part {n}") for n in range(3)]
        await plugin.upsert([_entry(subject, plugin, Document(id=WORD, content=WORD), parts)])
        counts = await plugin.delete([WORD, WORD, "no such id"]), await plugin.delete([WORD])
        left = [await _holding(subject, plugin, leg, WORD) for leg in plugin.legs]
        if counts != (1, 0) or any(left) or WORD in await plugin.fingerprints():
            raise Broken(f"two deletions of one document counted {counts}, and the legs still find {left}")


@law_of(SupportsUpsert)
async def chunks_are_no_laxer_than_their_document(subject: Subject) -> None:
    """A chunk without labels is seen by those who may see its document, and by nobody else."""
    async with subject.opened() as plugin:
        whole = Document(id=WORD, content=WORD, tenant="acme", compartment="hr", sensitivity="restricted")
        await plugin.upsert(
            [_entry(subject, plugin, whole, [Document(id=f"{WORD}#0", content=f"{WORD} part")])]
        )
        see = Scope(tenant="acme", compartments=frozenset(("hr",)), ceiling="restricted")
        blind = (
            Scope(),
            Scope(tenant="acme", ceiling="restricted"),
            Scope(tenant="acme", compartments=frozenset(("hr",))),
        )
        for leg in plugin.legs:
            shown = [await _holding(subject, plugin, leg, WORD, scope=scope) for scope in blind]
            if any(shown) or not await _holding(subject, plugin, leg, WORD, scope=see):
                raise Broken(
                    f"a chunk without labels was shown on {leg!r} against its document's, or to nobody"
                )


@law_of(VersionedStore)
async def version_changes_with_the_content(subject: Subject) -> None:
    """version() is another after an upsert, and another again after a delete."""
    async with subject.opened() as plugin:
        versions = [await plugin.version()]
        await plugin.upsert([_entry(subject, plugin, Document(id=WORD, content=WORD))])
        versions.append(await plugin.version())
        await plugin.delete([WORD])
        versions.append(await plugin.version())
        if len(set(versions)) < 3:
            raise Broken(f"versions before, after an upsert and after a delete are {versions}")


@law_of(SupportsUpsert)
async def reopened_it_has_what_was_put_in(subject: Subject) -> None:
    """What an instance was given before aclose() is there after open()."""
    async with subject.opened() as plugin:
        await plugin.upsert([_entry(subject, plugin, Document(id=WORD, content=WORD))])
        await plugin.aclose()
        await plugin.open()
        left = [await _holding(subject, plugin, leg, WORD) for leg in plugin.legs]
        if left != [[WORD]] * len(left):
            raise Broken(f"after aclose() and open() the legs find {left} of a document put in before")


LAWS: tuple[Law, ...] = (
    canaries_never_leave_their_scope,
    fetch_shows_what_the_scope_allows,
    neighbours_never_leave_their_scope,
    facets_count_what_the_scope_allows,
    statistics_count_what_the_scope_allows,
    scope_narrows_before_the_limit,
    filters_narrow_before_the_limit,
    metadata_does_not_shadow_fields,
    period_narrows_before_the_limit,
    document_is_replaced_whole,
    upsert_again_changes_no_answer,
    upsert_of_nothing_is_harmless,
    fingerprints_are_those_stored,
    tenants_keep_documents_apart,
    tenants_are_those_with_documents,
    deleted_is_gone,
    chunks_are_no_laxer_than_their_document,
    version_changes_with_the_content,
    reopened_it_has_what_was_put_in,
)
