"""Orphans: documents in a store whose ingestion job no longer exists.

A job that was renamed, removed, or pointed at another store leaves its documents behind. Searches still find
them. Deletion of documents that a source no longer has is in `deletion`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from contextrouter.contracts import SupportsTenants, SupportsUpsert
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest.job_plugins import Wiring, wire
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.store_lock import turn
from contextrouter.router import ContextRouter
from contextrouter.settings import Settings
from contextrouter.settings.suggestions import unknown


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Documents in a store that a job stored and that no job of the settings updates."""

    store: str
    origin: str  # the origin that the job had: its name, unless it set another
    documents: int  # over all tenants


@runtime_checkable
class ListedStore(SupportsUpsert, SupportsTenants, Protocol):
    """A store whose documents can be listed."""


async def leftovers(router: ContextRouter | str | Path) -> list[Leftover]:
    """Return the orphans in the stores of the settings, by store and origin.

    Left out are stores that cannot tell whose documents they hold, disabled stores that no job fills, and
    documents that no job stored. Raises IngestError for a store that cannot be opened or read.
    """
    async with wire(router) as wiring:
        return await _leftovers(wiring)


async def forget(
    router: ContextRouter | str | Path, origins: Sequence[str], *, dry_run: bool = False, wait: float = 60.0
) -> list[Leftover]:
    """Remove the orphans of the jobs called `origins`, under every tenant, and return them.

    `dry_run` removes nothing. If a run fills a store, this waits up to `wait` seconds. Raises SettingsError
    for an origin without orphans, before anything is removed; IngestError if a store fails.
    """
    async with wire(router) as wiring:
        orphans = await _leftovers(wiring)
        for origin in origins:
            _check_origin(origin, wiring.settings, sorted({orphan.origin for orphan in orphans}))
        if not dry_run:
            await _remove_orphans(wiring, origins, wait)
    return [orphan for orphan in orphans if orphan.origin in origins]


async def _remove_orphans(wiring: Wiring, origins: Sequence[str], wait: float) -> None:
    async for name, store in open_stores(wiring):
        async with turn(store, name, wait):
            async for tenant, ids in _list_orphans(wiring.settings, name, store):
                of_origins = [id for id in ids if id.partition(":")[0] in origins]
                await remove_documents(name, store, tenant, of_origins)


async def _leftovers(wiring: Wiring) -> list[Leftover]:
    orphans: list[Leftover] = []
    async for name, store in open_stores(wiring):
        counts: Counter[str] = Counter()
        async for _, ids in _list_orphans(wiring.settings, name, store):
            counts.update(id.partition(":")[0] for id in ids)
        orphans += (
            Leftover(store=name, origin=origin, documents=counts[origin]) for origin in sorted(counts)
        )
    return orphans


def _check_origin(origin: str, settings: Settings, origins: Sequence[str]) -> None:
    if origin in origins:
        return
    jobs = settings.ingest.items()
    filling = [(name, job.to) for name, job in jobs if origin == (job.origin or name)]
    reason = ""
    if filling:
        name, store = filling[0]
        reason = f"; what it put into {store!r} is kept up to date by the job {name!r}, which has to go first"
    sentence = f"Origin {origin!r} left nothing in a store{reason}"
    raise SettingsError(unknown(sentence, origin, origins, "Left over", none="nothing"))


async def open_stores(wiring: Wiring) -> AsyncIterator[tuple[str, ListedStore]]:
    """Yield the stores whose documents can be listed, with their names. They are open."""
    filled = {job.to for job in wiring.settings.ingest.values()}
    for name, instance in wiring.settings.providers.items():
        if name in filled or instance.keys is None or instance.keys.enabled:
            store = await wiring.plugin(instance)
            if isinstance(store, ListedStore):
                yield name, store


async def _list_orphans(
    settings: Settings, name: str, store: ListedStore
) -> AsyncIterator[tuple[str | None, list[str]]]:
    """Yield per tenant the ids of documents whose origin is no job that fills the store.

    A document without a fingerprint is left out: no job stored it.
    """
    filling = {job.origin or job_name for job_name, job in settings.ingest.items() if job.to == name}
    try:
        for tenant in await store.tenants():
            stored = await store.fingerprints(tenant)
            ids = [
                id
                for id, mark in stored.items()
                if mark and ":" in id and id.partition(":")[0] not in filling
            ]
            if ids:
                yield tenant, ids
    except Exception as error:  # what was removed before stays removed
        raise IngestError(f"Store {name!r} does not say what it holds: {error}") from error


async def remove_documents(name: str, store: ListedStore, tenant: str | None, ids: Sequence[str]) -> None:
    """Remove documents of one tenant. Raises IngestError if the store fails."""
    if ids:
        message = f"Store {name!r} did not remove {len(ids)} documents"
        with as_ingest_error(message, ids[0]):  # what was removed before stays removed
            await store.delete(ids, tenant)
