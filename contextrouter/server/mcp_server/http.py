"""MCP over streamable HTTP at `/mcp`: a request of an agent goes to the tools, with the rights of its caller.

It is an endpoint like the others: keys, limits, logs and CORS are those of the server. Each request stands
for itself, so that it may come to any process; a page of another origin has to be listed, or of this machine.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from contextvars import ContextVar
from typing import Any

from aiohttp import web

from contextrouter.runtime.threads import work_aside
from contextrouter.server.auth import Caller
from contextrouter.server.cors import allows
from contextrouter.server.endpoints import Endpoint, Exchange, ServerState
from contextrouter.server.error_responses import Refused

PATH = "/mcp"
_caller: ContextVar[Caller] = ContextVar("caller")
"""Who called the tool that runs."""


class McpEndpoint:
    """The endpoint `/mcp` of one server."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._making = asyncio.Lock()
        self._mcp: Any = None
        self._running = 0

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint; its protocol is described by itself, and not by OpenAPI."""
        return Endpoint(
            method="POST",
            path=PATH,
            handle=self.handle,
            summary="Tools for agents (MCP)",
            limited=False,  # calls of tools count, and not what a client asks before the first
            loopback_origins=True,
            described=False,
        )

    async def handle(self, exchange: Exchange) -> web.StreamResponse:
        """POST /mcp."""
        check_origin(exchange)
        if self._running >= self._server.limits.max_requests:
            raise Refused(503, "overloaded", "Too many requests at once.", headers={"Retry-After": "1"})
        self._running += 1
        token = _caller.set(exchange.caller)
        try:
            body = await exchange.read_body()
            return await _answer(await self._server_of_tools(), exchange, body)
        finally:
            _caller.reset(token)
            self._running -= 1

    async def _server_of_tools(self) -> Any:
        """Return the MCP server. Its package is large: it is loaded in a thread for the first request."""
        async with self._making:
            if self._mcp is None:
                module = "contextrouter.server.mcp_server.tools"
                tools: Any = await work_aside(importlib.import_module, module)
                self._mcp = tools.make_mcp_server(self._server.router, lambda _: _caller.get(), self._server)
        return self._mcp


def check_origin(exchange: Exchange) -> None:
    """Raise Refused (403) for the page of an origin that may not ask."""
    headers = exchange.request.headers
    origin = headers.get("Origin", "")
    same = origin in [f"{scheme}://{headers.get('Host')}" for scheme in ("http", "https")]
    if origin and not same and not allows(origin, exchange.server.settings.serve.cors_origins, loopback=True):
        detail = f"Pages of {origin:.200} may not ask. [serve] cors_origins lists those that may."
        raise Refused(403, "origin_not_allowed", detail)


async def _answer(mcp: Any, exchange: Exchange, body: bytes) -> web.Response:
    """Let an MCP server answer one request."""
    from mcp.server.transport_security import TransportSecuritySettings

    headers = exchange.request.headers
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()
        ],
        "client": None,
        "server": None,
    }
    parts = [{"type": "http.request", "body": body, "more_body": False}]
    status, response_headers, response_body = 500, [], bytearray()

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.Event().wait()  # the client stays

    async def send(message: Any) -> None:
        nonlocal status, response_headers
        if message["type"] == "http.response.start":
            status, response_headers = message["status"], message["headers"]
        response_body.extend(message.get("body", b""))

    application = mcp.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=exchange.server.settings.serve.max_body_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # checked before
    )
    async with mcp.session_manager.run():
        await application(scope, receive, send)
    response = web.Response(body=bytes(response_body), status=status)
    for name, value in response_headers:
        if name not in (b"content-length", b"connection"):
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
    return response


def mcp_installed() -> bool:
    """Whether the package `mcp` is there."""
    return importlib.util.find_spec("mcp") is not None
