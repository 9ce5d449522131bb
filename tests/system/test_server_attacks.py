"""Clients that open connections and send nothing, clients that never read, and reloads under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from time import monotonic

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.serving import start_server
from test_server_load import resident

RELOAD_SECONDS = 20
LONGEST_SECONDS = 80
"""After so many seconds every connection is closed: `header_seconds`, `write_seconds` and idle ones."""
SETTINGS = """
[rag]
cache_enabled = false
[serve]
drain_seconds = 2
[providers.memory]
documents = [{ id = "otter", content = "%s" }]
"""


@pytest.mark.case("SEC-08", "SEC-09")
async def test_half_open_connections_and_clients_that_never_read_harm_nobody(tmp_path: Path):
    (tmp_path / "settings.toml").write_text(SETTINGS % ("An otter swims in a river. " * 20_000))
    process, url = await asyncio.to_thread(start_server, tmp_path)
    host, port = url.removeprefix("http://").split(":")
    asked = {"question": "水獭" * 9_500, "detail": "trace"}  # 57 kB
    body = json.dumps(asked, ensure_ascii=False).encode()
    head = b"POST /v1/route HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    sockets: list[socket.socket] = []
    try:
        async with aiohttp.ClientSession(url) as session:
            async with session.post("/v1/route", json=asked) as response:
                assert response.status == 200
                size = len(await response.read())
            before, open_before = resident(process.pid), open_sockets(process.pid)
            for number in range(400):
                client = socket.create_connection((host, int(port)))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.sendall(request if number % 4 == 3 else head)
                sockets.append(client)
                async with session.get("/healthz") as response:
                    assert response.status == 200
            until, highest = monotonic() + LONGEST_SECONDS, 0
            while monotonic() < until:
                async with session.get("/healthz") as response:
                    assert response.status == 200
                highest = max(highest, resident(process.pid))
                await asyncio.sleep(0.1)
        sys.stderr.write(f"\nanswers of {size:,} bytes; memory {before} kB before, {highest} kB at most\n")
        assert highest - before < 100_000
        assert open_sockets(process.pid) <= open_before + 1
    finally:
        for client in sockets:
            client.close()
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=60)
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if '"request_id"' not in line]
    sys.stderr.write(f"{len(lines)} lines of log beside one for each request\n")
    assert len(lines) < 100
    assert not [line for line in lines if "traceback" in line.casefold()]
    assert process.returncode == 0


def open_sockets(process: int) -> int:
    """How many sockets a process has open; the client of a socket may not know yet that it was closed."""
    folder = f"/proc/{process}/fd"
    return sum(os.readlink(f"{folder}/{name}").startswith("socket:") for name in os.listdir(folder))


@pytest.mark.case("B16")
async def test_two_reloads_and_a_broken_file_under_load_fail_no_request(tmp_path: Path):
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS % "An otter swims.")
    process, url = await asyncio.to_thread(start_server, tmp_path)
    failed: list[str] = []
    answers = 0
    stopping = asyncio.Event()

    async def ask(session: aiohttp.ClientSession) -> None:
        nonlocal answers
        while not stopping.is_set():
            try:
                async with session.post("/v1/route", json={"question": "otter"}) as response:
                    text = await response.text()
                    if response.status != 200:
                        failed.append(text)
            except aiohttp.ClientError as error:
                failed.append(repr(error))
            answers += 1

    try:
        async with aiohttp.ClientSession(url) as session, asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(ask(session))
            for text in (SETTINGS % "An otter dives.", "[rag]\nrrf_k = -1\n", SETTINGS % "An otter rests."):
                await asyncio.sleep(RELOAD_SECONDS / 4)
                file.write_text(text)
                os.kill(process.pid, signal.SIGHUP)
            await asyncio.sleep(RELOAD_SECONDS / 4)
            stopping.set()
        async with (
            aiohttp.ClientSession(url) as session,
            session.post("/v1/route", json={"question": "otter"}) as response,
        ):
            assert "An otter rests." in await response.text()
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=60)
    log = (tmp_path / "log").read_text()
    sys.stderr.write(f"\n{answers} answers\n")
    assert failed == []
    assert log.count("Reloaded the settings.") == 2
    assert log.count("Reload failed, so the old settings stay: ") == 1
    assert process.returncode == 0
