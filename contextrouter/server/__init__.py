"""The HTTP server and the MCP server: `contextrouter serve` and `contextrouter mcp`.

`app` runs every request, `auth` checks API keys and rate limits. `router_endpoints` has the endpoints of the
router, `chat` the OpenAI-compatible ones, `openapi` their description. `mcp_server` has the tools for agents.
"""

from __future__ import annotations

from contextrouter.server.app import Server
from contextrouter.server.serving import serve

__all__ = ["Server", "serve"]
