"""`contextrouter ingest`: run the ingestion jobs of the settings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import INGESTION, OK, command
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest import Leftover, Report, forget, leftovers, run, watch
from contextrouter.ingest.jobs import OnProgress
from contextrouter.router import ContextRouter
from contextrouter.settings.ingestion import MOST_WORKERS

MOST_LISTED = 20
"""Documents of each kind of change that a dry run names."""
Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Jobs to run; none: all.", show_default=False)
]

Rebuild = Annotated[
    bool,
    typer.Option("--rebuild", help="Process unchanged documents, too; needed after a change of embedder."),
]
Forget = Annotated[
    list[str] | None,
    typer.Option(
        "--forget",
        metavar="NAME",
        help="Run no job; remove the documents of a former job of this name. May be repeated.",
    ),
]
Remove = Annotated[
    bool,
    typer.Option(
        "--remove", help="Confirm that the documents are gone, if a run would remove most of them, or all."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the changes; embed and store nothing.")]
Watch = Annotated[
    bool,
    typer.Option("--watch", help="Keep running: run jobs again when their source changes, until Ctrl-C."),
]
Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How often --watch checks.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=0,
        max=MOST_WORKERS,
        help="Processes that prepare and store documents; 0: this one. Default: `[ingest] workers`.",
        show_default=False,
    ),
]


@command
async def ingest(
    names: Names = None,
    settings: options.SettingsPath = options.DEFAULT,
    rebuild: Rebuild = False,
    dry_run: DryRun = False,
    remove: Remove = False,
    watching: Watch = False,
    every: Every = 2.0,
    wait: options.Wait = 60.0,
    workers: Workers = None,
    origins: Forget = None,
    as_json: options.AsJson = False,
) -> int:
    """Bring stores in line with their sources: the ingestion jobs of the settings. Only what changed is
    processed.
    """
    if origins and (names or rebuild or watching or remove or workers is not None):
        raise SettingsError(
            "--forget runs no job; leave out the names of jobs, --rebuild, --remove, --watch and --workers."
        )
    if watching and (rebuild or dry_run or remove):
        raise SettingsError("--watch stores what changes; leave out --rebuild, --remove and --dry-run.")
    async with options.open_router(settings) as router:
        if origins:
            removed = await forget(router, origins, dry_run=dry_run, wait=wait)
            show_removed(removed, dry_run=dry_run, as_json=as_json)
            return OK
        if watching:
            return await keep_up(
                router, names or (), every=every, wait=wait, workers=workers, as_json=as_json
            )
        with bar(quiet=as_json) as progress:
            reports = await run(
                router,
                names or (),
                rebuild=rebuild,
                dry_run=dry_run,
                remove=remove,
                wait=wait,
                workers=workers,
                progress=progress,
            )
        await warn_of_leftovers(router)
    print_reports(reports, dry_run=dry_run, as_json=as_json)
    return INGESTION if any(report.skipped for report in reports.values()) else OK


async def keep_up(
    router: ContextRouter,
    names: Sequence[str],
    *,
    every: float,
    wait: float,
    workers: int | None = None,
    as_json: bool,
) -> int:
    """Run jobs whenever their source changes, and print their reports, until the command is interrupted."""
    with suppress(asyncio.CancelledError):  # Ctrl-C is how this ends
        async with aclosing(watch(router, names, every=every, wait=wait, workers=workers)) as changes:
            async for reports in changes:
                print_reports(reports, dry_run=False, as_json=as_json)
    return OK


def print_reports(reports: Mapping[str, Report], *, dry_run: bool, as_json: bool) -> None:
    """Print the reports as tables or as JSON."""
    if as_json:
        terminal.print_json(reports)
    else:
        show(reports, dry_run=dry_run)


async def warn_of_leftovers(router: ContextRouter) -> None:
    """Warn, on stderr, of documents whose job no longer exists."""
    try:
        orphans = await leftovers(router)
    except IngestError as error:
        terminal.note(str(error), "warning")
        return
    for orphan in orphans:
        origin, count = orphan.origin, terminal.count(orphan.documents, "document")
        terminal.note(
            f"Store {orphan.store!r} holds {count} of {origin!r}, which no job keeps up to date; remove them"
            f" with `contextrouter ingest --forget {origin}`, or define the job again.",
            "warning",
        )


def show_removed(removed: Sequence[Leftover], *, dry_run: bool, as_json: bool) -> None:
    """Print how many documents were removed, or would be."""
    if as_json:
        terminal.print_json(removed)
        return
    verb = "would be" if dry_run else "were"
    for group in removed:
        terminal.say(f"{group.documents} documents of {group.origin!r} {verb} removed from {group.store!r}.")


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[OnProgress]:
    """Yield a function that shows progress: a line per job on stderr, if stderr is a terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[done]}"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=terminal.err, transient=True, disable=quiet or not terminal.err.is_terminal
    ) as live:
        tasks = {}

        def on_progress(name: str, report: Report) -> None:
            if name not in tasks:
                tasks[name] = live.add_task(terminal.sanitize(name), total=report.total, done="", rate="")
            settled = report.documents + report.unchanged + len(report.skipped)
            rate = f"{settled / report.seconds:.0f}/s" if report.seconds else ""
            done = (
                f"{settled}{'' if report.total is None else f' of {report.total}'} documents, {report.chunks}"
                " chunks"
            )
            live.update(tasks[name], completed=settled, total=report.total, done=done, rate=rate)

        yield on_progress


def show(reports: Mapping[str, Report], *, dry_run: bool = False) -> None:
    """Print a line per job, the sums, and the documents that were skipped."""
    numbers = {"added": "added", "changed": "changed", "unchanged": "unchanged", "removed": "deleted"}
    numbers |= {name: name for name in ("chunks", "facts", "tokens")}
    table = terminal.table("job", *map(terminal.right, numbers))
    for name, report in reports.items():
        terminal.row(table, name, *(f"{getattr(report, number):,}" for number in numbers.values()))
    terminal.show(table, indent=0)
    problems = sum(len(report.skipped) for report in reports.values())
    seconds = sum(report.seconds for report in reports.values())
    embedded = terminal.count(sum(report.embedded for report in reports.values()), "text")
    terminal.say(
        f"{embedded} embedded, {terminal.count(problems, 'problem')}, in {terminal.milliseconds(seconds)}."
    )
    if dry_run:
        for report in reports.values():
            show_changes(report)
        terminal.say(("Nothing was stored: this was a dry run.", "yellow"))
    not_read: Counter[str] = Counter()
    for report in reports.values():
        not_read.update(report.not_read)
    if not_read:
        kinds = ", ".join(f"{kind} {count}" for kind, count in not_read.most_common())
        files = terminal.count(not_read.total(), "file")
        terminal.say((f"{files} of other kinds not read: ", "dim"), kinds)
    for report in reports.values():
        for id, reason in report.skipped:
            terminal.say((f"{id}: ", "yellow"), reason)


def show_changes(report: Report) -> None:
    """Print the changes that a dry run found; of each kind only some."""
    for kind in ("added", "changed", "removed"):
        ids = [id for change, id in report.changes if change == kind]
        for id in ids[:MOST_LISTED]:
            terminal.say((f"{kind:<8} ", "dim"), id)
        if len(ids) > MOST_LISTED:
            terminal.say((f"{kind:<8} ", "dim"), f"{len(ids) - MOST_LISTED} more; --json lists them all")
