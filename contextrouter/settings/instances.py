"""Checks the tables of plugin instances, `[<kind>s.<name>]`, against the constructors of the plugins.

It also adds instances that a list names without a table, and instances that a program passes to the router.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from contextrouter.contracts import Plugin
from contextrouter.errors import ContextRouterError, PluginNotFound, Problem, SettingsError
from contextrouter.settings import schema
from contextrouter.settings.problems import Key
from contextrouter.settings.reading import Reading
from contextrouter.settings.router_keys import keys_of
from contextrouter.settings.sections import is_table, table_values
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.values import GIVEN, NAME, TABLES, Instance, Settings

_SOURCES = ("provider", "connector", "fact")


class PluginSchemas(Protocol):
    """Tells the settings which plugins exist, and which keys they take."""

    def schema(self, kind: str, use: str) -> schema.Schema | None:
        """Return the keys of a plugin, or None if its package is not installed.

        Raises ContextRouterError for a plugin that does not exist or cannot be loaded.
        """
        ...

    def has(self, kind: str, use: str) -> bool:
        """Whether a plugin of this kind and name is registered. It imports this plugin at most."""
        ...

    def names(self, kind: str) -> Sequence[str]:
        """Return the registered names of a kind."""
        ...


class InstanceTables(NamedTuple):
    """The inputs of the check of instance tables."""

    reading: Reading
    plugins: PluginSchemas
    by_hand: Mapping[str, Collection[str]]  # kind -> names of instances made by hand
    inherited: Mapping[str, Any]  # keys of [rag] that are the defaults of a plugin's own keys of that name


def read_instances(tables: InstanceTables, tree: Mapping[str, Any]) -> dict[str, dict[str, Instance]]:
    """Return the instances by table and name. Instances made by hand without a table come last."""
    instances: dict[str, dict[str, Instance]] = {}
    for table, kind in TABLES.items():
        of_table = instances[table] = {}
        for name, value in tree.get(table, {}).items():
            instance = _read_instance(tables, table, name, value)
            if instance is not None:
                of_table[name] = instance
        for name in tables.by_hand.get(kind, ()):
            of_table.setdefault(name, _make_instance(kind, name))
    return instances


def _make_instance(kind: str, name: str) -> Instance:
    return Instance(kind=kind, name=name, use=GIVEN, keys=keys_of(kind)())


def _read_instance(tables: InstanceTables, table: str, name: str, value: Any) -> Instance | None:
    key, kind, problems = (table, name), TABLES[table], tables.reading.problems
    if not NAME.match(name):
        problems.add(key, _name_error(name))
    if not is_table(key, value, problems):
        return None
    if name in tables.by_hand.get(kind, ()):
        if "use" in value:
            message = f"{kind} {name!r} is made by hand, so `use` has no effect. Remove it."
            problems.add((*key, "use"), message)
        return _read_table(tables, kind, name, GIVEN, value, {})
    use = value.get("use", name)
    if not isinstance(use, str):
        problems.add((*key, "use"), "a text is expected: the name of a registered plugin.")
        return None
    return _read_plugin_table(tables, kind, name, use, value)


def _name_error(name: str) -> str:
    return f"name {name!r} is not allowed. Use small letters, digits and underscores, first a letter."


def _use_hint(name: str, value: Mapping[str, Any], known: Sequence[str]) -> str:
    """Say that a table without `use` names its plugin by its own name, and how to give it another."""
    other = next((text for text in value.values() if isinstance(text, str) and text in known), "NAME")
    return f'A table without `use` is of the plugin of its name, {name!r}: add use = "{other}".'


def _read_plugin_table(
    tables: InstanceTables, kind: str, name: str, use: str, value: Mapping[str, Any]
) -> Instance | None:
    """Check the table against the constructor of the registered plugin, and return the instance."""
    key, problems = (f"{kind}s", name), tables.reading.problems
    try:
        fields = tables.plugins.schema(kind, use)
    except PluginNotFound as error:
        sentence = f"{kind} plugin {use!r} is not registered"
        message = unknown(sentence, use, error.known, f"Registered {kind} plugins", quote="`")
        if "use" not in value:
            message += f" {_use_hint(name, value, error.known)}"
        problems.add_unregistered((*key, "use") if "use" in value else key, message, error)
        return None
    except ContextRouterError as error:
        if value.get("enabled", True):
            problems.add(key, str(error))
        return None
    if fields is None:  # its package is missing: open() reports it, and its keys cannot be checked
        router_fields = schema.struct_fields(keys_of(kind))
        fields = {
            option: schema.Field(type=Any, default=None) for option in value if option not in router_fields
        }
    return _read_table(tables, kind, name, use, value, fields)


def _read_table(
    tables: InstanceTables, kind: str, name: str, use: str, value: Mapping[str, Any], fields: schema.Schema
) -> Instance:
    key, origins = (f"{kind}s", name), tables.reading.problems.origins
    router_fields = schema.struct_fields(keys_of(kind))
    values = table_values(tables.reading, key, value, {**router_fields, **fields})
    references = {n: f.reference for n, f in fields.items() if f.reference and values.get(n) is not None}
    keys = keys_of(kind)(**{n: v for n, v in values.items() if n in router_fields})
    options = {n: v for n, v in values.items() if n not in router_fields}
    for option, inherited in tables.inherited.items():  # such as one time zone for all days
        if option in fields and option not in value and f"rag.{option}" in origins:
            options[option] = inherited
            origins[f"{kind}s.{name}.{option}"] = origins[f"rag.{option}"]
    return Instance(kind=kind, name=name, use=use, keys=keys, options=options, references=references)


def add_listed(
    tables: InstanceTables, settings: Settings, declared: Mapping[str, Collection[str]]
) -> Settings:
    """Add an instance for each name in a list that has no table: a registered plugin with its defaults."""
    for kind, name, key in _names_in_lists(settings):
        table = f"{kind}s"
        instances = settings.instances(kind)
        if name in declared[kind] or name in instances:
            continue
        if not tables.plugins.has(kind, name):
            names = sorted({*instances, *tables.plugins.names(kind)})
            message = unknown(f"{name!r} is no known {kind}", name, names, f"Known {kind}s")
            tables.reading.problems.add(key, message)
            continue
        # Where a table is missing, its problems stand at the list that names it.
        origins, origin = tables.reading.problems.origins, tables.reading.problems.origin(key)
        origins.setdefault(f"{table}.{name}", origin)
        instance = _read_plugin_table(tables, kind, name, name, {})
        if instance is not None:
            settings = msgspec.structs.replace(settings, **{table: {**instances, name: instance}})
    return settings


def _names_in_lists(settings: Settings) -> Iterator[tuple[str, str, Key]]:
    """Yield kind, name and key of every instance that a list names."""
    rag = settings.rag
    lists: list[tuple[str, Sequence[str], Key]] = [
        ("provider", rag.providers or (), ("rag", "provider")),
        ("interpreter", rag.interpreters, ("rag", "interpreters")),
        ("stage", rag.stages, ("rag", "stages")),
    ]
    for name, route in settings.routes.items():
        lists.append(("stage", route.stages or (), ("routes", name, "stages")))
    for name, job in settings.ingest.items():
        lists.append(("transform", job.transforms, ("ingest", name, "transforms")))
    for kind, names, key in lists:
        for name in names:
            yield kind, name, key


def add_provided(settings: Settings, provided: Mapping[str, Mapping[str, Plugin]]) -> Settings:
    """Add the instances made by hand to the settings, and to the lists of interpreters and stages.

    Raises SettingsError for a name that is not allowed, or that the settings use for something else.
    """
    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    for kind, plugins in provided.items():
        instances = dict(settings.instances(kind))
        for name in plugins:
            problem = _clash(settings, provided, kind, name)
            if problem is not None:
                problems.append(problem)
            instances.setdefault(name, _make_instance(kind, name))
        if plugins:
            changes[f"{kind}s"] = instances
    if problems:
        raise SettingsError(problems)
    if not changes:
        return settings
    rag = settings.rag
    lists = {"interpreter": rag.interpreters, "stage": rag.stages}
    extended = {
        f"{kind}s": (*names, *(name for name in provided.get(kind, {}) if name not in names))
        for kind, names in lists.items()
    }
    return msgspec.structs.replace(settings, rag=msgspec.structs.replace(rag, **extended), **changes)


def _clash(
    settings: Settings, provided: Mapping[str, Mapping[str, Plugin]], kind: str, name: str
) -> Problem | None:
    key = f"{kind}s.{name}"
    if not NAME.match(name):
        return Problem(_name_error(name), key=key)
    for other_kind in _SOURCES if kind in _SOURCES else (kind,):
        instance = settings.instances(other_kind).get(name)
        if other_kind != kind and name in provided.get(other_kind, {}):
            message = (
                f"two instances made by hand, a {kind} and a {other_kind}, have the name {name!r}."
                " Rename one."
            )
            return Problem(message, key=key)
        if instance is not None and (instance.use != GIVEN or other_kind != kind):
            message = (
                f"an instance made by hand also has the name {name!r}, and names are unique. Give one of them"
                " another name."
            )
            return settings.problem(f"{other_kind}s.{name}", message)
    return None
