"""Settings: what they are (`values`), and how they are read (`reading`), checked (`checking`, `together`) and
located (`toml_lines`).

`load(source, plugins_at)` is handed a function that gives the plugins found beside a settings file; so
neither side needs the other. Nothing starts from settings that do not validate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from contextrouter.errors import PluginNotFound, SettingsError
from contextrouter.settings.checking import GIVEN, NAME, NAMED, SECTIONS, Check, PluginSchemas
from contextrouter.settings.reading import Reading
from contextrouter.settings.values import (
    CALIBRATED,
    TABLES,
    AccessKey,
    Cache,
    Chat,
    FactKeys,
    Instance,
    InterpreterKeys,
    Job,
    Mcp,
    Plugins,
    Rag,
    Route,
    Selection,
    Serve,
    Settings,
    SourceKeys,
    StageKeys,
    keys_of,
)

__all__ = [
    "CALIBRATED",
    "GIVEN",
    "NAME",
    "TABLES",
    "AccessKey",
    "Cache",
    "Chat",
    "FactKeys",
    "Instance",
    "InterpreterKeys",
    "Job",
    "Mcp",
    "PluginSchemas",
    "Plugins",
    "Rag",
    "Route",
    "Selection",
    "Serve",
    "Settings",
    "SourceKeys",
    "StageKeys",
    "keys_of",
    "load",
]


def load(
    source: str | Path | Mapping[str, Any],
    plugins_at: Callable[[Sequence[Path]], PluginSchemas],
    *,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, Collection[str]] | None = None,
) -> tuple[Settings, PluginSchemas]:
    """Return the settings in `source` (a file, or a mapping of tables) and the plugins they may use.

    `given` has, by kind, the names of instances made by hand, which the settings may name and weigh.
    Raises SettingsError with every problem found.
    """
    reading = Reading(os.environ if environ is None else environ)
    tree = reading.parse(source)
    reading.add_environment(tree, [*SECTIONS, *NAMED, *TABLES])
    reading.add_overrides(tree, overrides or {})
    if reading.problems:
        raise SettingsError(reading.told())
    settings, plugins = Check(reading, plugins_at, given or {}).settings(tree)
    if reading.problems:
        problems = reading.told()
        if len(problems) == 1 and reading.not_found:
            use, kind, known = reading.not_found[0]
            raise PluginNotFound(use, kind, known, problem=problems[0])
        raise SettingsError(problems)
    return settings, plugins
