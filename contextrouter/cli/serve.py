"""`contextrouter serve`: the settings as a server."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Annotated

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.errors import MissingDependency
from contextrouter.router import ContextRouter

Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen, instead of [serve] host.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="NUMBER", min=0, max=65535, help="Instead of [serve] port; 0: any."),
]


@command
async def serve(
    settings: options.SettingsPath = options.DEFAULT, host: Host = None, port: Port = None
) -> int:
    """Serve questions over HTTP: the API, OpenAI-compatible chat, and the explorer. SIGHUP reads the settings
    again; SIGTERM drains and ends it.
    """
    check_server_packages()
    from contextrouter.server import logs, serve

    router = options.open_router(settings)
    logs.configure(router.settings.serve.log_format, router.settings.secrets)

    def listening(address: str) -> None:
        if not (router.settings.keys or router.settings.jwt.enabled):
            terminal.note(
                "no keys are set, so whoever uses this machine may ask everything; nobody else can.",
                "warning",
            )
        terminal.say((address, "bold"), ("   the API; /openapi.json describes it", "dim"))
        if router.settings.serve.explorer:
            terminal.say(
                (f"{address}/explorer", "bold"), ("   ask, and see how the answer came about", "dim")
            )

    await serve(router, host=host, port=port, listening=listening, reloaded=keep_secrets(router))
    return OK


def keep_secrets(router: ContextRouter) -> Callable[[ContextRouter], None]:
    """Return what masks the secrets of a router that is put in place of this one, too."""
    from contextrouter.server import logs

    secrets = list(router.settings.secrets)

    def reloaded(new: ContextRouter) -> None:
        secrets.extend(new.settings.secrets)  # the former ones stay secret
        logs.configure(new.settings.serve.log_format, secrets)

    return reloaded


def check_server_packages() -> None:
    """Raise MissingDependency when a package of the extra `serve` is missing."""
    for package in ("aiohttp", "prometheus_client"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(package, "serve", what="`contextrouter serve`")
