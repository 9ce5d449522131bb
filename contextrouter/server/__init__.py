"""The HTTP server and the MCP server: `contextrouter serve` and `contextrouter mcp`.

`app` runs every request, `auth` makes and checks API keys, `rate_limits` counts requests. `router_endpoints`
has the endpoints of the router, `chat` the OpenAI-compatible ones, `openapi` their description. `mcp_server`
has the tools for agents.
"""

from __future__ import annotations

from contextrouter.server.app import Server
from contextrouter.server.auth import new_key
from contextrouter.server.listening.serving import serve
from contextrouter.server.listening.workers import serve_workers

__all__ = ["Server", "new_key", "serve", "serve_workers"]
