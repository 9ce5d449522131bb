"""`contextrouter db`: migrations and index tuning of database stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Protocol, TypeVar, runtime_checkable

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.errors import SettingsError
from contextrouter.router import ContextRouter

T = TypeVar("T")

app = typer.Typer(
    help="Lay out the schema of database stores, show how they stand, fit their indexes.",
    no_args_is_help=True,
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Providers; none: all.", show_default=False)
]
Apply = Annotated[bool, typer.Option("--apply", help="Make the changes, while searches and writes go on.")]


@runtime_checkable
class Database(Protocol):
    """A store whose schema has versions and whose indexes can be fitted."""

    async def open(self) -> None:
        """Connect."""
        ...

    async def aclose(self) -> None:
        """Disconnect."""
        ...

    async def migrate(self) -> Sequence[int]:
        """Bring the schema up to date; return the versions made."""
        ...

    async def status(self) -> Mapping[str, int | str]:
        """Say which versions are there, and what the store holds."""
        ...

    async def tune(self, *, apply: bool = False) -> Sequence[str]:
        """Say what should change in the indexes; with `apply` change it."""
        ...


@app.command("migrate")
@command
async def migrate(
    names: Names = None, settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False
) -> int:
    """Bring the schema up to date, one process at a time. A schema that is newer than this program is left
    alone.
    """
    migrations = await _ask_stores(options.open_router(settings), names, lambda store: store.migrate())
    if as_json:
        terminal.print_json(migrations)
        return OK
    for name, versions in migrations.items():
        terminal.say(f"{name}: {f'brought to version {versions[-1]}' if versions else 'was up to date'}.")
    return OK


@app.command("status")
@command
async def status(
    names: Names = None, settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False
) -> int:
    """Show the versions of server and schema, and what each store holds."""
    statuses = await _ask_stores(options.open_router(settings), names, lambda store: store.status())
    if as_json:
        terminal.print_json(statuses)
        return OK
    table = terminal.table("store", "what", "value")
    for name, values in statuses.items():
        for key, value in values.items():
            terminal.row(table, name, key, f"{value:,}" if isinstance(value, int) else value or "–")
    terminal.show(table, indent=0)
    return OK


@app.command("tune")
@command
async def tune_indexes(
    names: Names = None,
    settings: options.SettingsPath = options.DEFAULT,
    apply: Apply = False,
    as_json: options.AsJson = False,
) -> int:
    """Say what should change in the vectors' indexes for the present number of rows; with --apply do it."""
    router = options.open_router(settings)
    proposals = await _ask_stores(router, names, lambda store: store.tune(apply=apply))
    if as_json:
        terminal.print_json(proposals)
        return OK
    for name, changes in proposals.items():
        for change in changes or ["nothing to change"]:
            terminal.say(f"{name}: {change}.")
    if any(proposals.values()):
        terminal.note("done." if apply else "nothing was changed; --apply does it.")
    return OK


async def _ask_stores(
    router: ContextRouter, names: Sequence[str] | None, ask: Callable[[Database], Awaitable[T]]
) -> dict[str, T]:
    """Return the answer of each requested store, open while it is asked. Raises SettingsError for an unknown
    name.
    """
    stores = {
        name: plugin
        for name, plugin in router.instances.plugins("provider").items()
        if isinstance(plugin, Database)
    }
    valid = ", ".join(stores) or "none"
    for name in names or ():
        if name not in stores:
            raise SettingsError(
                f"Provider {name!r} is no store in a database, or disabled. Stores in a database: {valid}."
            )
    if not stores:
        raise SettingsError(
            "No provider is a store in a database. Add one: [providers.NAME] with use = 'postgres'."
        )
    answers = {}
    for name, store in stores.items():
        if not names or name in names:
            try:
                await store.open()
                answers[name] = await ask(store)
            finally:
                await store.aclose()
    return answers
