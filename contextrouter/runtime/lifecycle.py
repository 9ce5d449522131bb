"""Plugin lifecycle of one router: builds plugins from settings, opens them together, closes them in reverse.

A plugin that cannot be opened because of the outside world (a server that is down) does not stop the start.
It is tried again when a request needs it. Errors of the installation or of the settings stop the start,
except those of rerankers: answers go on without them, in the order before, and say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, cast

from contextrouter.contracts import (
    KINDS,
    Embedder,
    FactSource,
    Generator,
    Interpreter,
    Plugin,
    Reranker,
    Source,
    Stage,
    SupportsModel,
)
from contextrouter.errors import ContractError, MissingDependency, PluginError, Problem, SettingsError
from contextrouter.runtime.abandoned_calls import consume_exception
from contextrouter.runtime.masking import mask
from contextrouter.runtime.metering import metered, prices_of
from contextrouter.runtime.plugin_calls import CLOSE_SECONDS, close, containment, text_of
from contextrouter.runtime.plugin_checks import check_plugin
from contextrouter.runtime.registry import Registry
from contextrouter.settings import GIVEN, Instance, Settings

log = logging.getLogger("contextrouter")

LEAST_CLOSE_SECONDS = 0.5
"""How long closing waits for each plugin, even when others used up `CLOSE_SECONDS`."""

# A plugin may reference plugins of the kinds before its own.
_ORDER = ("embedder", "generator", "provider", "connector", "fact", "interpreter", "stage", "transform")
# A request needs no transforms; ingestion opens them itself.
_REQUEST_KINDS = tuple(kind for kind in _ORDER if kind != "transform")
_OPENING_ORDER = (
    ("embedder", "generator"),
    ("provider", "connector"),
    ("fact",),
    ("interpreter", "stage"),
)  # opened at once, in turn

Key = tuple[str, str]


class PluginState(Enum):
    """The state of a plugin."""

    CLOSED = "closed"  # not opened yet, its open() failed, or closed again
    OPEN = "open"  # a store in this state does not know the model of its embedder yet
    READY = "ready"


class Instances:
    """Every plugin instance by (kind, name)."""

    def __init__(
        self, settings: Settings, registry: Registry, given: Mapping[str, Mapping[str, Plugin]]
    ) -> None:
        self.settings, self.registry = settings, registry
        self.given = {
            (kind, name): plugin for kind, plugins in given.items() for name, plugin in plugins.items()
        }
        self.all: dict[Key, Plugin] = {}
        self._states: dict[Key, PluginState] = {}
        self.closed: set[Key] = set()  # the plugins in this state, which every request asks for
        self._opening: dict[Key, asyncio.Task[None]] = {}
        self._opened: list[Key] = []
        self._building: list[Key] = []
        for kind in _REQUEST_KINDS:
            for instance in settings.instances(kind).values():
                if instance.keys.enabled and (kind, instance.name) not in self.all:
                    self._add((kind, instance.name), self.build(instance))
        self._default_embedder()

    def _add(self, key: Key, plugin: Plugin) -> None:
        self.all[key] = plugin
        self._set_state(key, PluginState.CLOSED)

    def _set_state(self, key: Key, state: PluginState) -> None:
        self._states[key] = state
        if state is PluginState.CLOSED:
            self.closed.add(key)
        else:
            self.closed.discard(key)

    def build(self, instance: Instance) -> Plugin:
        """Build the plugin of one instance, after the plugins that it references. Raises SettingsError with
        the line in the file.
        """
        key = (instance.kind, instance.name)
        if key in self.given:
            plugin = self.given[key]
            if not isinstance(plugin, KINDS[instance.kind]):
                raise ContractError(
                    f"{instance.kind} {instance.name!r} is a {type(plugin).__name__}, not a"
                    f" {KINDS[instance.kind].__name__}.",
                    law="kind",
                )
            check_plugin(plugin, f"{instance.kind} {instance.name!r}")
            return plugin
        if instance.use == GIVEN:
            name = f"{instance.kind}s.{instance.name}"
            raise SettingsError(f"{name} was made by hand for another router. Give it to this one, too.")
        if key in self._building:
            circle = " -> ".join(name for _, name in [*self._building[self._building.index(key) :], key])
            message = f"it names itself in a circle: {circle}. Take one of the names away."
            raise SettingsError([self._problem(instance, message)])
        self._building.append(key)
        try:
            for option, kind in instance.references.items():
                self._build_named((kind, instance.options[option]))
            return self.registry.build(instance, self._references(instance))
        except (SettingsError, PluginError) as error:
            if isinstance(error, SettingsError) and all(problem.key for problem in error.problems):
                raise  # it has its line already
            raise SettingsError([self._problem(instance, str(error))]) from error
        finally:
            self._building.pop()

    def _references(self, instance: Instance) -> dict[Key, Plugin]:
        """Return the plugins that an instance names. Calls to a generator count in the request that makes
        them; a transform makes them in none.
        """
        keys = [(kind, instance.options[option]) for option, kind in instance.references.items()]
        plugins = {key: self.all[key] for key in keys}
        for kind, name in keys if instance.kind != "transform" else ():
            generator = plugins[kind, name]
            if isinstance(generator, Generator):
                plugins[kind, name] = metered(generator, name, prices_of(self.settings, name))
        return plugins

    def _build_named(self, target: Key) -> None:
        if target in self.all:
            return
        if target in self.given:
            self._add(target, self.given[target])
        elif (instance := self.settings.instances(target[0]).get(target[1])) is not None:
            self._add(target, self.build(instance))  # also a disabled one, because a plugin references it
        elif target == ("embedder", "default"):
            self._add_default_embedder()

    def _problem(self, instance: Instance, message: str) -> Problem:
        """Return a problem of a plugin. A message that begins with one of its keys stands at the line of that
        key.
        """
        key = f"{instance.kind}s.{instance.name}"
        text = mask(message.removeprefix(f"{key}: "), self.settings.secrets)
        option = f"{key}.{text.partition(' ')[0]}"
        problem = self.settings.problem(option if option in self.settings.origins else key, text)
        return Problem(text, key=key, file=problem.file, line=problem.line)

    def _default_embedder(self) -> None:
        sources = any(isinstance(p, Source) and p.embedder == "default" for p in self.all.values())
        if sources or self.settings.chat.examples_embedder == "default":
            self._add_default_embedder()

    def _add_default_embedder(self) -> None:
        if ("embedder", "default") not in self.all:
            instance = Instance(kind="embedder", name="default", use="static", keys=None)
            self._add(("embedder", "default"), self.registry.build(instance, self.all))

    def plugins(self, kind: str) -> dict[str, Any]:
        """Return the plugins of one kind, by name."""
        return {name: plugin for (plugin_kind, name), plugin in self.all.items() if plugin_kind == kind}

    @property
    def sources(self) -> dict[str, Source | FactSource]:
        """Sources by name, in the order of the settings."""
        return {
            name: cast("Source | FactSource", self.all[instance.kind, name])
            for name, instance in self.settings.sources.items()
            if (instance.kind, name) in self.all
        }

    @property
    def embedders(self) -> dict[str, Embedder]:
        """Embedders by name."""
        return self.plugins("embedder")

    @property
    def generators(self) -> dict[str, Generator]:
        """Generators by name."""
        return self.plugins("generator")

    @property
    def interpreters(self) -> dict[str, Interpreter]:
        """Interpreters by name."""
        return self.plugins("interpreter")

    @property
    def stages(self) -> dict[str, Stage]:
        """Stages by name."""
        return self.plugins("stage")

    async def open(self, kinds: Collection[str] | None = None) -> None:
        """Open all plugins concurrently, or those of `kinds`, dependencies first, in at most `[rag]
        timeout_seconds`.

        A slower plugin goes on opening, and requests that need it wait. Raises errors of the installation,
        but not for a missing package that nothing but rerankers needs.
        """
        self._opened.clear()
        for key in self.all:
            self._set_state(key, PluginState.CLOSED)
        clock = asyncio.get_running_loop().time
        until = clock() + self.settings.rag.timeout_seconds
        for group in _OPENING_ORDER:
            chosen = group if kinds is None else [kind for kind in group if kind in kinds]
            keys = [key for key in self.all if key[0] in chosen and not self.switched_off(key)]
            tasks = {key: self._start_opening(key) for key in keys}
            if tasks:
                await asyncio.wait(tasks.values(), timeout=max(0.0, until - clock()))
            for key, task in tasks.items():
                if not task.done():
                    log.warning("%s %r is still being opened; who needs it waits for it.", *key)
                    continue
                error = task.exception()
                if isinstance(error, SettingsError | ContractError):
                    raise error
                if isinstance(error, MissingDependency) and not self._only_reranks(key):
                    raise error
                if error is not None:  # the outside world: tried again when needed
                    reason = mask(f"{type(error).__name__}: {text_of(error)}", self.settings.secrets)
                    log.warning("%s %r cannot be opened yet: %s", key[0], key[1], reason)

    def switched_off(self, key: Key) -> str:
        """Return the key of `[rag]` that keeps an interpreter or a stage from running on every route, or "".

        Such a plugin is not opened: its model or server may not be there at all.
        """
        switch = getattr(self.all[key], "switch", "") if key[0] in ("interpreter", "stage") else ""
        rag = self.settings.rag
        every = [rag] + [self.settings.for_route(name)[0] for name in self.settings.routes]
        if not switch or any(values.runs(switch) for values in every):
            return ""
        return switch if rag.use_enhancements else "use_enhancements"

    def _only_reranks(self, key: Key) -> bool:
        """Whether a plugin is a reranker that may be skipped, or nothing but such rerankers reference it."""
        kind, name = key
        instance = self.settings.instances(kind).get(name)
        if isinstance(self.all[key], Reranker):
            return instance is None or instance.keys.on_error == "skip"
        if key in self.given or (kind == "generator" and name in _chat_generators(self.settings)):
            return False
        users = [
            other
            for other, plugin in self.all.items()
            if key in self._dependencies(other)
            or (kind == "embedder" and getattr(plugin, "embedder", None) == name)
        ]
        return bool(users) and all(map(self._only_reranks, users))

    async def ready(self, kind: str, name: str) -> None:
        """Open one plugin and its dependencies, if they are not open. Raises the errors of its `open()`.

        A caller that is cancelled does not stop the opening; the next caller joins it.
        """
        key = (kind, name)
        if self._states[key] is PluginState.READY and self.closed.isdisjoint(self._dependencies(key)):
            return
        task = self._start_opening(key)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise PluginError(
                    f"{kind} {name!r} was closed while it was being opened.", plugin=name, kind=kind
                ) from None
            raise

    def _start_opening(self, key: Key) -> asyncio.Task[None]:
        """Return the task that opens this plugin; start one if there is none."""
        task = self._opening.get(key)
        if task is None or task.done():
            task = self._opening[key] = asyncio.get_running_loop().create_task(self._make_ready(key))
            task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._opening.get(key) is task:
            del self._opening[key]
        consume_exception(task)

    def _dependencies(self, key: Key) -> list[Key]:
        """Return the plugins that this one references. A plugin made by hand has no settings; it may use any
        generator made by hand.
        """
        kind, name = key
        if key in self.given:
            generators = [given for given in self.given if given[0] == "generator" and given in self.all]
            return generators if kind in ("interpreter", "stage") else []
        instance = self.settings.instances(kind).get(name)
        if instance is None:
            return []
        return [(dependency, instance.options[option]) for option, dependency in instance.references.items()]

    async def _make_ready(self, key: Key) -> None:
        for dependency in self._dependencies(key):
            try:
                await self.ready(*dependency)
            except Exception as error:  # a plugin that cannot work without it raises by itself
                if isinstance(self.all[key], Reranker) and key not in self.given:
                    raise
                reason = mask(repr(error), self.settings.secrets)
                log.debug("%s %r is opened without %s %r: %s", *key, *dependency, reason)
        if self._states[key] is PluginState.CLOSED:
            with containment():
                await self.all[key].open()
            self._set_state(key, PluginState.OPEN)
            self._opened.append(key)
            if key[0] == "embedder":
                await self._tell_stores(key[1])
        if self._states[key] is PluginState.OPEN:
            await self._tell_model(key)

    async def _tell_stores(self, embedder: str) -> None:
        """Tell the open stores that wait for this embedder its model."""
        for key in [key for key, plugin in self.all.items() if getattr(plugin, "embedder", None) == embedder]:
            try:
                if self._states[key] is PluginState.OPEN:
                    await self._tell_model(key)
            except Exception as error:
                reason = mask(str(error), self.settings.secrets)
                log.warning("%s %r refuses embedder %r: %s", *key, embedder, reason)

    async def _tell_model(self, key: Key) -> None:
        """Tell an open store the model whose vectors it will get, once its embedder is open.

        A store that refuses the model says so here once, and is ready for its other legs.
        """
        plugin = self.all[key]
        if not isinstance(plugin, SupportsModel) or plugin.embedder not in self.embedders:
            self._set_state(key, PluginState.READY)
        elif ("embedder", plugin.embedder) not in self.closed:
            embedder = self.embedders[plugin.embedder]
            self._set_state(key, PluginState.READY)
            await plugin.embedded_by(embedder.model, embedder.dimensions)

    async def aclose(self) -> None:
        """Close the open plugins in reverse order. Neither a failure nor a SystemExit keeps the others open,
        and one that does not close is given up.
        """
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening, timeout=CLOSE_SECONDS)
        errors: dict[str, BaseException] = {}
        clock = asyncio.get_running_loop().time
        until = clock() + CLOSE_SECONDS
        while self._opened:
            key = self._opened.pop()
            self._set_state(key, PluginState.CLOSED)
            name = f"{key[0]} {key[1]!r}"
            try:
                await close(self.all[key], name, max(LEAST_CLOSE_SECONDS, until - clock()))
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                errors[name] = error
        if errors:
            texts = "; ".join([f"{name}: {error!r}" for name, error in errors.items()])
            message = "Closing failed: " + mask(texts, self.settings.secrets)
            stop = next((error for error in errors.values() if not isinstance(error, Exception)), None)
            raise stop or PluginError(message)


def _chat_generators(settings: Settings) -> set[str]:
    """The names of the generators that write answers."""
    chat, own = settings.chat, [key.generator for key in settings.keys.values() if key.generator]
    return {chat.synthesis_model, *chat.models, *chat.compartment_generators.values(), *own}
