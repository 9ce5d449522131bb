"""The plugins of one router: built from settings or handed over, opened together, closed in reverse.

A plugin that cannot be opened because of the outside world does not stop the start: it is tried again when it is needed, and
reported until it works. What is wrong with the installation or the settings stops the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from contextrouter.contracts import KINDS, Embedder, FactSource, Generator, Interpreter, Plugin, Source, Stage
from contextrouter.errors import ContractError, MissingDependency, PluginError, Problem, SettingsError, mask
from contextrouter.plugins import Registry
from contextrouter.settings import GIVEN, Instance, Settings

log = logging.getLogger("contextrouter")

# What a plugin may name comes before it.
_ORDER = ("embedder", "generator", "provider", "connector", "fact", "interpreter", "stage", "transform")
_SERVING = tuple(kind for kind in _ORDER if kind != "transform")  # a request needs no transforms; ingestion opens them itself


@runtime_checkable
class SupportsModel(Protocol):
    """A store that notes which embedder's model filled it, and refuses the vectors of another."""

    embedder: str | None

    async def embedded_by(self, model: str, dimensions: int) -> None:
        """Say whose vectors come from now on, and how long they are. Raises SourceError when others filled the store."""
        ...


class Instances:
    """Every plugin instance by (kind, name)."""

    def __init__(self, settings: Settings, registry: Registry, given: Mapping[str, Mapping[str, Plugin]]) -> None:
        self.settings, self.registry = settings, registry
        self.given = {(kind, name): plugin for kind, named in given.items() for name, plugin in named.items()}
        self.all: dict[tuple[str, str], Plugin] = {}
        self.closed: set[tuple[str, str]] = set()
        self._untold: set[tuple[str, str]] = set()  # open, and not told yet which embedder fills it
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._opened: list[tuple[str, str]] = []
        for kind in _SERVING:
            for instance in settings.instances(kind).values():
                if instance.keys.enabled:
                    self.all[kind, instance.name] = self.build(instance)
        self._default_embedder()

    def build(self, instance: Instance) -> Plugin:
        """Return the plugin of one instance. Raises SettingsError with the place in the file."""
        key = (instance.kind, instance.name)
        if key in self.given:
            plugin = self.given[key]
            if not isinstance(plugin, KINDS[instance.kind]):
                raise ContractError(
                    f"{instance.kind} {instance.name!r} is a {type(plugin).__name__}, not a {KINDS[instance.kind].__name__}.",
                    law="kind",
                )
            return plugin
        if instance.use == GIVEN:
            raise SettingsError(f"{instance.kind}s.{instance.name} was made by hand elsewhere and is not at hand here.")
        for option, kind in instance.references.items():
            other = (kind, instance.options[option])
            if other not in self.all and other in self.given:
                self.all[other] = self.given[other]
            if other not in self.all:  # named, yet disabled: it serves the one that names it
                named = self.settings.instances(kind).get(other[1])
                if named is not None:
                    self.all[other] = self.build(named)
                elif other == ("embedder", "default"):
                    self._add_default_embedder()
        try:
            return self.registry.build(instance, self.all)
        except SettingsError as error:
            raise SettingsError([self._placed(instance, error)]) from error

    def _placed(self, instance: Instance, error: SettingsError) -> Problem:
        key = f"{instance.kind}s.{instance.name}"
        file, _, line = self.settings.origins.get(key, "").rpartition(":")
        message = str(error).removeprefix(f"{key}: ")
        return Problem(message, key=key, file=file, line=int(line) if line.isdigit() else None)

    def _default_embedder(self) -> None:
        if any(isinstance(p, Source) and p.embedder == "default" for p in self.all.values()):
            self._add_default_embedder()

    def _add_default_embedder(self) -> None:
        if ("embedder", "default") not in self.all:
            instance = Instance(kind="embedder", name="default", use="static", keys=None)
            self.all["embedder", "default"] = self.registry.build(instance, self.all)

    def of(self, kind: str) -> dict[str, Any]:
        """The instances of one kind, by name."""
        return {name: plugin for (of, name), plugin in self.all.items() if of == kind}

    @property
    def sources(self) -> dict[str, Source | FactSource]:
        """Sources by name, in the order of the settings."""
        found = {}
        for name, instance in self.settings.sources.items():
            plugin = self.all.get((instance.kind, name))
            if plugin is not None:
                found[name] = cast("Source | FactSource", plugin)
        return found

    @property
    def embedders(self) -> dict[str, Embedder]:
        """Embedders by name."""
        return self.of("embedder")

    @property
    def generators(self) -> dict[str, Generator]:
        """Generators by name."""
        return self.of("generator")

    @property
    def interpreters(self) -> dict[str, Interpreter]:
        """Interpreters by name."""
        return self.of("interpreter")

    @property
    def stages(self) -> dict[str, Stage]:
        """Stages by name."""
        return self.of("stage")

    async def open(self) -> None:
        """Open all, in the order in which they may need each other."""
        self._locks = {key: asyncio.Lock() for key in self.all}
        self.closed.clear()
        self.closed.update(self.all)
        for key in sorted(self.all, key=lambda key: _ORDER.index(key[0])):
            try:
                await self.ready(*key)
            except (MissingDependency, SettingsError, ContractError):
                await self.aclose()
                raise
            except Exception as error:  # the outside world: tried again when needed
                why = mask(f"{type(error).__name__}: {error}", self.settings.secrets)
                log.warning("%s %r cannot be opened yet: %s", key[0], key[1], why)

    async def ready(self, kind: str, name: str) -> None:
        """Open one plugin if it is not open. Raises what its `open()` raises."""
        key = (kind, name)
        if key not in self.closed and key not in self._untold:
            return
        async with self._locks[key]:
            if key in self.closed:
                await self.all[key].open()
                self.closed.discard(key)
                self._opened.append(key)
                self._untold.add(key)
            if key in self._untold:
                await self._tell(key)

    async def _tell(self, key: tuple[str, str]) -> None:
        """Tell a store whose vectors it will get. One that refuses them says so here once, and stays open for its other legs."""
        plugin = self.all[key]
        if isinstance(plugin, SupportsModel) and plugin.embedder in self.embedders:
            embedder = self.embedders[plugin.embedder]
            try:
                await self.ready("embedder", plugin.embedder)
            except Exception:  # what is wrong with the embedder is said by the legs that need it; the store is told later
                return
            self._untold.discard(key)
            await plugin.embedded_by(embedder.model, embedder.dimensions)
        self._untold.discard(key)

    async def aclose(self) -> None:
        """Close what was opened, last first. One that fails to close does not keep the others open."""
        errors = []
        while self._opened:
            key = self._opened.pop()
            self.closed.add(key)
            try:
                await self.all[key].aclose()
            except Exception as error:
                errors.append(f"{key[0]} {key[1]!r}: {error!r}")
        if errors:
            raise PluginError("Closing failed: " + mask("; ".join(errors), self.settings.secrets))


def check_sources(settings: Settings, sources: Mapping[str, Source | FactSource]) -> None:
    """Raise SettingsError for legs that a source does not have, and where no list could have a weight."""
    problems = []
    for name, source in sources.items():
        instance = settings.sources[name]
        has = ("facts",) if isinstance(source, FactSource) else tuple(source.legs)
        for leg in instance.keys.legs or ():
            if leg not in has:
                where, _, line = settings.origins.get(f"{instance.kind}s.{name}.legs", "").rpartition(":")
                message = f"{leg!r} is no leg of this source. Its legs: {', '.join(has)}."
                at = int(line) if line.isdigit() else None
                problems.append(Problem(message, key=f"{instance.kind}s.{name}.legs", file=where, line=at))
    lists = [settings.sources[name].keys.weight for name, source in sources.items() if isinstance(source, Source)]
    if lists and not any(lists):
        problems.append(Problem("the weight of every source is 0, so nothing could be found. Give one a weight above 0."))
    if problems:
        raise SettingsError(problems)


def with_given(settings: Settings, given: Mapping[str, Mapping[str, Plugin]]) -> Settings:
    """Settings in which the instances made by hand run: those that no list names are appended to it."""
    rag = settings.rag
    changes: dict[str, Any] = {}
    for kind, listed in (("interpreter", rag.interpreters), ("stage", rag.stages)):
        more = tuple(name for name in given.get(kind, {}) if name not in listed)
        if more:
            changes[f"{kind}s"] = (*listed, *more)
    return msgspec.structs.replace(settings, rag=msgspec.structs.replace(rag, **changes)) if changes else settings
