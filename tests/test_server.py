"""The HTTP API against a real server: what is answered, what is refused and how, limits, logs, and an orderly
end.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest
from support.example import CommandLine, ingest_example
from support.serving import KEY, document, key, router, serve_router, start_server

from contextrouter import (
    ContextRouter,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
    RequestRefused,
    SourceError,
)
from contextrouter.server import Server, serve
from contextrouter.server.logs import Masked, Structured
from contextrouter.server.openapi import openapi_document as openapi
from contextrouter.testing.fakes import Fixed, Raising


class Concurrent(Fixed):
    """Takes a tenth of a second, and counts how many of its calls run at once."""

    def __init__(self) -> None:
        super().__init__("a b c", delay=0.1)
        self.running = self.highest = 0

    async def search(self, query: Query) -> Sequence[Hit]:
        self.running += 1
        self.highest = max(self.highest, self.running)
        try:
            return await super().search(query)
        finally:
            self.running -= 1


async def test_route_answers_with_the_whole_context():
    async with serve_router(router()) as ask:
        answer = await ask("/v1/route", {"question": "what?", "detail": "trace"})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    told = answer.json
    assert told["outcome"] == "answered"
    assert [each["document"]["id"] for each in told["envelopes"]] == ["a", "b", "c"]
    assert [(each["number"], each["source"]) for each in told["citations"]] == [
        (1, "docs"),
        (2, "docs"),
        (3, "docs"),
    ]
    assert told["degraded"] is False
    assert {step["name"] for step in told["trace"]["steps"]} >= {
        "plan",
        "fan_out",
        "fuse",
        "select",
        "assemble",
    }


async def test_a_stream_tells_each_source_when_it_comes_and_then_the_result():
    sources = {"slow": Fixed("a", delay=0.2), "fast": Fixed("b"), "gone": Raising(SourceError("no line"))}
    async with serve_router(router(connectors=sources)) as ask:
        answer = await ask("/v1/route", {"question": "what?", "stream": True})
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    names = [(name, data.get("source")) for name, data in answer.events]
    assert names[-2:] == [("report", "slow"), ("result", None)]
    assert {source for name, source in names if name == "report"} == {"slow", "fast", "gone"}
    assert answer.events[-1][1]["outcome"] == "answered"


async def test_reports_reach_the_client_before_the_slow_source_ends():
    slow = Fixed("a", delay=30)
    async with serve_router(router(connectors={"slow": slow, "fast": Fixed("b")})) as ask:
        body = json.dumps({"question": "what?", "stream": True}).encode()
        async with ask.session.post(
            f"{ask.url}/v1/route", data=body, headers={"Content-Type": "application/json"}
        ) as response:
            first = await response.content.readuntil(b"\n\n")
    assert b'"source":"fast"' in first


async def test_a_stream_whose_sources_all_fail_ends_with_the_error():
    async with serve_router(router(connectors={"gone": Raising(SourceError("no line"))})) as ask:
        answer = await ask("/v1/route", {"question": "what?", "stream": True})
    name, problem = answer.events[-1]
    assert (answer.status, name, problem["code"], problem["status"]) == (
        200,
        "error",
        "all_sources_failed",
        502,
    )
    assert problem["coverage"][0]["error"] == "no line"


async def test_curl_without_a_buffer_reads_a_stream():
    """`curl -N`, as people try it."""
    sent = ["-H", "Content-Type: application/json", "-d", '{"question": "what?", "stream": true}']
    async with serve_router(router()) as ask:
        ran = await asyncio.to_thread(
            subprocess.run,
            ["curl", "-sN", f"{ask.url}/v1/route", *sent],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert re.findall(r"^event: (\w+)$", ran.stdout, re.M) == ["report", "result"]


async def test_plan_says_what_would_be_asked_and_asks_nobody():
    source = Fixed("a")
    async with serve_router(router(connectors={"docs": source})) as ask:
        told = (await ask("/v1/plan", {"question": "what?", "sources": ["docs"]})).json
    assert [(call["source"], call["query"]["text"]) for call in told["calls"]] == [("docs", "what?")]
    assert source.queries == []


async def test_health_readiness_and_sources():
    async with serve_router(
        router({"connectors": {"docs": {"compartment": "hr"}}, "routes": {"quick": {}}})
    ) as ask:
        assert (await ask("/healthz")).json == {"status": "ok"}
        assert (await ask("/readyz")).json == {"status": "ready", "sources": {"docs": "ready"}}
        told = (await ask("/v1/sources")).json
    assert told["sources"] == [
        {
            "name": "docs",
            "kind": "connector",
            "use": "(made by hand)",
            "legs": ["default"],
            "weight": 1.0,
            "compartment": "hr",
            "sensitivity": None,
            "excluded": "",
        }
    ]
    assert (told["routes"], told["caller"], told["scope"]) == (["default", "quick"], "local", None)


async def test_a_server_whose_sources_cannot_be_opened_is_not_ready():
    class Closed(Fixed):
        async def open(self) -> None:
            raise SourceError("no line")

    async with serve_router(router(connectors={"docs": Closed()})) as ask:
        answer = await ask("/readyz")
    assert (answer.status, answer.json) == (
        503,
        {"status": "no source is open", "sources": {"docs": "not open"}},
    )


async def test_metrics_count_requests_and_calls_and_name_nothing_that_was_asked():
    async with serve_router(router(connectors={"docs": Fixed("a"), "gone": Raising()})) as ask:
        await ask("/v1/route", {"question": "the-secret-question"})
        await ask("/the-secret-path")
        text = (await ask("/metrics")).text
    assert 'contextrouter_requests_total{method="POST",path="/v1/route",status="200"} 1.0' in text
    assert 'contextrouter_source_calls_total{leg="default",source="docs",status="ok"} 1.0' in text
    assert 'contextrouter_source_calls_total{leg="default",source="gone",status="error"} 1.0' in text
    assert 'contextrouter_outcomes_total{outcome="answered"} 1.0' in text
    assert 'path="other",status="404"' in text
    assert "the-secret" not in text


REFUSED = [
    (b"", 400, "malformed_json"),
    (b"{", 400, "malformed_json"),
    (b'{"question": "\xff"}', 400, "malformed_json"),
    (b'{"question": "q", "profile": {"a": ' + b"[" * 100_000, 400, "malformed_json"),
    (b"[]", 422, "invalid_body"),
    (b"{}", 422, "invalid_body"),
    (b'{"question": 7}', 422, "invalid_body"),
    (b'{"question": ""}', 422, "invalid_body"),
    (b'{"question": "   "}', 422, "refused"),
    (b'{"question": "q", "qestion": "q"}', 422, "invalid_body"),
    (b'{"question": "q", "deadline": 0}', 422, "invalid_body"),
    (b'{"question": "q", "deadline": NaN}', 400, "malformed_json"),
    (b'{"question": "q", "sources": ["nowhere"]}', 422, "refused"),
    (b'{"question": "q", "legs": ["nowhere"]}', 422, "refused"),
    (b'{"question": "q", "scope": {"ceiling": "top"}}', 422, "invalid_body"),
    (b'{"question": "' + b"x" * 30_000 + b'"}', 422, "invalid_body"),
    (b'{"question": "' + b"x" * 2_000_000 + b'"}', 413, "body_too_large"),
]


@pytest.mark.parametrize("path", ["/v1/route", "/v1/plan"])
async def test_what_cannot_be_answered_is_refused_as_problem_details(path: str):
    async with serve_router(router()) as ask:
        for body, status, code in REFUSED:
            answer = await ask(path, data=io.BytesIO(body), headers={"Content-Type": "application/json"})
            assert (answer.status, answer.json["code"]) == (status, code), body[:60]
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert {"type", "title", "status", "detail", "code", "request_id"} <= set(answer.json)
            assert answer.json["request_id"] == answer.headers["X-Request-Id"]


async def test_other_paths_methods_and_media_are_refused():
    async with serve_router(router()) as ask:
        nowhere, method = await ask("/v1/nowhere"), await ask("/v1/route")
        form = await ask("/v1/route", data=b'{"question": "q"}', headers={"Content-Type": "text/plain"})
    assert (nowhere.status, nowhere.json["code"]) == (404, "not_found")
    assert (method.status, method.json["code"], method.headers["Allow"]) == (
        405,
        "method_not_allowed",
        "POST",
    )
    assert (form.status, form.json["code"]) == (415, "not_json")


async def test_a_fault_of_the_program_tells_the_caller_nothing_but_the_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def broken(self, question, **_):
        raise RuntimeError("password=hunter22 in the stack")

    monkeypatch.setattr(ContextRouter, "route", broken)
    async with serve_router(router()) as ask:
        answer = await ask("/v1/route", {"question": "q"}, headers={"X-Request-Id": "mine-1"})
    assert (answer.status, answer.json["code"], answer.json["request_id"]) == (500, "fault", "mine-1")
    assert "hunter22" not in answer.text
    assert "RuntimeError" in caplog.text


async def test_a_request_has_the_id_it_came_with_or_a_new_one():
    async with serve_router(router()) as ask:
        given = await ask("/healthz", headers={"X-Request-Id": "abc.DEF-1_2"})
        odd = await ask("/healthz", headers={"X-Request-Id": "a b;<script>"})
        long = await ask("/healthz", headers={"X-Request-Id": "x" * 65})
    assert given.headers["X-Request-Id"] == "abc.DEF-1_2"
    assert all(re.fullmatch("[0-9a-f]{16}", each.headers["X-Request-Id"]) for each in (odd, long))


@pytest.mark.case("NEW-10")
async def test_pages_of_other_sites_are_let_in_only_when_listed():
    """What a browser asks before a page sends is answered for the names it asks for, whatever they are."""
    names = "authorization,content-type,x-stainless-os,x-request-id"
    wanted = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": f"{names},no name,x\u00e4",
    }
    async with serve_router(router({"serve": {"cors_origins": ["https://app.example"]}})) as ask:
        before = await ask("/v1/chat/completions", method="OPTIONS", headers=wanted)
        others = [
            await ask("/v1/route", method="OPTIONS", headers={**wanted, "Origin": origin})
            for origin in ("https://evil.example", "https://app.example.evil.example", "null", "")
        ]
        answer = await ask("/v1/route", {"question": "q"}, headers={"Origin": "https://app.example"})
        stream = await ask(
            "/v1/route", {"question": "q", "stream": True}, headers={"Origin": "https://app.example"}
        )
        refused = await ask("/v1/nothing", {"question": "q"}, headers={"Origin": "https://app.example"})
    async with serve_router(router()) as ask:
        closed = await ask("/v1/route", {"question": "q"}, headers={"Origin": "https://app.example"})
    assert (before.status, before.headers["Access-Control-Allow-Origin"]) == (204, "https://app.example")
    assert before.headers["Access-Control-Allow-Headers"] == names.replace(",", ", ")
    assert before.headers["Access-Control-Max-Age"] == "600"
    assert before.headers["Vary"] == "Origin, Access-Control-Request-Headers"
    for each in (answer, stream, refused):
        assert each.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "x-request-id" in each.headers["Access-Control-Expose-Headers"]
    assert re.fullmatch("[0-9a-f]{16}", stream.headers["X-Request-Id"])
    assert not any(name.startswith("Access-Control") for each in (*others, closed) for name in each.headers)


@pytest.mark.case("NEW-47")
async def test_without_keys_a_name_of_this_machine_is_one_that_the_settings_list():
    docker = {"Host": "Host.Docker.internal:8791"}
    async with serve_router(router({"serve": {"allowed_hosts": ["host.docker.internal"]}})) as ask:
        listed = await ask("/v1/sources", headers=docker)
        others = [
            await ask("/v1/sources", headers={"Host": host})
            for host in ("x.host.docker.internal", "host.docker.internal.evil.example", "evil.example", "[")
        ]
    async with serve_router(router()) as ask:
        unlisted = await ask("/v1/sources", headers=docker)
    assert listed.status == 200
    assert {each.status for each in (*others, unlisted)} <= {400, 403}
    assert unlisted.json["code"] == "host_not_allowed"
    assert "'host.docker.internal' is one, add it to [serve] allowed_hosts" in unlisted.json["detail"]


async def test_more_requests_at_once_than_allowed_are_refused_at_once():
    async with serve_router(
        router({"serve": {"max_requests": 2}}, connectors={"docs": Fixed("a", delay=0.5)})
    ) as ask:
        answers = await asyncio.wait_for(
            asyncio.gather(*(ask("/v1/route", {"question": "q"}) for _ in range(5))), 30
        )
        after = await ask("/v1/route", {"question": "q"})
    assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503]
    assert {answer.headers["Retry-After"] for answer in answers if answer.status == 503} == {"1"}
    assert after.status == 200


async def test_questions_wait_their_turn_and_their_deadline_runs_from_it_on():
    most, chat = Concurrent(), {"model": "contextrouter"}
    settings = {
        "serve": {"max_running": 2},
        "rag": {"interpreters": [], "cache_enabled": False, "timeout_seconds": 0.4},
    }
    async with serve_router(router(settings, connectors={"docs": most})) as ask:
        answers = await asyncio.gather(
            *(ask("/v1/route", {"question": f"q{n}", "stream": n % 2 == 0}) for n in range(8)),
            *(
                ask("/v1/chat/completions", chat | {"messages": [{"role": "user", "content": f"q{n}"}]})
                for n in range(4)
            ),
        )
    assert [answer.status for answer in answers] == [200] * 12
    assert most.highest == 2  # 12 questions of 0.1 s each, two at a time: longer than 0.4 s
    assert all('"status":"timeout"' not in answer.text for answer in answers)


async def test_a_client_that_does_not_read_its_stream_holds_up_nobody():
    long = [document(f"d{n}", "word " * 20_000) for n in range(30)]
    rag = {"interpreters": [], "cache_enabled": False, "general_retrieval_final_count": 30}
    made = router({"serve": {"max_running": 1}, "rag": rag}, connectors={"docs": Fixed(long)})
    async with serve_router(made) as ask:
        host, port = ask.url.removeprefix("http://").split(":")
        body = json.dumps({"question": "q", "stream": True}).encode()
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        head = (
            f"POST /v1/route HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length:"
            f" {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.read(1)
        answer = await asyncio.wait_for(ask("/v1/route", {"question": "another"}), 20)
        writer.close()
    assert answer.status == 200


async def test_a_deadline_is_no_longer_than_the_settings_allow():
    """A caller learns it at every door that takes a deadline, with or without a trace."""
    connectors = {"a": Fixed("a"), "b": Fixed("b", delay=30)}
    long = {"question": "q", "deadline": 1000}
    async with serve_router(router({"serve": {"max_deadline_seconds": 0.1}}, connectors=connectors)) as ask:
        cut = await ask("/v1/route", long)
        streamed = await ask("/v1/route", {**long, "stream": True})
        planned = await ask("/v1/plan", long)
        short = await ask("/v1/route", {"question": "q", "deadline": 0.1})
    statuses = {report["source"]: report["status"] for report in cut.json["coverage"]}
    assert statuses == {"a": "ok", "b": "timeout"}
    assert [each.headers.get("X-Deadline-Seconds") for each in (cut, streamed, planned)] == ["0.1"] * 3
    assert "X-Deadline-Seconds" not in short.headers


async def test_a_body_that_does_not_come_is_not_waited_for():
    async with serve_router(router({"serve": {"body_seconds": 0.1}})) as ask:
        host, port = ask.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/route HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length:"
            b" 100\r\n\r\n{"
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        writer.close()
    assert head.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_goes_away_is_no_fault_and_stops_the_work(caplog: pytest.LogCaptureFixture):
    async with serve_router(router(connectors={"fast": Fixed("a"), "slow": Fixed("b", delay=20)})) as ask:
        for stream in (True, False):
            with pytest.raises(TimeoutError):
                await ask(
                    "/v1/route", {"question": "q", "stream": stream}, timeout=aiohttp.ClientTimeout(total=0.3)
                )
        for _ in range(200):
            if "contextrouter_requests_running 1.0" in (await ask("/metrics")).text:  # this one
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("the requests go on")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_openapi_document_is_of_the_types_that_validate():
    async with serve_router(router()) as ask:
        told = (await ask("/openapi.json")).json
    assert told["openapi"] == "3.1.0"
    assert set(told["paths"]) >= {
        "/v1/route",
        "/v1/plan",
        "/v1/sources",
        "/v1/chat/completions",
        "/v1/models",
        "/healthz",
        "/readyz",
    }
    body = told["paths"]["/v1/route"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/RouteAsked"}
    schema = told["components"]["schemas"]["RouteAsked"]
    assert schema["required"] == ["question"]
    assert schema["properties"]["question"] == {"type": "string", "minLength": 1, "maxLength": 20000}
    assert schema["additionalProperties"] is False
    assert "degraded" in told["components"]["schemas"]["Context"]["required"]
    assert told == json.loads(json.dumps(openapi(Server(router()).endpoints)))


async def test_strange_texts_arrive_and_are_answered():
    odd = [document("x", "half \ud800 a pair, \x00 and \u202e"), document("<script>alert(1)</script>")]
    async with serve_router(router(answer=odd)) as ask:
        answer = await ask("/v1/route", {"question": "\x00 \U0001f600 \u202e '; DROP", "detail": "full"})
    assert answer.status == 200
    assert answer.json["envelopes"][0]["document"]["content"] == "half \ufffd a pair, \x00 and \u202e"


async def test_without_keys_the_server_listens_to_this_machine_only():
    from contextrouter import SettingsError

    with pytest.raises(
        SettingsError,
        match=r"^Without keys the server listens to this machine only, not to '0\.0\.0\.0'\. Make one",
    ):
        await serve(router(), host="0.0.0.0", port=0)


async def test_a_port_that_is_taken_is_said():
    from contextrouter import SettingsError

    async with serve_router(router()) as ask:
        port = int(ask.url.rpartition(":")[2])
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}.* --port"):
            await serve(router(), port=port)


def test_logs_are_lines_of_json_with_ids_and_no_secret():
    record = logging.LogRecord(
        "contextrouter", logging.WARNING, "f", 1, "token=%s and known\nnext", ("abcdefgh1",), None
    )
    record.fields = {"status": 200}
    line = json.loads(Structured(["known"]).format(record))
    assert (line["message"], line["level"], line["status"]) == ("token=*** and ***\nnext", "warning", 200)
    assert "\n" not in Structured([]).format(record)
    record.fields = {"caller": "token x\n2026-01-01 ERROR made up\r"}
    text = Masked([]).format(record)
    assert "abcdefgh1" not in text
    assert text.splitlines()[1:] == ["next caller=token x\\n2026-01-01 ERROR made up\\r"]


SLOW = """
import asyncio
from pathlib import Path
from contextrouter import Connector, Document, Hit
class Slow(Connector):
    "Takes its time."
    async def search(self, query):
        Path(__file__).with_name("begun").touch()
        await asyncio.sleep(1.0)
        return [Hit(document=Document(id="slow", content="late"))]
"""


async def test_sigterm_lets_requests_in_flight_end_and_takes_no_new_ones(tmp_path: Path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "slow.py").write_text(SLOW)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["plugins"]\n[connectors.slow]\n')
    process, url = await asyncio.to_thread(start_server, tmp_path)
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/readyz") as response:
                assert response.status == 200
            asking = asyncio.create_task(session.post(f"{url}/v1/route", json={"question": "q"}))
            for _ in range(3000):
                if (tmp_path / "plugins" / "begun").exists():
                    break
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            response = await asking
            assert (response.status, (await response.json())["outcome"]) == (200, "answered")
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(f"{url}/readyz")
        await asyncio.to_thread(process.communicate, timeout=30)
        err = (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "no keys are set" in err
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert {"Stopping: requests in flight have 10 s to end.", "request"} <= {
        line["message"] for line in lines
    }
    assert all(
        re.fullmatch("[0-9a-f]{16}", line["request_id"]) for line in lines if line["message"] == "request"
    )


async def test_the_complete_example_is_served(tmp_path: Path):
    await ingest_example(tmp_path)
    async with serve_router(ContextRouter.from_toml(tmp_path / "settings.toml")) as ask:
        told = (
            await ask("/v1/route", {"question": "What books talk about machine learning for beginners?"})
        ).json
        again = (
            await ask("/v1/route", {"question": "What books talk about machine learning for beginners?"})
        ).json
    assert (told["outcome"], told["cached"], again["cached"]) == ("answered", False, True)
    assert len(told["envelopes"]) == len(told["citations"]) > 5
    assert KEY not in json.dumps(told)
    assert key()["keys"]["anna"]["hash"].startswith("sha256:")


async def test_the_demo_says_how_to_open_the_explorer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The explorer opens on the data of the demo, without a key."""
    ran = await asyncio.to_thread(CommandLine(monkeypatch, capsys), "demo", "--into", "demo", cwd=tmp_path)
    assert "cd demo && contextrouter serve" in ran.out
    assert "http://127.0.0.1:8080/explorer" in ran.out
    async with serve_router(ContextRouter.from_toml(tmp_path / "demo" / "settings.toml")) as ask:
        page = await ask("/explorer")
        told = (await ask("/v1/route", {"question": "Who founded OpenAI?"})).json
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'; script-src 'self'" in page.headers["Content-Security-Policy"]
    assert told["facts"][0]["subject"] == "OpenAI"


async def test_the_explorer_can_be_left_out():
    async with serve_router(router({"serve": {"explorer": False}})) as ask:
        assert (await ask("/explorer")).status == 404


class Quota(Interpreter):
    """Refuses every question, for good or for a while."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        raise RequestRefused("The quota of today is used up.", retry_after=self.seconds)


@pytest.mark.case("T18")
@pytest.mark.parametrize(("seconds", "status", "after"), [(None, 403, None), (2.5, 429, "3"), (0, 429, "1")])
async def test_what_an_interpreter_refuses_is_403_or_for_a_while_429(
    seconds: float | None, status: int, after: str | None
):
    asked = Fixed("a")
    made = ContextRouter(
        {"rag": {"interpreters": ["quota"]}},
        connectors={"docs": asked},
        interpreters={"quota": Quota(seconds)},
    )
    async with serve_router(made) as ask:
        answer = await ask("/v1/route", {"question": "what?"})
    assert (answer.status, answer.headers.get("Retry-After")) == (status, after)
    assert "quota of today" in answer.json["detail"]
    assert asked.queries == []
