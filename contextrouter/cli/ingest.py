"""`contextrouter ingest`: run the ingestion jobs of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from contextrouter.cli import options, screen
from contextrouter.cli.outcome import INGESTION, OK, command
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest import Leftover, Report, forget, leftovers, run
from contextrouter.ingest.run import OnProgress
from contextrouter.router import ContextRouter
from contextrouter.shown import plain

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Jobs to run; none: all.", show_default=False)]

Rebuild = Annotated[bool, typer.Option("--rebuild", help="Do unchanged documents again; needed after a change of embedder.")]
Forget = Annotated[
    list[str] | None,
    typer.Option("--forget", metavar="NAME", help="Run no job; remove what a job of this name left in stores. May be repeated."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; embed and store nothing.")]


@command
async def ingest(
    names: Names = None,
    settings: options.SettingsPath = options.DEFAULT,
    rebuild: Rebuild = False,
    dry_run: DryRun = False,
    origins: Forget = None,
    as_json: options.AsJson = False,
) -> int:
    """Bring stores in line with their sources: the ingestion jobs of the settings. Only what changed is done."""
    if origins and (names or rebuild):
        raise SettingsError("--forget runs no job; leave out the names of jobs and --rebuild.")
    async with options.opened(settings) as router:
        if origins:
            show_forgotten(await forget(router, origins, dry_run=dry_run), dry_run=dry_run, as_json=as_json)
            return OK
        with bar(quiet=as_json) as progress:
            reports = await run(router, names or (), rebuild=rebuild, dry_run=dry_run, progress=progress)
        await warn_of_leftovers(router)
    if as_json:
        screen.print_json({name: plain(report) for name, report in reports.items()})
    else:
        show(reports, dry_run=dry_run)
    return INGESTION if any(report.skipped for report in reports.values()) else OK


async def warn_of_leftovers(router: ContextRouter) -> None:
    """Say, on stderr, what stores hold of jobs that are no more."""
    try:
        left = await leftovers(router)
    except IngestError as error:
        screen.note(str(error), "warning")
        return
    for each in left:
        what = f"Store {each.store!r} holds {each.documents} documents of {each.origin!r}, which no job keeps up to date"
        screen.note(f"{what}; remove them with `contextrouter ingest --forget {each.origin}`, or define the job again.", "warning")


def show_forgotten(gone: Sequence[Leftover], *, dry_run: bool, as_json: bool) -> None:
    """Print what was removed, or would be."""
    if as_json:
        screen.print_json([plain(each) for each in gone])
        return
    done = "would be" if dry_run else "were"
    for each in gone:
        screen.say(f"{each.documents} documents of {each.origin!r} {done} removed from {each.store!r}.")


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[OnProgress]:
    """Yield what shows progress: a line per job on stderr, only when that is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    with Progress(*columns, console=screen.err, transient=True, disable=quiet or not screen.err.is_terminal) as live:
        tasks = {}

        def on_progress(name: str, report: Report) -> None:
            if name not in tasks:
                tasks[name] = live.add_task(screen.clean(name), total=None, done="")
            live.update(tasks[name], done=f"{report.documents} documents, {report.chunks} chunks, {report.unchanged} unchanged")

        yield on_progress


def show(reports: Mapping[str, Report], *, dry_run: bool = False) -> None:
    """Print a line per job, and what was left out."""
    numbers = ("documents", "chunks", "facts", "unchanged", "deleted")
    made = screen.table("job", *map(screen.right, numbers), screen.right("problems"), screen.right("time"))
    for name, report in reports.items():
        cells = (getattr(report, number) for number in numbers)
        screen.row(made, name, *cells, len(report.skipped), screen.milliseconds(report.seconds))
    screen.show(made, indent=0)
    if dry_run:
        screen.say(("Nothing was stored: this was a dry run.", "yellow"))
    for report in reports.values():
        for what, why in report.skipped:
            screen.say((f"{what}: ", "yellow"), why)
