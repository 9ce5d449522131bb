"""Whose turn it is to fill a store's file: a lock that ends with the process that has it, kept in a small
file beside it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from contextrouter.builtin.providers.sqlite.volume import explain
from contextrouter.errors import SourceError
from contextrouter.runtime.threads import work_aside

_TAKEN = "CREATE TABLE IF NOT EXISTS turn (process INTEGER, since TEXT)"


class IngestLock:
    """The turns at one file. A turn is SQLite's own write lock on `NAME-turn`, which the system lets go of
    with the process.
    """

    def __init__(self, location: Path) -> None:
        self._path = location.with_name(location.name + "-turn")
        self._held: sqlite3.Connection | None = None

    async def acquire(self) -> str:
        """Take the turn: "". Else say who has it. Raises SourceError where the file cannot be written."""
        if self._held is not None:
            return f"this process ({os.getpid()})"
        taking = asyncio.create_task(work_aside(self._take))
        try:
            taken = await asyncio.shield(taking)
        except asyncio.CancelledError:  # a thread cannot be stopped: what it takes, nobody has
            taking.add_done_callback(_give_back)
            raise
        if isinstance(taken, str):
            return taken
        self._held = taken
        return ""

    async def release(self) -> None:
        """Give it back, if it is ours."""
        lock, self._held = self._held, None
        if lock is not None:
            await work_aside(lock.close)

    def _take(self) -> sqlite3.Connection | str:
        """The connection that has the turn, or who else has it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=0.0, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError) as error:
            raise SourceError(self._meaning(error)) from error
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TAKEN)
            connection.execute("DELETE FROM turn")
            connection.execute(
                "INSERT INTO turn VALUES (?, ?)", (os.getpid(), f"{datetime.now(UTC):%H:%M:%S} UTC")
            )
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            connection.close()
            if "locked" not in str(error):
                raise SourceError(self._meaning(error)) from error
            return self._holder()
        return connection

    def _meaning(self, error: Exception) -> str:
        if "not a database" in str(error) or "malformed" in str(error):
            return f"{str(self._path)!r} is no lock of a store ({error}); remove this file."
        if reason := explain(self._path):
            return f"file {str(self._path)!r} {reason} ({error})."
        return f"{str(self._path)!r} cannot be written ({error}); check the path and its permissions."

    def _holder(self) -> str:
        try:
            with closing(sqlite3.connect(self._path, timeout=0.0)) as connection:
                process, since = connection.execute("SELECT process, since FROM turn").fetchone()
        except (sqlite3.Error, TypeError):  # it is just being written
            return "another process"
        return f"process {process} since {since}"


def _give_back(taking: asyncio.Task[sqlite3.Connection | str]) -> None:
    if not taking.cancelled() and taking.exception() is None:
        taken = taking.result()
        if not isinstance(taken, str):
            taken.close()
