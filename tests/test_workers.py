"""Several worker processes behind one port: one set of metrics, restarts, signals, and shares of the limits."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from support.serving import KEY, key, router, serve_router, start_server

from contextrouter import ContextRouter
from contextrouter.errors import SettingsError
from contextrouter.server import serve, serve_workers
from contextrouter.server.listening import workers
from contextrouter.server.listening.generations import Generations
from contextrouter.server.listening.workers import pause_after
from contextrouter.server.rate_limits import RequestLimits
from contextrouter.server.worker_share import Worker
from contextrouter.settings import Settings

ASK = {"question": "what?"}
SAMPLE = re.compile(r"(?m)^(contextrouter_\w+)(?:\{([^}]*)\})? (\S+)$")


def settings_of(content: str) -> str:
    return f'[providers.memory]\ndocuments = [{{ id = "{content}", content = "{content} otter" }}]\n'


def samples(text: str, name: str) -> dict[str, float]:
    """Labels of a metric -> its value."""
    return {labels: float(value) for metric, labels, value in SAMPLE.findall(text) if metric == name}


def total(text: str, name: str) -> float:
    """The sum of a metric over all its labels."""
    return sum(samples(text, name).values())


class Server:
    """`contextrouter serve --workers 2` in processes of its own."""

    def __init__(self, folder: Path, content: str = "otter") -> None:
        self.folder = folder
        (folder / "settings.toml").write_text(settings_of(content))
        self.process, self.url = start_server(folder, "--workers", "2")

    async def get(self, path: str) -> str:
        """One answer over a connection of its own."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            assert response.status == 200
            return await response.text()

    async def ask(self, times: int) -> set[str]:
        """Ask so often, each time over a new connection, and return the documents that came back."""
        ids = set()
        for _ in range(times):
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{self.url}/v1/route", json={"question": "otter"}) as response,
            ):
                assert response.status == 200
                ids |= {each["document"]["id"] for each in (await response.json())["envelopes"]}
        return ids

    def pids(self) -> dict[int, int]:
        """Number of each worker -> its latest process."""
        log = (self.folder / "log").read_text()
        return {int(n): int(pid) for n, pid in re.findall(r"Worker (\d) answers, as process (\d+)", log)}

    async def until(self, path: str, condition) -> str:
        """Ask until the answer is as it should be, and return it."""
        async with asyncio.timeout(120):
            while True:
                try:
                    if condition(text := await self.get(path)):
                        return text
                except aiohttp.ClientError:
                    pass  # of the worker that was killed
                await asyncio.sleep(0.05)

    async def logged(self, text: str, times: int) -> None:
        """Wait until a text is so often in the log."""
        async with asyncio.timeout(120):
            while (self.folder / "log").read_text().count(text) < times:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)

    def counters(self) -> list[Path]:
        """Folders in which the workers count."""
        maps = Path(f"/proc/{self.pids()[1]}/maps").read_text()
        return [Path(line) for line in set(re.findall(r"(/\S+)/counter_1\.db", maps))]

    async def gone(self) -> None:
        """Wait until nobody listens any more."""
        async with asyncio.timeout(120):
            while True:
                try:
                    await self.get("/healthz")
                except aiohttp.ClientConnectorError:
                    return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()
        await made.gone()


@pytest.mark.case("NEW-31")
async def test_one_scrape_counts_all_workers_those_that_died_too(server: Server):
    assert await server.ask(40) == {"otter"}
    route = 'method="POST",path="/v1/route",status="200"'

    def settled(text: str) -> bool:
        """A request is counted when its answer is written, a moment after the client has it."""
        requests, names = "contextrouter_requests_total", "contextrouter_worker_requests_total"
        counted = samples(text, requests).get(route) == 40 and total(text, requests) == total(text, names)
        return counted and total(text, "contextrouter_requests_running") == 1  # the scrape itself

    text = await server.until("/metrics", settled)
    shares = samples(text, "contextrouter_worker_requests_total")
    assert set(shares) == {'worker="1"', 'worker="2"'}
    assert min(shares.values()) > 0

    before = server.pids()
    os.kill(before[1], signal.SIGKILL)
    text = await server.until("/metrics", lambda text: 'starts_total{worker="1"} 2.0' in text)
    assert samples(text, "contextrouter_requests_total")[route] == 40
    await server.until("/healthz", lambda text: '"worker":1' in text)
    await server.logged("Worker 1 answers", 2)
    assert server.pids() == {1: server.pids()[1], 2: before[2]}
    assert server.pids()[1] != before[1]
    log = (server.folder / "log").read_text()
    assert "Worker 1 ended by signal 9. Another starts in 0.5 s." in log
    assert re.search(r'"message": "request", "worker": 2,', log)


COUNT = """
import os, sys
from contextrouter.server.metrics import Metrics
from contextrouter.server.rate_limits import RequestLimits
from contextrouter.server.worker_share import Worker
from contextrouter.settings import Settings
metrics = Metrics(Worker(number=1, count=2, metrics=sys.argv[1]))
metrics.request("POST", "/v1/route", 200, 0.1)
print(len(os.listdir(sys.argv[1])), metrics.text().decode())
"""


def test_a_worker_goes_on_with_the_files_of_the_one_before_it(tmp_path: Path):
    """A worker that dies again and again does not fill the folder."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", COUNT, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0].split()[0] == outputs[1].split()[0]
    assert samples(outputs[1], "contextrouter_worker_requests_total") == {'worker="1"': 2}


@pytest.mark.case("NEW-31")
async def test_signals_reach_all_workers_and_they_end_with_their_parent(server: Server):
    (server.folder / "settings.toml").write_text(settings_of("heron"))
    server.process.send_signal(signal.SIGHUP)
    await server.logged("Reloaded the settings.", 2)
    assert await server.ask(20) == {"heron"}
    (counters,) = server.counters()
    server.process.kill()
    await server.logged("The parent process is gone, so this worker stops.", 2)
    await server.gone()
    async with asyncio.timeout(120):
        while counters.exists():  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.05)


async def test_a_worker_starts_again_though_something_has_tidied_the_counters_away(server: Server):
    (counters,) = server.counters()
    shutil.rmtree(counters)
    os.kill(server.pids()[1], signal.SIGKILL)
    await server.logged("answers, as process", 3)
    assert samples(await server.get("/metrics"), "contextrouter_worker_starts_total") == {'worker="1"': 1}
    assert f"was deleted: {counters}" in (server.folder / "log").read_text()


async def test_a_stop_ends_the_workers_and_the_parent_with_zero(server: Server):
    server.process.send_signal(signal.SIGTERM)
    out, _ = await asyncio.to_thread(server.process.communicate)
    assert server.process.returncode == 0
    assert "2 workers   each takes 1/2 of max_requests, max_running and max_connections" in out


async def test_workers_that_cannot_start_stop_the_server_with_their_reason(tmp_path: Path):
    (tmp_path / "examples.json").write_text('[{"question": "why?"}]')
    file = tmp_path / "settings.toml"
    file.write_text(settings_of("otter") + '[chat]\nexamples = "examples.json"\n')
    async with asyncio.timeout(120):
        with pytest.raises(SettingsError, match=r"examples\.json"):
            await serve_workers(file, workers=2, port=0)


async def test_a_port_that_is_taken_is_said_before_a_worker_starts(tmp_path: Path):
    file = tmp_path / "settings.toml"
    file.write_text(settings_of("otter"))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as a server of the same user has it
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            await serve_workers(file, workers=2, port=port)


async def test_a_system_that_cannot_share_ports_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    file = tmp_path / "settings.toml"
    file.write_text(settings_of("otter"))
    with pytest.raises(SettingsError, match=r"no SO_REUSEPORT. Set \[serve\] workers = 1"):
        await serve_workers(file, workers=2, port=0)


def test_a_worker_that_keeps_dying_waits_longer_each_time_up_to_half_a_minute():
    assert [pause_after(deaths) for deaths in (1, 2, 3, 4, 7, 8, 10_000)] == [0.5, 1, 2, 4, 30, 30, 30]


def test_a_share_of_a_limit_is_rounded_up_and_never_nothing():
    third = Worker(number=1, count=3)
    assert [third.share(limit) for limit in (256, 3, 2, 1)] == [86, 1, 1, 1]


async def test_a_worker_admits_its_share_of_a_rate():
    made = router(key(rate_per_minute=4))
    async with serve_router(made, token=KEY, worker=Worker(count=2)) as ask:
        answers = [await ask("/v1/route", ASK) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].json["detail"] == "This caller may ask 4 times a minute."
    assert answers[2].headers["Retry-After"] in ("30", "31")  # two a minute, here


async def test_without_its_redis_a_server_counts_rates_itself_and_says_so(caplog: pytest.LogCaptureFixture):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        cache = {"tier": "redis", "url": f"redis://:hunter22@127.0.0.1:{free.getsockname()[1]}/0"}
    made = router({**key(rate_per_minute=2), "cache": cache})
    async with serve_router(made, token=KEY) as ask:
        answers = [await ask("/v1/route", ASK) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert caplog.text.count("Redis fails, so each process counts its share of the rates itself") == 1
    assert "hunter22" not in caplog.text


async def test_load_balancers_can_turn_away_before_the_listener_closes(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    made: ContextRouter = router({"serve": {"drain_delay": 600.0}})
    task = asyncio.create_task(serve(made, port=0, listening=address.set_result, stop=stop))
    url = await address
    async with aiohttp.ClientSession() as session:

        async def status(path: str, **body: object) -> int:
            method = "POST" if body else "GET"
            headers = {"Connection": "close"}  # each over a new connection
            async with session.request(method, url + path, headers=headers, **body) as response:
                return response.status

        assert await status("/readyz") == 200
        stop.set()
        for _ in range(1000):
            if await status("/readyz") == 503:
                break
        else:
            raise AssertionError("/readyz says nothing of the stop")
        assert await status("/v1/route", json=ASK) == 200
        assert await status("/healthz") == 200
    task.cancel()
    await asyncio.wait([task])
    assert "Stopping in 600 s: /readyz says so, and requests are still taken." in caplog.text


async def test_the_server_stops_when_the_delay_is_over():
    async with asyncio.timeout(60), serve_router(router({"serve": {"drain_delay": 0.01}})) as ask:
        assert (await ask("/v1/route", ASK)).status == 200


def test_a_reload_keeps_the_connections_to_redis():
    def settings(url: str) -> Settings:
        return ContextRouter({"cache": {"tier": "redis", "url": url}}).settings

    limits = RequestLimits(settings("redis://127.0.0.1:1/0"))
    rates = limits._shared
    limits.change(settings("redis://127.0.0.1:1/0"))
    assert limits._shared is rates is not None
    limits.change(settings("redis://127.0.0.1:2/0"))
    assert limits._shared is not rates
    limits.change(ContextRouter().settings)
    assert limits._shared is None


async def test_a_server_that_stops_is_not_reloaded(tmp_path: Path):
    (tmp_path / "settings.toml").write_text(settings_of("heron"))
    generations = Generations(ContextRouter.from_toml(tmp_path / "settings.toml"), "127.0.0.1")
    await generations.leave()
    generations.reload()
    assert generations._reloading is None
    await generations.aclose()


async def test_a_worker_that_the_system_has_no_room_for_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    started, errors = asyncio.Event(), [OSError("no more processes")]

    def start(parent: workers._Parent, slot: workers._Slot) -> None:
        if errors:
            raise errors.pop()
        started.set()

    monkeypatch.setattr(workers._Parent, "_start", start)
    monkeypatch.setattr(workers, "pause_after", lambda deaths: 0.0)
    parent = workers._Parent(ContextRouter().settings, 1, ("127.0.0.1", 0), str(tmp_path))
    parent._start_again(parent._slots[0])
    async with asyncio.timeout(30):
        await started.wait()
    assert "Worker 1 cannot be started: no more processes." in caplog.text


async def test_a_server_without_workers_is_refused(tmp_path: Path):
    (tmp_path / "settings.toml").write_text(settings_of("heron"))
    with pytest.raises(SettingsError, match=r"The number of workers is 0\. Give 1 or more\."):
        await serve_workers(tmp_path / "settings.toml", workers=0)
