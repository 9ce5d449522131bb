"""Run the ingestion jobs of a settings file: each reads a source and fills a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from contextrouter.contracts import SupportsCrawl, SupportsUpsert
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.bulk_load import loading
from contextrouter.ingest.job import JobRun
from contextrouter.ingest.job_models import add_models
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.job_plugins import wire
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.preparation import LABELS
from contextrouter.ingest.report import Report
from contextrouter.ingest.runners.choice import Runners
from contextrouter.ingest.store_lock import turn
from contextrouter.ingest.stored_fingerprints import StoredFingerprints
from contextrouter.router import ContextRouter
from contextrouter.runtime.plugin_calls import containment
from contextrouter.settings import Job, Settings
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
    remove: bool = False,
    batch: int = 64,
    wait: float = 60.0,
    workers: int | None = None,
    progress: OnProgress | None = None,
) -> dict[str, Report]:
    """Run the `[ingest.<name>]` jobs called `names` (none: all), in the order of the settings, and return a
    report for each.

    `router` is a router, or the path of a settings file. `rebuild` processes unchanged documents, too. If all
    jobs of a store run, it begins with an empty store, so the embedder can be changed; a store that
    `SupportsRebuild` answers with its former content until the new one is whole. `dry_run` embeds and stores
    nothing. `remove` confirms that the sources no longer have most of their documents, or any; without it
    such a run removes nothing. If another run fills a store, this one waits up to `wait` seconds. `workers`
    is how many processes prepare and store documents (0: this one); None: those of the settings.

    Raises SettingsError for what does not fit, IngestError for what fails, ValueError for bad numbers.
    """
    how: dict[str, Any] = {"rebuild": rebuild, "dry_run": dry_run, "remove": remove, "batch": batch}
    reports: dict[str, Report] = {}
    async with wire(router) as wiring:
        settings, stack = wiring.settings, wiring.stack
        jobs = select_jobs(settings, names)
        plugins = {name: await wiring.plugins(name, job) for name, job in jobs.items()}
        runners = Runners(wiring.router, stack, workers)
        runners.check(jobs, plugins)
        stores = {job.to: plugins[name].store for name, job in jobs.items()}
        if not dry_run:
            for name, store in sorted(stores.items()):
                await stack.enter_async_context(turn(store, name, wait))
                await stack.enter_async_context(loading(store, name))
        if rebuild and not dry_run:
            stores = await _begin_anew(settings, jobs, plugins, stack, remove=remove)
        for name, job in jobs.items():
            options = _job_options(name, job, remove_at_most=settings.ingestion.remove_at_most, **how)
            filling = plugins[name]._replace(store=stores[job.to])
            filling = await add_models(filling, wiring.embedder_of, dry_run=dry_run)
            runner = await runners.runner(name, job, filling, options)
            reports[name] = await JobRun(filling, options, _job_progress(progress, name), runner).execute()
    return reports


def _job_options(name: str, job: Job, **how: Any) -> JobOptions:
    labels = {label: value for label in LABELS if (value := getattr(job, label))}
    return JobOptions(origin=job.origin or name, job=name, labels=labels, **how)


def select_jobs(settings: Settings, names: Sequence[str]) -> dict[str, Job]:
    """Return the jobs called `names` (none: all), in the order of the settings.

    Raises SettingsError for a name that no job has.
    """
    jobs = settings.ingest
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
    settings: Settings,
    jobs: Mapping[str, Job],
    plugins: Mapping[str, JobPlugins],
    stack: AsyncExitStack,
    *,
    remove: bool,
) -> dict[str, SupportsUpsert]:
    """Return the store that the jobs fill, for each store: an empty one where all of its jobs run. Another
    one would lose the documents of jobs that do not run.

    Raises IngestError, before any store is emptied, if a source lists nothing and its store has documents of
    it: `remove` confirms that these are gone.
    """
    fresh = {job.to: plugins[name].store for name, job in jobs.items()}
    complete: dict[str, SupportsUpsert] = {}
    for name, store in fresh.items():
        filling = {job for job, keys in settings.ingest.items() if keys.to == name}
        if filling <= jobs.keys() and isinstance(store, SupportsRebuild | SupportsClear):
            complete[name] = store
            for job in filling if not remove else ():
                await _check_not_empty(job, settings.ingest[job].origin or job, plugins[job])
    for name, store in complete.items():
        read = any(job.source == name for job in jobs.values())  # a later job reads what this one fills
        # When this fails, no job ran yet: stores before this one are empty, others as before.
        with as_ingest_error(f"Store {name!r} cannot be emptied"):
            if isinstance(store, SupportsRebuild) and not read:
                fresh[name] = await stack.enter_async_context(_rebuilt(name, store))
            elif isinstance(store, SupportsClear):
                await store.clear()
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


async def _check_not_empty(name: str, origin: str, plugins: JobPlugins) -> None:
    """Raise IngestError if the source lists nothing and the store has documents of it."""
    with closing(StoredFingerprints(plugins.store)) as stored:
        await stored.load_all()
        total = stored.count_stored(origin)
    if total and not await _lists_any(plugins.source):
        raise IngestError(
            f"Source {name!r} lists no document, and the store has {total} of it; nothing was removed. If"
            f" they are really gone, run `contextrouter ingest {name} --rebuild --remove`."
        )


async def _lists_any(source: SupportsCrawl) -> bool:
    """Whether a source lists a document. One that fails lists none: nothing is removed for it."""
    crawl = source.crawl()
    try:
        with containment():
            return await anext(crawl, None) is not None
    except Exception:  # the caller says that there is no document; the run that is refused changes nothing
        return False
    finally:
        if isinstance(crawl, AsyncGenerator):
            await crawl.aclose()


def _job_progress(progress: OnProgress | None, name: str) -> Callable[[Report], None] | None:
    return None if progress is None else lambda report: progress(name, report)
