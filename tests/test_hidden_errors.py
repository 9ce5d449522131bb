"""A caller with a scope is told which source failed and how, and nothing of paths, addresses and tenants."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from mcp import Client
from support.serving import KEY, key, router, serve_router

from contextrouter import PluginError, Scope, SourceError
from contextrouter.contracts import Interpreter, Partial, Stage
from contextrouter.model import SourceReport
from contextrouter.pipeline.fan_out.entity_hints import NOT_SEARCHED
from contextrouter.server.auth import Caller, hash_key
from contextrouter.server.hidden_errors import hide_errors
from contextrouter.server.mcp_server.tools import make_mcp_server
from contextrouter.testing import Fixed, Raising

LEAK = "/srv/tenants/globex/payroll.csv of http://10.0.0.7/feed cannot be read"


class Incomplete(Fixed):
    """Answers with a part."""

    async def search(self, query: Any) -> Any:
        return Partial(await super().search(query), reason=LEAK)


class Failing(Interpreter):
    """Fails."""

    async def interpret(self, intent: Any, context: Any) -> Any:
        raise PluginError(LEAK)


class Noting(Stage):
    """Leaves the message of a failure as its note."""

    async def apply(self, envelopes: Any, context: Any) -> Any:
        context.note(LEAK)
        return envelopes


SOURCES = {"docs": Fixed("a"), "gone": Raising(SourceError(LEAK)), "part": Incomplete("b")}
OPEN = {"keys": {"anna": {"hash": hash_key(KEY), "unrestricted": True}}}


@pytest.mark.case("SEC-12")
@pytest.mark.parametrize("path", ["/v1/route", "/v1/plan", "stream"])
@pytest.mark.parametrize(("keys", "hidden"), [(key(), True), (OPEN, False)])
async def test_messages_of_failures_are_for_operators(
    path: str, keys: dict[str, Any], hidden: bool, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "contextrouter")
    rag = {"interpreters": ["odd"], "stages": ["noting"], "cache_enabled": False}
    plugins: dict[str, Any] = {"interpreters": {"odd": Failing()}, "stages": {"noting": Noting()}}
    made = router({**keys, "rag": rag}, connectors=SOURCES, **plugins)
    body: dict[str, Any] = {"question": "what?"}
    if path != "/v1/plan":
        body |= {"detail": "trace", "stream": path == "stream"}
    async with serve_router(made, token=KEY) as ask:
        reply = await ask("/v1/route" if path == "stream" else path, body)
    assert reply.status == 200
    assert ("globex" in reply.text) != hidden
    assert ("10.0.0.7" in reply.text) != hidden
    if path == "/v1/plan":
        return
    coverage = (reply.events[-1][1] if path == "stream" else reply.json)["coverage"]
    errors = {report["source"]: report["error"] for report in coverage if report["error"]}
    if hidden:
        assert errors == {"gone": "the source failed", "part": "a part of its answer is missing"}
        logged = [record.fields for record in caplog.records if record.message == "source failed"]
        assert {(fields["source"], fields["error"]) for fields in logged} == {("gone", LEAK), ("part", LEAK)}


@pytest.mark.case("SEC-12")
@pytest.mark.parametrize(("keys", "hidden"), [(key(), True), (OPEN, False)])
async def test_errors_of_a_request_hide_their_messages_too(keys: dict[str, Any], hidden: bool):
    gone = {"gone": Raising(SourceError(LEAK))}
    async with serve_router(router(keys, connectors=gone), token=KEY) as ask:
        reply = await ask("/v1/route", {"question": "what?"})
    assert (reply.status, "globex" in reply.text) == (502, not hidden)
    strict = {**keys, "interpreters": {"odd": {"on_error": "raise"}}, "rag": {"interpreters": ["odd"]}}
    async with serve_router(router(strict, interpreters={"odd": Failing()}), token=KEY) as ask:
        for path, body in (
            ("/v1/route", {"question": "what?"}),
            (
                "/v1/chat/completions",
                {"model": "contextrouter", "messages": [{"role": "user", "content": "q"}]},
            ),
        ):
            reply = await ask(path, body)
            assert (reply.status, "globex" in reply.text) == (502, not hidden)


@pytest.mark.case("SEC-12")
@pytest.mark.parametrize(("scope", "hidden"), [(Scope(), True), (None, False)])
async def test_a_tool_hides_messages_too(scope: Scope | None, hidden: bool):
    strict = {"interpreters": {"odd": {"on_error": "raise"}}, "rag": {"interpreters": ["odd"]}}
    made = router(strict, interpreters={"odd": Failing()})
    async with made, Client(make_mcp_server(made, lambda _: Caller(name="x", scope=scope))) as client:
        answer = await client.call_tool("route", {"question": "q"})
    assert answer.is_error
    assert ("globex" in answer.content[0].text) != hidden


@pytest.mark.case("SEC-12")
async def test_labels_of_sources_outside_a_scope_are_hidden():
    sources = {"docs": Fixed("a"), "pay": Fixed("b")}
    secret = {"connectors": {"pay": {"compartment": "project-x", "sensitivity": "restricted"}}}
    for keys, hidden in ((key(), True), (OPEN, False)):
        async with serve_router(router(keys | secret, connectors=sources), token=KEY) as ask:
            reply = await ask("/v1/sources")
        assert ("project-x" in reply.text) != hidden


@pytest.mark.case("SEC-12")
def test_the_reason_of_a_hint_that_was_not_looked_for_is_hidden():
    report = SourceReport(
        source="s", leg="facts", query="q", status="ok", note=f'"wife" {NOT_SEARCHED}: {LEAK}'
    )
    scoped, open_ = Caller(name="a", scope=Scope()), Caller(name="b")
    assert hide_errors(report, scoped).note == f'"wife" {NOT_SEARCHED}'
    assert hide_errors(report, open_).note == report.note
