"""MCP over streamable HTTP at `/mcp`: API keys say who may call, and limits hold back slow clients.

A client that sends or reads too slowly is let go. Where there are too many connections, the one that has
waited longest for a request gives way. A request is read whole before the tools see it, up to
`max_body_bytes`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from contextrouter.errors import SettingsError
from contextrouter.model.plain_form import encode_json
from contextrouter.router import ContextRouter
from contextrouter.server.auth import Access, Caller, check_host
from contextrouter.server.error_responses import MEDIA, Refused, problem_body
from contextrouter.server.mcp_server.tools import make_mcp_server
from contextrouter.settings import Serve

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


async def serve_http(
    router: ContextRouter, *, host: str, port: int, listening: Callable[[str], None]
) -> None:
    """Serve the tools over HTTP until SIGTERM, SIGINT or SIGHUP: it does not read the settings again.

    Raises SettingsError when the address is not allowed, or cannot be used.
    """
    import uvicorn

    from contextrouter.server.mcp_server.timed_protocol import Limits, TimedProtocol

    serve = router.settings.serve
    limits = Limits(serve.header_seconds, serve.write_seconds, serve.max_connections)
    protocol: Any = partial(TimedProtocol, limits, {})  # uvicorn calls it as it calls a class
    access = Access(router.settings)
    check_host(access, host)
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(
            f"The server cannot listen on {host}:{port}: {error.strerror}. Choose another with --port."
        ) from None
    with bound:
        config = uvicorn.Config(
            _Application(router, access, host),
            http=protocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="on",
        )
        config.timeout_graceful_shutdown = int(router.settings.serve.drain_seconds) or 1
        async with router:
            listening(f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/mcp")
            server, loop = uvicorn.Server(config), asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, setattr, server, "should_exit", True)
            try:
                await server.serve(sockets=[bound])
            finally:
                loop.remove_signal_handler(signal.SIGHUP)


class _Application:
    """The ASGI application: it checks the key, the method and the body before the tools see a request."""

    def __init__(self, router: ContextRouter, access: Access, host: str) -> None:
        self._access, self._serve = access, router.settings.serve
        server = make_mcp_server(router, lambda call: self._identify(call.headers or {}))
        self._inner = server.streamable_http_app(host=host, stateless_http=True)
        self._running = 0

    def _identify(self, headers: Mapping[str, str]) -> Caller:
        return self._access.caller(headers.get("authorization", ""), headers.get("host", ""), headers)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._identify(headers)
            if scope["method"] != "POST":  # nothing is ever sent on a stream of the server's own
                raise Refused(405, "method_not_allowed", "Send a POST request.", headers={"Allow": "POST"})
            if self._running >= self._serve.max_requests:
                raise Refused(503, "overloaded", "Too many requests at once.", headers={"Retry-After": "1"})
            self._running += 1
            try:
                body = await _read_body(receive, self._serve)
                await self._inner(scope, _replay(body, receive), send)
            finally:
                self._running -= 1
        except Refused as error:
            await _refuse(error, send)


async def _read_body(receive: Receive, serve: Serve) -> bytes:
    """Read the body of a request. Raises Refused for one that is too long or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(serve.body_seconds):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > serve.max_body_bytes:
                    detail = "The body is longer than [serve] max_body_bytes allows."
                    raise Refused(413, "body_too_large", detail)
                if message["type"] != "http.request" or not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Refused(408, "body_too_slow", "The body did not arrive in time.") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives the body once, and then what else the client does."""
    rest = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return rest.pop() if rest else await receive()

    return replay


async def _refuse(error: Refused, send: Send) -> None:
    fields = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    fields += [(b"content-type", MEDIA.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": fields})
    await send({"type": "http.response.body", "body": encode_json(problem_body(error, ""))})
