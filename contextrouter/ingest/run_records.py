"""The record of a run: its documents say when they were last compared with their source."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable

from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.plugin_failures import as_ingest_error


@runtime_checkable
class SupportsRuns(Protocol):
    """A store that notes when a job was last run to its end. Its documents have this time as `synced_at`."""

    async def record_run(self, origin: str, moment: datetime) -> None:
        """Note that the run that began at `moment` brought the documents of a job in line with their source.

        It writes one line, and no document.
        """
        ...


async def record_run(plugins: JobPlugins, options: JobOptions, moment: datetime) -> None:
    """Note a run that came to its end. A dry run notes nothing. Raises IngestError if the store fails."""
    if options.dry_run or not isinstance(plugins.store, SupportsRuns):
        return
    # When this fails, all documents are stored, and those that vanished are removed.
    with as_ingest_error(f"The store did not note the run of {options.origin!r}"):
        await plugins.store.record_run(options.origin, moment)
