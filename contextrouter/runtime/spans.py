"""OpenTelemetry: a span for each question, for each of its steps and for each call to a source.

Nothing of OpenTelemetry is imported here. Whoever wants spans has imported it and set a tracer provider;
without one, a question costs one look into `sys.modules`. The names of attributes are those of the semantic
conventions for generative AI, where these have one. Notes and errors stay out of spans: they may quote the
question.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from time import time_ns
from typing import Any

from contextrouter.errors import AllSourcesFailed
from contextrouter.model import Context, Request, SourceReport, Step
from contextrouter.runtime.distribution import VERSION
from contextrouter.settings.telemetry import Telemetry

API = "opentelemetry.trace"
OPERATION = {"gen_ai.operation.name": "retrieval"}
QUERY = "gen_ai.retrieval.query.text"
_ANSWERED = ("ok", "partial")


def tracer() -> Any | None:
    """Return the tracer of the provider that the program has set; None: it has set none."""
    api: Any = sys.modules.get(API)
    provider = getattr(api, "get_tracer_provider", lambda: None)()
    if provider is None or isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return provider.get_tracer("contextrouter", VERSION)


@contextmanager
def caller_context(headers: Mapping[str, str]) -> Iterator[None]:
    """Make what runs in this block a part of the trace that a request's `traceparent` names, unless it is a
    part of one already.
    """
    if tracer() is None or not headers.get("traceparent"):
        yield
        return
    api: Any = sys.modules[API]
    context: Any = import_module("opentelemetry.context")
    if api.get_current_span().get_span_context().is_valid:  # the program has instrumented the server itself
        yield
        return
    carrier = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
    token = context.attach(_propagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def current_traceparent() -> str:
    """Return the `traceparent` of the span that is open; "": there is none."""
    if tracer() is None:
        return ""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier.get("traceparent", "")


def _propagator() -> Any:
    propagation: Any = import_module("opentelemetry.trace.propagation.tracecontext")
    return propagation.TraceContextTextMapPropagator()


async def trace_route(
    request: Request, telemetry: Telemetry, work: Callable[[], Awaitable[Context]]
) -> Context:
    """Return the context that `work` makes, inside the span of the question."""
    made_by = tracer()
    if made_by is None:
        return await work()
    attributes: dict[str, Any] = {**OPERATION, **_query_attributes(request.question, telemetry)}
    if request.limit is not None:
        attributes["gen_ai.retrieval.top_k"] = request.limit
    with made_by.start_as_current_span(
        "contextrouter.route",
        attributes=attributes,
        record_exception=False,  # its message may quote the question
        set_status_on_exception=False,
    ) as span:
        try:
            context = await work()
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(_failed())
            raise
        span.set_attributes(
            {
                "contextrouter.route": context.route,
                "contextrouter.outcome": context.outcome,
                "contextrouter.documents": len(context.envelopes),
                "contextrouter.degraded": context.degraded,
                "contextrouter.cache": context.usage.cache,
            }
        )
        return context


async def trace_run(telemetry: Telemetry, work: Callable[[], Awaitable[Context]]) -> Context:
    """Return the context that `work` makes. Its trace becomes spans, below the one that is open."""
    made_by = tracer()
    if made_by is None:
        return await work()
    start = time_ns()
    try:
        context = await work()
    except AllSourcesFailed as error:
        for report in error.reports:
            _span_of_call(made_by, report, start, telemetry)
        raise
    calls = [report for report in context.coverage if report.status != "skipped"]
    for step in context.trace.steps:
        span = _span_of_step(made_by, step, start)
        if step.name == "fan_out":
            inside = [report for report in calls if report.started <= step.started + step.elapsed]
            calls = [report for report in calls if report not in inside]  # of the route after this one
            parent = sys.modules[API].set_span_in_context(span)
            for report in inside:
                _span_of_call(made_by, report, start, telemetry, parent)
    for report in calls:  # of a route that failed altogether, after one that found nothing
        _span_of_call(made_by, report, start, telemetry)
    return context


def _span_of_step(made_by: Any, step: Step, start: int) -> Any:
    begin, end = _times(step, start)
    attributes = {"contextrouter.live": step.live, "contextrouter.lost": len(step.lost)}
    span = made_by.start_span(f"contextrouter.{step.name}", start_time=begin, attributes=attributes)
    if step.failed:
        span.set_status(_failed())
    span.end(end)
    return span


def _span_of_call(
    made_by: Any, report: SourceReport, start: int, telemetry: Telemetry, parent: Any = None
) -> None:
    if report.status == "skipped":
        return
    begin, end = _times(report, start)
    attributes = {
        **OPERATION,
        "gen_ai.data_source.id": report.source,
        "contextrouter.leg": report.leg,
        "contextrouter.status": report.status,
        "contextrouter.hits": report.count,
        **_query_attributes(report.query, telemetry),
    }
    span = made_by.start_span(
        f"retrieval {report.source}", context=parent, start_time=begin, attributes=attributes
    )
    if report.status not in _ANSWERED:
        span.set_attribute("error.type", report.status)
        span.set_status(_failed())
    span.end(end)


def _times(part: Step | SourceReport, start: int) -> tuple[int, int]:
    """Return when a part of a request began and ended, in nanoseconds since 1970."""
    begin = start + round(part.started * 1e9)
    return begin, begin + round(part.elapsed * 1e9)


def _query_attributes(question: str, telemetry: Telemetry) -> dict[str, str]:
    return {QUERY: question} if telemetry.questions else {}


def _failed() -> Any:
    api: Any = sys.modules[API]
    return api.Status(api.StatusCode.ERROR)
