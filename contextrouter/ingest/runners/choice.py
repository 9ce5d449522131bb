"""Chooses the runner of each ingestion job: this process, worker processes, or Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from contextrouter.errors import SettingsError
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.runners.pool import PooledRunner, PoolWorker, WorkerPool
from contextrouter.ingest.runners.processes import ProcessWorker
from contextrouter.ingest.runners.protocol import Runner, SupportsManyWriters
from contextrouter.ingest.runners.worker_messages import Setup, encode_setup
from contextrouter.ingest.survey import surveying
from contextrouter.router import ContextRouter
from contextrouter.settings import Job, Settings
from contextrouter.settings.ingestion import MOST_WORKERS
from contextrouter.settings.loading import INHERITED

_log = logging.getLogger("contextrouter")
_TABLES = ("plugins", "providers", "embedders", "generators", "transforms")


class Runners:
    """The runners of the jobs of one run. Workers are started with the first document that they get.

    `workers` counts for all jobs; None: the settings say how many. `stack` ends the workers. Raises
    ValueError for a number of workers that is out of range.
    """

    def __init__(self, router: ContextRouter, stack: AsyncExitStack, workers: int | None = None) -> None:
        if workers is not None and workers not in range(MOST_WORKERS + 1):
            raise ValueError(f"workers {workers!r} is out of range; give 0 to {MOST_WORKERS}.")
        self.router, self.stack, self.workers = router, stack, workers
        self.settings = router.settings
        self._pools: dict[int, WorkerPool] = {}

    def count(self, job: Job) -> int:
        """Return how many workers a job has; 0: none, this process does its work."""
        if self.workers is not None:
            return self.workers
        return self.settings.ingestion.workers if job.workers is None else job.workers

    def check(self, jobs: Mapping[str, Job], plugins: Mapping[str, JobPlugins]) -> None:
        """Raise SettingsError for a job whose workers cannot fill its store, or cannot make its plugins."""
        for name, job in jobs.items():
            if self.count(job):
                self._check_job(name, job, plugins[name])

    def _check_job(self, name: str, job: Job, plugins: JobPlugins) -> None:
        store = plugins.store
        if not (isinstance(store, SupportsManyWriters) and store.many_writers):
            self._refuse(
                name,
                f"store {job.to!r} can be filled by one process only; {self._remedy(name)}, or use a store"
                " such as `postgres`.",
            )
        if by_hand := [
            f"{kind} {name!r}" for kind, name in _needed(self.settings, job) if self._by_hand(kind, name)
        ]:
            self._refuse(
                name,
                f"{by_hand[0]} was made by hand, and workers make their plugins from settings;"
                f" {self._remedy(name)}, or describe it in the settings.",
            )
        if not self.settings.tables:
            self._refuse(
                name,
                "the settings were made by hand, and workers read the tables of a file or a mapping;"
                f" {self._remedy(name)}, or make the router from tables.",
            )

    def _by_hand(self, kind: str, name: str) -> bool:
        return (kind, name) in self.router.instances.given

    def _remedy(self, name: str) -> str:
        if self.workers is not None:
            return "run it with `--workers 0`, in Python with `workers=0`"
        return f"set `workers = 0` in [ingest.{name}]"

    def _refuse(self, name: str, message: str) -> None:
        key = f"ingest.{name}.workers"
        if key not in self.settings.origins:
            key = "ingest.workers"
        raise SettingsError([self.settings.problem(key, f"job {name!r} can have no workers: {message}")])

    async def runner(self, name: str, job: Job, plugins: JobPlugins, options: JobOptions) -> Runner | None:
        """Return the runner of a job; None: the one of this process."""
        count = self.count(job)
        if not count:
            return None
        if surveys := surveying(plugins.transforms):
            _log.warning(
                "Job %r has no workers, this process does its work: its transform %s looks through the whole"
                " source first. Set `workers = 0` in [ingest.%s], and this is not said again.",
                name,
                type(surveys[0]).__name__,
                name,
            )
            return None
        if count not in self._pools:
            self._pools[count] = WorkerPool(count, await self._maker())
            self.stack.push_async_callback(self._pools[count].aclose)
        return PooledRunner(self._pools[count], name, options)

    async def _maker(self) -> Callable[[], PoolWorker]:
        """Return what makes a worker."""
        setup = encode_setup(Setup(tables=self._tables(), location=self.settings.path))
        if self.settings.ingestion.runner == "ray":
            from contextrouter.ingest.runners.ray_cluster import RayWorker, connect

            await connect(self.settings.ingestion.ray_address, self.stack)
            return lambda: RayWorker(setup)
        return lambda: ProcessWorker(setup)

    def _tables(self) -> dict[str, Any]:
        """Return the tables that workers need: those of plugins that fill stores. Another store may name an
        embedder that was made by hand, which no worker has.
        """
        tables = self.settings.tables
        sent: dict[str, Any] = {name: tables[name] for name in _TABLES if name in tables}
        needed = {name: {*_needed(self.settings, job)} for name, job in self.settings.ingest.items()}
        jobs = {
            name: tables["ingest"][name]
            for name, plugins in needed.items()
            if not any(self._by_hand(*key) for key in plugins)
        }
        stores = {name for job in jobs for kind, name in needed[job] if kind == "provider"}
        sent["providers"] = {
            name: tables["providers"][name] for name in stores if name in tables["providers"]
        }
        zone: Mapping[str, Any] = tables.get("rag", {})
        inherited = {key: zone[key] for key in INHERITED if key in zone}
        return {**sent, "ingest": jobs, **({"rag": inherited} if inherited else {})}


def _needed(settings: Settings, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the (kind, name) of the plugins with which a job fills its store."""
    pending = [("provider", job.to), *(("transform", name) for name in job.transforms)]
    store = settings.providers.get(job.to)
    embedder = store.options.get("embedder", "default") if store else None
    if isinstance(embedder, str) and embedder:
        pending.append(("embedder", embedder))
    visited = set[tuple[str, str]]()
    while pending:
        kind, name = key = pending.pop()
        if key in visited:
            continue
        visited.add(key)
        yield key
        instance = settings.instances(kind).get(name)
        if instance is not None:
            pending += [(kind, instance.options[option]) for option, kind in instance.references.items()]
