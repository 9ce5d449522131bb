"""The server against its own OpenAPI document, and against requests that are none."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.serving import ScriptedGenerator, router, serve_router, start_server

from contextrouter.server import Server
from contextrouter.server.openapi import openapi_document

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TABLE = """
[chat]
synthesis_model = "extractive"
[providers.memory]
documents = [
  { id = "a", title = "Opening", content = "The library opens at nine.", url = "https://example.org/a" },
  { id = "b", title = "Closing", content = "It closes at six.", compartment = "hr", sensitivity = "internal" },
]
"""

api = schemathesis.openapi.from_dict(openapi_document(Server(router()).endpoints))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    (folder / "settings.toml").write_text(TABLE)
    process, address = start_server(folder)
    yield address
    process.terminate()
    process.communicate(timeout=30)


@api.parametrize()
@settings(
    max_examples=int(os.environ.get("CONTRACT_EXAMPLES", "10")),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_that_the_document_describes(case: Any, url: str):
    case.call_and_validate(base_url=url, checks=CHECKS)


PATHS = [
    "/v1/route",
    "/v1/plan",
    "/v1/chat/completions",
    "/v1/models",
    "/v1/sources",
    "/metrics",
    "/explorer",
    "/%00",
    "//",
    "/?%",
]
BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"question":',
    b'{"question": {"a": 1}}',
    b'{"question": "\\ud800"}',
    b"[" * 5000,
    b'{"question": "q", "deadline": -1e400}',
    b'{"model": 1, "messages": "x"}',
    b'{"model": "contextrouter", "messages": [{}]}',
    b'{"question": "q", "filters": {"kind": {"a": [[1]]}}}',
    b'{"question": "q", "history": [{"role": "x"}]}',
    b"\x1f\x8b\x00gzip?",
    b'{"question": "q", "scope": {"compartments": "hr"}}',
    b'{"model": "contextrouter", "messages": [{"role": "user", "content": [7]}]}',
]
METHODS = ["POST", "POST", "POST", "GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW", "P\x7fST", ""]
MEDIA = [
    "application/json",
    "application/json; charset=klingon",
    "text/plain",
    "",
    "multipart/form-data",
    "\x80",
]
MORE = [
    "",
    "",
    "Content-Encoding: gzip",
    "Content-Encoding: br",
    "Transfer-Encoding: chunked",
    "X:",
    "Expect: x",
]
VERSIONS = ["1.1", "1.1", "1.1", "1.0", "9.9", ""]


def malformed(count: int) -> Iterator[bytes]:
    """Requests that are broken in every way that comes to mind, always the same ones."""
    draw = random.Random(8)
    for _ in range(count):
        body = bytearray(draw.choice(BODIES))
        if body and draw.random() < 0.3:
            body[draw.randrange(len(body))] = draw.randrange(256)
        length = len(body) if draw.random() < 0.8 else draw.choice([-1, 0, 3, "x", ""])
        more = draw.choice(MORE)
        head = [
            f"{draw.choice(METHODS)} {draw.choice(PATHS)} HTTP/{draw.choice(VERSIONS)}",
            "Host: localhost",
            "Connection: close",
            f"Content-Type: {draw.choice(MEDIA)}",
            f"Content-Length: {length}",
            *([more] if more else []),
            "",
            "",
        ]
        yield "\r\n".join(head).encode("latin-1") + bytes(body)


async def status(host: str, port: int, request: bytes) -> int:
    """The status of the answer; 0 when there was none."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), 20)
        return int(line.split()[1]) if line else 0
    except ConnectionError:
        return 0
    finally:
        writer.close()


async def statuses(url: str, requests: Iterator[bytes], at_once: int = 20) -> dict[int, int]:
    """Status -> how many of the requests were answered so."""
    host, port = url.removeprefix("http://").split(":")
    found: dict[int, int] = {}

    async def asking() -> None:
        for request in requests:
            got = await status(host, int(port), request)
            found[got] = found.get(got, 0) + 1

    await asyncio.gather(*(asking() for _ in range(at_once)))
    return found


async def test_requests_that_are_none_are_refused_and_no_fault():
    async with serve_router(
        router({"serve": {"body_seconds": 0.2}}, generators={"said": ScriptedGenerator("x")})
    ) as ask:
        found = await statuses(ask.url, malformed(1000))
        assert (await ask("/v1/route", {"question": "q"})).status == 200
    assert sum(found.values()) == 1000
    assert not [status for status in found if status >= 500], found
    assert {400, 404, 405, 415, 422} <= set(found)


async def test_whoever_sends_what_is_no_request_fills_no_log_with_tracebacks(tmp_path: Path):
    """A header that is too long, as a forged token may be, is one line; a line that is no HTTP none."""
    (tmp_path / "settings.toml").write_text(TABLE)
    process, address = await asyncio.to_thread(start_server, tmp_path)
    try:
        host, _, port = address.removeprefix("http://").partition(":")
        for sent in (
            b"GET / HTTP/1.1\r\nAuthorization: Bearer " + b"e" * 20_000 + b"\r\n\r\n",
            b"what\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert b" 400 " in await reader.readline(), sent[:20]
            writer.close()
            await writer.wait_closed()
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    malformed = [line for line in lines if line["message"] == "malformed request"]
    assert [(line["level"], line["status"], line["error"]) for line in malformed] == [
        ("info", 400, "LineTooLong")
    ]
    assert not [line for line in lines if "traceback" in line]
