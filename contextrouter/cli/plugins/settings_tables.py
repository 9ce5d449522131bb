"""`contextrouter plugins check` for a table of the settings: the plugin as it stands there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import tomli

from contextrouter.cli import options, terminal
from contextrouter.cli.plugins.verdicts import Verdict, check_class
from contextrouter.contracts import Plugin
from contextrouter.runtime.registry import PluginListing
from contextrouter.settings import TABLES

Table = tuple[str, str]
"""A table of plugins, such as "connectors", and the name of an instance in it."""


def find_table(name: str, settings: str) -> tuple[Table | None, list[str]]:
    """Return the table of this name in a settings file, and the names of all; None: there is none.

    `name` is the name of an instance, or a table and the name: `connectors.tickets`.
    """
    try:
        tree = tomli.loads(Path(settings).read_text("utf-8"))
    except (OSError, ValueError):
        return None, []
    every = [(table, instance) for table in TABLES for instance in tree.get(table, {})]
    names = [".".join(pair) for pair in every]
    matches = [pair for pair in every if name in (pair[1], ".".join(pair))]
    return (matches[0] if matches else None), names


def judge_table(table: Table, settings: str, questions: tuple[str, ...]) -> Verdict:
    """Return the verdict about the plugin of one table. Raises SettingsError for wrong settings."""
    router = options.open_router(settings)
    kind = TABLES[table[0]]
    instance = router.settings.instances(kind)[table[1]]
    origin = router.settings.origins.get(".".join(table), settings)

    def make() -> Plugin:
        plugin = router.instances.build(instance)
        keys = [(target, instance.options[option]) for option, target in instance.references.items()]
        others = [router.instances.all[key] for key in keys]
        return _with_others(plugin, others) if others else plugin

    line = PluginListing(kind=kind, name=table[1], origin=origin)
    with terminal.quiet(logging.ERROR):
        return check_class(
            router.registry.load(kind, instance.use), line, make=make, questions=questions, writes=False
        )


def _with_others(plugin: Any, others: list[Plugin]) -> Plugin:
    """Let a plugin open and close the plugins that its keywords name, as the router does."""
    opening, closing = plugin.open, plugin.aclose

    async def open_all() -> None:
        for reference in others:
            await reference.open()
        await opening()

    async def close_all() -> None:
        await closing()
        for reference in others:
            await reference.aclose()

    plugin.open, plugin.aclose = open_all, close_all
    opened: Plugin = plugin
    return opened
