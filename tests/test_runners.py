"""Runners of ingestion: every one leaves the same rows, whatever happens to its workers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine
from support.postgres_server import run as execute
from support.postgres_server import schema, uri
from support.runners import Folder, alive, many, rows

from contextrouter import ContextRouter
from contextrouter.contracts import Provider
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest import run
from contextrouter.ingest.changes import Change
from contextrouter.ingest.job_options import JobOptions
from contextrouter.ingest.runners.choice import Runners
from contextrouter.ingest.runners.worker_messages import decode_work, encode_change, encode_work, received
from contextrouter.model import Document, Fact


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_KEY", "hunter22-secret")


@pytest.fixture
async def dsn() -> str:
    return await asyncio.to_thread(uri)


@pytest.fixture
async def schemas() -> AsyncIterator[Any]:
    made: list[str] = []

    def make() -> str:
        made.append(schema())
        return made[-1]

    yield make
    for name in made:
        await execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


async def ingested(path: Path, **how: Any) -> Any:
    return (await run(path, **how))["notes"]


async def test_workers_leave_the_rows_that_one_process_leaves(tmp_path: Path, dsn: str, schemas: Any) -> None:
    """Also when documents change and go, and with the counts of the report."""
    folder = Folder(tmp_path, dsn, **many(40))
    paths = {workers: folder.settings(schemas(), workers=workers) for workers in (0, 2)}
    first = {workers: await ingested(path) for workers, path in paths.items()}
    assert (first[2].documents, first[2].added, first[2].skipped) == (40, 40, [])
    assert len(folder.pids() - {os.getpid()}) == 2
    folder.write("n0001", "The moon pulls the sea.")
    (folder.notes / "n0002.md").unlink()
    second = {workers: await ingested(path) for workers, path in paths.items()}
    assert (second[2].added, second[2].changed, second[2].unchanged, second[2].deleted) == (0, 1, 38, 1)
    for number in ("documents", "chunks", "tokens", "embedded", "facts"):
        for reports in (first, second):
            assert (
                getattr(reports[0], number) == getattr(reports[2], number) > (-1 if number == "facts" else 0)
            )
    one, two = [await rows(folder.dsn, path.stem) for path in paths.values()]
    assert one == two
    assert alive(folder.pids()) == {os.getpid()}


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_bad_document_is_reported_and_the_others_are_stored(
    tmp_path: Path, dsn: str, schemas: Any, workers: int
) -> None:
    """With workers also those that were sent with one that ended its process."""
    folder = Folder(tmp_path, dsn, **many(5), bad="It fails.")
    if workers:
        folder.write("once", "It dies once.")
    path = folder.settings(schemas(), workers=workers)
    report = await ingested(path)
    assert report.skipped == [("notes:bad.md", "ValueError: this one fails")]
    assert (report.documents, report.added) == (5 + workers, 5 + workers)
    stored = [line.split("|")[1] for line in await rows(folder.dsn, path.stem) if line.startswith("d|")]
    assert len(stored) == 5 + workers
    assert len(folder.pids() - {os.getpid()}) == 2 * workers
    assert alive(folder.pids()) <= {os.getpid()}


async def test_a_store_that_hangs_for_a_time_is_waited_for(tmp_path: Path, dsn: str, schemas: Any) -> None:
    folder = Folder(tmp_path, dsn, **many(3))
    path = folder.settings(name := schemas(), workers=1)
    await ingested(path, workers=0)
    folder.write("n0000", "Another text.")
    import asyncpg

    blocking = await asyncpg.connect(folder.dsn)
    async with blocking.transaction():
        await blocking.execute(f'LOCK TABLE "{name}".documents IN EXCLUSIVE MODE')
        task = asyncio.create_task(ingested(path))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO documents%'"
        for _ in range(6_000):
            if task.done() or (await execute(waiting))[0]["count"]:
                break
            await asyncio.sleep(0.02)
        assert not task.done()
    assert (await task).changed == 1
    await blocking.close()


async def test_a_failing_embedder_ends_the_run_and_its_workers(
    tmp_path: Path, dsn: str, schemas: Any
) -> None:
    folder = Folder(tmp_path, dsn, bad="unembeddable")
    with pytest.raises(IngestError, match=r"The embedder failed at 'notes:bad\.md', leg 'vector': no vector"):
        await ingested(folder.settings(schemas(), workers=1))
    assert folder.pids()
    assert not alive(folder.pids() - {os.getpid()})


async def test_settings_travel_without_the_secrets_of_the_environment(
    tmp_path: Path, dsn: str, schemas: Any
) -> None:
    """A worker takes them from its own environment."""
    folder = Folder(tmp_path, dsn, a="One.")
    router = ContextRouter.from_toml(folder.settings(schemas(), workers=1))
    runners = Runners(router, None)  # type: ignore[arg-type]  # nothing is started
    sent = str(runners._tables())
    assert "${RUNNER_KEY}" in sent
    assert "hunter22" not in sent


@pytest.mark.parametrize("use", ["memory", "sqlite"])
async def test_a_store_of_one_writer_refuses_workers(tmp_path: Path, use: str) -> None:
    (tmp_path / "notes").mkdir()
    path = "" if use == "memory" else f'path = "{tmp_path}/s.db"\n'
    (tmp_path / "s.toml").write_text(
        f'[providers.docs]\nuse = "{use}"\nembedder = ""\n{path}[ingest]\nworkers = 2\n[ingest.notes]\nfrom = "notes"\nto = "docs"\n'
    )
    with pytest.raises(SettingsError) as caught:
        await run(tmp_path / "s.toml")
    line = 5 + bool(path)
    assert str(caught.value).endswith(
        f"s.toml:{line}: ingest.workers: store 'docs' can be filled by one process only; set `workers = 0`, or"
        " use a store such as `postgres`."
    )
    (tmp_path / "notes" / "a.md").write_text("The sea.")
    assert (await run(tmp_path / "s.toml", workers=0))["notes"].documents == 1


def test_the_command_takes_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Its number counts in place of the one of the settings."""
    (tmp_path / "a.md").write_text("The sea.")
    (tmp_path / "s.toml").write_text(
        '[providers.docs]\nuse = "sqlite"\nembedder = ""\npath = "s.db"\n[ingest.notes]\nfrom = "a.md"\nto = "docs"\n'
    )
    cli = CommandLine(monkeypatch, capsys)
    refused = cli("ingest", "--settings", "s.toml", "--workers", "2", cwd=tmp_path)
    assert refused.code != 0
    assert "ingest.workers: store 'docs' can be filled by one process only" in " ".join(refused.err.split())
    assert cli("ingest", "--settings", "s.toml", "--workers", "0").code == 0


async def test_plugins_made_by_hand_refuse_workers(tmp_path: Path) -> None:
    class Store(Provider):
        many_writers = True
        vector_legs = ()
        embedder = None
        legs = ("text",)

        async def search(self, query: Any) -> Any:
            return []

        async def upsert(self, entries: Any) -> None: ...
        async def fingerprints(self, tenant: Any = None) -> Any:
            return {}

        async def delete(self, ids: Any, tenant: Any = None) -> int:
            return 0

    (tmp_path / "a.md").write_text("The sea.")
    tables = {"ingest": {"notes": {"from": str(tmp_path), "to": "docs"}}}
    async with ContextRouter(tables, providers={"docs": Store()}) as router:
        with pytest.raises(
            SettingsError, match="provider 'docs' was made by hand, and workers make their plug"
        ):
            await run(router, workers=1)


async def test_a_job_that_looks_through_its_source_first_has_no_workers(
    tmp_path: Path, dsn: str, schemas: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, dsn, **many(3))
    path = folder.settings(schemas(), workers=2)
    path.write_text(
        path.read_text().replace('["hazard", "chunk"', '["hazard", "chunk", "quality"')
        + "[transforms.quality]\nrepeated = 2\n"
    )
    with caplog.at_level(logging.WARNING):
        assert (await ingested(path)).documents == 3
    assert folder.pids() == {os.getpid()}
    assert (
        "Job 'notes' has no workers: its transform Quality looks through the whole source first."
        in caplog.text
    )


def test_a_document_arrives_as_it_was_sent() -> None:
    """With values that JSON lacks, and moments in their zone."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))
    fact = Fact(subject="a", predicate="b", object="c", attributes={"d": 1})
    metadata = {
        "text": "é\x00",
        "list": [1, [2.5, None, True]],
        "tuple": (1, (2,)),
        "sets": [{1, 2}, frozenset("a")],
        "moments": {
            "a": moment,
            "b": moment.replace(tzinfo=None),
            "c": date(2026, 1, 2),
            "d": datetime.now(UTC),
        },
        "bytes": b"\xff\x00",
        "numbers": {1: "one", "\x00": "tag"},
        "infinite": float("inf"),
        "facts": [fact],
        "large": 2**62,
    }
    document = Document(id="a", content="x", path=("p",), updated_at=moment, metadata=metadata)
    options = JobOptions(origin="notes", labels={"kind": "book"}, batch=7)
    work = decode_work(encode_work("notes", options, [encode_change(Change(document, "mark", stored=True))]))
    assert (work.job, work.options) == ("notes", options)
    (change,) = [received(each) for each in work.changes]
    assert change == Change(document, "mark", stored=True)
    for name, value in metadata.items():
        assert type(change.document.metadata[name]) is type(value)
    assert change.document.updated_at.utcoffset() == timedelta(hours=2)  # type: ignore[union-attr]  # it has one
    with pytest.raises(TypeError, match="metadata holds a object, which cannot be sent to a worker"):
        encode_change(Change(document.replace(metadata={"a": object()}), "mark", stored=False))
