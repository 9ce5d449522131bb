"""The ingestion jobs of a settings file: which source, through what, into which store. `ingest()` does each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from contextrouter.contracts import Embedder, Plugin, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.job import Report, ingest
from contextrouter.ingest.prepare import LABELS
from contextrouter.router import ContextRouter
from contextrouter.schema import nearest
from contextrouter.settings import Instance, Job

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
    progress: OnProgress | None = None,
) -> dict[str, Report]:
    """Run the `[ingest.<name>]` jobs called `names` (none: all), in the order of the settings, and return a report for each.

    `router` is a router, or the path of a settings file. `rebuild` takes unchanged documents, too; a store all of whose jobs
    run is emptied first, which is how its embedder can be changed. `dry_run` embeds and stores nothing.

    Raises SettingsError for a name, source or store that does not fit, IngestError when a source, embedder or store fails.
    """
    if not isinstance(router, ContextRouter):
        async with ContextRouter.from_toml(router) as opened:
            return await run(opened, names, rebuild=rebuild, dry_run=dry_run, batch=batch, progress=progress)
    await router.open()
    jobs = _chosen(router, names)
    reports: dict[str, Report] = {}
    async with AsyncExitStack() as stack:
        wiring = _Wiring(router, stack)
        parts = {name: await wiring.parts(name, job) for name, job in jobs.items()}
        if rebuild and not dry_run:
            await _clear(router, jobs, {jobs[name].to: store for name, (_, store, _, _) in parts.items()})
        for name, (source, store, transforms, embedder) in parts.items():
            labels = {label: value for label in LABELS if (value := getattr(jobs[name], label))}
            reports[name] = await ingest(
                source, store, transforms, embedder, labels=labels, origin=name, batch=batch, dry_run=dry_run, rebuild=rebuild,
                progress=_named(progress, name),
            )  # fmt: skip
    return reports


def _chosen(router: ContextRouter, names: Sequence[str]) -> dict[str, Job]:
    jobs = router.settings.ingest
    if not jobs:
        raise SettingsError("No ingestion job is defined. Add one: [ingest.NAME] with `from` (a connector or a path) and `to`.")
    for name in names:
        if name not in jobs:
            close = nearest(name, jobs)
            hint = f" Did you mean {close!r}?" if close else ""
            raise SettingsError(f"Ingestion job {name!r} is not defined.{hint} Defined jobs: {', '.join(jobs)}.")
    return {name: job for name, job in jobs.items() if not names or name in names}


async def _clear(router: ContextRouter, jobs: Mapping[str, Job], stores: Mapping[str, SupportsUpsert]) -> None:
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


_Parts = tuple[SupportsCrawl, SupportsUpsert, list[Transform], Embedder | None]


class _Wiring:
    """From the names in a job to plugins that are open; what is opened here is closed with `stack`."""

    def __init__(self, router: ContextRouter, stack: AsyncExitStack) -> None:
        self.router, self.stack = router, stack
        self.settings, self.instances = router.settings, router.instances
        self.own: dict[tuple[str, str], Plugin] = {}

    async def parts(self, name: str, job: Job) -> _Parts:
        source = await self._source(name, job)
        if not isinstance(source, SupportsCrawl):
            raise SettingsError(f"ingest.{name}.from: {job.source!r} cannot list its documents; name a source that can, or a path.")
        store = await self._plugin(self.settings.providers[job.to])
        if not isinstance(store, SupportsUpsert):
            raise SettingsError(f"ingest.{name}.to: provider {job.to!r} cannot be filled; name a store such as `sqlite`.")
        embedder = await self._embedder(store.embedder) if store.embedder else None
        transforms = [cast(Transform, await self._plugin(self.settings.transforms[each])) for each in job.transforms]
        return source, store, transforms, embedder

    async def _source(self, name: str, job: Job) -> Plugin:
        for kind in ("connector", "provider"):
            instance = self.settings.instances(kind).get(job.source)
            if instance is not None:
                return await self._plugin(instance)
        return await self._plugin(_instance("connector", f"ingest:{name}", "files", {"path": self._path(name, job)}))

    def _path(self, name: str, job: Job) -> str:
        folder = Path(self.settings.path).parent if self.settings.path else Path()
        path = folder / Path(job.source).expanduser()
        if not path.exists():
            known = ", ".join(self.settings.connectors) or "none"
            raise SettingsError(
                f"ingest.{name}.from: {job.source!r} is neither a connector ({known}) nor a path that exists ({str(path)!r})."
            )
        return str(path)

    async def _embedder(self, name: str) -> Embedder:
        if ("embedder", name) in self.instances.all:
            await self.instances.ready("embedder", name)
            return self.instances.embedders[name]
        instance = self.settings.embedders.get(name)
        if instance is None and name != "default":
            known = ", ".join(self.settings.embedders) or "none"
            raise SettingsError(f"Embedder {name!r} is not defined. Defined embedders: {known}.")
        return cast(Embedder, await self._plugin(instance or _instance("embedder", name, "static", {})))

    async def _plugin(self, instance: Instance) -> Plugin:
        """The open plugin of an instance. A disabled one does not serve questions, yet can be ingested from."""
        key = (instance.kind, instance.name)
        try:
            if key in self.instances.all:
                await self.instances.ready(*key)
                return self.instances.all[key]
            if key not in self.own:
                plugin = self.instances.build(instance)
                self.stack.push_async_callback(plugin.aclose)
                await plugin.open()
                self.own[key] = plugin
            return self.own[key]
        except ContextRouterError:
            raise
        except Exception as error:
            raise IngestError(f"{instance.kind.capitalize()} {instance.name!r} cannot be opened: {error}") from error


def _instance(kind: str, name: str, use: str, options: Mapping[str, Any]) -> Instance:
    return Instance(kind=kind, name=name, use=use, keys=None, options=options)
