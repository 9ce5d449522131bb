"""What stores hold of jobs that are no more.

A job that was renamed, taken out, or given another store leaves its documents behind, and they are still
found.
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
from contextrouter.settings.suggestions import unknown


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Documents in a store that a job put there and no job of the settings keeps up to date."""

    store: str
    origin: str  # the name the job had
    documents: int  # over all tenants


@runtime_checkable
class _Store(SupportsUpsert, SupportsTenants, Protocol):
    """A store that can be looked through."""


async def leftovers(router: ContextRouter | str | Path) -> list[Leftover]:
    """What the stores of the settings hold of jobs that do not fill them, by store and origin.

    Passed over are stores that cannot say whose documents they hold, disabled ones that no job fills, and
    documents that were put in by hand. Raises IngestError for a store that cannot be opened or read.
    """
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as opened:
            return await leftovers(opened)
    await router.open()
    found: list[Leftover] = []
    async with AsyncExitStack() as stack:
        async for name, store in _stores(router, stack):
            counts: Counter[str] = Counter()
            async for _, ids in _left(router, name, store):
                counts.update(id.partition(":")[0] for id in ids)
            found += (
                Leftover(store=name, origin=origin, documents=counts[origin]) for origin in sorted(counts)
            )
    return found


async def forget(
    router: ContextRouter | str | Path, origins: Sequence[str], *, dry_run: bool = False, wait: float = 60.0
) -> list[Leftover]:
    """Remove what jobs called `origins` left in stores that no job of that name fills, under every tenant;
    return what it was.

    `dry_run` only says what would be removed. `wait` is for how many seconds a run may be filling a store.
    Raises SettingsError for an origin that left nothing, before anything is removed; IngestError when a store
    fails.
    """
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as opened:
            return await forget(opened, origins, dry_run=dry_run, wait=wait)
    every = await leftovers(router)
    for origin in origins:
        _check(origin, router, sorted({each.origin for each in every}))
    if not dry_run:
        async with AsyncExitStack() as stack:
            async for name, store in _stores(router, stack):
                async with turn(store, name, wait):
                    async for tenant, ids in _left(router, name, store):
                        await _remove(
                            name, store, tenant, [id for id in ids if id.partition(":")[0] in origins]
                        )
    return [each for each in every if each.origin in origins]


def _check(origin: str, router: ContextRouter, known: Sequence[str]) -> None:
    if origin in known:
        return
    job = router.settings.ingest.get(origin)
    why = (
        f"; what it put into {job.to!r} is kept up to date by the job of that name, which has to go first"
        if job
        else ""
    )
    sentence = f"Origin {origin!r} left nothing in a store{why}"
    raise SettingsError(unknown(sentence, origin, known, "Left over", none="nothing"))


async def _stores(router: ContextRouter, stack: AsyncExitStack) -> AsyncIterator[tuple[str, _Store]]:
    """The stores that can be looked through, open."""
    wiring = Wiring(router, stack)
    filled = {job.to for job in router.settings.ingest.values()}
    for name, instance in router.settings.providers.items():
        if name in filled or instance.keys is None or instance.keys.enabled:
            store = await wiring.plugin(instance)
            if isinstance(store, _Store):
                yield name, store


async def _left(
    router: ContextRouter, name: str, store: _Store
) -> AsyncIterator[tuple[str | None, list[str]]]:
    """Per tenant, the ids of documents whose origin is no job that fills the store. Without a fingerprint no
    job stored it.
    """
    kept = {job for job, settings in router.settings.ingest.items() if settings.to == name}
    try:
        for tenant in await store.tenants():
            stored = await store.fingerprints(tenant)
            ids = [
                id for id, mark in stored.items() if mark and ":" in id and id.partition(":")[0] not in kept
            ]
            if ids:
                yield tenant, ids
    except Exception as error:
        raise IngestError(f"Store {name!r} does not say what it holds: {error}") from error


async def _remove(name: str, store: _Store, tenant: str | None, ids: Sequence[str]) -> None:
    if not ids:
        return
    try:
        await store.delete(ids, tenant)
    except Exception as error:
        raise IngestError(
            f"Store {name!r} did not remove {len(ids)} documents: {error}", document=ids[0]
        ) from error
