"""The server under load, and against many requests that are none; figures are printed, and only what must
hold is asserted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
from pathlib import Path
from time import monotonic

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.example import ingest_example
from support.serving import start_server
from test_server_contract import malformed, statuses

SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))
CALLERS = 200
ACCEPTED = 1.0
"""Seconds within which a server takes a connection from the kernel, however busy it is."""
QUESTIONS = [
    "machine learning",
    "search engines",
    "statistics for beginners",
    "Python",
    "deep learning",
    "Who founded OpenAI?",
]


def resident(process: int) -> int:
    """Memory of a process, in kB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def test_two_hundred_callers_at_once_get_their_answers_and_a_stop_drains(tmp_path: Path):
    await ingest_example(tmp_path)
    process, url = await asyncio.to_thread(start_server, tmp_path)
    took: list[float] = []
    failed: list[str] = []
    until = monotonic() + SECONDS
    stopping, stopped = asyncio.Event(), [0.0]

    async def calling(session: aiohttp.ClientSession, number: int) -> None:
        count = 0
        while monotonic() < until or not stopping.is_set():
            count += 1
            question = f"{QUESTIONS[count % len(QUESTIONS)]} {number if count % 4 == 0 else ''}"
            begun = monotonic()
            try:
                async with session.post("/v1/route", json={"question": question}) as response:
                    await response.read()
                    if response.status != 200:
                        failed.append(f"{response.status}")
            except (
                aiohttp.ClientConnectionError
            ) as error:  # the kernel resets what the server has not accepted before the stop
                if not stopping.is_set() or begun < stopped[0] - ACCEPTED:
                    failed.append(repr(error))
                return
            took.append(monotonic() - begun)

    try:
        connector = aiohttp.TCPConnector(limit=CALLERS, force_close=True)
        patience = aiohttp.ClientTimeout(total=120)
        async with (
            aiohttp.ClientSession(url, connector=connector, timeout=patience) as session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(CALLERS):
                group.create_task(calling(session, number))
            await asyncio.sleep(SECONDS)
            stopped[0] = monotonic()
            stopping.set()
            os.kill(process.pid, signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=60)
    finally:
        process.kill()
        process.communicate()
    ranked = statistics.quantiles(took, n=100)
    spread = f"p50 {ranked[49] * 1000:.0f} ms, p99 {ranked[98] * 1000:.0f} ms"
    sys.stderr.write(f"\n{len(took)} answers in {SECONDS:g} s by {CALLERS} callers: {spread}\n")
    assert failed == []
    assert process.returncode == 0


async def test_ten_thousand_requests_that_are_none_are_no_fault_and_cost_no_memory(tmp_path: Path):
    (tmp_path / "settings.toml").write_text(
        '[serve]\nbody_seconds = 0.2\n[providers.memory]\ndocuments = [{ content = "a" }]\n'
    )
    process, url = await asyncio.to_thread(start_server, tmp_path)
    try:
        await statuses(url, malformed(2000))
        before = resident(process.pid)
        found = await statuses(url, malformed(10_000))
        after = resident(process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    sys.stderr.write(f"\n{dict(sorted(found.items()))}; memory {before} kB before, {after} kB after\n")
    assert sum(found.values()) == 10_000
    assert not [status for status in found if status >= 500]
    assert after - before < 8_000
