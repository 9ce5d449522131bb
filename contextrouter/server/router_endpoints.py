"""The endpoints of the router itself: questions, plans, sources, and how the server is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import web

from contextrouter.contracts import FactSource
from contextrouter.errors import RequestRefused
from contextrouter.model import Context, Document, Plan, Request, SourceReport
from contextrouter.scope import Scope
from contextrouter.serialization import plain
from contextrouter.server import metrics
from contextrouter.server.auth import Caller, narrowed
from contextrouter.server.endpoints import Endpoint, Exchange, ServerState, answered
from contextrouter.server.error_responses import Refused
from contextrouter.server.request_schema import (
    Health,
    PlanAsked,
    RouteAsked,
    SourceShown,
    SourcesShown,
    described,
)
from contextrouter.server.streams import closing
from contextrouter.settings import Instance

QUESTION = {"question": "What books talk about machine learning for beginners?"}


def sources_of(caller: Caller, asked: Sequence[str] | None) -> Sequence[str] | None:
    """The sources of one request. Raises Refused (403) for one that the caller may not ask."""
    if caller.sources is None or asked is None:
        return asked if caller.sources is None else caller.sources
    for name in asked:
        if name not in caller.sources:
            raise Refused(403, "source_not_allowed", f"This API key may not ask source {name!r}.")
    return asked


def request_of(exchange: Exchange) -> Request:
    """The router's request of an HTTP request."""
    body: PlanAsked = exchange.body
    scope = narrowed(exchange.caller, body.narrower())
    sources = sources_of(exchange.caller, body.sources)
    return body.request(scope, sources, exchange.server.settings.serve.max_deadline_seconds)


async def route(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/route."""
    request = request_of(exchange)
    if exchange.body.stream:
        return await _streamed(exchange, request)
    async with exchange.server.running:
        context = await exchange.server.router.route(request)
    exchange.server.metrics.context(context)
    return answered(plain(context))


async def _streamed(exchange: Exchange, request: Request) -> web.StreamResponse:
    """Source reports as they come, then the result; what goes wrong later is the last event."""
    if not request.question.strip():
        raise RequestRefused("The question is empty. Ask with at least one word.")
    events = await exchange.stream()
    parts: asyncio.Queue[SourceReport | Context | None] = asyncio.Queue()
    task = asyncio.get_running_loop().create_task(_looked_up(exchange.server, request, parts))
    try:
        while (part := await parts.get()) is not None:
            if isinstance(part, Context):
                exchange.server.metrics.context(part)
                await events.send(plain(part), "result")
            else:
                await events.send(plain(part), "report")
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
    await events.write_eof()
    return events


async def _looked_up(
    server: ServerState, request: Request, parts: asyncio.Queue[SourceReport | Context | None]
) -> None:
    """Put what comes into `parts`, None at the end: a client that reads slowly holds up nobody in line behind
    it.
    """
    try:
        async with server.running, closing(server.router.stream(request)) as stream:
            async for part in stream:
                parts.put_nowait(part)
    finally:
        parts.put_nowait(None)


async def plan(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/plan."""
    return answered(plain(await exchange.server.router.plan(request_of(exchange))))


async def sources(exchange: Exchange) -> web.StreamResponse:
    """GET /v1/sources."""
    server, caller = exchange.server, exchange.caller
    shown = []
    for name, source in server.router.instances.sources.items():
        legs = ("facts",) if isinstance(source, FactSource) else tuple(source.legs)
        shown.append(_source(server.settings.sources[name], legs, caller))
    scope = None if caller.scope is None else msgspec.to_builtins(caller.scope)
    routes = ["default", *(name for name in server.settings.routes if name != "default")]
    return answered(SourcesShown(sources=shown, routes=routes, caller=caller.name, scope=scope))


def _source(instance: Instance, legs: Sequence[str], caller: Caller) -> SourceShown:
    keys = instance.keys
    why = ""
    if caller.sources is not None and instance.name not in caller.sources:
        why = "not among the sources of this API key"
    elif not _may_see(caller.scope, keys.tenant, keys.compartment, keys.sensitivity):
        why = "outside the caller's scope"
    return SourceShown(
        name=instance.name,
        kind=instance.kind,
        use=instance.use,
        legs=legs,
        weight=getattr(keys, "weight", None),
        compartment=keys.compartment,
        sensitivity=keys.sensitivity,
        excluded=why,
    )


def _may_see(
    scope: Scope | None, tenant: str | None, compartment: str | None, sensitivity: str | None
) -> bool:
    if scope is None:
        return True
    labels = Document(
        content="", tenant=tenant or scope.tenant, compartment=compartment, sensitivity=sensitivity
    )
    return scope.allows(labels)


async def healthz(exchange: Exchange) -> web.StreamResponse:
    """GET /healthz: the process runs."""
    return answered(Health(status="ok"))


async def readyz(exchange: Exchange) -> web.StreamResponse:
    """GET /readyz: questions can be answered now."""
    server = exchange.server
    if server.draining:
        return answered(Health(status="draining"), 503)
    sources = server.router.settings.sources
    kinds = {(instance.kind, name) for name, instance in sources.items()}
    if kinds and kinds <= server.router.instances.closed:
        return answered(Health(status="no source is open"), 503)
    return answered(Health(status="ready"))


async def measured(exchange: Exchange) -> web.StreamResponse:
    """GET /metrics."""
    return web.Response(body=exchange.server.metrics.text(), headers={"Content-Type": metrics.MEDIA})


_ASKED = (400, 408, 413, 415, 422, 429, 502, 503, 504)
ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/route",
        handle=route,
        summary="Answer a question with numbered context, and how it came about",
        body=RouteAsked,
        answer=described(Context),
        errors=_ASKED,
        example=QUESTION,
        streams=(
            "`report` (a SourceReport) for each call as it ends, then `result` (the Context), or `error` (a"
            " Problem)"
        ),
    ),
    Endpoint(
        method="POST",
        path="/v1/plan",
        handle=plan,
        summary="Say what would be asked, without asking",
        body=PlanAsked,
        answer=described(Plan),
        errors=_ASKED,
        example=QUESTION,
    ),
    Endpoint(
        method="GET",
        path="/v1/sources",
        handle=sources,
        summary="The sources, and which of them the caller may ask",
        answer=SourcesShown,
        errors=(429, 503),
    ),
    Endpoint(
        method="GET",
        path="/healthz",
        handle=healthz,
        summary="Whether the process runs",
        answer=Health,
        guarded=False,
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        handle=readyz,
        summary="Whether questions can be answered now",
        answer=Health,
        guarded=False,
        errors=(503,),
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        handle=measured,
        summary="Metrics for Prometheus",
        media="text/plain",
        limited=False,
    ),
)
