"""A server in operation: reload, drain, readiness, heartbeats, trace ids, and clients that send or read
nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from support.serving import Client, key, router, serve_router

from contextrouter import Connector, ContextRouter, Document, Generator, Hit, Query, SourceError
from contextrouter.errors import SettingsError
from contextrouter.ingest import run
from contextrouter.server.logs import Structured, read_trace_id
from contextrouter.testing.fakes import Fixed

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
ASK = {"question": "what?"}


class Held(Fixed):
    """Answers when `go` is set."""

    def __init__(self) -> None:
        super().__init__("a")
        self.asked, self.go, self.closed = asyncio.Event(), asyncio.Event(), False

    async def search(self, query: Query) -> Sequence[Hit]:
        self.asked.set()
        await self.go.wait()
        return await super().search(query)

    async def aclose(self) -> None:
        self.closed = True


PATIENT = {"rag": {"interpreters": [], "cache_enabled": False, "timeout_seconds": 60}}


def settings_of(content: str, serve: str = "") -> str:
    return (
        f'[serve]\n{serve}\n[providers.memory]\ndocuments = [{{ id = "{content}", content = "{content}" }}]\n'
    )


async def ids(ask: Client) -> list[str]:
    answer = await ask("/v1/route", {"question": "otter heron"})
    return [envelope["document"]["id"] for envelope in answer.json["envelopes"]]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until a text is in the log."""
    await until(lambda: text in caplog.text)


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.case("B16")
@pytest.mark.case("NEW-30")
async def test_a_hang_up_reads_the_settings_again_and_loses_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    file = tmp_path / "settings.toml"
    file.write_text(settings_of("otter"))
    async with serve_router(ContextRouter.from_toml(file)) as ask:
        assert await ids(ask) == ["otter"]
        file.write_text(settings_of("heron"))
        hang_up()
        await logged(caplog, "Reloaded the settings.")
        assert await ids(ask) == ["heron"]
        file.write_text("[rag]\nrrf_k = -1\n")
        hang_up()
        await logged(caplog, "Reload failed, so the old settings stay: ")
        assert await ids(ask) == ["heron"]
        text = (await ask("/metrics")).text
    assert "rrf_k" in caplog.text
    assert 'path="/v1/route",status="200"} 3.0' in text


SLOW = """
import asyncio
from contextrouter import Connector, Document, Hit

HERE = __import__("pathlib").Path(__file__).parent

class Plugin(Connector):
    async def search(self, query):
        (HERE / "begun").touch()
        while not (HERE / "go").exists():
            await asyncio.sleep(0.01)
        return [Hit(document=Document(id="slow", content="late"))]

    async def aclose(self):
        (HERE / "closed").touch()
"""


@pytest.mark.case("B16", "REL-02")
async def test_the_old_router_answers_its_last_request_and_is_closed_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "slow.py").write_text(SLOW)
    file = tmp_path / "settings.toml"
    file.write_text('[rag]\ntimeout_seconds = 60\n[plugins]\npaths = ["plugins"]\n[connectors.slow]\n')
    async with serve_router(ContextRouter.from_toml(file)) as ask:
        waiting = asyncio.create_task(ask("/v1/route", ASK))
        await until((plugins / "begun").exists)
        file.write_text(settings_of("heron"))
        hang_up()
        await logged(caplog, "Reloaded the settings.")
        assert await ids(ask) == ["heron"]
        assert not (plugins / "closed").exists()
        (plugins / "go").touch()
        answer = (await waiting).json
        assert [envelope["document"]["id"] for envelope in answer["envelopes"]] == ["slow"]
        await until((plugins / "closed").exists)


@pytest.mark.case("B16")
async def test_a_router_that_a_program_made_is_not_reloaded_and_says_so(caplog: pytest.LogCaptureFixture):
    async with serve_router(router()) as ask:
        hang_up()
        await logged(caplog, "Reload failed, so the old settings stay: the router was made by a program")
        assert (await ask("/v1/route", ASK)).status == 200


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of bytes."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.case("OPS-03")
async def test_a_stop_ends_streams_with_an_error_and_other_requests_with_503():
    held = Held()
    made = router({**PATIENT, "serve": {"drain_seconds": 0.4}}, connectors={"docs": held})
    async with aiohttp.ClientSession() as session:
        async with serve_router(made) as ask:
            ask.session = session
            stream = asyncio.create_task(ask("/v1/route", {**ASK, "stream": True}))
            await held.asked.wait()
            held.asked.clear()
            plain = asyncio.create_task(ask("/v1/route", {"question": "what else?"}))
            await held.asked.wait()
        ended, refused = await stream, await plain
    name, problem = ended.events[-1]
    assert (name, problem["status"], problem["code"]) == ("error", 503, "stopping")
    assert (refused.status, refused.json["code"]) == (503, "stopping")
    assert held.closed


@pytest.mark.case("OPS-03")
async def test_a_plugin_that_does_not_close_does_not_keep_the_server(caplog: pytest.LogCaptureFixture):
    class Stubborn(Fixed):
        async def aclose(self) -> None:
            await asyncio.Event().wait()

    made = router({"serve": {"drain_seconds": 0.2}}, connectors={"docs": Stubborn("a")})
    async with asyncio.timeout(60), serve_router(made) as ask:
        assert (await ask("/v1/route", ASK)).status == 200
    assert "a plugin did not close" in caplog.text


class QuietGenerator(Generator):
    """Writes nothing until `go` is set."""

    def __init__(self, go: asyncio.Event) -> None:
        self.go = go

    async def complete(self, messages, *, schema=None):
        raise NotImplementedError

    async def stream(self, messages):
        await self.go.wait()
        yield "done"


@pytest.mark.case("SSE-11")
@pytest.mark.parametrize("path", ["/v1/route", "/v1/chat/completions"])
async def test_a_silent_stream_sends_comments(path: str):
    held = Held()
    settings = {**PATIENT, "serve": {"heartbeat_seconds": 0.05}, "chat": {"synthesis_model": "quiet"}}
    quiet = QuietGenerator(held.go)
    if path.startswith("/v1/chat"):
        held.go = asyncio.Event()
        held.go.set()
    made = router(settings, connectors={"docs": held}, generators={"quiet": quiet})
    asked = {"model": "contextrouter", "messages": [{"role": "user", "content": "what?"}]}
    body = ASK if path == "/v1/route" else asked
    async with (
        serve_router(made) as ask,
        ask.session.post(f"{ask.url}{path}", json={**body, "stream": True}) as response,
    ):
        await response.content.readuntil(b": \n\n")
        quiet.go.set()
        rest = await response.read()
    assert rest.endswith(b"\n\n")
    assert b"event: result" in rest or b"[DONE]" in rest


@pytest.mark.case("OPS-02")
async def test_without_its_required_source_the_server_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("contextrouter.server.readiness.PING_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    file = tmp_path / "settings.toml"
    file.write_text(
        '[providers.docs]\nuse = "sqlite"\npath = "store.db"\nrequired = true\n[ingest.notes]\nfrom = "notes"\nto = "docs"\n'
    )
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Otter\n\nAn otter swims.\n")
    await run(file)
    async with serve_router(ContextRouter.from_toml(file)) as ask:
        good = await ask("/readyz")
        (tmp_path / "store.db").write_bytes(b"")
        before = await ask("/readyz")
        (tmp_path / "store.db").unlink()
        gone = await ask("/readyz")
    assert (good.status, gone.status) == (200, 503)
    assert (before.status, before.json["sources"]["docs"]) == (503, "does not answer")
    assert before.json["required"] == ["docs"]
    assert str(tmp_path) not in before.text
    assert "Required source 'docs' cannot answer" in caplog.text


@pytest.mark.case("OPS-02")
async def test_a_required_source_that_answers_again_makes_the_server_ready(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("contextrouter.server.readiness.PING_SECONDS", 0.0)
    monkeypatch.setattr("contextrouter.server.readiness.PATIENCE", 0.1)

    class Pinged(Fixed):
        failing, hanging = False, False

        async def ping(self) -> None:
            if self.hanging:
                await asyncio.Event().wait()
            if self.failing:
                raise SourceError("/secret/path is gone")

    source = Pinged("a")
    settings = {"connectors": {"docs": {"required": True}}}
    async with serve_router(router(settings, connectors={"docs": source, "more": Fixed("b")})) as ask:
        assert (await ask("/readyz")).status == 200
        source.failing = True
        answer = await ask("/readyz")
        assert (answer.status, answer.json["status"]) == (503, "required sources cannot answer: docs")
        assert answer.json["sources"] == {"docs": "does not answer", "more": "ready"}
        source.hanging = True
        assert (await ask("/readyz")).status == 503
        source.failing = source.hanging = False
        assert (await ask("/readyz")).json["status"] == "ready"


@pytest.mark.case("NEW-32")
async def test_the_trace_id_of_the_caller_is_in_every_line_and_answer(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    seen: list[str] = []

    class Logging(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            record = logging.LogRecord("x", logging.INFO, "", 1, "searched", (), None)
            seen.append(json.loads(Structured([]).format(record))["trace_id"])
            return await super().search(query)

    async with serve_router(router(connectors={"docs": Logging("a")})) as ask:
        answer = await ask("/v1/route", ASK, headers={"traceparent": TRACEPARENT})
        refused = await ask("/v1/route", {}, headers={"traceparent": TRACEPARENT})
        without = await ask("/v1/route", ASK, headers={"traceparent": "00-zz"})
    assert (answer.headers["X-Trace-Id"], refused.headers["X-Trace-Id"]) == (TRACE, TRACE)
    assert refused.json["trace_id"] == TRACE
    assert "X-Trace-Id" not in without.headers
    assert seen[0] == TRACE


@pytest.mark.case("NEW-32")
async def test_the_trace_id_is_in_the_receipt_of_a_chat_answer():
    body = {"model": "contextrouter", "messages": [{"role": "user", "content": "what?"}]}
    async with serve_router(router()) as ask:
        answer = await ask("/v1/chat/completions", body, headers={"traceparent": TRACEPARENT})
    assert answer.json["contextrouter"]["trace_id"] == TRACE


@pytest.mark.case("NEW-32")
def test_a_trace_id_is_read_as_the_standard_says():
    assert read_trace_id(TRACEPARENT) == TRACE
    assert read_trace_id(f"cc-{TRACE}-00f067aa0ba902b7-01-more") == TRACE
    for wrong in (
        "",
        f"00-{TRACE}-00f067aa0ba902b7-01-more",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        TRACEPARENT.upper(),
        TRACEPARENT + "\n{}",
    ):
        assert read_trace_id(wrong) == "", wrong


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For",
        "Forwarded",
        "X-Real-IP",
        "Via",
        "X-Forwarded-Port",
        "X-Forwarded-Server",
        "CF-Connecting-IP",
    ],
)
async def test_without_keys_a_request_through_a_proxy_is_refused(header: str):
    async with serve_router(router()) as ask:
        answer = await ask("/v1/route", ASK, headers={header: "127.0.0.1"})
        health = await ask("/healthz", headers={header: "127.0.0.1"})
    assert (answer.status, answer.json["code"]) == (403, "forwarded_request")
    assert health.status == 200


@pytest.mark.case("SEC-10")
@pytest.mark.parametrize(
    ("proxies", "status"), [(["127.0.0.0/8"], 200), (["127.0.0.1"], 200), (["10.0.0.1"], 403), ([], 403)]
)
async def test_without_keys_a_proxy_that_the_settings_trust_is_answered(proxies: list[str], status: int):
    async with serve_router(router({"serve": {"trusted_proxies": proxies}})) as ask:
        answer = await ask("/v1/route", ASK, headers={"X-Forwarded-For": "8.8.8.8"})
    assert answer.status == status


def test_a_trusted_proxy_is_an_address_or_a_network():
    with pytest.raises(SettingsError, match=r"trusted_proxies: 'nginx' is no IP address and no network"):
        router({"serve": {"trusted_proxies": ["nginx"]}})


async def test_with_keys_a_request_through_a_proxy_is_answered():
    async with serve_router(router(key()), token="cr_of-the-tests") as ask:
        answer = await ask("/v1/route", ASK, headers={"X-Forwarded-For": "203.0.113.5"})
    assert answer.status == 200


@pytest.mark.case("SEC-08")
@pytest.mark.parametrize("sent", [b"", b"POST /v1/route HTTP/1.1\r\nHost: a\r\n"])
async def test_a_request_whose_head_does_not_come_loses_its_connection(sent: bytes):
    async with (
        asyncio.timeout(60),
        serve_router(router({"serve": {"header_seconds": 0.1}})) as ask,
        raw(ask.url) as (reader, writer),
    ):
        writer.write(sent)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)


@pytest.mark.case("SEC-08")
async def test_a_second_request_whose_head_does_not_come_loses_its_connection():
    async with (
        asyncio.timeout(60),
        serve_router(router({"serve": {"header_seconds": 0.1}})) as ask,
        raw(ask.url) as (reader, writer),
    ):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = await reader.readuntil(b'{"status":"ok"}')
        assert head.startswith(b"HTTP/1.1 200")
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)


@pytest.mark.case("SEC-09")
async def test_a_client_that_does_not_read_its_answer_loses_its_connection_and_its_place():
    large = Large()
    made = router(
        {"serve": {"write_seconds": 2.0, "max_requests": 1}, "rag": {**PATIENT["rag"], "token_budget": 0}},
        connectors={"docs": large},
    )
    async with asyncio.timeout(60), serve_router(made) as ask:
        host, port = ask.url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps(ASK).encode()
        client.sendall(
            b"POST /v1/route HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        await large.asked.wait()
        statuses = [(await ask("/v1/plan", ASK)).status]
        while statuses[-1] != 200:  # until the client that does not read has lost its place
            statuses.append((await ask("/v1/plan", ASK)).status)
        client.close()
    assert 503 in statuses


class Large(Connector):
    """Answers with 8 MB."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def search(self, query: Query) -> Sequence[Hit]:
        self.asked.set()
        return [Hit(document=Document(id="large", content="x " * 4_000_000))]


@pytest.mark.case("SEC-08")
async def test_over_the_cap_the_connection_that_waits_longest_gives_way():
    held = Held()
    made = router({**PATIENT, "serve": {"max_connections": 3}}, connectors={"docs": held})
    async with serve_router(made) as ask, raw(ask.url) as (first, _), raw(ask.url) as (second, _):
        waiting = asyncio.create_task(ask("/v1/route", ASK))
        await held.asked.wait()
        async with aiohttp.ClientSession() as session, session.get(f"{ask.url}/healthz") as response:
            assert response.status == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await first.readexactly(1)
        assert not second.at_eof()
        held.go.set()
        assert (await waiting).status == 200


@pytest.mark.case("SEC-08")
async def test_a_server_whose_connections_all_have_requests_refuses_another():
    held = Held()
    made = router({**PATIENT, "serve": {"max_connections": 1}}, connectors={"docs": held})
    async with serve_router(made) as ask:
        waiting = asyncio.create_task(ask("/v1/route", ASK))
        await held.asked.wait()
        async with aiohttp.ClientSession() as session, session.get(f"{ask.url}/healthz") as response:
            assert response.status == 503
        held.go.set()
        assert (await waiting).status == 200
