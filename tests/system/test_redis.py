"""The Redis tier against a real server, started for these tests alone."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from time import monotonic

import pytest

from contextrouter import ContextRouter, Document, Reranker
from contextrouter.cache import Tiers
from contextrouter.cache.keys import address
from contextrouter.cache.redis import BATCH, RedisTier
from contextrouter.testing import Fixed

SETTINGS = """
[cache]
tier = "redis"
url = "{url}"
timeout_seconds = 2.0
[providers.memory]
"""


class Server:
    """One redis-server process on a free port, with a password, keeping nothing on disk."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.url = f"redis://:of-the-test@127.0.0.1:{self.port}/3"
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        command = ["redis-server", *options, "--requirepass", "of-the-test"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    async def start(self) -> None:
        """Return when the server listens."""
        self.run()
        for _ in range(500):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return
        raise TimeoutError("redis-server does not listen")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    await made.start()
    yield made
    made.stop()


async def test_a_thousand_entries_are_kept_counted_and_cleared_and_those_of_others_stay(server: Server):
    tier, other = (RedisTier(server.url, namespace=name, timeout=5.0) for name in ("mine", "other"))
    await tier.open()
    await other.open()
    await other.put(address(b"x"), b"other", 60)
    for index in range(2 * BATCH):
        await tier.put(address(b"%d" % index), b"\x00\xff" * 10, 60)
    assert await tier.get(address(b"7")) == b"\x00\xff" * 10
    assert await tier.size() == (2 * BATCH, 2 * BATCH * 20)
    assert await tier.clear() == 2 * BATCH
    assert await tier.size() == (0, 0)
    assert await other.get(address(b"x")) == b"other"
    await tier.aclose()
    await other.aclose()


async def test_an_entry_ends_with_its_time(server: Server):
    tier = RedisTier(server.url, namespace="n", timeout=5.0)
    await tier.open()
    await tier.put(address(b"x"), b"short", 0.05)
    assert await tier.get(address(b"x")) == b"short"
    await asyncio.sleep(0.1)
    assert await tier.get(address(b"x")) is None
    await tier.aclose()


async def test_two_routers_share_an_answer(server: Server, tmp_path: Path):
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS.format(url=server.url))
    found = []
    for _ in range(2):
        async with ContextRouter.from_toml(path) as router:
            found.append((await router.route("q")).usage.cache)
    assert found == ["", "redis"]


class Lengths(Reranker):
    """Scores by the length of the text, and counts its calls."""

    model, calls = "lengths", 0

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        self.calls += 1
        return [float(len(document.content)) for document in documents]


async def test_two_routers_share_the_scores_of_a_reranker(server: Server):
    settings = {
        "rag": {"stages": ["longest"]},
        "cache": {"tier": "redis", "url": server.url, "timeout_seconds": 2.0},
    }
    calls = []
    for _ in range(2):
        stage, source = Lengths(), Fixed("a bb")
        async with ContextRouter(settings, connectors={"docs": source}, stages={"longest": stage}) as router:
            assert [e.document.id for e in (await router.route("q")).envelopes] == ["bb", "a"]
        calls.append(stage.calls)
    assert calls == [1, 0]


async def test_a_server_that_dies_and_comes_back_is_a_miss_and_then_a_hit(server: Server):
    cache = Tiers(1000, RedisTier(server.url, namespace="n", timeout=1.0))
    await cache.open()
    server.stop()
    started = monotonic()
    for _ in range(20):
        assert await cache.fetch(b"key", bytes) is None
    assert monotonic() - started < 1.5
    await server.start()
    await asyncio.sleep(1.1)
    cache.keep(b"key", lambda: b"body", 60)
    for _ in range(100):
        if found := await cache.fetch(b"key", bytes):
            break
        await asyncio.sleep(0.05)
    assert found is not None
    await cache.aclose()


async def test_a_wrong_password_is_a_miss_and_shown_to_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
):
    cache = Tiers(1000, RedisTier(server.url.replace("of-the-test", "hunter22"), namespace="n", timeout=1.0))
    await cache.open()
    assert await cache.fetch(b"key", bytes) is None
    assert "Cache tier 'redis' fails" in caplog.text
    assert "hunter22" not in caplog.text
    await cache.aclose()
