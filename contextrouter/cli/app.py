"""`contextrouter`: the commands and their help. Only the module of the command that runs is imported."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from contextrouter.cli import leaving
from contextrouter.cli.command_examples import example_of

COMMANDS = {
    "demo": "demo:demo",
    "init": "init:init",
    "check": "checking.command:check",
    "settings": "settings:settings",
    "ingest": "ingest:ingest",
    "embed": "embed:embed",
    "route": "route:route",
    "ask": "ask:ask",
    "plan": "plan:plan",
    "serve": "serve:serve",
    "mcp": "mcp:mcp",
    "fetch": "fetch:fetch",
    "forget": "forget:forget_matching",
    "eval": "evaluate:evaluate",
    "tune": "evaluate:tune",
}
GROUPS = ("plugins", "cache", "db", "graph", "keys")
ABOUT = "One question in, the right context from many sources out, with a receipt for every piece."


class _TextsAsTheyAre:
    """A command that takes texts as they are. typer converts each parameter with pydantic, whose import takes
    a tenth of a short command's time; what is a text already, or was not given, needs no conversion.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with that of the help."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of TyperCommand or TyperGroup
        for parameter in parameters:
            if not hasattr(parameter, "converts"):
                parameter.converts = parameter.process_value
                parameter.process_value = partial(_process, parameter)
                if parameter.param_type_name == "argument":  # its name says what it is: no `<str>`, no braces
                    parameter.display_type_rich = _no_type
                    parameter.get_usage_pieces = partial(_usage_of, parameter)
        return parameters


class PlainCommand(_TextsAsTheyAre, TyperCommand):
    """A command. Where a question is asked without quotes, the error says so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left. Raises UsageError."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            text = getattr(error, "message", "")
            has_question = any(parameter.metavar == "QUESTION" for parameter in self.params)
            if "unexpected extra argument" in text and has_question:
                error.message = f"{text}. Put the question in quotes."  # type: ignore[attr-defined]  # it is a UsageError
            raise


class PlainGroup(_TextsAsTheyAre, TyperGroup):
    """A group of commands."""


def _no_type(ctx: Any) -> None:
    return None


def _usage_of(parameter: Any, ctx: Any) -> list[str]:
    """Return an argument as the usage shows it: `NAME`, or `[NAME]` where it may be left out."""
    name = parameter.metavar or parameter.name.upper()
    return [(name if parameter.required else f"[{name}]") + ("..." if parameter.nargs != 1 else "")]


def _process(parameter: Any, ctx: Any, value: Any) -> Any:
    is_many = getattr(parameter, "multiple", False) or parameter.nargs != 1
    if (value is None or value == ()) and not parameter.required:
        absent = () if is_many else None
        return absent if parameter.callback is None else parameter.callback(ctx, parameter, absent)
    is_text = getattr(getattr(parameter, "type_descriptor", None), "annotation", None) is str
    if is_text and isinstance(value, str) and not is_many and parameter.callback is None:
        return value
    return parameter.converts(ctx, value)


def _show_version(requested: bool) -> None:
    if requested:
        from contextrouter.runtime.distribution import VERSION

        sys.stdout.write(f"contextrouter {VERSION}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def make_app(only: str = "") -> typer.Typer:
    """Return the command line: all commands, or the one called `only`."""
    app = typer.Typer(
        name="contextrouter",
        cls=PlainGroup,
        help=ABOUT,
        epilog="" if only else _exit_codes(),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # a help that names [serve] means the table
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, target in COMMANDS.items():
        if only in ("", name):
            module, _, function = target.partition(":")
            command = getattr(import_module(f"contextrouter.cli.{module}"), function)
            app.command(name, cls=PlainCommand, epilog=example_of(name))(command)
    for name in GROUPS:
        if only in ("", name):
            group: typer.Typer = import_module(f"contextrouter.cli.{name}").app
            group.rich_markup_mode = None
            for command in group.registered_commands:
                command.epilog, command.cls = example_of(f"{name} {command.name}"), PlainCommand
            app.add_typer(group, name=name, cls=PlainGroup)
    return app


def _exit_codes() -> str:
    from contextrouter.cli.exit_codes import EXIT_CODES

    return f"Exit codes: {' · '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}."


def start() -> None:
    """Run the command that the arguments name, and end the process soon after it."""
    leaving.own_process()
    for name in ("stdout", "stderr"):  # a program may be started without them
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    if os.environ.get("COLUMNS") == "0":  # it stands for an unknown width, in which nothing would be shown
        del os.environ["COLUMNS"]
    gc.set_threshold(20_000)  # what is imported stays; to look for garbage in it costs a twentieth
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    is_only = name in (*COMMANDS, *GROUPS, "--version")
    try:
        app = make_app(name if is_only else "")
        app(prog_name="contextrouter")
    except OSError as error:  # of a help; commands have messages of their own
        from contextrouter.cli.exit_codes import is_full_disk, report_full_disk

        if not is_full_disk(error):
            raise
        sys.exit(report_full_disk(error))
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            from contextrouter.cli import terminal

            terminal.close_stdout()
