"""`contextrouter plugins`: lists the plugins, and the keys of their tables."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tomli
import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.cli.plugins.new import write_package
from contextrouter.cli.plugins.settings_tables import find_table, judge_table
from contextrouter.cli.plugins.verdicts import Verdict, judge, print_verdict
from contextrouter.contracts import Plugin
from contextrouter.errors import ContextRouterError, PluginNotFound, Problem, SettingsError
from contextrouter.runtime.registry import PluginListing, Registry
from contextrouter.settings import schema
from contextrouter.settings.router_keys import keys_of
from contextrouter.settings.suggestions import unknown

app = typer.Typer(help="List, show and check plugins, or write a new one.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name: what `use` takes.")]


@app.command("list")
@command
def list_plugins(settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False) -> int:
    """List every plugin: kind, name, where it comes from, what it does. Exits 1 when one is broken."""
    lines = _registry(settings).list_plugins()
    if as_json:
        terminal.print_json(lines)
    else:
        table = terminal.table(
            "kind", {"header": "name", "no_wrap": True}, {"header": "what it does", "ratio": 1}, "from"
        )
        for line in lines:
            text = terminal.style_text((line.problem, "red" if _broken(line) else "dim"), line.summary)
            terminal.row(table, line.kind, line.name, text, _origin(line))
        terminal.show(table, indent=0)
    return NOTHING if any(_broken(line) for line in lines) else OK


@app.command("show")
@command
def show_plugin(
    name: Name, settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False
) -> int:
    """Show a plugin: what it does, and the keys of its table with types and defaults."""
    registry = _registry(settings)
    lines = _find_lines(registry.list_plugins(), name)
    descriptions = [_description(registry, line) for line in lines]
    if as_json:
        terminal.print_json(descriptions)
    else:
        for description in descriptions:
            _print_description(description)
    return NOTHING if any(line.problem for line in lines) else OK


@app.command("check")
@command
def check_plugin(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A plugin's name, a file that defines one, or a table of the settings: connectors.tickets.",
        ),
    ],
    settings: options.SettingsPath = options.DEFAULT,
    question: Annotated[
        list[str] | None,
        typer.Option("--question", metavar="TEXT", help="A question with answers; may be repeated."),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Hold a plugin to the laws of its kind, by its example(). Exits 1 when a law is broken.

    A file's code is run, as it is when settings name its folder. A table of the settings is checked as it
    stands, with its server; nothing is written into a store.
    """
    verdicts = _judge_all(name, settings, tuple(question or ()))
    if as_json:
        terminal.print_json(verdicts)
    else:
        for verdict in verdicts:
            print_verdict(verdict)
    return NOTHING if any(verdict.broken for verdict in verdicts) else OK


@app.command("new")
@command
def new_plugin(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What the plugin is: connector, stage, interpreter, …")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the plugin: what `use` takes.")],
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="FOLDER", help="Where to write; by default contextrouter-NAME."),
    ] = None,
) -> int:
    """Write a package for a new plugin: the plugin, its entry point, its tests. Nothing is overwritten."""
    folder = Path(into or f"contextrouter-{name.replace('_', '-')}")
    for path in write_package(kind, name, folder):
        terminal.say(("Written: ", "green"), str(path))
    plugin = next(path for path in folder.glob("*/plugin.py"))
    terminal.say(("Next:", "bold"))
    terminal.say(f"contextrouter plugins check {plugin}", indent=2)
    terminal.say(f"pip install --editable {folder}", indent=2)
    return OK


def _judge_all(name: str, settings: str, questions: tuple[str, ...]) -> list[Verdict]:
    file = Path(name)
    if file.suffix == ".py":
        registry: Registry = _OneFile(file)
        return [judge(registry, line) for line in registry.list_plugins() if line.origin == file.name]
    registry = _registry(settings)
    lines = registry.list_plugins()
    named = [line for line in lines if line.name == name]
    table, tables = find_table(name, settings)
    if table is not None and ("." in name or not any(_has_example(registry, line) for line in named)):
        return [judge_table(table, settings, questions)]
    return [judge(registry, line) for line in _find_lines(lines, name, tables)]


def _has_example(registry: Registry, line: PluginListing) -> bool:
    """Whether a plugin has an example that the kit can check."""
    if line.problem:
        return True  # the verdict is about the problem
    fields = (registry.schema(line.kind, line.name) or {}).values()
    overridden = registry.load(line.kind, line.name).example.__func__ is not Plugin.example.__func__  # type: ignore[attr-defined]  # of class methods
    return overridden or not any(field.default is schema.REQUIRED for field in fields)


class _OneFile(Registry):
    """A registry of one plugin file. It ignores the other files of the folder."""

    def __init__(self, path: Path) -> None:
        if not path.is_file() or not path.stem.isidentifier():
            raise SettingsError(
                f"Plugin file {str(path)!r} is no file whose name is a name; give the path of a module."
            )
        self._path = path
        super().__init__()

    def _find_files(self) -> dict[str, Path]:
        return {self._path.stem: self._path}


def _find_lines(
    all_lines: Sequence[PluginListing], name: str, tables: Sequence[str] = ()
) -> list[PluginListing]:
    """Return the plugins of that name, of any kind. Raises PluginNotFound."""
    lines = [line for line in all_lines if line.name == name]
    if not lines:
        names = sorted({line.name for line in all_lines} | {*tables})
        message = unknown(f"plugin {name!r} is not registered", name, names, "Registered plugins")
        raise PluginNotFound(name, "any", names, problem=Problem(message))
    return lines


def _origin(line: PluginListing) -> str:
    module = line.origin.partition(":")[0]
    return "built in" if module.startswith("contextrouter.builtin.") else module


def _broken(line: PluginListing) -> bool:
    """Whether the plugin itself is broken. A missing package does not count."""
    return bool(line.problem) and "pip install" not in line.problem


def _registry(path: str) -> Registry:
    """Return the registry of the plugins beside a settings file. The file may be invalid or missing: this
    command helps to repair it.
    """
    file = Path(path)
    if not file.exists() and path == options.DEFAULT:
        return Registry()
    try:
        tree = tomli.loads(file.read_text("utf-8"))
        paths = tree.get("plugins", {}).get("paths", [])
        return Registry([file.absolute().parent / str(folder) for folder in paths])
    except (OSError, ValueError, AttributeError, TypeError, ContextRouterError) as error:
        terminal.note(f"plugins beside {path} are not listed: {error}", "warning")
        return Registry()


def _description(registry: Registry, line: PluginListing) -> dict[str, Any]:
    description: dict[str, Any] = {
        "kind": line.kind,
        "name": line.name,
        "from": line.origin,
        "problem": line.problem,
    }
    if line.problem:
        return {**description, "doc": "", "keys": [], "router_keys": []}
    cls = registry.load(line.kind, line.name)
    fields = registry.schema(line.kind, line.name) or {}
    router_fields = schema.struct_fields(keys_of(line.kind))
    doc = inspect.getdoc(cls) or ""
    return {**description, "doc": doc, "keys": _keys(fields), "router_keys": _keys(router_fields)}


def _keys(fields: schema.Schema) -> list[dict[str, Any]]:
    return [
        {
            "key": ".".join((name, *leaf.path)),
            "type": leaf.type,
            "required": leaf.required,
            "default": leaf.default,
        }
        for name, field in fields.items()
        for leaf in schema.leaves(field)
    ]


def _print_description(plugin: dict[str, Any]) -> None:
    terminal.heading(f"{plugin['kind']} {plugin['name']}", plugin["from"])
    for paragraph in (plugin["problem"] or plugin["doc"]).split("\n\n"):
        terminal.out.print()
        terminal.say(" ".join(paragraph.split()))
    for title, keys in (
        ("Keys", plugin["keys"]),
        ("Keys of the router, in the same table", plugin["router_keys"]),
    ):
        if not keys:
            continue
        terminal.out.print()
        terminal.say((title, "bold"))
        table = terminal.table({"header": "key", "no_wrap": True}, {"header": "type", "ratio": 1}, "default")
        for key in keys:
            terminal.row(table, key["key"], key["type"], _format_default(key))
        terminal.show(table)


def _format_default(key: dict[str, Any]) -> str:
    if key["required"]:
        return "required"
    return "–" if key["default"] is None else msgspec.json.encode(key["default"]).decode()
