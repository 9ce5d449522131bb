"""Plugin registry and entry points: finds plugins, loads classes, reads their schemas, builds instances.

The name of a plugin is an entry point in the group `contextrouter.<kind>s`, or the stem of a module in one of
`[plugins] paths`. A plugin is imported only when a `use` names it. A broken plugin affects only those who use
it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from contextrouter.contracts import KINDS, Plugin
from contextrouter.errors import (
    ContextRouterError,
    ContractError,
    MissingDependency,
    PluginError,
    PluginNotFound,
    SettingsError,
)
from contextrouter.runtime.contract_methods import lack, lacks_of
from contextrouter.runtime.plugin_checks import check_plugin
from contextrouter.settings import Instance, schema

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path


class PluginListing(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `contextrouter plugins list`. `problem` says why it cannot be used; empty: it can."""

    kind: str
    name: str
    origin: str
    summary: str = ""
    problem: str = ""


class Registry:
    """All plugins: entry points, and modules in `paths`. A local module wins over an entry point."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self.paths = tuple(paths)
        self.warnings: list[str] = []
        self._entries: dict[str, dict[str, EntryPoint]] = {}
        self._all_entries: Any = None  # EntryPoints; Python 3.11 gives it another type
        self._files = self._find_files()
        self._classes: dict[tuple[str, str], type[Plugin]] = {}
        self._schemas: dict[tuple[str, str], schema.Schema] = {}

    def _find_files(self) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for folder in self.paths:
            if not folder.is_dir():
                raise SettingsError(
                    f"Plugin folder {str(folder)!r} does not exist; [plugins] paths are relative to the"
                    " settings file."
                )
            for path in sorted(folder.glob("*.py")):
                if not path.stem.isidentifier() or path.stem.startswith("_"):
                    continue
                if path.resolve() != files.setdefault(path.stem, path).resolve():
                    self.warnings.append(
                        f"Plugin file {str(path)!r} is not used, because {str(files[path.stem])!r} has its"
                        " name. Rename one of them."
                    )
        return files

    def _every_entry(self) -> Any:
        """Entry points of all packages, read once: it costs as much as to import this package."""
        if self._all_entries is None:
            from importlib.metadata import entry_points

            self._all_entries = entry_points()
        return self._all_entries

    def entries(self, kind: str) -> dict[str, EntryPoint]:
        """Entry points of one kind, by name."""
        if kind not in self._entries:
            entries = self._every_entry().select(group=f"contextrouter.{kind}s")
            self._entries[kind] = {entry.name: entry for entry in entries}
        return self._entries[kind]

    def names(self, kind: str) -> list[str]:
        """Return every registered name of a kind, sorted. A module counts for each kind that it defines; a
        broken one for none.
        """
        local = {stem for stem in self._files if self._find_class_or_none(stem, kind) is not None}
        return sorted({*self.entries(kind), *local})

    def has(self, kind: str, use: str) -> bool:
        """Whether this name is registered. Only the module of this name is imported; a broken one counts."""
        if use in self.entries(kind):
            return True
        try:
            return use in self._files and (self._find_class(use, kind) is not None or bool(self._lacks(use)))
        except ContextRouterError:
            return True  # `load` raises the error

    def load(self, kind: str, use: str) -> type[Plugin]:
        """Return the plugin class. Raises PluginNotFound, MissingDependency, ContractError, or PluginError
        for a broken one.
        """
        if (kind, use) not in self._classes:
            self._classes[kind, use] = self._load(kind, use)
        return self._classes[kind, use]

    def _load(self, kind: str, use: str) -> type[Plugin]:
        entry = self.entries(kind).get(use)
        if use in self._files:
            cls = self._find_class(use, kind)
            if cls is not None:
                if entry is not None:
                    self.warnings.append(
                        f"{kind} plugin {use!r} is taken from {self._files[use].name}, not from"
                        f" {entry.value}."
                    )
                return self._check(cls, kind, use)
            if entry is None and (message := self._lacks(use)):
                raise ContractError(
                    f"{self._files[use].name}: {message}", law="required method", plugin=use, kind=kind
                )
        if entry is None:
            for line in self._misspelt_groups():
                if line.name == use:
                    raise PluginError(f"{kind} plugin {use!r}: {line.problem}", plugin=use, kind=kind)
            raise PluginNotFound(use, kind, self.names(kind))
        try:
            cls = entry.load()
        except (ContextRouterError, KeyboardInterrupt):
            raise
        except BaseException as error:  # sys.exit(), or a library's panic: it must not end this program
            raise PluginError(
                f"{kind} plugin {use!r} ({entry.value}) cannot be imported: {error!r}.", plugin=use, kind=kind
            ) from error
        return self._check(cls, kind, use)

    def _find_class(self, stem: str, kind: str) -> type[Plugin] | None:
        contract = KINDS[kind]
        classes = [
            value
            for value in vars(self._module(stem)).values()
            if isinstance(value, type)
            and issubclass(value, contract)
            and value.__module__ == _module_name(self._files[stem])
        ]
        classes = [cls for cls in classes if not inspect.isabstract(cls) and cls.__name__[:1] != "_"]
        if len(classes) > 1:
            names = ", ".join(cls.__name__ for cls in classes)
            raise ContractError(
                f"{self._files[stem].name} defines several {kind}s ({names}); one per module.",
                law="one class per kind",
                plugin=stem,
                kind=kind,
            )
        return classes[0] if classes else None

    def _lacks(self, stem: str) -> str:
        """Say what the classes of a module that holds no plugin lack to be plugins; empty: none is close."""
        if any(self._find_class(stem, kind) for kind in KINDS):
            return ""
        return lacks_of(self._module(stem))

    def _find_class_or_none(self, stem: str, kind: str) -> type[Plugin] | None:
        try:
            return self._find_class(stem, kind)
        except ContextRouterError:
            return None

    def _module(self, stem: str) -> ModuleType:
        path = self._files[stem]
        name = _module_name(path)
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:  # sys.exit(), or a library's panic: it must not end this program
            del sys.modules[name]
            if isinstance(error, KeyboardInterrupt):
                raise
            raise PluginError(
                f"Plugin file {path.name} cannot be imported: {error!r}.", plugin=stem
            ) from error
        return module

    def _check(self, cls: Any, kind: str, use: str) -> type[Plugin]:
        if not (isinstance(cls, type) and issubclass(cls, KINDS[kind])):
            raise ContractError(
                f"{kind} plugin {use!r} is not a subclass of {KINDS[kind].__name__}.",
                law="subclass",
                plugin=use,
                kind=kind,
            )
        if inspect.isabstract(cls):
            raise ContractError(
                f"{kind} plugin {use!r}: {lack(cls)}", law="required method", plugin=use, kind=kind
            )
        check_plugin(cls, f"{kind} plugin {use!r}")
        self._schemas[kind, use] = schema.constructor_fields(cls, kind)
        return cls

    def schema(self, kind: str, use: str) -> schema.Schema | None:
        """Return the keys of a plugin's table; None when the plugin's package is not installed."""
        try:
            self.load(kind, use)
            return self._schemas[kind, use]
        except MissingDependency:
            return None

    def list_plugins(self) -> list[PluginListing]:
        """Load every plugin, and return a line for each, with its problem if it has one."""
        lines = []
        for kind in KINDS:
            for name in self.names(kind):
                local = name in self._files and self._find_class_or_none(name, kind) is not None
                entry = self.entries(kind).get(name)
                origin = self._files[name].name if local or entry is None else entry.value
                lines.append(self._line(kind, name, origin))
        for stem, path in self._files.items():
            try:
                kinds = [kind for kind in KINDS if self._find_class(stem, kind)]
                problem = "" if kinds else self._lacks(stem) or "it defines no plugin class"
            except ContextRouterError as error:
                problem = str(error)
            if problem:
                lines.append(PluginListing(kind="?", name=stem, origin=path.name, problem=problem))
        return [*lines, *self._misspelt_groups()]

    def _misspelt_groups(self) -> list[PluginListing]:
        """Return a line for each entry point in a group whose name is close to one of the plugins'."""
        groups = {f"contextrouter.{kind}s" for kind in KINDS}
        every = self._every_entry()
        lines = []
        for group in sorted(every.groups - groups):
            close = _closest_group(group, groups)
            if close or group.startswith("contextrouter."):
                hint = f"Did you mean {close!r}?" if close else f"Groups: {', '.join(sorted(groups))}."
                problem = f"the entry point is in the group {group!r}, which nobody reads. {hint}"
                lines += [
                    PluginListing(kind="?", name=entry.name, origin=entry.value, problem=problem)
                    for entry in every.select(group=group)
                ]
        return lines

    def _line(self, kind: str, name: str, origin: str) -> PluginListing:
        try:
            cls = self.load(kind, name)
        except ContextRouterError as error:
            return PluginListing(kind=kind, name=name, origin=origin, problem=str(error))
        return PluginListing(
            kind=kind, name=name, origin=origin, summary=(inspect.getdoc(cls) or "").split("\n")[0]
        )

    def build(self, instance: Instance, others: Mapping[tuple[str, str], Plugin]) -> Plugin:
        """Build the plugin of an instance. `others` are the plugins that its keywords may reference, by
        (kind, name).
        """
        cls = self.load(instance.kind, instance.use)
        fields = self._schemas[instance.kind, instance.use]
        options = {
            name: schema.construct(value, fields[name]) if name in fields else value
            for name, value in instance.options.items()
        }
        for option, kind in instance.references.items():
            options[option] = others[kind, options[option]]
        try:
            return cls(**options)
        except (ContextRouterError, KeyboardInterrupt):
            raise
        except (TypeError, ValueError) as error:
            raise SettingsError(f"{instance.kind}s.{instance.name}: {error}") from error
        except BaseException as error:
            reason = f"cannot be made: {type(error).__name__}: {error}."
            message = f"{instance.kind} plugin {instance.use!r} {reason}"
            raise PluginError(message, plugin=instance.name, kind=instance.kind) from error


def _closest_group(group: str, groups: Collection[str]) -> str:
    """Return the group of plugins that a group's name is close to; empty: none."""
    from difflib import get_close_matches  # only for a name that is wrong

    kinds = {name.rpartition(".")[2]: name for name in groups}
    ending = group.removeprefix("contextrouter").strip("._-")
    if ending != group:
        close = get_close_matches(ending, sorted(kinds), n=1, cutoff=0.6)
        return kinds[close[0]] if close else ""
    return next(iter(get_close_matches(group, sorted(groups), n=1, cutoff=0.85)), "")


def _module_name(path: Path) -> str:
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return f"_contextrouter_plugin_{digest}_{path.stem}"
