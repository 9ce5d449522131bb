"""Run the ingestion jobs of a settings file: each reads a source and fills a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.job import JobRun
from contextrouter.ingest.job_options import JobOptions
from contextrouter.ingest.job_plugins import Wiring
from contextrouter.ingest.preparation import LABELS
from contextrouter.ingest.report import Report
from contextrouter.ingest.store_lock import turn
from contextrouter.router import ContextRouter
from contextrouter.settings import Job
from contextrouter.settings.suggestions import unknown

OnProgress = Callable[[str, Report], None]
"""Called after every batch with the job's name and its report so far."""


@runtime_checkable
class SupportsRebuild(Protocol):
    """A store that is built again beside itself, so that its readers never see a part of it."""

    def rebuild(self) -> AbstractAsyncContextManager[SupportsUpsert]:
        """Yield an empty store. When the block ends without an error, its content becomes this store's."""
        ...


@runtime_checkable
class SupportsClear(Protocol):
    """A store that can be emptied, so that it is filled from the beginning."""

    async def clear(self) -> None:
        """Remove everything, and forget which embedder filled the store."""
        ...


async def run(
    router: ContextRouter | str | Path,
    names: Sequence[str] = (),
    *,
    rebuild: bool = False,
    dry_run: bool = False,
    batch: int = 64,
    wait: float = 60.0,
    progress: OnProgress | None = None,
) -> dict[str, Report]:
    """Run the `[ingest.<name>]` jobs called `names` (none: all), in the order of the settings, and return a
    report for each.

    `router` is a router, or the path of a settings file. `rebuild` processes unchanged documents, too. If all
    jobs of a store run, it begins with an empty store, so the embedder can be changed; a store that
    `SupportsRebuild` answers with its former content until the new one is whole. `dry_run` embeds and stores
    nothing. If another run fills a store, this one waits up to `wait` seconds.

    Raises SettingsError for a name, source or store that does not fit; IngestError if a source, embedder or
    store fails.
    """
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as open_router:
            return await run(
                open_router,
                names,
                rebuild=rebuild,
                dry_run=dry_run,
                batch=batch,
                wait=wait,
                progress=progress,
            )
    await router.open()
    jobs = select_jobs(router, names)
    reports: dict[str, Report] = {}
    async with AsyncExitStack() as stack:
        wiring = Wiring(router, stack)
        plugins = {name: await wiring.plugins(name, job) for name, job in jobs.items()}
        stores = {job.to: plugins[name].store for name, job in jobs.items()}
        if not dry_run:
            for name, store in sorted(stores.items()):
                await stack.enter_async_context(turn(store, name, wait))
        if rebuild and not dry_run:
            stores = await _begin_anew(router, jobs, stores, stack)
        for name, job in jobs.items():
            labels, origin = _labels_of(job), job.origin or name
            options = JobOptions(origin=origin, labels=labels, batch=batch, dry_run=dry_run, rebuild=rebuild)
            filling = plugins[name]._replace(store=stores[job.to])
            reports[name] = await JobRun(filling, options, _job_progress(progress, name)).execute()
    return reports


def _labels_of(job: Job) -> dict[str, str]:
    return {label: value for label in LABELS if (value := getattr(job, label))}


def select_jobs(router: ContextRouter, names: Sequence[str]) -> dict[str, Job]:
    """Return the jobs called `names` (none: all), in the order of the settings.

    Raises SettingsError for a name that no job has.
    """
    jobs = router.settings.ingest
    if not jobs:
        raise SettingsError(
            "No ingestion job is defined. Add one: [ingest.NAME] with `from` (a connector or a path) and"
            " `to`."
        )
    for name in names:
        if name not in jobs:
            raise SettingsError(unknown(f"Ingestion job {name!r} is not defined", name, jobs, "Defined jobs"))
    return {name: job for name, job in jobs.items() if not names or name in names}


async def _begin_anew(
    router: ContextRouter,
    jobs: Mapping[str, Job],
    stores: Mapping[str, SupportsUpsert],
    stack: AsyncExitStack,
) -> dict[str, SupportsUpsert]:
    """Return the store that the jobs fill, for each store: an empty one where all of its jobs run. Another
    one would lose the documents of jobs that do not run.
    """
    fresh = dict(stores)
    for name, store in stores.items():
        filling = {job for job, settings in router.settings.ingest.items() if settings.to == name}
        if not filling <= jobs.keys():
            continue
        read = any(job.source == name for job in jobs.values())  # a later job reads what this one fills
        try:
            if isinstance(store, SupportsRebuild) and not read:
                fresh[name] = await stack.enter_async_context(_rebuilt(name, store))
            elif isinstance(store, SupportsClear):
                await store.clear()
        except Exception as error:  # no job ran yet: stores before this one are empty, others as before
            raise IngestError(f"Store {name!r} cannot be emptied: {error}") from error
    return fresh


@asynccontextmanager
async def _rebuilt(name: str, store: SupportsRebuild) -> AsyncIterator[SupportsUpsert]:
    """Yield an empty store that takes the place of `store`. Raises IngestError if it cannot."""
    stack = AsyncExitStack()
    async with stack:
        yield await stack.enter_async_context(store.rebuild())
        try:
            await stack.aclose()
        except ContextRouterError as error:
            raise IngestError(f"Store {name!r} keeps its former content: {error}") from error


def _job_progress(progress: OnProgress | None, name: str) -> Callable[[Report], None] | None:
    return None if progress is None else lambda report: progress(name, report)
