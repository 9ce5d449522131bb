"""Workers of ingestion that are killed, and coordinators: nothing is lost, doubled or left running."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.postgres_server import Server
from support.runners import Folder, alive, many, rows, until

from contextrouter.ingest import Report, run
from contextrouter.ingest.runners.pool import IN_A_ROW

KILLS, DOCUMENTS = 20, 600


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    server = Server()
    yield server.dsn
    server.close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_KEY", "hunter22-secret")


def _works(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE and "contextrouter-ingest-worker" in child.cmdline()
    except psutil.NoSuchProcess:
        return False


async def ingested(path: Path, **how: Any) -> Any:
    return (await run(path, **how))["notes"]


async def test_a_document_that_ends_its_worker_again_and_again_is_reported(tmp_path: Path, dsn: str) -> None:
    folder = Folder(tmp_path, dsn, **many(5), deadly="It dies always.")
    path = folder.settings("deadly", workers=1)
    report = await ingested(path)
    problem = (
        "ended its worker 3 times (signal 9) and was left out; what is stored of it stays. Read above what the"
        " worker wrote, and mend the document or a transform of the job"
    )
    assert report.skipped == [("notes:deadly.md", problem)]
    assert report.documents == 5
    assert not alive(folder.pids())


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
async def test_workers_end_with_their_coordinator(tmp_path: Path, dsn: str, ending: signal.Signals) -> None:
    """However it ends; the next run stores what is missing, and nothing twice."""
    folder = Folder(tmp_path, dsn, **many(40), w="It waits.")
    path = folder.settings(f"first_{ending}", workers=2)
    command = [sys.executable, "-m", "contextrouter", "ingest", "--settings", str(path)]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path)
    await until(lambda: folder.pids("waits") or process.returncode is not None)
    process.send_signal(ending)
    async with asyncio.timeout(120):
        await process.wait()
    await until(lambda: not alive(folder.pids()))
    (folder.marks / "go").touch()
    report = await ingested(path, workers=0)
    assert report.documents + report.unchanged == 41
    whole = await ingested(folder.settings(f"second_{ending}", workers=0))
    assert whole.documents == 41
    assert await rows(dsn, f"first_{ending}") == await rows(dsn, f"second_{ending}")


async def test_workers_that_are_killed_at_random_lose_and_double_nothing(tmp_path: Path, dsn: str) -> None:
    """Of them some that have only begun. Between so many kills that would end the run, something is stored."""
    chance = random.Random(int(os.environ.get("SEED", "3")))
    folder = Folder(tmp_path, dsn, **many(DOCUMENTS))
    kills: list[int] = []
    stored_at = {0: 0}  # documents -> kills before they were stored

    def note(job: str, report: Report) -> None:
        stored_at.setdefault(report.documents, len(kills))

    task = asyncio.create_task(ingested(folder.settings("killed", workers=2), progress=note))
    while len(kills) < KILLS and not task.done():
        if len(kills) - max(stored_at.values()) >= IN_A_ROW // 2:
            await asyncio.sleep(0.02)
            continue
        workers = {child.pid for child in psutil.Process().children() if _works(child)} - set(kills)
        busy = alive(workers & folder.pids()) or (workers if chance.random() < 0.002 else set())
        if busy:
            await asyncio.sleep(0.1 * chance.random())  # kills come faster than the work is done
            victim = chance.choice(sorted(busy))
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                kills.append(victim)
        await asyncio.sleep(0.02)
    report = await task
    assert len(kills) == KILLS
    assert (report.documents, report.added, report.skipped) == (DOCUMENTS, DOCUMENTS, [])
    whole = await ingested(folder.settings("whole", workers=0))
    assert (report.chunks, report.tokens) == (whole.chunks, whole.tokens)
    assert await rows(dsn, "killed") == await rows(dsn, "whole")
    assert not alive(folder.pids() - {os.getpid()})
