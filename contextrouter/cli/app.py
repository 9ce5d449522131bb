"""`contextrouter`: the commands and their help."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import contextrouter
from contextrouter.cli import (
    ask,
    cache,
    db,
    demo,
    evaluate,
    fetch,
    forget,
    graph,
    ingest,
    init,
    keys,
    leaving,
    mcp,
    plan,
    plugins,
    route,
    serve,
    settings,
    terminal,
)
from contextrouter.cli.checking import command as checking
from contextrouter.cli.exit_codes import EXIT_CODES

_CODES = " · ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="contextrouter",
    help="One question in, the right context from many sources out, with a receipt for every piece.",
    epilog=f"Exit codes: {_CODES}.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"contextrouter {contextrouter.__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One question in, the right context from many sources out, with a receipt for every piece."""


app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("check")(checking.check)
for module in (settings, ingest, route, ask, plan, serve, mcp, fetch):
    name = module.__name__.rpartition(".")[2]
    app.command(name)(getattr(module, name))
app.command("forget")(forget.forget_matching)
app.command("eval")(evaluate.evaluate)
app.command("tune")(evaluate.tune)
app.add_typer(plugins.app, name="plugins")
app.add_typer(cache.app, name="cache")
app.add_typer(db.app, name="db")
app.add_typer(graph.app, name="graph")
app.add_typer(keys.app, name="keys")


def start() -> None:
    """Run the command that the arguments name, and end the process soon after it."""
    terminal.forget()
    leaving.own_process()
    try:
        app()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            terminal.close_stdout()
