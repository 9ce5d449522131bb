"""Clients that send nothing or read nothing take no other client's place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from support.serving import document, router, serve_router

from contextrouter.server.connections import Connections, few_accept_errors


@asynccontextmanager
async def half_open(url: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that send the beginning of a request."""
    parts = urlsplit(url)
    pairs = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        pairs.append((reader, writer))
    yield [reader for reader, _ in pairs]
    for _, writer in pairs:
        writer.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await reader.read(1) == b""
    return True


@pytest.mark.case("SEC-08")
async def test_half_open_connections_take_nobody_s_place():
    made = router({"serve": {"max_connections": 5, "header_seconds": 60.0}})
    async with serve_router(made) as ask, half_open(ask.url, 20) as readers:
        assert (await ask("/healthz")).status == 200
        assert all([await is_closed(reader) for reader in readers[:15]])


@pytest.mark.case("SEC-08")
async def test_the_head_of_a_request_has_a_time_limit():
    made = router({"serve": {"header_seconds": 0.1}})
    async with serve_router(made) as ask, half_open(ask.url, 2) as readers:
        assert all([await is_closed(reader) for reader in readers])
        assert (await ask("/healthz")).status == 200
        await asyncio.sleep(0.2)
        assert (await ask("/healthz")).status == 200  # a connection that sent one request waits for the next


@pytest.mark.case("SEC-08")
async def test_errors_of_accepting_are_logged_once_a_second(caplog: pytest.LogCaptureFixture):
    loop = asyncio.get_running_loop()
    with few_accept_errors():
        for _ in range(100):
            context = {
                "message": "socket.accept() out of system resource",
                "exception": OSError(24, "Too many"),
            }
            loop.call_exception_handler(context)
        loop.call_exception_handler({"message": "another", "exception": ValueError("seen")})
    texts = [record.getMessage() for record in caplog.records]
    assert sum("No connection can be accepted" in text for text in texts) == 1
    assert any("another" in text for text in texts)


def test_connections_never_use_all_files_of_the_process(monkeypatch: pytest.MonkeyPatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert Connections(1000, 10.0).most == 192
    assert Connections(100, 10.0).most == 100


@pytest.mark.case("SEC-09")
async def test_an_answer_is_in_flight_until_it_is_read_or_given_up():
    settings = {"serve": {"max_requests": 1, "write_seconds": 0.5}, "rag": {"token_budget": 0}}
    made = router(settings, answer=[document("big", "word " * 4_000_000)])
    async with serve_router(made) as ask:
        parts = urlsplit(ask.url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
        body = b'{"question": "word"}'
        head = f"POST /v1/route HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        while (await ask("/v1/route", {"question": ""})).status != 503:
            """Wait until the answer is being written."""
        while (await ask("/v1/route", {"question": ""})).status == 503:
            """Wait until it is given up."""
        writer.close()
