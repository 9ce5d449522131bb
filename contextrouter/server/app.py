"""The server: the table of endpoints, and what every request goes through, in one place.

A request gets an id, is let in by its key and its caller's limits, is read and validated, answered, counted
and logged. Whatever goes wrong on the way becomes one kind of error object.
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
from contextrouter.server import chat, page, router_endpoints
from contextrouter.server.endpoints import PREFLIGHT, Endpoint, Exchange, ServerState, answered
from contextrouter.server.error_responses import FAULT, MEDIA, Refused, body_of, chat_body_of, refused
from contextrouter.server.logs import log
from contextrouter.server.logs import request_id as current
from contextrouter.server.openapi import DESCRIPTION

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Server(ServerState):
    """One router behind HTTP. `application()` is what aiohttp runs; the router is opened and closed by
    whoever made it.
    """

    def __init__(self, router: ContextRouter) -> None:
        super().__init__(router)
        shown = page.ENDPOINTS if self.settings.serve.explorer else ()
        self.endpoints: tuple[Endpoint, ...] = (
            *router_endpoints.ENDPOINTS,
            *chat.ENDPOINTS,
            *shown,
            DESCRIPTION,
        )
        self._table = {(endpoint.method, endpoint.path): endpoint for endpoint in self.endpoints}

    def application(self) -> web.Application:
        """The application, with every endpoint."""
        application = web.Application(
            client_max_size=self.settings.serve.max_body_bytes, middlewares=[self._pass]
        )
        for endpoint in self.endpoints:
            for method in ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,):
                application.router.add_route(method, endpoint.path, _passed)
        return application

    def _exchange(self, request: web.Request) -> Exchange:
        """The request with its id, and its endpoint where the path has one for the method."""
        method = "GET" if request.method == "HEAD" else request.method
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        return Exchange(self, request, self._table.get((method, request.path)), request_id)

    @web.middleware
    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """What every request goes through."""
        exchange = self._exchange(request)
        token = current.set(exchange.request_id)
        started = monotonic()
        self.metrics.running.inc()
        status = 499  # what is logged when the client goes away
        try:
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
                response: web.StreamResponse = web.Response(status=204, headers=PREFLIGHT)
            else:
                response = await self._answered(exchange, handler)
            status = response.status
            if not response.prepared:
                self.add_headers(exchange, response)
            return response
        finally:
            self.metrics.running.dec()
            self._note(exchange, status, monotonic() - started)
            current.reset(token)

    async def _answered(self, exchange: Exchange, handler: Handler) -> web.StreamResponse:
        """The answer, or the error as an answer, or as the last event of one that has begun."""
        try:
            if exchange.endpoint is None:
                return await handler(exchange.request)  # which raises what aiohttp has against it
            return await self._let_in(exchange, exchange.endpoint)
        except Exception as error:
            gone = exchange.events is not None and isinstance(error, ConnectionError | TimeoutError)
            refusal = refused(error, self.settings.secrets)
            if refusal is None and not gone:
                log.exception("Request failed by a fault of this program.")
            refusal = refusal or Refused(500, "fault", FAULT)
            body = chat_body_of(refusal) if exchange.openai else body_of(refusal, exchange.request_id)
            if exchange.events is not None:
                if not gone:
                    await self._end(exchange, body)
                return exchange.events
            response = answered(body, refusal.status, "application/json" if exchange.openai else MEDIA)
            response.headers.update(refusal.headers)
            return response

    async def _let_in(self, exchange: Exchange, endpoint: Endpoint) -> web.StreamResponse:
        if not endpoint.guarded:
            return await endpoint.handle(exchange)
        headers = exchange.request.headers
        exchange.caller = self.access.caller(headers.get("Authorization", ""), exchange.request.host)
        if not endpoint.limited:
            return await endpoint.handle(exchange)
        with self.pressure.held(exchange.caller):
            await exchange.read(endpoint)
            return await endpoint.handle(exchange)

    async def _end(self, exchange: Exchange, body: dict[str, object]) -> None:
        """Say in the stream what went wrong, and close it."""
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
        """Count and log a request by the path of its endpoint: what was asked is nobody's business."""
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


async def _passed(request: web.Request) -> web.StreamResponse:
    """In aiohttp's table of routes in place of every endpoint: the middleware has answered before."""
    raise web.HTTPNotFound
