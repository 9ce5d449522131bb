"""The server: what `contextrouter serve` and `contextrouter mcp` run.

`app` has the endpoints and what every request goes through; `access` says who asks and what they may see;
`answers` routes and plans, `chat` writes answers in OpenAI's wire format, `mcp` gives tools to agents. Only
here is aiohttp served.
"""

from __future__ import annotations

from contextrouter.server.app import Server
from contextrouter.server.serving import serve

__all__ = ["Server", "serve"]
