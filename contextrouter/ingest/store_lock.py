"""One run at a time fills a store: another waits, and says for whom."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import IngestError

_log = logging.getLogger("contextrouter")
_PAUSE = 0.1  # seconds between two attempts


@runtime_checkable
class SupportsTurns(Protocol):
    """A store that one run at a time fills. A turn ends with the process that has it, however that ends."""

    async def take_turn(self) -> str:
        """Take the turn, if nobody has it: "". Else say who has, such as "process 4711 since 10:31:02
        UTC".
        """
        ...

    async def end_turn(self) -> None:
        """Let others have it."""
        ...


@asynccontextmanager
async def turn(store: SupportsUpsert, name: str, wait: float) -> AsyncIterator[None]:
    """Have the store to oneself. Raises IngestError when another run has it for longer than `wait`
    seconds.
    """
    if not isinstance(store, SupportsTurns):
        yield
        return
    end, told = time.monotonic() + wait, False
    while who := await _taken(store, name):
        if time.monotonic() >= end:
            raise IngestError(
                f"Store {name!r} is being filled by {who}, for longer than {wait:g} s; run again when it is"
                " done, or wait longer."
            )
        if not told:
            _log.warning("Store %r is being filled by %s; waiting up to %g s for its end.", name, who, wait)
            told = True
        await asyncio.sleep(_PAUSE)
    try:
        yield
    finally:
        await store.end_turn()


async def _taken(store: SupportsTurns, name: str) -> str:
    try:
        return await store.take_turn()
    except Exception as error:
        raise IngestError(f"Store {name!r} cannot be taken for filling: {error}") from error
