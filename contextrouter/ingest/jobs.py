"""The ingestion jobs of a settings file: which source, through what, into which store. `job` does each of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest.job import Run
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
class SupportsClear(Protocol):
    """A store that can be emptied, to be filled again from nothing."""

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

    `router` is a router, or the path of a settings file. `rebuild` takes unchanged documents, too; a store
    all of whose jobs run is emptied first, which is how its embedder can be changed. `dry_run` embeds and
    stores nothing. `wait` is for how many seconds another run may be filling a store before this one gives
    up.

    Raises SettingsError for a name, source or store that does not fit, IngestError when a source, embedder or
    store fails.
    """
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as opened:
            return await run(
                opened, names, rebuild=rebuild, dry_run=dry_run, batch=batch, wait=wait, progress=progress
            )
    await router.open()
    jobs = chosen(router, names)
    reports: dict[str, Report] = {}
    async with AsyncExitStack() as stack:
        wiring = Wiring(router, stack)
        parts = {name: await wiring.parts(name, job) for name, job in jobs.items()}
        stores = {jobs[name].to: store for name, (_, store, _, _) in parts.items()}
        if not dry_run:
            for name, store in sorted(stores.items()):
                await stack.enter_async_context(turn(store, name, wait))
        if rebuild and not dry_run:
            await _clear(router, jobs, stores)
        for name, (source, store, transforms, embedder) in parts.items():
            labels = {label: value for label in LABELS if (value := getattr(jobs[name], label))}
            one = Run(
                store, transforms, embedder, labels, name, batch, dry_run, rebuild, _named(progress, name)
            )
            reports[name] = await one.through(source)
    return reports


def chosen(router: ContextRouter, names: Sequence[str]) -> dict[str, Job]:
    """The jobs called `names`, all without any, in the order of the settings. Raises SettingsError for a name
    that is none.
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


async def _clear(
    router: ContextRouter, jobs: Mapping[str, Job], stores: Mapping[str, SupportsUpsert]
) -> None:
    """Empty the stores whose every job runs: others would lose what a job that does not run has put there."""
    for name, store in stores.items():
        every = {job for job, settings in router.settings.ingest.items() if settings.to == name}
        if every <= jobs.keys() and isinstance(store, SupportsClear):
            try:
                await store.clear()
            except Exception as error:
                raise IngestError(f"Store {name!r} cannot be emptied: {error}") from error


def _named(progress: OnProgress | None, name: str) -> Callable[[Report], None] | None:
    return None if progress is None else lambda report: progress(name, report)
