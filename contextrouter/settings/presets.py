"""Presets: shipped settings files that `extends = "NAME"` puts between the defaults and a settings file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import tomli

from contextrouter.errors import SettingsError
from contextrouter.settings.problems import PRESET, dotted_key, problem_at
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.toml_locations import locate
from contextrouter.settings.values import TABLES

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

EXTENDS = "extends"
_NAMED = frozenset((*TABLES, "routes", "ingest", "keys"))
"""Tables of tables, such as `[stages.gate]`; the others hold keys."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One preset: its tables, and where each of its values stands."""

    tree: dict[str, Any]
    origins: dict[str, str]


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if _is_settings(item))


def preset_text(name: str) -> str:
    """Return the commented settings of a preset. Raises SettingsError for a name that is none."""
    if name not in preset_names():
        raise SettingsError(unknown_preset(name))
    return (_folder() / f"{name}.toml").read_text("utf-8")


def preset_examples(name: str) -> Traversable:
    """Return the folder with the example documents of a preset, and with its README."""
    return _folder() / name


def unknown_preset(name: str) -> str:
    """Return what is wrong with a name that no preset has."""
    return unknown(f"preset {name!r} does not exist", name, preset_names(), "Presets")


def read_preset(name: Any, origin: str) -> Preset:
    """Return the preset that the key `extends` names. Raises SettingsError, at `origin`, if it names none."""
    names = preset_names()
    if name not in names:
        expected = f"a text is expected: the name of a preset. Presets: {', '.join(names)}."
        message = unknown_preset(name) if isinstance(name, str) else expected
        raise SettingsError([problem_at(origin, EXTENDS, message)])
    text = preset_text(name)
    origins = {dotted_key(key): f"{PRESET}{name}.toml:{number}" for key, number in locate(text).items()}
    return Preset(tree=tomli.loads(text), origins=origins)


def merge_preset(preset: Preset, tree: Mapping[str, Any], origins: dict[str, str]) -> dict[str, Any]:
    """Return the tables of a preset with those of a file on top, and add the preset's origins to `origins`.

    A key of the file stands in place of the same key of the preset, with all that is in its value. A plugin's
    table with another `use` stands in place of the whole table.
    """
    merged = _Merged(preset)
    for section, table in tree.items():
        merged.put((section,), table)
    for key, origin in merged.kept.items():
        origins.setdefault(key, origin)
    return merged.tree


class _Merged:
    """The merged tables, and the origins of the preset's values that still hold."""

    def __init__(self, preset: Preset) -> None:
        self.tree: dict[str, Any] = preset.tree
        self.kept = dict(preset.origins)

    def put(self, key: tuple[str, ...], value: Any) -> None:
        """Put a value into the tree: a table key by key, anything else in place of what is there."""
        table = self.tree
        for name in key[:-1]:
            table = table[name]
        present = table.get(key[-1])
        within = len(key) <= (2 if key[0] in _NAMED else 1)
        both = isinstance(value, dict) and isinstance(present, dict)
        if within and both and not _is_other(key, value, present or {}):
            for name, inner in value.items():
                self.put((*key, name), inner)
        else:
            self._replace(table, key, value)

    def _replace(self, table: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
        table[key[-1]] = value
        dotted = dotted_key(key)
        for other in [other for other in self.kept if other == dotted or other.startswith(f"{dotted}.")]:
            del self.kept[other]


def _is_other(key: tuple[str, ...], value: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Whether the table of an instance names another plugin than the preset's."""
    return len(key) == 2 and "use" in value and value["use"] != present.get("use", key[1])


def _folder() -> Traversable:
    from importlib.resources import files  # loads half of the standard library

    return files("contextrouter") / "presets"


def _is_settings(item: Traversable) -> bool:
    return item.is_file() and item.name.endswith(".toml")
