"""`contextrouter embed`: change the embedding model of stores, while they answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.contracts import StoredModel
from contextrouter.errors import SettingsError
from contextrouter.ingest import ModelReport, drop_model, stored_models
from contextrouter.ingest import embed as embed_stores
from contextrouter.ingest.model_change import OnModelProgress
from contextrouter.router import ContextRouter

Stores = Annotated[
    list[str] | None,
    typer.Argument(metavar="STORE", help="Stores; none: all whose model can be changed.", show_default=False),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", help="The new embedder, by its name in [embedders].", show_default=False
    ),
]
Drop = Annotated[
    str | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="Remove the vectors of a model, by its name or that of its embedder.",
        show_default=False,
    ),
]
Batch = Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Chunks to embed at a time.")]


@command
async def embed(
    stores: Stores = None,
    model: Model = None,
    drop: Drop = None,
    settings: options.SettingsPath = options.DEFAULT,
    batch: Batch = 64,
    wait: options.Wait = 60.0,
    as_json: options.AsJson = False,
) -> int:
    """Change the embedding model of stores, while they answer. Without an option: say whose vectors they
    have.
    """
    for option, name in (("--model", model), ("--drop", drop)):
        if name is not None and not name.strip():  # a variable of a script that is not set
            raise SettingsError(f"{option} is empty. Give the name of an embedder, or leave {option} out.")
    if model and drop:
        raise SettingsError("--model fills a store and --drop empties a part of it; give one of them.")
    async with options.open_router(settings) as router:
        if model:
            with bar(quiet=as_json) as progress:
                reports = await embed_stores(
                    router, model, stores or (), batch=batch, wait=wait, progress=progress
                )
            show_reports(router, model, reports, as_json=as_json)
        elif drop:
            names = await drop_model(router, drop, stores or (), wait=wait)
            if as_json:
                terminal.print_json(names)
            else:
                terminal.say(f"The vectors of {drop!r} were removed from {', '.join(map(repr, names))}.")
        else:
            show_models(await stored_models(router, stores or ()), as_json=as_json)
    return OK


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[OnModelProgress]:
    """Yield a function that shows progress: a line for each store on stderr, if stderr is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20))
    timing = (TextColumn("{task.fields[done]}"), TextColumn("left"), TimeRemainingColumn())
    with Progress(
        *columns, *timing, console=terminal.err, transient=True, disable=quiet or not terminal.err.is_terminal
    ) as live:
        tasks = {}

        def on_progress(name: str, report: ModelReport) -> None:
            if name not in tasks:
                tasks[name] = live.add_task(terminal.sanitize(name), total=report.total, done="")
            live.update(tasks[name], completed=report.chunks, done=f"{report.chunks} chunks")

        yield on_progress


def show_reports(
    router: ContextRouter, model: str, reports: Mapping[str, ModelReport], *, as_json: bool
) -> None:
    """Print what was embedded, and what comes next."""
    if as_json:
        terminal.print_json(reports)
        return
    for name, report in reports.items():
        chunks = terminal.count(report.chunks, "chunk")
        entities = f" and {terminal.count(report.entities, 'entity', 'entities')}" if report.entities else ""
        terminal.say(
            f"{name}: {chunks}{entities} embedded in {terminal.milliseconds(report.seconds)}; all"
            f" {report.total} have vectors of {report.model}."
        )
    for name in reports:
        if router.settings.providers[name].options.get("embedder", "default") != model:
            terminal.note(
                f'Set embedder = "{model}" in [providers.{name}], and reload the servers (SIGHUP). Then'
                " `contextrouter embed --drop NAME` removes the former vectors."
            )


def show_models(stored: Mapping[str, Sequence[StoredModel]], *, as_json: bool) -> None:
    """Print whose vectors each store has."""
    if as_json:
        terminal.print_json(stored)
        return
    headers = ("store", "model", "embedder")
    table = terminal.table(*headers, *map(terminal.right, ("dimensions", "chunks", "missing")), "answers")
    for name, models in stored.items():
        for model in models:
            numbers = (f"{number:,}" for number in (model.dimensions, model.chunks, model.missing))
            answers = "yes" if model.ready else "not yet"
            terminal.row(table, name, model.model or "?", model.embedder or "?", *numbers, answers)
    terminal.show(table, indent=0)
