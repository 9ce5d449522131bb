"""Ingestion on Ray: a cluster of this machine with two workers leaves the rows that one process leaves.

`test_ray.py` runs this in an environment of its own, because Ray is large.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from support.postgres_server import Server
from support.runners import Folder, alive, many, rows, until

from contextrouter.errors import IngestError
from contextrouter.ingest import run

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    os.environ["RUNNER_KEY"] = "hunter22-secret"
    server = Server()
    ray.init(num_cpus=2, include_dashboard=False)
    yield server.dsn
    ray.shutdown()
    server.close()


async def ingested(path: Path, **how: Any) -> Any:
    return (await run(path, **how))["notes"]


async def test_two_actors_leave_the_rows_that_one_process_leaves(tmp_path: Path, dsn: str) -> None:
    folder = Folder(
        tmp_path, dsn, **many(40), bad="It fails.", once="It dies once.", deadly="It dies always."
    )
    report = await ingested(folder.settings("ray", workers=2, runner="ray"))
    problems = dict(report.skipped)
    assert problems.pop("notes:deadly.md").startswith("ended its worker 3 times")
    assert problems == {"notes:bad.md": "ValueError: this one fails"}
    assert report.added == 41
    assert os.getpid() not in folder.pids()
    (folder.notes / "deadly.md").unlink()
    local = await ingested(folder.settings("local"))
    assert (local.chunks, local.tokens, local.embedded) == (report.chunks, report.tokens, report.embedded)
    assert await rows(dsn, "ray") == await rows(dsn, "local")
    await until(lambda: not alive(folder.pids() - {os.getpid()}))
    again = await ingested(folder.settings("ray", workers=2, runner="ray"))
    assert (again.documents, again.unchanged) == (0, 41)


async def test_actors_that_are_killed_lose_and_double_nothing(tmp_path: Path, dsn: str) -> None:
    folder = Folder(tmp_path, dsn, **many(200))
    task = asyncio.create_task(ingested(folder.settings("killed", workers=2, runner="ray")))
    killed: set[int] = set()
    while len(killed) < 5 and not task.done():
        for pid in sorted(alive(folder.pids() - killed))[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        await asyncio.sleep(0.3)
    report = await task
    assert (report.added, report.skipped, len(killed)) == (200, [], 5)
    await ingested(folder.settings("unharmed"))
    assert await rows(dsn, "killed") == await rows(dsn, "unharmed")


async def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, dsn: str) -> None:
    folder = Folder(tmp_path, dsn, a="One.")
    ray.shutdown()
    path = folder.settings("none", workers=1, runner="ray", ray_address="127.0.0.1:9")
    with pytest.raises(IngestError, match=r"No Ray cluster is at '127\.0\.0\.1:9'"):
        await ingested(path)
