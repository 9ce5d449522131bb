"""HTTP endpoints of the router: route, plan, sources, health checks and Prometheus metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import web

from contextrouter.answering.closing import closing
from contextrouter.contracts import legs_of
from contextrouter.errors import RequestRefused
from contextrouter.model import Context, Document, Plan, Request, SourceReport
from contextrouter.model.plain_form import encode_json
from contextrouter.pipeline.run import AT_ONCE
from contextrouter.runtime.threads import work_aside
from contextrouter.scope import Scope
from contextrouter.serialization import plain
from contextrouter.server import metrics
from contextrouter.server.auth import Caller, narrow_scope
from contextrouter.server.citation_links import follow, origin_of
from contextrouter.server.endpoints import Endpoint, Exchange, ServerState, json_response
from contextrouter.server.error_responses import Refused
from contextrouter.server.hidden_errors import hide_errors
from contextrouter.server.request_schema import (
    Health,
    PlanAsked,
    RouteAsked,
    SourceShown,
    SourcesShown,
    schema_type,
)
from contextrouter.settings import Instance

QUESTION = {"question": "What books talk about machine learning for beginners?"}


def check_sources(caller: Caller, names: Sequence[str] | None) -> Sequence[str] | None:
    """Return the sources of one request. Raises Refused (403) for one that the caller may not ask."""
    if caller.sources is None or names is None:
        return names if caller.sources is None else caller.sources
    for name in names:
        if name not in caller.sources:
            raise Refused(403, "source_not_allowed", f"This API key may not ask source {name!r}.")
    return names


def make_request(exchange: Exchange) -> Request:
    """Make the router's request from an HTTP request."""
    body: PlanAsked = exchange.body
    scope = narrow_scope(exchange.caller, body.read_scope())
    sources = check_sources(exchange.caller, body.sources)
    return body.make_request(scope, sources, exchange.server.settings)


async def retrieve(server: ServerState, request: Request) -> Context:
    """Find the context of a request, within the limit of requests that run."""
    async with server.running:
        context = await server.router.route(request)
    server.metrics.context(context)
    return context


async def route(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/route."""
    request = make_request(exchange)
    if exchange.body.stream:
        return await _stream(exchange, request)
    context = await retrieve(exchange.server, request)
    return web.Response(body=await _encode(context, exchange), content_type="application/json")


async def _encode(context: Context, exchange: Exchange) -> bytes:
    """Return a context as JSON. A large one is encoded in a thread, while the event loop answers others."""
    visible, detail = hide_errors(context, exchange.caller), exchange.body.detail
    visible = follow(visible, exchange.caller, origin_of(exchange))
    if detail != "trace" and len(context.text) + len(context.question) < AT_ONCE:
        return encode_json(plain(visible, detail))
    return await work_aside(lambda: encode_json(plain(visible, detail)))


async def _stream(exchange: Exchange, request: Request) -> web.StreamResponse:
    """Send source reports as they come, then the result. An error in between is the last event."""
    if not request.question.strip():
        raise RequestRefused("The question is empty. Ask with at least one word.")
    events = await exchange.stream()
    parts: asyncio.Queue[SourceReport | Context | None] = asyncio.Queue()
    task = asyncio.get_running_loop().create_task(_run_stream(exchange.server, request, parts))
    try:
        while (part := await parts.get()) is not None:
            if isinstance(part, Context):
                exchange.server.metrics.context(part)
                await events.send((await _encode(part, exchange)).decode(), "result")
            else:
                await events.send(plain(hide_errors(part, exchange.caller)), "report")
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
    await events.write_eof()
    return events


async def _run_stream(
    server: ServerState, request: Request, parts: asyncio.Queue[SourceReport | Context | None]
) -> None:
    """Put the parts of a routed stream into a queue, and None at the end.

    A client that reads slowly does not occupy a slot that others wait for.
    """
    try:
        async with server.running, closing(server.router.stream(request)) as stream:
            async for part in stream:
                parts.put_nowait(part)
    finally:
        parts.put_nowait(None)


async def plan(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/plan."""
    plan = await exchange.server.router.plan(make_request(exchange))
    return json_response(plain(hide_errors(plan, exchange.caller)))


async def sources(exchange: Exchange) -> web.StreamResponse:
    """GET /v1/sources."""
    server, caller = exchange.server, exchange.caller
    descriptions = []
    for name, source in server.router.instances.sources.items():
        visible = _source(server.settings.sources[name], legs_of(source), caller)
        if visible.excluded and caller.scope is not None:  # the labels of others are none of its business
            visible = msgspec.structs.replace(visible, compartment=None, sensitivity=None)
        descriptions.append(visible)
    scope = None if caller.scope is None else msgspec.to_builtins(caller.scope)
    routes = ["default", *(name for name in server.settings.routes if name != "default")]
    shown_sources = SourcesShown(
        sources=descriptions,
        routes=routes,
        caller=caller.name,
        scope=scope,
        examples=server.settings.serve.examples,
    )
    return json_response(shown_sources)


def _source(instance: Instance, legs: Sequence[str], caller: Caller) -> SourceShown:
    keys = instance.keys
    excluded = ""
    if caller.sources is not None and instance.name not in caller.sources:
        excluded = "not among the sources of this API key"
    elif not _may_see(caller.scope, keys.tenant, keys.compartment, keys.sensitivity):
        excluded = "outside the caller's scope"
    return SourceShown(
        name=instance.name,
        kind=instance.kind,
        use=instance.use,
        legs=legs,
        weight=getattr(keys, "weight", None),
        compartment=keys.compartment,
        sensitivity=keys.sensitivity,
        excluded=excluded,
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
    """GET /healthz: liveness, the process runs."""
    return json_response(Health(status="ok", worker=exchange.server.worker.number))


async def readyz(exchange: Exchange) -> web.StreamResponse:
    """GET /readyz: readiness, the server can answer questions."""
    server = exchange.server
    if server.leaving or server.draining:
        return json_response(Health(status="draining"), 503)
    states, required = await server.pings.states(), server.pings.required
    failing = [name for name in required if states[name] != "ready"]
    status = "ready"
    if failing:
        status = f"required sources cannot answer: {', '.join(failing)}"
    elif states and set(states.values()) == {"not open"}:
        status = "no source is open"
    body = Health(status=status, sources=states, required=required)
    return json_response(body, 200 if status == "ready" else 503)


async def get_metrics(exchange: Exchange) -> web.StreamResponse:
    """GET /metrics."""
    exchange.server.count_abandoned()
    return web.Response(body=exchange.server.metrics.text(), headers={"Content-Type": metrics.MEDIA})


QUESTION_ERRORS = (400, 408, 413, 415, 422, 429, 502, 503, 504)
HEALTH = (
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
        handle=get_metrics,
        summary="Metrics for Prometheus",
        media="text/plain",
        limited=False,
    ),
)
ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/route",
        handle=route,
        summary="Answer a question with numbered context, and how it came about",
        body=RouteAsked,
        answer=schema_type(Context),
        errors=QUESTION_ERRORS,
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
        answer=schema_type(Plan),
        errors=QUESTION_ERRORS,
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
    *HEALTH,
)
