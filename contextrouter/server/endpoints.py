"""HTTP endpoints, requests, JSON responses and server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from contextrouter.answering import Draft
from contextrouter.router import ContextRouter
from contextrouter.serialization import encode_json
from contextrouter.server.auth import Access, Caller, RequestLimits, make_slots
from contextrouter.server.error_responses import Refused
from contextrouter.server.logs import log
from contextrouter.server.metrics import Metrics
from contextrouter.server.request_schema import decode_body

WRITE_SECONDS = 30.0
"""Seconds a client may take to read one event. After them it counts as gone."""
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "authorization, content-type",
}
EVENTS = "text/event-stream"


class ServerState:
    """State that all requests share: the router, authentication, rate limits, slots and metrics."""

    endpoints: Sequence[Endpoint] = ()

    def __init__(self, router: ContextRouter) -> None:
        self.router, self.settings = router, router.settings
        self.access = Access(self.settings)
        self.limits = RequestLimits(self.settings.serve.max_requests)
        self.running = make_slots(self.settings.serve)
        self.metrics = Metrics()
        _ = router.answering  # a file of examples that is wrong stops the start
        self.draining = False

    def finish(self, draft: Draft, caller: Caller) -> Draft:
        """Count the tokens of an answer, and log a failure. Returns the draft that the caller gets: one with
        a scope, without the message of the failure.
        """
        if draft.generator:
            self.metrics.tokens(draft.generator, draft.completion.tokens_in, draft.completion.tokens_out)
        if draft.reason:
            log.info("generator failed", extra={"fields": {"note": draft.note, "error": draft.reason}})
        return draft if caller.scope is None else msgspec.structs.replace(draft, reason="")

    def add_headers(self, exchange: Exchange, response: web.StreamResponse) -> None:
        """Add the headers of every answer: the request id, security and CORS."""
        request = exchange.request
        response.headers["X-Request-Id"] = exchange.request_id
        response.headers["Server"] = "contextrouter"
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Cache-Control", "no-store")
        origin = request.headers.get("Origin", "")
        if origin in self.settings.serve.cors_origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = "x-request-id, retry-after"
            response.headers["Vary"] = "Origin"
        elif request.method == "OPTIONS":
            for name in PREFLIGHT:
                response.headers.pop(name, None)


class Exchange:
    """One request to the server: its endpoint, its caller and its body."""

    def __init__(
        self, server: ServerState, request: web.Request, endpoint: Endpoint | None, request_id: str
    ) -> None:
        self.server, self.request, self.endpoint, self.request_id = server, request, endpoint, request_id
        self.caller = Caller(name="")
        self.body: Any = None
        self.events: Events | None = None

    @property
    def openai(self) -> bool:
        """Whether errors are OpenAI's error objects."""
        return (
            self.endpoint.openai
            if self.endpoint
            else self.request.path.startswith(("/v1/chat/", "/v1/models"))
        )

    async def read(self, endpoint: Endpoint) -> None:
        """Read the body as its type. Raises Refused."""
        if endpoint.body is None:
            return
        # A page of another site may send other types without a preflight request.
        if self.request.content_type != "application/json":
            raise Refused(415, "not_json", "Send the body as `Content-Type: application/json`.")
        try:
            async with asyncio.timeout(self.server.settings.serve.body_seconds):
                body = await self.request.read()
        except TimeoutError:
            raise Refused(408, "body_too_slow", "The body did not arrive in time.") from None
        except web.HTTPException:
            raise
        except Exception as error:  # the client breaks off, or compresses wrongly
            raise Refused(
                400, "unreadable_body", f"The body cannot be read: {type(error).__name__}."
            ) from None
        self.body = decode_body(body, endpoint.body)

    async def stream(self) -> Events:
        """Begin a response of server-sent events."""
        self.events = Events()
        self.server.add_headers(self, self.events)
        await self.events.prepare(self.request)
        return self.events


class Events(web.StreamResponse):
    """Server-sent events."""

    def __init__(self) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # proxies pass it on as it comes
        self.content_type, self.charset = EVENTS, "utf-8"

    async def send(self, data: Any, event: str = "") -> None:
        """Send one event.

        Raises ConnectionResetError when the client is gone, TimeoutError when it does not read.
        """
        body = (
            data.encode() if isinstance(data, str) else encode_json(data)
        )  # JSON has no line feeds of its own
        head = b"event: %s\n" % event.encode() if event else b""
        async with asyncio.timeout(WRITE_SECONDS):
            await self.write(head + b"data: " + body + b"\n\n")


Handle = Callable[[Exchange], Awaitable[web.StreamResponse]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: one entry of the table behind both the server and its OpenAPI document."""

    method: str
    path: str
    handle: Handle
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None  # None: no JSON
    media: str = "application/json"
    streams: str = ""  # describes its events; "": it has none
    guarded: bool = True  # needs a key where there are keys
    limited: bool = True  # counts for the caller's limits
    openai: bool = False  # speaks OpenAI's error object
    errors: tuple[int, ...] = ()
    headers: Mapping[str, str] = {}
    example: Mapping[str, Any] = {}


def json_response(value: Any, status: int = 200, media: str = "application/json") -> web.Response:
    """Make a JSON response."""
    return web.Response(body=encode_json(value), status=status, content_type=media)
