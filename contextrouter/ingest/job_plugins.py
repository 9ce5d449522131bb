"""From the names in an ingestion job to plugins that are open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from contextrouter.contracts import Embedder, Plugin, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.router import ContextRouter
from contextrouter.settings import Instance, Job

Parts = tuple[SupportsCrawl, SupportsUpsert, list[Transform], Embedder | None]


class Wiring:
    """From the names in a job to plugins that are open; what is opened here is closed with `stack`."""

    def __init__(self, router: ContextRouter, stack: AsyncExitStack) -> None:
        self.router, self.stack = router, stack
        self.settings, self.instances = router.settings, router.instances
        self.own: dict[tuple[str, str], Plugin] = {}

    async def parts(self, name: str, job: Job) -> Parts:
        """Everything a job works with. Raises SettingsError for what does not fit."""
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
            cast(Transform, await self.plugin(self.settings.transforms[each])) for each in job.transforms
        ]
        return source, store, transforms, embedder

    async def source(self, name: str, job: Job) -> Plugin:
        """What a job reads: a connector or provider by name, else a path, as `files` reads it."""
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
            known = ", ".join(self.settings.connectors) or "none"
            raise SettingsError(
                f"ingest.{name}.from: {job.source!r} is neither a connector ({known}) nor a path that exists"
                f" ({str(path)!r})."
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
        return cast(Embedder, await self.plugin(instance or _instance("embedder", name, "static", {})))

    async def plugin(self, instance: Instance) -> Plugin:
        """The open plugin of an instance. A disabled one does not serve questions, yet can be ingested
        from.
        """
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
            raise IngestError(
                f"{instance.kind.capitalize()} {instance.name!r} cannot be opened: {error}"
            ) from error


def _instance(kind: str, name: str, use: str, options: Mapping[str, Any]) -> Instance:
    return Instance(kind=kind, name=name, use=use, keys=None, options=options)
