"""Jobs that are run again whenever their source has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from contextrouter.contracts import SupportsVersion
from contextrouter.errors import IngestError
from contextrouter.ingest.job_plugins import Wiring
from contextrouter.ingest.jobs import OnProgress, chosen, run
from contextrouter.ingest.report import Report
from contextrouter.router import ContextRouter
from contextrouter.settings import Job

_log = logging.getLogger("contextrouter")


async def watch(
    router: ContextRouter | str | Path,
    names: Sequence[str] = (),
    *,
    every: float = 2.0,
    batch: int = 64,
    wait: float = 60.0,
    progress: OnProgress | None = None,
) -> AsyncGenerator[dict[str, Report], None]:
    """Run the jobs, and again those whose source changed; yield the reports of each time. Never ends by
    itself.

    Every `every` seconds sources are asked for their version (`SupportsVersion`: the files of a folder with
    sizes and times); the jobs of one that changed, or that cannot say, run. A run that breaks off is logged
    and tried again. Close the generator, or cancel who iterates, to end. Raises SettingsError for a name,
    source or store that does not fit; ValueError for seconds that are not above 0.
    """
    if not every > 0:
        raise ValueError(f"every {every!r} is no time; give seconds above 0.")
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as opened:
            async for reports in watch(opened, names, every=every, batch=batch, wait=wait, progress=progress):
                yield reports
        return
    await router.open()
    jobs = chosen(router, names)
    known: dict[str, str] = {}
    while True:
        versions = await _versions(router, jobs)
        due = [name for name, version in versions.items() if not version or known.get(name) != version]
        try:
            reports = await run(router, due, batch=batch, wait=wait, progress=progress) if due else {}
        except IngestError as error:
            _log.error("Run broke off, and is tried again in %g s: %s", every, error)
        else:
            known.update(versions)  # of before the run: what changed meanwhile is seen the next time
            if due:
                yield reports
        await asyncio.sleep(every)


async def _versions(router: ContextRouter, jobs: Mapping[str, Job]) -> dict[str, str]:
    """Job -> the version of its source; "" where the source cannot say, or not now: the run says what is
    wrong.
    """
    found: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        wiring = Wiring(router, stack)
        for name, job in jobs.items():
            source = await wiring.source(name, job)
            found[name] = await _version(source) if isinstance(source, SupportsVersion) else ""
    return found


async def _version(source: SupportsVersion) -> str:
    try:
        return await source.version()
    except Exception as error:
        _log.debug("Source does not give its version: %s", error)
        return ""
