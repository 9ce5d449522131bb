"""Open the plugins that an ingestion job names: source, store, transforms and embedder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from contextrouter.contracts import Embedder, Plugin, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.job_options import JobPlugins
from contextrouter.router import ContextRouter
from contextrouter.runtime.plugin_calls import close, containment
from contextrouter.settings import Instance, Job


class Wiring:
    """The open plugins of a router, and those opened here for jobs. `stack` closes the latter."""

    def __init__(self, router: ContextRouter, stack: AsyncExitStack) -> None:
        self.router, self.stack = router, stack
        self.settings, self.instances = router.settings, router.instances
        self.opened: dict[tuple[str, str], Plugin] = {}

    async def plugins(self, name: str, job: Job) -> JobPlugins:
        """Return the plugins of a job. Raises SettingsError if one of them does not fit."""
        source = await self.source(name, job)
        if not isinstance(source, SupportsCrawl):
            raise SettingsError(
                f"ingest.{name}.from: {job.source!r} cannot list its documents; name a source that can, or a"
                " path."
            )
        store = await self.plugin(self.settings.providers[job.to])
        if not isinstance(store, SupportsUpsert):
            raise SettingsError(
                f"ingest.{name}.to: provider {job.to!r} cannot be filled; name a store such as `sqlite`."
            )
        embedder = await self._embedder(store.embedder) if store.embedder else None
        transforms = [
            cast(Transform, await self.plugin(self.settings.transforms[transform]))
            for transform in job.transforms
        ]
        return JobPlugins(source, store, transforms, embedder)

    async def source(self, name: str, job: Job) -> Plugin:
        """Return the source of a job: a connector or provider of this name, else `files` for this path."""
        for kind in ("connector", "provider"):
            instance = self.settings.instances(kind).get(job.source)
            if instance is not None:
                return await self.plugin(instance)
        return await self.plugin(
            _instance("connector", f"ingest:{name}", "files", {"path": self._path(name, job)})
        )

    def _path(self, name: str, job: Job) -> str:
        folder = Path(self.settings.path).parent if self.settings.path else Path()
        path = folder / Path(job.source).expanduser()
        if not path.exists():
            connectors = ", ".join(self.settings.connectors) or "none"
            raise SettingsError(
                f"ingest.{name}.from: {job.source!r} is neither a connector ({connectors}) nor a path"
                f" that exists ({str(path)!r})."
            )
        return str(path)

    async def _embedder(self, name: str) -> Embedder:
        if ("embedder", name) in self.instances.all:
            await self.instances.ready("embedder", name)
            return self.instances.embedders[name]
        instance = self.settings.embedders.get(name)
        if instance is None and name != "default":
            defined = ", ".join(self.settings.embedders) or "none"
            raise SettingsError(f"Embedder {name!r} is not defined. Defined embedders: {defined}.")
        return cast(Embedder, await self.plugin(instance or _instance("embedder", name, "static", {})))

    async def plugin(self, instance: Instance) -> Plugin:
        """Return the open plugin of an instance. A disabled one answers no questions, but jobs can use it."""
        key = (instance.kind, instance.name)
        try:
            if key in self.instances.all:
                await self.instances.ready(*key)
                return self.instances.all[key]
            if key not in self.opened:
                plugin = self.instances.build(instance)
                self.stack.push_async_callback(close, plugin, f"{instance.kind} {instance.name!r}")
                with containment():
                    await plugin.open()
                self.opened[key] = plugin
            return self.opened[key]
        except ContextRouterError:
            raise
        except Exception as error:  # no job runs yet: nothing was stored or removed
            raise IngestError(
                f"{instance.kind.capitalize()} {instance.name!r} cannot be opened: {error}"
            ) from error


def _instance(kind: str, name: str, use: str, options: Mapping[str, Any]) -> Instance:
    return Instance(kind=kind, name=name, use=use, keys=None, options=options)
