"""Orphans: documents in a store whose ingestion job no longer exists.

A job that was renamed, removed, or pointed at another store leaves its documents behind. Searches still find
them. Deletion of documents that a source no longer has is in `deletion`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from contextrouter.contracts import SupportsTenants, SupportsUpsert
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest.job_plugins import Wiring
from contextrouter.ingest.store_lock import turn
from contextrouter.router import ContextRouter
from contextrouter.runtime.plugin_calls import containment
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
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as open_router:
            return await leftovers(open_router)
    await router.open()
    orphans: list[Leftover] = []
    async with AsyncExitStack() as stack:
        async for name, store in open_stores(router, stack):
            counts: Counter[str] = Counter()
            async for _, ids in _list_orphans(router, name, store):
                counts.update(id.partition(":")[0] for id in ids)
            orphans += (
                Leftover(store=name, origin=origin, documents=counts[origin]) for origin in sorted(counts)
            )
    return orphans


async def forget(
    router: ContextRouter | str | Path, origins: Sequence[str], *, dry_run: bool = False, wait: float = 60.0
) -> list[Leftover]:
    """Remove the orphans of the jobs called `origins`, under every tenant, and return them.

    `dry_run` removes nothing. If a run fills a store, this waits up to `wait` seconds. Raises SettingsError
    for an origin without orphans, before anything is removed; IngestError if a store fails.
    """
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as open_router:
            return await forget(open_router, origins, dry_run=dry_run, wait=wait)
    orphans = await leftovers(router)
    for origin in origins:
        _check_origin(origin, router, sorted({orphan.origin for orphan in orphans}))
    if not dry_run:
        async with AsyncExitStack() as stack:
            async for name, store in open_stores(router, stack):
                async with turn(store, name, wait):
                    async for tenant, ids in _list_orphans(router, name, store):
                        await remove_documents(
                            name, store, tenant, [id for id in ids if id.partition(":")[0] in origins]
                        )
    return [orphan for orphan in orphans if orphan.origin in origins]


def _check_origin(origin: str, router: ContextRouter, origins: Sequence[str]) -> None:
    if origin in origins:
        return
    jobs = router.settings.ingest.items()
    filling = [(name, job.to) for name, job in jobs if origin == (job.origin or name)]
    reason = ""
    if filling:
        name, store = filling[0]
        reason = f"; what it put into {store!r} is kept up to date by the job {name!r}, which has to go first"
    sentence = f"Origin {origin!r} left nothing in a store{reason}"
    raise SettingsError(unknown(sentence, origin, origins, "Left over", none="nothing"))


async def open_stores(router: ContextRouter, stack: AsyncExitStack) -> AsyncIterator[tuple[str, ListedStore]]:
    """Yield the stores whose documents can be listed, with their names. They are open."""
    wiring = Wiring(router, stack)
    filled = {job.to for job in router.settings.ingest.values()}
    for name, instance in router.settings.providers.items():
        if name in filled or instance.keys is None or instance.keys.enabled:
            store = await wiring.plugin(instance)
            if isinstance(store, ListedStore):
                yield name, store


async def _list_orphans(
    router: ContextRouter, name: str, store: ListedStore
) -> AsyncIterator[tuple[str | None, list[str]]]:
    """Yield per tenant the ids of documents whose origin is no job that fills the store.

    A document without a fingerprint is left out: no job stored it.
    """
    filling = {job.origin or job_name for job_name, job in router.settings.ingest.items() if job.to == name}
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
    if not ids:
        return
    try:
        with containment():
            await store.delete(ids, tenant)
    except Exception as error:  # what was removed before stays removed
        raise IngestError(
            f"Store {name!r} did not remove {len(ids)} documents: {error}", document=ids[0]
        ) from error
