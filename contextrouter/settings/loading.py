"""Loads settings: merges file, environment and call, validates every table, raises all problems at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from contextrouter.settings.instances import InstanceTables, PluginSchemas, add_listed, read_instances
from contextrouter.settings.names import check_repeated, check_source_names, check_unlisted
from contextrouter.settings.problems import Problems
from contextrouter.settings.rag_keys import check_rag
from contextrouter.settings.reading import Reading, copy_tree
from contextrouter.settings.references import (
    Declared,
    check_access_key_names,
    check_chat,
    check_disabled_sources,
    check_max_per_source,
    check_references,
    check_telemetry,
)
from contextrouter.settings.routes import check_routes, check_source_legs
from contextrouter.settings.sections import (
    SECTIONS,
    TOP_LEVEL,
    check_access_keys,
    check_proxies,
    check_tokens,
    check_top_level,
    plugin_folders,
    read_named_sections,
    read_section,
    read_shared_keys,
)
from contextrouter.settings.switches import check_rerankers
from contextrouter.settings.values import TABLES, Settings

INHERITED = ("timezone", "enable_multi_query")
"""Keys of `[rag]` whose values are the defaults of a plugin's keys of the same name."""
PluginsAt = Callable[[Sequence[Path]], PluginSchemas]
"""Returns the plugins in these folders, and all installed plugins."""


def load(
    source: str | Path | Mapping[str, Any],
    plugins_at: PluginsAt,
    *,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    by_hand: Mapping[str, Collection[str]] | None = None,
    location: str = "",
) -> tuple[Settings, PluginSchemas]:
    """Return the settings in `source` (a file, or a mapping of tables), and the plugins they may use.

    `by_hand` maps a kind to the names of instances made by hand. Settings may name these instances.
    `location` is the path of the file that a mapping of tables was read from. Raises SettingsError with all
    problems.
    """
    reading = Reading(os.environ if environ is None else environ)
    tree = reading.parse(source)
    if location:
        reading.file, reading.folder = Path(location).name, Path(location).parent
    reading.add_environment(tree, TOP_LEVEL)
    reading.add_overrides(tree, overrides or {})
    reading.check_depth(tree)
    reading.problems.raise_any()
    loaded = _build(reading, tree, plugins_at, by_hand or {})
    reading.problems.raise_any()
    return loaded


def _build(
    reading: Reading, tree: dict[str, Any], plugins_at: PluginsAt, by_hand: Mapping[str, Collection[str]]
) -> tuple[Settings, PluginSchemas]:
    problems, unresolved = reading.problems, copy_tree(tree)
    check_top_level(tree, problems)
    sections = {
        name: read_section(reading, (name,), tree.get(name, {}), cls) for name, cls in SECTIONS.items()
    }
    plugins = plugins_at(plugin_folders(reading, sections["plugins"].paths))
    inherited = {name: getattr(sections["rag"], name) for name in INHERITED}
    tables = InstanceTables(reading, plugins, by_hand, inherited)
    instances: dict[str, Any] = read_instances(tables, tree)
    named_sections: dict[str, Any] = read_named_sections(reading, tree)
    named_sections["ingestion"] = read_shared_keys(reading, "ingest", tree)
    settings = Settings(
        tables=unresolved,
        **sections,
        **instances,
        **named_sections,
        path=str(reading.folder / reading.file) if reading.file else "",
        secrets=tuple(dict.fromkeys(problems.secrets)),
        fingerprint=_fingerprint([sections, instances, named_sections]),
    )
    declared = {kind: {*tree.get(table, {}), *by_hand.get(kind, ())} for table, kind in TABLES.items()}
    settings = add_listed(tables, settings, declared)
    _cross_check(
        settings, {kind: {*names, *settings.instances(kind)} for kind, names in declared.items()}, problems
    )
    settings = msgspec.structs.replace(settings, origins=problems.origins, warnings=tuple(problems.warnings))
    return settings, plugins


def _fingerprint(values: Any) -> str:
    plain = msgspec.to_builtins(values, enc_hook=str)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def _cross_check(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Check across tables: names exist, are unique, and fit together."""
    check_source_names(settings, problems)
    check_unlisted(settings, problems)
    check_source_legs(settings, problems)
    check_references(settings, declared, problems)
    check_routes(settings, declared, problems)
    check_max_per_source(settings, declared, problems)
    check_repeated(settings, problems)
    check_rag(settings, declared, problems)
    check_disabled_sources(settings, problems)
    check_rerankers(settings, problems)
    check_access_keys(settings, problems)
    check_tokens(settings, problems)
    check_proxies(settings, problems)
    check_access_key_names(settings, declared, problems)
    check_chat(settings, declared, problems)
    check_telemetry(settings, declared, problems)
