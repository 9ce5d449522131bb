"""Whose turn it is to fill a collection: an object in it that says who has the turn, and until when.

A collection has no locks, but an object can be created once only. Who has the turn renews it while it writes.
A turn that is long over is taken by another: its process ended, or stood still. A process that lost its turn
writes no more, and says so.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime

from contextrouter.builtin.providers.vertex.collection import Collection, StoredRow
from contextrouter.builtin.providers.vertex.data_objects import TURN, Row
from contextrouter.errors import PluginError, SourceError

TERM = 40.0  # seconds that a turn lasts unless it is renewed
ALLOWANCE = 15.0  # seconds by which the clocks of two machines may differ
RENEWED_AFTER = 10.0  # seconds
PATIENCE = 60.0  # seconds that a write outside of a run waits for its turn
_PAUSE = 1.0  # seconds between two questions whether a turn has ended
_LONGEST = 200  # characters of the name of another process
_CLOSING = 5.0  # seconds for giving a turn back


class IngestLock:
    """The turns at one collection, as one process takes them."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._token = secrets.token_hex(8)
        self._label = ""
        self._until = 0.0  # on the clock of this process
        self._renewal: asyncio.Task[None] | None = None
        self._lost = ""
        self._refused = (0.0, "")  # when it was asked last, and who had the turn
        collection.write_deadline = self.deadline

    @property
    def held(self) -> bool:
        """Whether the turn was taken and not given back."""
        return self._renewal is not None

    async def acquire(self) -> str:
        """Take the turn: "". Else say who has it. Raises SourceError where the collection cannot be asked."""
        if self.held:
            return f"this process ({os.getpid()})"
        asked_at, owner = self._refused
        if owner and time.monotonic() - asked_at < _PAUSE:
            return owner
        owner = await self._take()
        self._refused = (time.monotonic(), owner)
        return owner

    async def wait(self) -> None:
        """Take the turn as soon as it is free. Raises SourceError when that takes too long."""
        limit = time.monotonic() + PATIENCE
        while owner := await self.acquire():
            if time.monotonic() >= limit:
                raise SourceError(
                    f"Collection {self._collection.id!r} is being filled by {owner}; write again when it is"
                    " done."
                )
            await asyncio.sleep(_PAUSE)

    async def release(self) -> None:
        """Give the turn back, if it is ours. One that cannot be given back ends by itself."""
        task, self._renewal = self._renewal, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        is_ours, self._until = self._until > time.monotonic(), 0.0
        if is_ours:
            with suppress(PluginError):
                present = await self._collection.get(TURN, deadline=time.monotonic() + _CLOSING)
                if present is not None and present.data.get("owner") == self._token:
                    await self._collection.delete_unchanged(present)

    def deadline(self) -> float:
        """Return until when a write may last. Raises SourceError where the turn was lost."""
        if self._until <= time.monotonic():
            reason = self._lost or "it was not renewed in time"
            raise SourceError(
                f"Collection {self._collection.id!r} may be filled by another process now: the turn of this"
                f" one is over ({reason}). Run again: what was not written yet is written then."
            )
        return self._until

    async def _take(self) -> str:
        self._label = (
            f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%H:%M:%S} UTC"
        )
        for _ in range(3):
            start = time.monotonic()
            if await self._collection.create_new(self._row()):
                self._until, self._lost = start + TERM, ""
                self._renewal = asyncio.get_running_loop().create_task(self._renew())
                return ""
            present = await self._collection.get(TURN)
            if present is None:  # it was just given back
                continue
            now = time.time()
            # An end that no turn can have is none: a clock that is wrong shuts nobody out for good.
            if now - ALLOWANCE < _end_of(present) < now + TERM + ALLOWANCE:
                return _owner_of(present)
            await self._collection.delete_unchanged(present)
        return "another process"

    async def _renew(self) -> None:
        """Renew the turn again and again, until another has taken it, or its time is over."""
        while True:
            await asyncio.sleep(RENEWED_AFTER)
            if self._until <= time.monotonic():
                return
            start = time.monotonic()
            try:
                present = await self._collection.get(TURN, deadline=self._until)
                if present is None or present.data.get("owner") != self._token:
                    self._lost, self._until = f"{_owner_of(present)} took it", 0.0
                    return
                await self._collection.replace_unchanged(self._row(), present, self._until)
                self._until, self._lost = start + TERM, ""
            except PluginError as error:  # asked again, as long as the turn lasts
                self._lost = self._lost or str(error)

    def _row(self) -> Row:
        values = {"role": TURN, "owner": self._token, "id": self._label, "updated": time.time() + TERM}
        return Row(TURN, values)


def _owner_of(present: StoredRow | None) -> str:
    """Return who has a turn, in one short line: others can write into the collection."""
    words = str(present.data.get("id") or "") if present else ""
    line = "".join(character for character in words[:_LONGEST] if character.isprintable())
    return line or "another process"


def _end_of(present: StoredRow) -> float:
    """Return when a turn ends, on the clock of its machine; 0: it does not say so."""
    value = present.data.get("updated")
    return value if isinstance(value, float) else 0.0
