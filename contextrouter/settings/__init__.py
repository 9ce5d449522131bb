"""Settings of a router, loaded from TOML, environment and arguments. A module for each subject of validation.

`values` holds the tables and their defaults. `loading.load(source, plugins_at)` takes a function that finds
the plugins beside a settings file. So the settings do not import the registry. Nothing starts from settings
that do not validate. Whoever writes a plugin needs none of it, so it is imported with the first router.
"""

from __future__ import annotations

from contextrouter.settings.ingestion import Ingestion, Job
from contextrouter.settings.router_keys import (
    FactKeys,
    GeneratorKeys,
    InterpreterKeys,
    SourceKeys,
    StageKeys,
    keys_of,
)
from contextrouter.settings.values import (
    GIVEN,
    NAME,
    TABLES,
    AccessKey,
    Cache,
    Chat,
    Instance,
    Jwt,
    Mcp,
    Plugins,
    Rag,
    Route,
    Selection,
    Serve,
    Settings,
)

__all__ = [
    "GIVEN",
    "NAME",
    "TABLES",
    "AccessKey",
    "Cache",
    "Chat",
    "FactKeys",
    "GeneratorKeys",
    "Ingestion",
    "Instance",
    "InterpreterKeys",
    "Job",
    "Jwt",
    "Mcp",
    "Plugins",
    "Rag",
    "Route",
    "Selection",
    "Serve",
    "Settings",
    "SourceKeys",
    "StageKeys",
    "keys_of",
]
