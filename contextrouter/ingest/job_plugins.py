"""Open the plugins that an ingestion job names: source, store, transforms and embedder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from contextrouter.contracts import Embedder, Plugin, StoredModel, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.job_options import JobPlugins
from contextrouter.router import ContextRouter
from contextrouter.runtime.plugin_calls import close, containment
from contextrouter.settings import Instance, Job
from contextrouter.settings.suggestions import unknown

STRUCTURED = (
    "application/json",
    "application/jsonl",
    "application/x-ndjson",
    "application/x-jsonlines",
    "text/csv",
    "text/tab-separated-values",
)
"""Media types of documents that are cut also by a job whose transforms cut nothing."""


@runtime_checkable
class SupportsSizes(Protocol):
    """A transform that cuts documents, and has the sizes of its chunks."""

    target: int
    maximum: int


@asynccontextmanager
async def wire(router: ContextRouter | str | Path) -> AsyncIterator[Wiring]:
    """Yield the wiring of an open router: the given one, which stays open, or that of a settings file."""
    async with AsyncExitStack() as stack:
        if not isinstance(router, ContextRouter):
            router = await stack.enter_async_context(ContextRouter.from_toml(router))
        await router.open()
        yield Wiring(router, stack)


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
            message = f"{job.source!r} cannot list its documents; name a source that can, or a path."
            raise SettingsError([self.settings.problem(f"ingest.{name}.from", message)])
        return await self.filling(name, job, source)

    async def filling(self, name: str, job: Job, source: SupportsCrawl) -> JobPlugins:
        """Return the plugins that fill the store of a job from an open source."""
        store = await self.plugin(self.settings.providers[job.to])
        if not isinstance(store, SupportsUpsert):
            message = f"provider {job.to!r} cannot be filled; name a store such as `sqlite`."
            raise SettingsError([self.settings.problem(f"ingest.{name}.to", message)])
        embedder = await self.embedder(store.embedder) if store.embedder else None
        transforms = [
            cast(Transform, await self.plugin(self.settings.transforms[transform]))
            for transform in job.transforms
        ]
        if not any(isinstance(transform, SupportsSizes) for transform in transforms):
            # Nobody wants a table or a list of records as one text: it would be cut away at the token budget.
            cut = _instance("transform", f"ingest:{name}:cut", "chunk", {"only": STRUCTURED})
            transforms.append(cast(Transform, await self.plugin(cut)))
        return JobPlugins(source, store, transforms, embedder)

    async def source(self, name: str, job: Job) -> Plugin:
        """Return the source of a job: a connector or provider of this name, else `files` for this path."""
        for kind in ("connector", "provider"):
            instance = self.settings.instances(kind).get(job.source)
            if instance is not None:
                return await self.plugin(instance)
        path = self._path(name, job)
        return await self.plugin(_instance("connector", f"ingest:{name}", "files", {"path": path}))

    def _path(self, name: str, job: Job) -> str:
        """Return the path that a job reads. Raises SettingsError if nothing is there."""
        folder = Path(self.settings.path).parent if self.settings.path else Path()
        path = folder / os.path.expanduser(job.source)  # that of a user who is not there stays as it is
        if not path.exists():
            names = [*self.settings.connectors, *self.settings.providers]
            sentence = f"{job.source!r} is neither a path that exists ({str(path)!r}) nor a source"
            message = unknown(sentence, job.source, names, "Defined sources")
            raise SettingsError([self.settings.problem(f"ingest.{name}.from", message)])
        return str(path)

    async def embedder(self, name: str) -> Embedder:
        """Return the open embedder of a name; "default" is the shipped one, unless it is defined. Raises
        SettingsError for a name that none has.
        """
        if ("embedder", name) in self.instances.all:
            await self.instances.ready("embedder", name)
            return self.instances.embedders[name]
        instance = self.settings.embedders.get(name)
        if instance is None and name != "default":
            defined = ", ".join(self.settings.embedders) or "none"
            raise SettingsError(f"Embedder {name!r} is not defined. Defined embedders: {defined}.")
        return cast(Embedder, await self.plugin(instance or _instance("embedder", name, "static", {})))

    async def embedder_of(self, model: StoredModel) -> Embedder:
        """Return the open embedder that a store notes for a model. Raises SettingsError where it notes none,
        or one that is not defined.
        """
        if not model.embedder:
            raise SettingsError(
                "the store does not note its name, but `contextrouter embed --model NAME` lets it note one"
            )
        return await self.embedder(model.embedder)

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
            message = f"{instance.kind.capitalize()} {instance.name!r} cannot be opened: {error}"
            raise IngestError(message) from error


def _instance(kind: str, name: str, use: str, options: Mapping[str, Any]) -> Instance:
    return Instance(kind=kind, name=name, use=use, keys=None, options=options)
