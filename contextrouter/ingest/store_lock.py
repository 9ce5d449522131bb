"""The lock of a store: one ingestion run at a time fills it, another run waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.ingest.plugin_failures import as_ingest_error

_log = logging.getLogger("contextrouter")
_PAUSE = 0.1  # seconds between two attempts


@runtime_checkable
class SupportsTurns(Protocol):
    """A store that one run at a time fills. A turn also ends when its process ends."""

    async def take_turn(self) -> str:
        """Take the turn and return "". If another has it, return who, such as "process 4711 since 10:31:02
        UTC".
        """
        ...

    async def end_turn(self) -> None:
        """Give the turn back."""
        ...


@asynccontextmanager
async def turn(store: SupportsUpsert, name: str, wait: float) -> AsyncIterator[None]:
    """Lock the store for a run. Raises IngestError if another run has it for longer than `wait` seconds."""
    if not isinstance(store, SupportsTurns):
        yield
        return
    deadline, warned = time.monotonic() + wait, False
    while True:
        with as_ingest_error(f"Store {name!r} cannot be taken for filling"):  # the run did not start
            owner = await store.take_turn()
        if not owner:
            break
        if time.monotonic() >= deadline:
            raise IngestError(
                f"Store {name!r} is being filled by {owner}, for longer than {wait:g} s; run again when it is"
                " done, or wait longer."
            )
        if not warned:
            _log.warning("Store %r is being filled by %s; waiting up to %g s for its end.", name, owner, wait)
            warned = True
        await asyncio.sleep(_PAUSE)
    try:
        yield
    finally:
        await store.end_turn()
