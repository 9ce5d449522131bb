"""`contextrouter keys`: API keys for the server."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.cli.serve import check_server_packages
from contextrouter.errors import RequestRefused
from contextrouter.scope import SENSITIVITIES
from contextrouter.settings import NAME

app = typer.Typer(help="Make API keys for the server.", no_args_is_help=True)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Whom it stands for: small letters, digits and underscores.")
]
Everything = Annotated[bool, typer.Option("--unrestricted", help="It sees everything, of every tenant.")]


@app.callback()
def _root() -> None:
    """Make API keys for the server."""


@app.command("new")
@command
def new(
    name: Name,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
    unrestricted: Everything = False,
    as_json: options.AsJson = False,
) -> int:
    """Make a key, and print it with the table to put into the settings. The key is shown once and kept
    nowhere.
    """
    check_server_packages()
    from contextrouter.server.auth import new_key

    if not NAME.match(name):
        raise RequestRefused(
            f"{name!r} is no name of a table. Use small letters, digits and underscores, a letter first."
        )
    scope = options.make_scope(tenant, compartment, ceiling)
    if unrestricted and scope is not None:
        raise RequestRefused(
            "--unrestricted leaves no meaning to --tenant, --compartment and --ceiling. Take one or the"
            " other."
        )
    key, key_hash = new_key()
    table: dict[str, Any] = {"hash": key_hash}
    if unrestricted:
        table["unrestricted"] = True
    else:
        table |= {} if tenant is None else {"tenant": tenant}
        table |= {"compartments": sorted(compartment or ()), "ceiling": ceiling or SENSITIVITIES[0]}
    if as_json:
        terminal.print_json({"key": key, "settings": {"keys": {name: table}}})
        return OK
    terminal.say((key, "bold"))
    terminal.note("the key is kept nowhere; give it to its caller now. Into the settings:")
    terminal.out.print()
    for line in (f"[keys.{name}]", *(f"{k} = {msgspec.json.encode(v).decode()}" for k, v in table.items())):
        terminal.out.print(terminal.style_text(line), soft_wrap=True)
    return OK
