"""The HTTP server of one router: the table of endpoints, and what happens to every request.

The server gives a request its id, authenticates its API key, applies the caller's rate limit, and reads
and validates the body. It counts and logs every answer, and turns every error into problem details.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from http import HTTPStatus
from time import monotonic
from typing import Any

from aiohttp import web

from contextrouter.router import ContextRouter
from contextrouter.runtime.spans import caller_context
from contextrouter.server import answer_endpoint, chat, cited_files, page, router_endpoints
from contextrouter.server.cors import is_preflight
from contextrouter.server.endpoints import OPENAI, Endpoint, Events, Exchange, ServerState, json_response
from contextrouter.server.error_responses import (
    FAULT,
    MEDIA,
    Refused,
    make_refusal,
    openai_error_body,
    problem_body,
)
from contextrouter.server.hidden_errors import hide_refusal
from contextrouter.server.logs import log, trace_id
from contextrouter.server.logs import request_id as current
from contextrouter.server.mcp_server.http import McpEndpoint, mcp_installed
from contextrouter.server.openapi import DESCRIPTION
from contextrouter.server.worker_share import ALONE, Worker

GONE = 499
"""The status in the log when the client goes away before it has its answer."""
LAST_WRITE = 0.5
"""Seconds that a client may take to read its answer when the server stops."""
STOPPING = "The server is stopping, and the answer was not ready in time. Ask again."
SERVED = "OpenAI clients are answered at /v1/chat/completions and /v1/models."
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Server(ServerState):
    """One router behind HTTP: answers requests. The owner of the router opens and closes it. With
    `agents_only` it answers agents, and says how it is.
    """

    def __init__(
        self,
        router: ContextRouter,
        before: Server | None = None,
        *,
        worker: Worker = ALONE,
        agents_only: bool = False,
    ) -> None:
        super().__init__(router, before, worker)
        self.exchanges: dict[Exchange, asyncio.Task[Any]] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        serves_agents = agents_only or (self.settings.serve.mcp and mcp_installed())
        agents = (McpEndpoint(self).endpoint,) if serves_agents else ()
        explorer = page.ENDPOINTS if self.settings.serve.explorer else ()
        self.endpoints: tuple[Endpoint, ...] = (*router_endpoints.HEALTH, *agents)
        if not agents_only:
            self.endpoints = (
                *router_endpoints.ENDPOINTS,
                *answer_endpoint.ENDPOINTS,
                *chat.ENDPOINTS,
                *(cited_files.ENDPOINTS if self.settings.serve.files else ()),
                *agents,
                *explorer,
                DESCRIPTION,
            )
        self._table = {(endpoint.method, endpoint.path): endpoint for endpoint in self.endpoints}
        self._beginnings = [
            (endpoint.path.partition("{")[0], endpoint)
            for endpoint in self.endpoints
            if endpoint.path.endswith("}")
        ]

    async def answered(self) -> None:
        """Wait until no request is in flight."""
        await self._empty.wait()

    def stop_exchanges(self) -> None:
        """End all requests in flight: each gets an error, as its answer or as its last event."""
        for exchange, task in self.exchanges.items():
            exchange.stopped = True
            task.cancel()

    def _exchange(self, request: web.Request) -> Exchange:
        """Give a request its id, and find its endpoint; None: the path has none for the method."""
        method = "GET" if request.method == "HEAD" else request.method
        header = request.headers.get("X-Request-Id", "")
        request_id = header if _ID.fullmatch(header) else secrets.token_hex(8)
        path = request.path.rstrip("/") or "/"
        return Exchange(self, request, self._endpoint(method, path), request_id)

    def _endpoint(self, method: str, path: str) -> Endpoint | None:
        if endpoint := self._table.get((method, path)):
            return endpoint
        for beginning, endpoint in self._beginnings:
            if endpoint.method == method and path.startswith(beginning):
                return endpoint
        return None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle a request: answer it, add headers, write it, count it and log it."""
        exchange = self._exchange(request)
        task = asyncio.current_task()
        assert task is not None
        self.exchanges[exchange] = task
        self._empty.clear()
        tokens = current.set(exchange.request_id), trace_id.set(exchange.trace_id)
        started = monotonic()
        self.metrics.running.inc()
        status = GONE
        try:
            if is_preflight(request.method, request.headers):
                response: web.StreamResponse = web.Response(status=204)
            else:
                with caller_context(request.headers):
                    response = await self._answer(exchange)
            if not response.prepared:
                self.add_headers(exchange, response)
                status = await self._write(request, response)
            else:
                status = response.status
            return response
        finally:
            if exchange.events is not None:
                exchange.events.stop()
            exchange.places.close()
            self.metrics.running.dec()
            self._note(exchange, status, monotonic() - started)
            current.reset(tokens[0])
            trace_id.reset(tokens[1])
            del self.exchanges[exchange]
            if not self.exchanges:
                self._empty.set()

    async def _write(self, request: web.Request, response: web.StreamResponse) -> int:
        """Write an answer, and return its status; 499 if the client is gone.

        A client that does not read the answer in time loses its connection.
        """
        try:
            async with asyncio.timeout(self._write_seconds()):
                await response.prepare(request)
                await response.write_eof()
        except (ConnectionError, TimeoutError):
            _abort(request)
            return GONE
        return response.status

    def _write_seconds(self) -> float:
        seconds = self.settings.serve.write_seconds
        return min(seconds, LAST_WRITE) if self.draining else seconds

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        """Answer a request. An error becomes the answer, or the last event of a stream that has begun."""
        try:
            if exchange.endpoint is None:
                raise self._no_endpoint(exchange.request)
            return await self._authenticate(exchange, exchange.endpoint)
        except asyncio.CancelledError:
            if not exchange.stopped:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()  # the server cancelled it, so that its client is told
            return await self._refuse(exchange, Refused(503, "stopping", STOPPING))
        except Exception as error:
            if exchange.events is not None and isinstance(error, ConnectionError | TimeoutError):
                _abort(exchange.request)  # the client is gone
                return exchange.events
            refusal = make_refusal(error, self.settings.secrets)
            if refusal is None:
                log.exception("Request failed by a fault of this program.")
            refusal = hide_refusal(refusal or Refused(500, "fault", FAULT), error, exchange.caller)
            return await self._refuse(exchange, refusal)

    async def _refuse(self, exchange: Exchange, refusal: Refused) -> web.StreamResponse:
        """Return a refusal as the answer, or send it as the last event of the stream."""
        if exchange.openai:
            body = openai_error_body(refusal)
        else:
            body = problem_body(refusal, exchange.request_id, exchange.trace_id)
        if exchange.events is not None:
            await self._end(exchange.events, exchange, body)
            return exchange.events
        response = json_response(body, refusal.status, "application/json" if exchange.openai else MEDIA)
        response.headers.update(refusal.headers)
        return response

    def _no_endpoint(self, request: web.Request) -> Refused:
        """Return the refusal of a request that no endpoint answers."""
        path = request.path.rstrip("/") or "/"
        methods = {method for method in ("GET", "POST", "DELETE") if self._endpoint(method, path)}
        if not methods:
            if path.startswith(OPENAI):
                return Refused(404, "unsupported_endpoint", f"{path:.80} is not served. {SERVED}")
            return Refused(404, "not_found", "There is nothing here; /openapi.json lists what there is.")
        methods |= {"HEAD"} if "GET" in methods else set()
        allowed = {"Allow": ",".join(sorted(methods))}
        return Refused(405, "method_not_allowed", "This path does not know the method.", headers=allowed)

    async def _authenticate(self, exchange: Exchange, endpoint: Endpoint) -> web.StreamResponse:
        """Check the API key and the rate limit as the endpoint demands, then let the endpoint answer."""
        if not endpoint.guarded:
            return await endpoint.handle(exchange)
        headers = exchange.request.headers
        authorization = headers.get("Authorization", "")
        await self.access.prepare(authorization)
        exchange.caller = self.access.caller(
            authorization, exchange.request.host, headers, exchange.request.remote or ""
        )
        if not endpoint.limited:
            return await endpoint.handle(exchange)
        exchange.places.enter_context(self.limits.admit(exchange.caller))
        await self.limits.take(exchange.caller)
        await exchange.read(endpoint)
        return await endpoint.handle(exchange)

    async def _end(self, events: Events, exchange: Exchange, body: dict[str, object]) -> None:
        """Send an error as an event, and close the stream."""
        events.patience = self._write_seconds()
        try:
            await events.send(body, "" if exchange.openai else "error")
            if exchange.openai:
                await events.send("[DONE]")
            async with asyncio.timeout(events.patience):
                await events.write_eof()
        except (ConnectionError, TimeoutError):
            _abort(exchange.request)
            log.info("The client is gone.")

    def _note(self, exchange: Exchange, status: int, seconds: float) -> None:
        """Count and log a request by the path of its endpoint. The question stays private."""
        path = exchange.endpoint.path if exchange.endpoint else "other"
        method = exchange.request.method
        method = method if method in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self.metrics.request(method, path, status, seconds)
        fields = {
            "method": method,
            "path": path,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "caller": exchange.caller.name,
        }
        level = logging.ERROR if status == HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO
        log.log(level, "request", extra={"fields": fields})


def _abort(request: web.Request) -> None:
    """Close the connection at once; a client that does not read would keep it open."""
    if request.transport is not None:
        request.transport.abort()
