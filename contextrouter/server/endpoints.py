"""HTTP endpoints, requests, JSON responses and server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from contextrouter.answering import Draft
from contextrouter.model.plain_form import encode_json
from contextrouter.router import ContextRouter
from contextrouter.server.auth import Access, Caller
from contextrouter.server.cors import allows, cors_headers
from contextrouter.server.error_responses import Refused
from contextrouter.server.logs import log, read_trace_id
from contextrouter.server.metrics import Metrics
from contextrouter.server.rate_limits import RequestLimits, make_slots
from contextrouter.server.readiness import SourcePings
from contextrouter.server.request_schema import decode_body
from contextrouter.server.worker_share import ALONE, Worker

OPENAI = tuple(
    f"/v1/{name}"
    for name in (
        "chat",
        "models",
        "responses",
        "embeddings",
        "completions",
        "images",
        "audio",
        "moderations",
        "assistants",
        "threads",
    )
)
"""Where OpenAI clients ask: what is not here is refused in OpenAI's form."""
EVENTS = "text/event-stream"


class ServerState:
    """State that all requests share: the router, authentication, rate limits, slots and metrics."""

    endpoints: Sequence[Endpoint] = ()

    def __init__(
        self, router: ContextRouter, before: ServerState | None = None, worker: Worker = ALONE
    ) -> None:
        """`before` is the state that this one replaces; its counters go on."""
        self.router, self.settings = router, router.settings
        self.worker: Worker = before.worker if before else worker
        self.access = Access(self.settings)
        self.limits: RequestLimits = before.limits if before else RequestLimits(self.settings, worker)
        self.running = make_slots(self.settings.serve, self.worker)
        self.metrics: Metrics = before.metrics if before else Metrics(worker)
        self.pings = SourcePings(router)
        _ = router.answering  # a file of examples that is wrong stops the start
        self.leaving = False  # it will stop, and still takes requests
        self.draining = False

    def count_abandoned(self) -> None:
        """Put the calls and threads that nobody waits for any more into the metrics."""
        calls = self.router.engine.limits.abandoned.counts()
        self.metrics.abandoned({**calls, **self.router.answering.abandoned.counts()})

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
        if exchange.trace_id:
            response.headers["X-Trace-Id"] = exchange.trace_id
        longest = self.settings.serve.max_deadline_seconds
        if (getattr(exchange.body, "deadline", None) or 0.0) > longest:  # it was cut
            response.headers["X-Deadline-Seconds"] = f"{longest:g}"
        response.headers["Server"] = "contextrouter"
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Cache-Control", "no-store")
        origin, path = request.headers.get("Origin", ""), request.path.rstrip("/")
        loopback = any(endpoint.loopback_origins and endpoint.path == path for endpoint in self.endpoints)
        if allows(origin, self.settings.serve.cors_origins, loopback=loopback):
            response.headers.update(cors_headers(request.method, request.headers, origin))


class Exchange:
    """One request to the server: its endpoint, its caller and its body."""

    def __init__(
        self, server: ServerState, request: web.Request, endpoint: Endpoint | None, request_id: str
    ) -> None:
        self.server, self.request, self.endpoint, self.request_id = server, request, endpoint, request_id
        self.trace_id = read_trace_id(request.headers.get("traceparent", ""))
        self.places = contextlib.ExitStack()  # that the request takes until its answer is written
        self.stopped = False  # the server ends it, and not its client
        self.caller = Caller(name="")
        self.body: Any = None
        self.events: Events | None = None

    @property
    def openai(self) -> bool:
        """Whether errors are OpenAI's error objects."""
        return self.endpoint.openai if self.endpoint else self.request.path.startswith(OPENAI)

    async def read(self, endpoint: Endpoint) -> None:
        """Read the body as its type. Raises Refused."""
        if endpoint.body is not None:
            self.body = decode_body(await self.read_body(), endpoint.body)

    async def read_body(self) -> bytes:
        """Read the body, which is JSON. Raises Refused."""
        # A page of another site may send other types without a preflight request.
        if self.request.content_type != "application/json":
            raise Refused(415, "not_json", "Send the body as `Content-Type: application/json`.")
        try:
            async with asyncio.timeout(self.server.settings.serve.body_seconds):
                return await self._read()
        except TimeoutError:
            raise Refused(408, "body_too_slow", "The body did not arrive in time.") from None
        except Refused:
            raise
        except Exception as error:  # the client breaks off, or compresses wrongly
            raise Refused(
                400, "unreadable_body", f"The body cannot be read: {type(error).__name__}."
            ) from None

    async def _read(self) -> bytes:
        """Read the body up to the limit of these settings; those of the application outlive a reload."""
        limit, body = self.server.settings.serve.max_body_bytes, bytearray()
        async for part in self.request.content.iter_any():
            body += part
            if len(body) > limit:
                raise Refused(413, "body_too_large", "The body is longer than [serve] max_body_bytes allows.")
        return bytes(body)

    async def stream(self) -> Events:
        """Begin a response of server-sent events."""
        serve = self.server.settings.serve
        self.events = Events(serve.heartbeat_seconds, serve.write_seconds)
        self.server.add_headers(self, self.events)
        await self.events.prepare(self.request)
        self.events.restart_heartbeat()
        return self.events


class Events(web.StreamResponse):
    """Server-sent events. While there is none, a comment is sent every `heartbeat` seconds, or proxies would
    take the silence for a broken connection. A client has `patience` seconds to read an event.
    """

    def __init__(self, heartbeat: float, patience: float) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # proxies pass it on as it comes
        self.content_type, self.charset = EVENTS, "utf-8"
        self._heartbeat, self.patience = heartbeat, patience
        self._beat: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def send(self, data: Any, event: str = "") -> None:
        """Send one event.

        Raises ConnectionResetError when the client is gone, TimeoutError when it does not read.
        """
        body = data.encode() if isinstance(data, str) else encode_json(data)  # JSON on one line
        head = b"event: %s\n" % event.encode() if event else b""
        await self._send(head + b"data: " + body + b"\n\n")

    async def _send(self, part: bytes) -> None:
        async with self._turn, asyncio.timeout(self.patience):
            await self.write(part)
        self.restart_heartbeat()

    def stop(self) -> None:
        """End the heartbeat."""
        self._heartbeat = 0
        self.restart_heartbeat()
        if self._beating is not None:
            self._beating.cancel()

    def restart_heartbeat(self) -> None:
        """Wait for the next beat anew."""
        if self._beat is not None:
            self._beat.cancel()
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(self._heartbeat, self._start_beat) if self._heartbeat else None

    def _start_beat(self) -> None:
        if not self._turn.locked():  # an event that waits for its reader needs no comment beside it
            self._beating = asyncio.get_running_loop().create_task(self._send_beat())

    async def _send_beat(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._send(b": \n\n")


Handle = Callable[[Exchange], Awaitable[web.StreamResponse]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: one entry of the table behind both the server and its OpenAPI document."""

    method: str
    path: str  # a last part in braces stands for the rest of a path, slashes included
    handle: Handle
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None  # None: no JSON
    media: str = "application/json"
    streams: str = ""  # describes its events; "": it has none
    guarded: bool = True  # needs a key where there are keys
    limited: bool = True  # counts for the caller's limits
    openai: bool = False  # speaks OpenAI's error object
    described: bool = True  # in the OpenAPI document
    loopback_origins: bool = False  # pages of this machine may ask, whatever their port
    errors: tuple[int, ...] = ()
    headers: Mapping[str, str] = {}
    example: Mapping[str, Any] = {}


def json_response(value: Any, status: int = 200, media: str = "application/json") -> web.Response:
    """Make a JSON response."""
    return web.Response(body=encode_json(value), status=status, content_type=media)
