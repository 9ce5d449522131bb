"""Removal of single documents, or of all that belong to a person, from stores and caches.

With a document go its chunks, vectors, links, facts, and the entities that only its facts name. Orphans of
former jobs are removed in `orphans`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from contextrouter.contracts import Provider, SupportsFetch
from contextrouter.errors import IngestError, SettingsError
from contextrouter.filters import passes
from contextrouter.ingest.job_plugins import wire
from contextrouter.ingest.orphans import ListedStore, open_stores, remove_documents
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.store_lock import turn
from contextrouter.model import Document, Query
from contextrouter.router import ContextRouter

_AT_ONCE = 500  # documents that are read at a time
_EVERY = 1_000_000  # more hits than a store has


@runtime_checkable
class SupportsStats(Protocol):
    """A store that counts its content."""

    async def stats(self) -> Mapping[str, int | str]:
        """Return the number of documents, chunks, links, facts and more, by name."""
        ...


@runtime_checkable
class SupportsVacuum(Protocol):
    """A store that keeps removed texts until it is cleaned."""

    async def vacuum(self) -> None:
        """Erase what was removed."""
        ...


class RemovedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was removed, or would be."""

    store: str
    id: str
    tenant: str | None
    title: str
    url: str


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `forget_documents`.

    `counts` maps a store to how many documents, chunks, facts and so on it has fewer. `cache_entries` is how
    many answers and embeddings were removed from the cache. `jobs` are the names of jobs that store a
    document again if their source still has it. `not_searched` are stores that cannot list documents.
    `not_found` are the ids and URLs that were named and that no document has.
    """

    documents: tuple[RemovedDocument, ...]
    counts: Mapping[str, Mapping[str, int]]
    cache_entries: int
    jobs: tuple[str, ...]
    not_searched: tuple[str, ...]
    not_found: tuple[str, ...] = ()


async def forget_documents(
    router: ContextRouter | str | Path,
    documents: Sequence[str] = (),
    match: Mapping[str, Any] = {},
    *,
    dry_run: bool = False,
    wait: float = 60.0,
) -> Removal:
    """Remove documents from every store of the settings, under every tenant, and say what was removed.

    `documents` are ids (with or without the job's name before them) or URLs. `match` maps a field of
    documents, or a key of their metadata, to a value or several of which one is enough; a document goes if it
    or one of its chunks has all of them. If anything was removed, the cache is emptied: answers hold texts.
    `dry_run` removes nothing. If a run fills a store, this waits up to `wait` seconds.

    Raises ValueError if neither is given, IngestError if a store or the cache fails.
    """
    if not documents and not match:
        raise ValueError("Nothing says which documents to forget; give documents or match.")
    removed: list[RemovedDocument] = []
    counts: dict[str, Mapping[str, int]] = {}
    searched: set[str] = set()
    async with wire(router) as wiring:
        async for name, store in open_stores(wiring):
            searched.add(name)
            if dry_run:
                removed += [document async for document in _matching(name, store, documents, match)]
                continue
            async with turn(store, name, wait):
                in_store = [document async for document in _matching(name, store, documents, match)]
                if in_store:
                    counts[name] = await _remove(name, store, in_store)
                removed += in_store
        entries = await _clear_cache(wiring.router) if removed and not dry_run else 0
    settings = wiring.settings
    names = {name for document in removed for name in _names(document.id, document.url)}
    origins = {document.id.partition(":")[0] for document in removed}
    return Removal(
        documents=tuple(removed),
        counts=counts,
        cache_entries=entries,
        jobs=tuple(name for name, job in settings.ingest.items() if (job.origin or name) in origins),
        not_searched=tuple(name for name in settings.providers if name not in searched),
        not_found=tuple(name for name in dict.fromkeys(documents) if name not in names),
    )


def _names(id: str, url: str) -> set[str]:
    """The names by which a document may be called."""
    return {id, id.partition(":")[2], url} - {""}


async def _matching(
    name: str, store: ListedStore, documents: Sequence[str], match: Mapping[str, Any]
) -> AsyncIterator[RemovedDocument]:
    """Yield the documents of a store that are to be removed."""
    if match and not isinstance(store, SupportsFetch):
        message = f"Store {name!r} cannot look at its documents, so they cannot be matched; name ids."
        raise SettingsError(message)
    wanted = set(documents)
    try:
        parents = await _parents_of_chunks(store, match)
        for tenant in await store.tenants():
            ids = list(await store.fingerprints(tenant))
            for start in range(0, len(ids), _AT_ONCE):
                batch = ids[start : start + _AT_ONCE]
                texts = await _texts_of(store, batch, tenant)
                for id in batch:
                    document = texts.get(id, Document(id=id, content="", tenant=tenant))
                    names = _names(id, document.url)
                    matches = match and (passes(document, match) or (tenant, id) in parents)
                    if matches or not wanted.isdisjoint(names):
                        yield RemovedDocument(
                            store=name, id=id, tenant=tenant, title=document.title, url=document.url
                        )
    except Exception as error:  # nothing of this store was removed
        raise IngestError(f"Store {name!r} does not say what it holds: {error}") from error


async def _texts_of(store: ListedStore, ids: Sequence[str], tenant: str | None) -> dict[str, Document]:
    """Return id -> document, of one tenant."""
    if not isinstance(store, SupportsFetch):
        return {}
    texts = await store.fetch(ids)
    return {document.id: document for document in texts if (document.tenant or None) == tenant}


async def _parents_of_chunks(store: ListedStore, match: Mapping[str, Any]) -> set[tuple[str | None, str]]:
    """Return the (tenant, id) of documents with a chunk that matches: some metadata, such as the entities, is
    of chunks alone. Such a chunk has the words of the value in its text.
    """
    if not match or not isinstance(store, Provider) or "text" not in store.legs:
        return set()
    values = next(iter(match.values()))
    words = " ".join(map(str, values if isinstance(values, list | tuple) else [values]))
    hits = await store.search(Query(text=words, leg="text", limit=_EVERY, filters=match))
    return {(hit.document.tenant or None, hit.document.parent or hit.document.id) for hit in hits}


async def _remove(name: str, store: ListedStore, documents: Sequence[RemovedDocument]) -> dict[str, int]:
    """Remove documents for good; return how much less the store holds, by name."""
    before = await _sizes(store)
    for tenant in {document.tenant for document in documents}:
        ids = [document.id for document in documents if document.tenant == tenant]
        await remove_documents(name, store, tenant, ids)
    after = await _sizes(store)
    if isinstance(store, SupportsVacuum):
        message = f"Store {name!r} removed the documents, and did not erase them from the disk"
        with as_ingest_error(message):  # the documents are gone from searches
            await store.vacuum()
    less = {key: before[key] - after.get(key, 0) for key in before}
    return {"documents": len(documents), **{key: number for key, number in less.items() if number > 0}}


async def _sizes(store: ListedStore) -> dict[str, int]:
    if not isinstance(store, SupportsStats):
        return {}
    names = ("chunks", "vectors", "links", "facts", "entities")
    return {
        key: value for key, value in (await store.stats()).items() if key in names and isinstance(value, int)
    }


async def _clear_cache(router: ContextRouter) -> int:
    try:
        return await router.cache.clear()
    except Exception as error:  # the documents are removed
        raise IngestError(
            f"The documents were removed, but the cache could not be emptied: {error}. Run `contextrouter"
            " cache clear`."
        ) from error
