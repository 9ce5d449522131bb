"""OpenTelemetry: the tree of spans of a question, its caller's trace, what is sent on, and what is not told."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.hostile import ALLOWED, Hostile, send
from support.serving import router, serve_router

from contextrouter import AllSourcesFailed, ContextRouter, Hit, Query, SettingsError
from contextrouter.runtime.spans import tracer
from contextrouter.testing.fakes import Fixed

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


class Slow(Fixed):
    """Answers after fifty milliseconds."""

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.sleep(0.05)
        return await super().search(query)


class Broken(Fixed):
    async def search(self, query: Query) -> Sequence[Hit]:
        raise OSError(f"nobody answers {query.text}")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a program's tracer provider exports."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    finished = {span.name: span for span in spans.get_finished_spans()}
    assert len(finished) == len(spans.get_finished_spans())
    return finished


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def nanoseconds(span: ReadableSpan) -> int:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.end_time - span.start_time


async def test_a_question_is_a_tree_of_steps_with_calls_below_the_fan_out(spans: InMemorySpanExporter):
    made = router(connectors={"fast": Fixed("a b"), "slow": Slow("c"), "broken": Broken("")})
    async with made:
        context = await made.route("what?", limit=3)
    found = by_name(spans)
    steps = [f"contextrouter.{step.name}" for step in context.trace.steps]
    calls = ["retrieval fast", "retrieval slow", "retrieval broken"]
    assert set(found) == {"contextrouter.route", *steps, *calls}
    route, fan_out = found["contextrouter.route"], found["contextrouter.fan_out"]
    assert parent_of(route) is None
    assert {parent_of(found[name]) for name in steps} == {route.context.span_id}
    assert {parent_of(found[name]) for name in calls} == {fan_out.context.span_id}
    assert {span.context.trace_id for span in found.values()} == {route.context.trace_id}

    for step in context.trace.steps:
        assert nanoseconds(found[f"contextrouter.{step.name}"]) == round(step.elapsed * 1e9)
    assert nanoseconds(found["retrieval slow"]) >= 50_000_000
    assert fan_out.start_time <= found["retrieval slow"].start_time
    assert found["retrieval slow"].end_time <= fan_out.end_time
    assert route.start_time <= found[steps[0]].start_time
    assert found[steps[-1]].end_time <= route.end_time
    for before, after in itertools.pairwise(steps):  # one follows the other
        assert abs(found[after].start_time - found[before].end_time) <= 2  # rounded to nanoseconds

    assert dict(found["retrieval fast"].attributes) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "fast",
        "contextrouter.leg": "default",
        "contextrouter.status": "ok",
        "contextrouter.hits": 2,
    }
    assert not found["retrieval broken"].status.is_ok
    assert found["retrieval broken"].attributes["error.type"] == "error"
    assert dict(route.attributes) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.top_k": 3,
        "contextrouter.route": "default",
        "contextrouter.outcome": "answered",
        "contextrouter.documents": 3,
        "contextrouter.degraded": True,
        "contextrouter.cache": "",
    }


async def test_nothing_of_a_question_is_in_a_span_unless_it_is_wanted(spans: InMemorySpanExporter):
    for questions in (False, True):
        made = router({"telemetry": {"questions": questions}}, connectors={"a": Fixed("a"), "b": Broken("")})
        async with made:
            await made.route("my secret illness")
            with pytest.raises(AllSourcesFailed):
                await made.route("my secret illness", sources=("b",))
        everything = " ".join(span.to_json() for span in spans.get_finished_spans())
        assert ("illness" in everything) is questions
        spans.clear()


async def test_the_span_of_the_program_is_the_parent_and_caches_have_no_steps(spans: InMemorySpanExporter):
    async with ContextRouter({}, connectors={"docs": Fixed("a")}) as made:
        own = trace.get_tracer_provider().get_tracer("program")
        with own.start_as_current_span("program") as program:
            await made.route("what?")
        assert parent_of(by_name(spans)["contextrouter.route"]) == program.get_span_context().span_id
        spans.clear()
        await made.route("what?")
        (cached,) = spans.get_finished_spans()
        assert (cached.name, cached.attributes["contextrouter.cache"]) == ("contextrouter.route", "memory")
        spans.clear()
        async for _ in made.stream("what?"):
            pass
        assert {"contextrouter.route", "retrieval docs"} <= by_name(spans).keys()


async def test_the_trace_of_a_caller_over_http_goes_on(spans: InMemorySpanExporter):
    async with serve_router(router()) as ask:
        answer = await ask("/v1/route", {"question": "q"}, headers={"traceparent": TRACEPARENT})
        await ask("/v1/route", {"question": "q"}, headers={"traceparent": "00-nonsense"})
    assert answer.status == 200
    first, second = [span for span in spans.get_finished_spans() if span.name == "contextrouter.route"]
    assert f"{first.context.trace_id:032x}" == TRACE
    assert f"{parent_of(first):016x}" == SPAN
    assert parent_of(second) is None


class Api(Hostile):
    """Answers any question, and keeps the `traceparent` of each request by its path."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}

    async def answer(self, path: str, head: str, writer: asyncio.StreamWriter) -> None:
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        self.sent[head.split(" ")[1]] = headers.get("traceparent", "")
        body = json.dumps([{"id": "a", "text": "a"}]).encode()
        await send(writer, "200 OK", body, {"Content-Type": "application/json"})


async def asked_sources(**telemetry: object) -> dict[str, str]:
    """The `traceparent` that the sources "mine" and "other" got."""
    async with Api() as server:
        connector = {"use": "http_api", "fields": {"content": "text", "id": "id"}, "allow_private": ALLOWED}
        sources = {name: {**connector, "url": f"{server.url}/{name}"} for name in ("mine", "other")}
        settings = {
            "connectors": sources,
            "telemetry": telemetry,
            "rag": {"cache_enabled": False, "interpreters": []},
        }
        async with ContextRouter(settings) as made:
            context = await made.route("q")
        assert [report.status for report in context.coverage] == ["ok", "ok"]
        return {path.strip("/").partition("?")[0]: value for path, value in server.sent.items()}


async def test_the_trace_goes_on_to_named_sources_only(spans: InMemorySpanExporter):
    sent = await asked_sources(send_to=["mine"])
    route = by_name(spans)["contextrouter.route"].context
    ids = f"{route.trace_id:032x}-{route.span_id:016x}"
    assert sent == {"mine": f"00-{ids}-{int(route.trace_flags):02x}", "other": ""}
    assert await asked_sources() == {"mine": "", "other": ""}


async def test_without_a_provider_nothing_is_sent_on():
    assert tracer() is None
    assert await asked_sources(send_to=["mine"]) == {"mine": "", "other": ""}


def test_a_source_that_is_not_defined_is_an_error():
    with pytest.raises(
        SettingsError, match=r"telemetry.send_to: 'dosc' is no defined source. Did you mean 'docs'"
    ):
        ContextRouter({"telemetry": {"send_to": ["dosc"]}, "providers": {"docs": {"use": "memory"}}})


def test_without_a_provider_nothing_of_opentelemetry_is_imported():
    code = (
        "import asyncio, sys\nfrom contextrouter import ContextRouter\n"
        "async def main():\n"
        "    async with ContextRouter({'providers': {'memory': {'documents': []}}}) as router:\n"
        "        await router.route('what?')\n"
        "asyncio.run(main())\nprint([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
