"""Laws of stores on writing: upsert, delete, fingerprints, tenants, versions, reopening."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsFingerprintPages, SupportsTenants, SupportsUpsert, SupportsVersion
from contextrouter.model import Document
from contextrouter.scope import SHARED
from contextrouter.testing import measure
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.laws.store_documents import WORD, find_texts, store_entry
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject
from contextrouter.testing.texts import library

WRITE_STALL = 0.2
"""Seconds for which a write of a few documents may keep the event loop to itself."""


@runtime_checkable
class VersionedStore(SupportsUpsert, SupportsVersion, Protocol):
    """A store that can say whether its content changed."""


@runtime_checkable
class PagedStore(SupportsUpsert, SupportsFingerprintPages, Protocol):
    """A store that lists its fingerprints page by page."""


@runtime_checkable
class TenantedStore(SupportsUpsert, SupportsTenants, Protocol):
    """A store that knows whose documents it holds."""


@law_of(SupportsUpsert)
async def document_is_replaced_whole(subject: Subject) -> None:
    """An upsert replaces all of its document, and no other document."""
    async with subject.open_plugin() as plugin:
        parts = [Document(id=f"{WORD}#{n}", parent=WORD, content=f"{WORD} old part {n}") for n in range(3)]
        await plugin.upsert([store_entry(subject, plugin, Document(id=WORD, content=f"{WORD} old"), parts)])
        await plugin.upsert([store_entry(subject, plugin, Document(id=WORD, content=f"{WORD} new"))])
        for leg in plugin.legs:
            if (texts := await find_texts(subject, plugin, leg, WORD)) != [f"{WORD} new"]:
                raise Broken(f"after a document of 3 chunks was replaced by one of 1, {leg!r} finds {texts}")
        if not (await plugin.fingerprints()).keys() >= {"kit-tides", WORD}:
            raise Broken("an upsert of one document removed another")


@law_of(SupportsUpsert)
async def writes_never_block(subject: Subject) -> None:
    """upsert() and delete() do not block the event loop: blocking work runs in a thread."""
    async with subject.open_plugin() as plugin:
        books = [store_entry(subject, plugin, document) for document in library()]
        ids = [book.document.id for book in books]
        name = ""

        async def attempt() -> float:
            nonlocal name
            storing = await measure.stall(lambda: plugin.upsert(books))
            deleting = await measure.stall(lambda: plugin.delete(ids))
            name = "upsert" if storing > deleting else "delete"
            return max(storing, deleting)

        allowed = WRITE_STALL + 3 * await measure.idle()
        took = await measure.shortest(attempt, allowed)
        if took > allowed:
            raise Broken(f"{name}() kept the event loop to itself for {took:.2f} s. Run it in a thread")


@law_of(SupportsUpsert)
async def upsert_again_changes_no_answer(subject: Subject) -> None:
    """Entries that are upserted twice, in one call or in two, are found once and change no answer."""
    async with subject.open_plugin() as plugin:
        before = await subject.answers(plugin)
        books = [store_entry(subject, plugin, document) for document in library()]
        await plugin.upsert(books)
        await plugin.upsert([*books, books[0]])
        if await subject.answers(plugin) != before:
            raise Broken("after the same documents were put in again, the answers are others")


@law_of(SupportsUpsert)
async def upsert_of_nothing_is_harmless(subject: Subject) -> None:
    """An upsert without entries, and a delete without known ids, change nothing."""
    async with subject.open_plugin() as plugin:
        before = await subject.answers(plugin), dict(await plugin.fingerprints())
        await plugin.upsert([])
        removed = await plugin.delete([]) + await plugin.delete(["no such id", "'; --", ""])
        if removed or (await subject.answers(plugin), dict(await plugin.fingerprints())) != before:
            raise Broken(f"it removed {removed} documents, or the answers are others")


@law_of(SupportsUpsert)
async def fingerprints_are_those_stored(subject: Subject) -> None:
    """fingerprints() maps the ids of a tenant's documents to their last stored fingerprints."""
    async with subject.open_plugin() as plugin:
        before = dict(await plugin.fingerprints())
        untenanted, acme = (
            Document(id="print", content=f"{WORD} one"),
            Document(id="print", content=f"{WORD} two", tenant="acme"),
        )
        await plugin.upsert(
            [
                store_entry(subject, plugin, untenanted, fingerprint="1"),
                store_entry(subject, plugin, acme, fingerprint="2"),
            ]
        )
        await plugin.upsert([store_entry(subject, plugin, untenanted, fingerprint="3")])
        fingerprints = (
            dict(await plugin.fingerprints()),
            dict(await plugin.fingerprints("acme")),
            dict(await plugin.fingerprints("none")),
        )
        if fingerprints != ({**before, "print": "3"}, {"print": "2"}, {}):
            raise Broken(f"fingerprints of no tenant, 'acme' and 'none' are {shorten(fingerprints, 200)}")


@law_of(PagedStore)
async def pages_list_every_fingerprint_once(subject: Subject) -> None:
    """fingerprint_pages() lists each document of each tenant once, with the fingerprint of fingerprints()."""
    async with subject.open_plugin() as plugin:
        documents = [Document(id=id, content=WORD, tenant=t) for id in ("a", "b") for t in (None, "acme")]
        entries = [
            store_entry(subject, plugin, document, fingerprint=str(n)) for n, document in enumerate(documents)
        ]
        await plugin.upsert(entries)
        listed = [row async for page in plugin.fingerprint_pages() for row in page]
        expected = [
            (tenant, id, fingerprint)
            for tenant in (None, "acme")
            for id, fingerprint in (await plugin.fingerprints(tenant)).items()
        ]
        if sorted(listed, key=str) != sorted(expected, key=str):
            raise Broken(f"fingerprint_pages() lists {shorten(listed, 200)}, not {shorten(expected, 200)}")


@law_of(SupportsUpsert)
async def tenants_keep_documents_apart(subject: Subject) -> None:
    """The same id in two tenants is two documents: a write or delete in one tenant leaves the other."""
    async with subject.open_plugin() as plugin:
        acme, globex = (
            Document(id="twin", content=f"{WORD} of {tenant}", tenant=tenant) for tenant in ("acme", "globex")
        )
        await plugin.upsert([store_entry(subject, plugin, acme), store_entry(subject, plugin, globex)])
        for leg in plugin.legs:
            if (texts := await find_texts(subject, plugin, leg, WORD)) != [acme.content, globex.content]:
                raise Broken(f"of two tenants' documents {leg!r} finds {texts}")
        removed = await plugin.delete(["twin"], "acme")
        remaining = [await find_texts(subject, plugin, leg, WORD) for leg in plugin.legs]
        if removed != 1 or remaining != [[globex.content]] * len(remaining):
            raise Broken(
                f"after one tenant's document was removed (count {removed}), the legs find {remaining}"
            )


@law_of(TenantedStore)
async def tenants_are_those_with_documents(subject: Subject) -> None:
    """tenants() returns each tenant that has documents once, and None for documents without a tenant."""
    async with subject.open_plugin() as plugin:
        before = set(await plugin.tenants())
        owners = (None, "acme", SHARED)
        await plugin.upsert(
            [store_entry(subject, plugin, Document(id=f"of-{t}", content=WORD, tenant=t)) for t in owners]
        )
        await plugin.delete(["of-acme"], "acme")
        tenants = list(await plugin.tenants())
        if len(tenants) != len(set(tenants)) or set(tenants) != before - {"acme"} | {None, SHARED}:
            expected = sorted(map(str, before | {None, SHARED}))
            raise Broken(f"with documents of {expected} it names {shorten(tenants, 200)}")


@law_of(SupportsUpsert)
async def deleted_is_gone(subject: Subject) -> None:
    """delete() removes documents with all their chunks from every leg, and returns their number."""
    async with subject.open_plugin() as plugin:
        parts = [Document(id=f"{WORD}#{n}", parent=WORD, content=f"{WORD} part {n}") for n in range(3)]
        await plugin.upsert([store_entry(subject, plugin, Document(id=WORD, content=WORD), parts)])
        counts = await plugin.delete([WORD, WORD, "no such id"]), await plugin.delete([WORD])
        remaining = [await find_texts(subject, plugin, leg, WORD) for leg in plugin.legs]
        if counts != (1, 0) or any(remaining) or WORD in await plugin.fingerprints():
            raise Broken(
                f"two deletions of one document counted {counts}, and the legs still find {remaining}"
            )


@law_of(VersionedStore)
async def version_changes_with_the_content(subject: Subject) -> None:
    """version() changes with every upsert and every delete."""
    async with subject.open_plugin() as plugin:
        versions = [await plugin.version()]
        await plugin.upsert([store_entry(subject, plugin, Document(id=WORD, content=WORD))])
        versions.append(await plugin.version())
        await plugin.delete([WORD])
        versions.append(await plugin.version())
        if len(set(versions)) < 3:
            raise Broken(f"versions before, after an upsert and after a delete are {versions}")


@law_of(SupportsUpsert)
async def reopened_it_has_what_was_put_in(subject: Subject) -> None:
    """Upserted documents are still there after aclose() and open()."""
    async with subject.open_plugin() as plugin:
        await plugin.upsert([store_entry(subject, plugin, Document(id=WORD, content=WORD))])
        await plugin.aclose()
        await plugin.open()
        texts = [await find_texts(subject, plugin, leg, WORD) for leg in plugin.legs]
        if texts != [[WORD]] * len(texts):
            raise Broken(f"after aclose() and open() the legs find {texts} of a document put in before")


LAWS: tuple[Law, ...] = (
    document_is_replaced_whole,
    writes_never_block,
    upsert_again_changes_no_answer,
    upsert_of_nothing_is_harmless,
    fingerprints_are_those_stored,
    pages_list_every_fingerprint_once,
    tenants_keep_documents_apart,
    tenants_are_those_with_documents,
    deleted_is_gone,
    version_changes_with_the_content,
    reopened_it_has_what_was_put_in,
)
