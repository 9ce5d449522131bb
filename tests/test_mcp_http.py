"""MCP over HTTP holds back clients that send too much, too slowly, or nothing, and serves the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from support.serving import router, serve_router
from support.waiting import Waiting

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@asynccontextmanager
async def served(**serve: Any) -> AsyncIterator[str]:
    """The address of a server over two documents."""
    async with serve_router(router({"serve": serve}), agents_only=True) as ask:
        yield f"{ask.url}/mcp"


@asynccontextmanager
async def half_open(url: str, number: int = 1) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections on which the head of a request never ends."""
    parts = urlsplit(url)
    streams = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(number)]
    for _, writer in streams:
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    yield [reader for reader, _ in streams]
    for _, writer in streams:
        writer.close()


async def tools(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.post(url, json=LIST, headers=HEADERS) as response:
        assert response.status == 200
        return await response.text()


@pytest.mark.case("SEC-08")
async def test_a_request_that_is_too_large_too_slow_or_no_post_is_refused():
    async with served(max_body_bytes=1_000, body_seconds=0.1) as url, aiohttp.ClientSession() as session:
        async with session.post(url, data=b" " * 2_000, headers=HEADERS) as large:
            assert (large.status, (await large.json())["code"]) == (413, "body_too_large")
        async with session.get(url, headers={"Accept": "text/event-stream"}) as stream:
            assert (stream.status, stream.headers["Allow"]) == (405, "POST")

        async def slowly() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.sleep(5)

        async with session.post(url, data=slowly(), headers=HEADERS) as slow:
            assert (slow.status, (await slow.json())["code"]) == (408, "body_too_slow")
        assert '"route"' in await tools(url)


@pytest.mark.case("SEC-08")
async def test_a_connection_without_a_request_is_closed():
    async with served(header_seconds=0.1) as url, half_open(url) as readers, asyncio.timeout(30):
        assert await readers[0].read() == b""


@pytest.mark.case("SEC-08")
async def test_half_open_connections_give_way_to_requests():
    async with served(max_connections=8) as url, half_open(url, 40) as readers, asyncio.timeout(60):
        assert '"route"' in await tools(url)
        assert '"facts"' in await tools(url)
        assert [await reader.read() for reader in readers[:32]] == [b""] * 32


@pytest.mark.case("SEC-08")
async def test_an_agent_that_goes_away_cancels_the_calls_to_the_sources():
    source = Waiting()
    call = {"name": "route", "arguments": {"question": "otters"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    made = router({"rag": {"interpreters": [], "timeout_seconds": 600}}, connectors={"docs": source})
    async with serve_router(made, agents_only=True) as ask, asyncio.timeout(60):
        asking = asyncio.create_task(ask("/mcp", body, headers=HEADERS))
        await asyncio.to_thread(source.asked.wait, 60)
        asking.cancel()
        await asyncio.to_thread(source.cancelled.wait, 60)
