"""From a tree of values to Settings: every table against its schema, every problem noted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from contextrouter.errors import ContextRouterError, PluginNotFound
from contextrouter.settings import schema
from contextrouter.settings.reading import Key, Reading
from contextrouter.settings.suggestions import nearest
from contextrouter.settings.together import Together
from contextrouter.settings.values import (
    TABLES,
    AccessKey,
    Cache,
    Chat,
    Instance,
    Job,
    Limits,
    Mcp,
    Plugins,
    Rag,
    Route,
    Selection,
    Serve,
    Settings,
    keys_of,
)

SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "rag": Rag,
    "cache": Cache,
    "limits": Limits,
    "plugins": Plugins,
    "selection": Selection,
    "serve": Serve,
    "chat": Chat,
    "mcp": Mcp,
}
NAMED: Mapping[str, type[msgspec.Struct]] = {"routes": Route, "ingest": Job, "keys": AccessKey}
GIVEN = "(made by hand)"
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class PluginSchemas(Protocol):
    """What reading settings needs to know of plugins."""

    def schema(self, kind: str, use: str) -> schema.Schema | None:
        """The keys of a plugin; None when it exists but its package is not installed. Raises
        ContextRouterError.
        """
        ...

    def has(self, kind: str, use: str) -> bool:
        """Whether a name of a kind is registered, at the price of importing at most the plugin of that
        name.
        """
        ...

    def names(self, kind: str) -> Sequence[str]:
        """The registered names of a kind."""
        ...


class Check:
    """From a tree of values to Settings."""

    def __init__(
        self,
        reading: Reading,
        plugins_at: Callable[[Sequence[Path]], PluginSchemas],
        given: Mapping[str, Collection[str]],
    ) -> None:
        self.reading = reading
        self.given = given  # kind -> names of instances made by hand
        self.plugins_at = plugins_at
        self.plugins: PluginSchemas
        self.timezone: str

    def settings(self, tree: dict[str, Any]) -> tuple[Settings, PluginSchemas]:
        reading = self.reading
        known = [*SECTIONS, *NAMED, *TABLES]
        for name in list(tree):
            if name not in known:
                self._unknown((name,), known, "table" if isinstance(tree[name], dict) else "key")
            elif not isinstance(tree[name], dict):
                reading.problem((name,), f"a table is expected: write [{name}].")
                del tree[name]
        sections: dict[str, Any] = {
            name: self._section((name,), tree.get(name, {}), cls) for name, cls in SECTIONS.items()
        }
        paths = sections["plugins"].paths
        self.timezone = sections["rag"].timezone
        self.plugins = self.plugins_at(self._folders(paths))
        found: dict[str, Any] = {table: {} for table in TABLES}
        for table, kind in TABLES.items():
            for name, value in tree.get(table, {}).items():
                instance = self._instance(table, kind, name, value)
                if instance is not None:
                    found[table][name] = instance
            for name in self.given.get(kind, ()):
                if name not in found[table]:
                    found[table][name] = Instance(kind=kind, name=name, use=GIVEN, keys=keys_of(kind)())
        named: dict[str, Any] = {
            table: self._named(table, tree.get(table, {}), cls) for table, cls in NAMED.items()
        }
        shown = msgspec.to_builtins([sections, found, named], enc_hook=str)
        digest = hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()
        settings = Settings(
            **sections,
            **found,
            **named,
            path=str(reading.folder / reading.file) if reading.file else "",
            warnings=tuple(reading.warnings),
            secrets=tuple(dict.fromkeys(reading.secrets)),
            fingerprint=digest,
        )
        declared = {kind: {*tree.get(table, {}), *self.given.get(kind, ())} for table, kind in TABLES.items()}
        settings = self._implied(settings, declared)
        Together(reading, settings, declared).run()
        origins = {".".join(map(str, key)): origin for key, origin in reading.origin.items()}
        return msgspec.structs.replace(
            settings, origins=origins, warnings=tuple(reading.warnings)
        ), self.plugins

    def _folders(self, paths: Sequence[str]) -> list[Path]:
        """The folders of plugins that are there. One that is not is a problem among the others, and hides
        none of them.
        """
        found = []
        for index, path in enumerate(paths):
            folder = self.reading.folder / path
            if folder.is_dir():
                found.append(folder)
            else:
                message = f"plugin folder {str(folder)!r} does not exist. Make it, or mend the path"
                self.reading.problem(
                    ("plugins", "paths", index), f"{message}; it is relative to the settings file."
                )
        return found

    def _named(self, table: str, entries: dict[str, Any], cls: type[msgspec.Struct]) -> dict[str, Any]:
        found = {
            name: self._section((table, name), value, cls)
            for name, value in entries.items()
            if self._is_table((table, name), value)
        }
        return {name: section for name, section in found.items() if section is not None}

    def _is_table(self, key: Key, value: Any) -> bool:
        if not isinstance(value, dict):
            self.reading.problem(key, f"a table is expected: write [{'.'.join(key)}].")
        return isinstance(value, dict)

    def _section(self, key: Key, table: dict[str, Any], cls: type[msgspec.Struct]) -> Any:
        values = self.table(key, table, schema.of_struct(cls))
        try:
            return cls(**{_attribute(cls, name): value for name, value in values.items()})
        except TypeError:
            return None  # a required key is missing, and has been reported

    def table(
        self, key: Key, table: dict[str, Any], fields: schema.Schema, *, drop: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Check every value of a table; return those that are right."""
        values = {}
        for name, value in table.items():
            at = (*key, name)
            if name not in fields:
                self._unknown(at, list(fields), "key")
                continue
            field = fields[name]
            resolved = self.reading.resolve(value, at, field.secret)
            try:
                values[name] = self._converted(resolved, field, at)
            except ValueError as error:
                self.reading.problem(at, str(error))
        for name, field in fields.items():
            if field.default is schema.REQUIRED and name not in table:
                self.reading.problem(
                    key, f"key {name!r} is missing; it takes a {schema.type_name(field.type)}."
                )
        return {name: value for name, value in values.items() if name not in drop}

    def _converted(self, value: Any, field: schema.Field, key: Key) -> Any:
        try:
            result = schema.convert(value, field)
        except ValueError:
            from_text = self.reading.origin_of(key).startswith("environment") and not isinstance(
                value, str | dict | list
            )
            if not from_text:
                raise
            raw = self.reading.environ.get(self.reading.origin_of(key).rsplit(" ", 1)[1], "")
            result = schema.convert(raw, field)  # "007" for a text is a text
        if field.is_path and self.reading.file:
            rebase = self._rebased
            result = (
                rebase(result) if isinstance(result, str) else type(result)(rebase(item) for item in result)
            )
        return result

    def _rebased(self, path: str) -> str:
        return str(self.reading.folder / Path(path).expanduser()) if path else path

    def _unknown(self, key: Key, known: Sequence[str], what: str) -> None:
        close = nearest(str(key[-1]), known)
        hint = f" Did you mean `{close}`?" if close else ""
        self.reading.problem(key, f"unknown {what}.{hint} Known {what}s: {', '.join(known) or 'none'}.")

    def _instance(self, table: str, kind: str, name: str, value: Any) -> Instance | None:
        key = (table, name)
        if not NAME.match(name):
            self.reading.problem(
                key,
                f"name {name!r} is not allowed; use small letters, digits and underscores, a letter first.",
            )
        if not self._is_table(key, value):
            return None
        if name in self.given.get(kind, ()):
            if "use" in value:
                self.reading.problem(
                    (*key, "use"), f"{kind} {name!r} is made by hand, so this names nothing. Take it away."
                )
            return self._with(key, kind, name, GIVEN, value, {})
        use = value.get("use", name)
        if not isinstance(use, str):
            self.reading.problem((*key, "use"), "the name of a registered plugin is expected.")
            return None
        return self.instance(key, kind, name, use, value)

    def instance(self, key: Key, kind: str, name: str, use: str, value: dict[str, Any]) -> Instance | None:
        """One plugin instance, its table checked against the plugin's own constructor."""
        own = schema.of_struct(keys_of(kind))
        try:
            fields = self.plugins.schema(kind, use)
        except PluginNotFound as error:
            close = nearest(use, error.known)
            at = (*key, "use") if "use" in value else key
            hint = f" Did you mean `{close}`?" if close else ""
            listed = ", ".join(error.known) or "none"
            self.reading.problem(
                at, f"{kind} plugin {use!r} is not registered.{hint} Registered {kind} plugins: {listed}."
            )
            self.reading.not_found.append((use, kind, error.known))
            return None
        except ContextRouterError as error:
            if value.get("enabled", True):
                self.reading.problem(key, str(error))
            return None
        if (
            fields is None
        ):  # the package that brings it is missing: said when it is opened; its keys cannot be checked
            fields = {option: schema.Field(type=Any, default=None) for option in value if option not in own}
        return self._with(key, kind, name, use, value, fields)

    def _with(
        self, key: Key, kind: str, name: str, use: str, value: dict[str, Any], fields: schema.Schema
    ) -> Instance:
        own = schema.of_struct(keys_of(kind))
        values = self.table(key, value, {**own, **fields})
        references = {n: f.reference for n, f in fields.items() if f.reference and values.get(n) is not None}
        keys = keys_of(kind)(**{n: v for n, v in values.items() if n in own})
        options = {n: v for n, v in values.items() if n not in own}
        zone = ("rag", "timezone")
        if "timezone" in fields and "timezone" not in value and zone in self.reading.origin:
            options["timezone"] = self.timezone  # days are meant in one zone, unless a table names its own
            self.reading.origin[*key, "timezone"] = self.reading.origin[zone]
        return Instance(kind=kind, name=name, use=use, keys=keys, options=options, references=references)

    def _implied(self, settings: Settings, declared: Mapping[str, Collection[str]]) -> Settings:
        """Add instances that are named but have no table: a registered plugin with its defaults."""
        asked: list[tuple[str, str, Key]] = []
        named = settings.rag.provider
        asked += [
            ("providers", n, ("rag", "provider"))
            for n in ((named,) if isinstance(named, str) else named or ())
        ]
        asked += [("interpreters", n, ("rag", "interpreters")) for n in settings.rag.interpreters]
        asked += [("stages", n, ("rag", "stages")) for n in settings.rag.stages]
        for name, route in settings.routes.items():
            asked += [("stages", n, ("routes", name, "stages")) for n in route.stages or ()]
        for name, job in settings.ingest.items():
            asked += [("transforms", n, ("ingest", name, "transforms")) for n in job.transforms]
        for table, name, key in asked:
            have = settings.instances(TABLES[table])
            if name in declared[TABLES[table]] or name in have:
                continue
            if not self.plugins.has(TABLES[table], name):
                known = sorted({*have, *self.plugins.names(TABLES[table])})
                close = nearest(name, known)
                hint = f" Did you mean {close!r}?" if close else ""
                self.reading.problem(
                    key, f"{name!r} names no {TABLES[table]}.{hint} Known: {', '.join(known)}."
                )
                continue
            instance = self.instance((table, name), TABLES[table], name, name, {})
            if instance is not None:
                settings = msgspec.structs.replace(settings, **{table: {**have, name: instance}})
        return settings


def _attribute(cls: type[msgspec.Struct], encoded: str) -> str:
    return next(f.name for f in msgspec.structs.fields(cls) if f.encode_name == encoded)
