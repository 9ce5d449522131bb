"""Runs of ingestion jobs in Postgres, kept for some seconds: a search asks nothing more than it did."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from contextrouter.builtin.providers.job_runs import KEY, Runs, read_runs

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

SECONDS = 10.0
"""How long the runs that were read hold."""


class JobRunCache:
    """The runs as they were last read."""

    def __init__(self) -> None:
        self._runs: Runs = {}
        self._until = 0.0

    async def read(self, connection: Connection) -> Runs:
        """Return job -> the beginning of its last whole run."""
        if monotonic() >= self._until:
            rows = await connection.fetch("SELECT key, value FROM meta WHERE starts_with(key, $1)", KEY)
            self._runs = read_runs([(row["key"], row["value"]) for row in rows])
            self._until = monotonic() + SECONDS
        return self._runs

    def forget(self) -> None:
        """Read them again at the next search."""
        self._until = 0.0
