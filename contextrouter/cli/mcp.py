"""`contextrouter mcp`: the settings as tools for agents."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from contextrouter.cli import options, stdout, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.cli.serve import Host, Port, check_server_packages
from contextrouter.errors import MissingDependency, RequestRefused

Http = Annotated[
    bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdin and stdout.")
]


@command
async def mcp(
    settings: options.SettingsPath = options.DEFAULT,
    http: Http = False,
    host: Host = None,
    port: Port = None,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
) -> int:
    """Give agents the tools `route`, `facts`, `search` and `fetch` over MCP, on stdin and stdout or over
    HTTP.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingDependency("mcp", "mcp", what="`contextrouter mcp`")
    check_server_packages()
    scope = options.make_scope(tenant, compartment, ceiling)
    if http and scope is not None:
        raise RequestRefused(
            "--tenant, --compartment and --ceiling are for stdin and stdout; over HTTP [keys] say who sees"
            " what."
        )
    if not http and (host is not None or port is not None):
        raise RequestRefused("--host and --port are for --http. Add it, or leave them out.")
    from contextrouter.server import logs, serve
    from contextrouter.server.auth import Caller
    from contextrouter.server.mcp_server.tools import serve_stdio

    router = options.open_router(settings)
    reloaded = logs.configure_for(router)
    if http:
        await serve(
            router,
            host=host,
            port=port,
            listening=lambda address: terminal.say((f"{address}/mcp", "bold")),
            reloaded=reloaded,
            agents_only=True,
        )
    else:
        await serve_stdio(router, Caller(name="local", scope=scope), stdout.lend())
    return OK
