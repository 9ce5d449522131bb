"""Bulk loads: a store may build its indexes after a run instead of keeping them up to date during it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.runtime.plugin_calls import containment

_log = logging.getLogger("contextrouter")


@runtime_checkable
class SupportsBulkLoad(Protocol):
    """A store that can leave indexes out while a run fills it. It answers meanwhile as it did before."""

    async def begin_load(self, documents: int | None) -> None:
        """Prepare for a run that stores at least so many documents; None: nobody knows."""
        ...

    async def end_load(self) -> None:
        """Build what was left out, by this run or by one that died. Nothing was: do nothing."""
        ...


async def begin_load(store: SupportsUpsert, documents: int | None) -> None:
    """Tell a store, before the first document is stored, how many come at least. Raises IngestError."""
    if isinstance(store, SupportsBulkLoad):
        with as_ingest_error("The store cannot begin a load"):  # nothing was stored or removed yet
            await store.begin_load(documents)


@asynccontextmanager
async def loading(store: SupportsUpsert, name: str) -> AsyncIterator[None]:
    """Have the store build at the end what a run left out, also after a run that failed. Raises IngestError
    if it cannot.
    """
    try:
        yield
    except Exception:
        try:
            await _end_load(store, name)
        except IngestError as error:  # the failure of the run is what is told
            _log.warning("%s", error)
        raise
    else:
        await _end_load(store, name)


async def _end_load(store: SupportsUpsert, name: str) -> None:
    if not isinstance(store, SupportsBulkLoad):
        return
    try:
        with containment():
            await store.end_load()
    except Exception as error:  # all documents are stored; the next run builds what is missing
        raise IngestError(
            f"Store {name!r} has all documents, and could not build its indexes: {error}; the next run builds"
            " them."
        ) from error
