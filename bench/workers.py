"""One `serve` process beside two workers, on the same settings, under the same load; Linux only.

    python bench/workers.py [rounds]

CONNECTIONS clients ask over connections of their own, as soon as they have their answer. Prints the CPU of a
question (parent and workers together), the share of each worker and what one scrape adds up to; then how many
requests are lost when a worker is killed and when the settings are read again under load. Exits 1 when a
limit is missed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

CONNECTIONS, QUESTIONS, DOCUMENTS = 64, 1600, 300
MOST_CPU, LEAST_SHARE = 1.1, 0.3
ROUTE = 'method="POST",path="/v1/route",status="200"'
TICKS = os.sysconf("SC_CLK_TCK")
WORDS = (
    "otter heron river archive library opening hours budget report meeting water stone bridge north".split()
)


class Server:
    """`contextrouter serve` with so many workers, in processes of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.workers = workers
        self.log = folder / f"log-{len(list(folder.iterdir()))}"
        code = "from contextrouter.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", "0", "--workers", str(workers)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[0]

    @property
    def pids(self) -> dict[int, int]:
        """The process of each worker, by number."""
        found = re.findall(r"Worker (\d+) answers, as process (\d+)", self.log.read_text())
        return {int(number): int(pid) for number, pid in found}

    def cpu(self) -> float:
        """CPU seconds of the server so far."""
        return sum(seconds_of(pid) for pid in (self.process.pid, *self.pids.values()))

    async def counters(self, name: str) -> dict[str, float]:
        """One scrape: labels of a counter -> value."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            text = await response.text()
        return {
            labels: float(value) for labels, value in re.findall(rf"(?m)^{name}_total\{{(.*)\}} (\S+)$", text)
        }


def seconds_of(pid: int) -> float:
    """CPU seconds of a process; its name may have spaces."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Load:
    """What came back from so many questions."""

    def __init__(self) -> None:
        self.answered = self.failed = 0
        self.begun = asyncio.Event()

    async def run(self, url: str, questions: int, connections: int = CONNECTIONS) -> None:
        left = iter(range(questions))

        async def caller() -> None:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
                for number in left:
                    await self._ask(session, url, number)
                    if self.answered > questions / 4:
                        self.begun.set()

        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(caller())

    async def _ask(self, session: aiohttp.ClientSession, url: str, number: int) -> None:
        word = WORDS[number % len(WORDS)]
        try:
            async with session.post(f"{url}/v1/route", json={"question": f"{word} {number}"}) as response:
                await response.read()
                ok = response.status == 200
        except (aiohttp.ClientError, ConnectionError):
            ok = False
        self.answered += ok
        self.failed += not ok


def write_settings(folder: Path) -> None:
    texts = [
        " ".join(WORDS[(i * k + k) % len(WORDS)] for k in range(1, 60)) + f" {i}" for i in range(DOCUMENTS)
    ]
    documents = ", ".join(
        f"{{ id = {json.dumps(str(i))}, content = {json.dumps(text)} }}" for i, text in enumerate(texts)
    )
    (folder / "settings.toml").write_text(
        f'[rag]\ncache_enabled = false\n[serve]\nmax_requests = 1000\nlog_format = "text"\n'
        f"[providers.memory]\ndocuments = [{documents}]\n"
    )


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[list[Server]]:
    write_settings(folder)
    started = [Server(folder, workers) for workers in (1, 2, 1)]
    try:
        yield started
    finally:
        for server in started:
            server.process.send_signal(signal.SIGTERM)
            server.process.communicate()


async def measure(started: list[Server], rounds: int) -> tuple[float, float, bool]:
    """CPU of two workers in that of one, the least share of a worker, and whether a scrape has the sum.

    Two servers of one process each, each with half of the load, show what two processes cost this machine.
    """
    one, two, other = started
    ratios, shares, sums = [], [], True
    for turn in range(rounds + 1):  # the first warms up
        alone = await cpu_of([one])
        counted = await two.counters("contextrouter_worker_requests")
        both = await cpu_of([two])
        for _ in range(50):  # a request is counted a moment after its client has the answer
            now = await two.counters("contextrouter_requests")
            if sums_up := now[ROUTE] == QUESTIONS * (turn + 1):
                break
            await asyncio.sleep(0.1)
        sums &= sums_up
        now = await two.counters("contextrouter_worker_requests")
        each = [now[labels] - counted[labels] for labels in now]
        apart = await cpu_of([one, other])
        if turn:
            ratios.append(both / alone)
            shares.append(min(each) / sum(each))
            print(
                f"CPU-ms a question: one process {alone:.2f}   two workers {both:.2f} (least share"
                f" {shares[-1]:.2f})   two servers {apart:.2f}"
            )
    return statistics.median(ratios), min(shares), sums


async def cpu_of(servers: list[Server]) -> float:
    """CPU milliseconds of a question, when these share the load."""
    before = sum(server.cpu() for server in servers)
    share = len(servers)
    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(Load().run(server.url, QUESTIONS // share, CONNECTIONS // share))
    return (sum(server.cpu() for server in servers) - before) / QUESTIONS * 1000


async def disturb(server: Server) -> tuple[int, int]:
    """Requests that are lost when a worker is killed, and when the settings are read again, under load."""
    lost = []
    for disturbance in ("kill", "reload"):
        load = Load()
        task = asyncio.create_task(load.run(server.url, QUESTIONS))
        await load.begun.wait()
        if disturbance == "kill":
            os.kill(server.pids[1], signal.SIGKILL)
        else:
            server.process.send_signal(signal.SIGHUP)
        await task
        lost.append(load.failed)
        print(f"{disturbance}: {load.answered} answered, {load.failed} lost")
        await restarted(server)
    return lost[0], lost[1]


async def restarted(server: Server) -> None:
    """Wait until two workers answer."""
    for _ in range(1200):
        if all(map(runs, server.pids.values())):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the workers do not start again")


async def run(rounds: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with servers(Path(folder)) as started:
            ratio, share, sums = await measure(started, rounds)
            killed, reloaded = await disturb(started[1])
    print(
        f"two workers: {ratio:.2f} x the CPU of one (at most {MOST_CPU}), least share {share:.2f} (at least"
        f" {LEAST_SHARE}), one scrape has the sum: {sums}; lost by a kill {killed} (at most {CONNECTIONS} in"
        f" flight), by a reload {reloaded} (0)"
    )
    held = ratio <= MOST_CPU and share >= LEAST_SHARE and sums and killed <= CONNECTIONS and not reloaded
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 3)))
