"""`contextrouter serve`: the settings as a server."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.errors import MissingDependency
from contextrouter.settings import Settings

Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen, instead of [serve] host.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="NUMBER", min=0, max=65535, help="Instead of [serve] port; 0: any."),
]


Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="NUMBER", min=1, max=256, help="Processes, instead of [serve] workers."
    ),
]


@command
async def serve(
    settings: options.SettingsPath = options.DEFAULT,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
) -> int:
    """Serve questions over HTTP: the API, OpenAI-compatible chat, and the explorer. SIGHUP reads the settings
    again; SIGTERM drains and ends it.
    """
    check_server_packages()
    from contextrouter.server import logs, serve
    from contextrouter.server.listening.workers import supervise
    from contextrouter.server.worker_share import ALONE

    router = options.open_router(settings)
    reloaded = logs.configure_for(router)
    count = workers or router.settings.serve.workers

    def listening(address: str) -> None:
        _show_start(router.settings, address, count)

    if count > 1:
        await supervise(router.settings, count, host=host, port=port, listening=listening)
    else:
        await serve(router, host=host, port=port, listening=listening, reloaded=reloaded, worker=ALONE)
    return OK


def _show_start(settings: Settings, address: str, workers: int) -> None:
    """Say who may ask, where, and how many processes answer."""
    if not (settings.keys or settings.jwt.enabled):
        terminal.note(
            "no keys are set, so whoever uses this machine may ask everything; nobody else can.", "warning"
        )
    terminal.say((address, "bold"), ("   the API; /openapi.json describes it", "dim"))
    if settings.serve.explorer:
        terminal.say((f"{address}/explorer", "bold"), ("   ask, and see how the answer came about", "dim"))
    if workers > 1:
        rates = "; Redis counts the rates" if settings.cache.tier == "redis" else ", and of the rates"
        share = f"   each takes 1/{workers} of max_requests, max_running and max_connections{rates}"
        terminal.say((f"{workers} workers", "bold"), (share, "dim"))


def check_server_packages() -> None:
    """Raise MissingDependency when a package of the extra `serve` is missing."""
    for package in ("aiohttp", "prometheus_client"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(package, "serve", what="`contextrouter serve`")
