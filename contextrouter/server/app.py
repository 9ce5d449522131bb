"""The HTTP server: the table of endpoints, and the middleware that handles every request.

The middleware gives a request its id, authenticates its API key, applies the caller's rate limit, and reads
and validates the body. It counts and logs every answer, and turns every error into problem details.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import monotonic

from aiohttp import web

from contextrouter.router import ContextRouter
from contextrouter.server import answer_endpoint, chat, page, router_endpoints
from contextrouter.server.endpoints import PREFLIGHT, Endpoint, Exchange, ServerState, json_response
from contextrouter.server.error_responses import (
    FAULT,
    MEDIA,
    Refused,
    make_refusal,
    openai_error_body,
    problem_body,
)
from contextrouter.server.hidden_errors import hide_refusal
from contextrouter.server.logs import log
from contextrouter.server.logs import request_id as current
from contextrouter.server.openapi import DESCRIPTION

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Server(ServerState):
    """One router behind HTTP. aiohttp runs `application()`. The owner of the router opens and closes it."""

    def __init__(self, router: ContextRouter) -> None:
        super().__init__(router)
        explorer = page.ENDPOINTS if self.settings.serve.explorer else ()
        self.endpoints: tuple[Endpoint, ...] = (
            *router_endpoints.ENDPOINTS,
            *answer_endpoint.ENDPOINTS,
            *chat.ENDPOINTS,
            *explorer,
            DESCRIPTION,
        )
        self._table = {(endpoint.method, endpoint.path): endpoint for endpoint in self.endpoints}

    def application(self) -> web.Application:
        """Return the aiohttp application, with every endpoint."""
        application = web.Application(
            client_max_size=self.settings.serve.max_body_bytes, middlewares=[self._pass]
        )
        for endpoint in self.endpoints:
            for method in ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,):
                application.router.add_route(method, endpoint.path, _not_found)
        return application

    def _exchange(self, request: web.Request) -> Exchange:
        """Give a request its id, and find its endpoint; None: the path has none for the method."""
        method = "GET" if request.method == "HEAD" else request.method
        header = request.headers.get("X-Request-Id", "")
        request_id = header if _ID.fullmatch(header) else secrets.token_hex(8)
        return Exchange(self, request, self._table.get((method, request.path)), request_id)

    @web.middleware
    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request: answer it, add headers, count it and log it."""
        exchange = self._exchange(request)
        token = current.set(exchange.request_id)
        started = monotonic()
        self.metrics.running.inc()
        status = 499  # for the log, when the client goes away
        try:
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
                response: web.StreamResponse = web.Response(status=204, headers=PREFLIGHT)
            else:
                response = await self._answer(exchange, handler)
            status = response.status
            if not response.prepared:
                self.add_headers(exchange, response)
            return response
        finally:
            self.metrics.running.dec()
            self._note(exchange, status, monotonic() - started)
            current.reset(token)

    async def _answer(self, exchange: Exchange, handler: Handler) -> web.StreamResponse:
        """Answer a request. An error becomes the answer, or the last event of a stream that has begun."""
        try:
            if exchange.endpoint is None:
                return await handler(exchange.request)  # it raises aiohttp's error for the path or the method
            return await self._authenticate(exchange, exchange.endpoint)
        except Exception as error:
            gone = exchange.events is not None and isinstance(error, ConnectionError | TimeoutError)
            refusal = make_refusal(error, self.settings.secrets)
            if refusal is None and not gone:
                log.exception("Request failed by a fault of this program.")
            refusal = hide_refusal(refusal or Refused(500, "fault", FAULT), error, exchange.caller)
            body = (
                openai_error_body(refusal) if exchange.openai else problem_body(refusal, exchange.request_id)
            )
            if exchange.events is not None:
                if not gone:
                    await self._end(exchange, body)
                return exchange.events
            response = json_response(body, refusal.status, "application/json" if exchange.openai else MEDIA)
            response.headers.update(refusal.headers)
            return response

    async def _authenticate(self, exchange: Exchange, endpoint: Endpoint) -> web.StreamResponse:
        """Check the API key and the rate limit as the endpoint demands, then let the endpoint answer."""
        if not endpoint.guarded:
            return await endpoint.handle(exchange)
        headers = exchange.request.headers
        exchange.caller = self.access.caller(headers.get("Authorization", ""), exchange.request.host)
        if not endpoint.limited:
            return await endpoint.handle(exchange)
        with self.limits.admit(exchange.caller):
            await exchange.read(endpoint)
            return await endpoint.handle(exchange)

    async def _end(self, exchange: Exchange, body: dict[str, object]) -> None:
        """Send an error as an event, and close the stream."""
        events = exchange.events
        assert events is not None
        try:
            await events.send(body, "" if exchange.openai else "error")
            if exchange.openai:
                await events.send("[DONE]")
            await events.write_eof()
        except (ConnectionError, TimeoutError):
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


async def _not_found(request: web.Request) -> web.StreamResponse:
    """Stand in for every endpoint in aiohttp's table of routes. The middleware answers instead."""
    raise web.HTTPNotFound
