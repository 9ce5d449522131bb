"""Watch the sources of ingestion jobs, and run a job again when its source changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contextrouter.contracts import SupportsVersion
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest.job_plugins import wire
from contextrouter.ingest.jobs import OnProgress, run, select_jobs
from contextrouter.ingest.report import Report
from contextrouter.router import ContextRouter
from contextrouter.runtime.plugin_calls import containment
from contextrouter.settings import Job

_log = logging.getLogger("contextrouter")


async def watch(
    router: ContextRouter | str | Path,
    names: Sequence[str] = (),
    *,
    every: float = 2.0,
    batch: int = 64,
    wait: float = 60.0,
    workers: int | None = None,
    progress: OnProgress | None = None,
) -> AsyncGenerator[dict[str, Report], None]:
    """Run the jobs, then run each again when its source changes; yield the reports each time. Never ends by
    itself.

    Every `every` seconds each source is asked for its version (`SupportsVersion`; for a folder, the sizes and
    times of its files). A job runs if the version changed, or if the source cannot tell. A run that fails is
    logged and tried again, and so is a source that is gone for a time; other jobs go on. To end, close the
    generator or cancel the task that iterates. Raises SettingsError for a name, source or store that does not
    fit at the start; ValueError for seconds that are not above 0.
    """
    if not every > 0:
        raise ValueError(f"every {every!r} is no time; give seconds above 0.")
    options: dict[str, Any] = {"batch": batch, "wait": wait, "workers": workers, "progress": progress}
    async with wire(router) as wiring:
        jobs = select_jobs(wiring.settings, names)
        done: dict[str, str] = {}  # job -> the version of its source that was ingested
        groups = [jobs]  # all together at the start: nothing is stored where one does not fit
        while True:
            reports: dict[str, Report] = {}
            for group in groups:
                try:
                    reports |= await _run_changed(wiring.router, group, done, options)
                except (IngestError, SettingsError) as error:
                    if group is jobs and isinstance(error, SettingsError):
                        raise
                    failed = ", ".join(group)
                    _log.error("Run of %s broke off, and is tried again in %g s: %s", failed, every, error)
            if reports:
                yield reports
            groups = [{name: job} for name, job in jobs.items()]
            await asyncio.sleep(every)


async def _run_changed(
    router: ContextRouter, jobs: Mapping[str, Job], done: dict[str, str], options: Mapping[str, Any]
) -> dict[str, Report]:
    """Run those jobs whose source is not in the version that was `done`, and note the versions there."""
    versions = await _versions(router, jobs)
    due = [name for name, version in versions.items() if not version or done.get(name) != version]
    reports = await run(router, due, **options) if due else {}
    done |= versions  # read before the run: a change during the run counts for the next one
    return reports


async def _versions(router: ContextRouter, jobs: Mapping[str, Job]) -> dict[str, str]:
    """Return job -> the version of its source; "" if the source cannot tell, now or ever."""
    versions: dict[str, str] = {}
    async with wire(router) as wiring:
        for name, job in jobs.items():
            source = await wiring.source(name, job)
            versions[name] = await _version(source) if isinstance(source, SupportsVersion) else ""
    return versions


async def _version(source: SupportsVersion) -> str:
    try:
        with containment():
            return await source.version()
    except Exception as error:  # nothing is lost: without a version the job runs and reports the failure
        _log.debug("Source does not give its version: %s", error)
        return ""
