"""Runners of ingestion: every one leaves the same rows, whatever happens to its workers."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tomllib
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine
from support.postgres_server import run as execute
from support.postgres_server import schema, uri
from support.runners import Folder, alive, many, rows

from contextrouter import ContextRouter
from contextrouter.contracts import Embedder, Provider
from contextrouter.errors import IngestError, SettingsError
from contextrouter.ingest import Report, run
from contextrouter.ingest.changes import Change
from contextrouter.ingest.job_options import JobOptions
from contextrouter.ingest.report import Progress
from contextrouter.ingest.runners.choice import Runners
from contextrouter.ingest.runners.pool import PooledRunner, WorkerDied, WorkerPool
from contextrouter.ingest.runners.processes import ProcessWorker
from contextrouter.ingest.runners.worker_messages import (
    Reply,
    decode_work,
    encode_change,
    encode_reply,
    encode_work,
    received,
)
from contextrouter.model import Document, Entity, Fact


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


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_what_a_plugin_logs_shows_no_secret_of_the_settings(
    tmp_path: Path, dsn: str, schemas: Any, workers: str
) -> None:
    path = Folder(tmp_path, dsn, a="Please tell the key.").settings(schemas())
    code = "from contextrouter.cli import main; main()"
    command = (sys.executable, "-c", code, "ingest", "--settings", str(path), "--workers", workers)
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
    shown = (await process.communicate())[1].decode()
    assert "WARNING: refused: ***" in shown
    assert "hunter22" not in shown


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
        f"s.toml:{line}: ingest.workers: job 'notes' can have no workers: store 'docs' can be filled by one"
        " process only; set `workers = 0` in [ingest.notes], or use a store such as `postgres`."
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
    said = " ".join(refused.err.split())
    assert "store 'docs' can be filled by one process only; run it with `--workers 0`" in said
    assert cli("ingest", "--settings", "s.toml", "--workers", "0").code == 0


@pytest.mark.parametrize("workers", [-1, 1025])
async def test_a_number_of_workers_out_of_range_is_refused(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.md").write_text("The sea.")
    tables = {
        "providers": {"docs": {"use": "sqlite", "embedder": "", "path": str(tmp_path / "s.db")}},
        "ingest": {"notes": {"from": str(tmp_path / "a.md"), "to": "docs"}},
    }
    async with ContextRouter(tables) as router:
        with pytest.raises(ValueError, match=f"workers {workers} is out of range; give 0 to 1024"):
            await run(router, workers=workers)


class Mortal:
    """A worker that dies at documents whose text says so, and stores the others."""

    async def start(self) -> bytes:
        return encode_reply(Reply())

    async def work(self, body: bytes) -> bytes:
        changes = decode_work(body).changes
        if any("die" in change.document.content for change in changes):
            raise WorkerDied("signal 9")
        return encode_reply(Reply(report=Report(documents=len(changes))))

    async def stop(self) -> None: ...
    async def kill(self) -> None: ...


async def pooled(texts: Sequence[str], receive: Any = None) -> Report:
    """Have two mortal workers store documents with these texts; the report of the run."""

    async def changes() -> AsyncGenerator[Change, None]:
        for number, text in enumerate(texts):
            yield Change(Document(id=f"d{number}", content=text), "mark", stored=False)

    progress = Progress(receive)
    runner = PooledRunner(WorkerPool(2, Mortal), "notes", JobOptions(origin="notes"))
    async with aclosing(changes()) as reading:
        await runner.run(reading, progress)
    return progress.report


async def test_workers_that_die_of_every_document_end_the_run() -> None:
    with pytest.raises(
        IngestError,
        match=r"workers of job 'notes' ended at 10 documents one after the other \(signal 9\), the",
    ):
        await pooled(["die"] * 200)


async def test_many_documents_that_end_their_workers_among_others_do_not_end_the_run() -> None:
    report = await pooled(["live", "die"] * 50)
    assert (report.documents, len(report.skipped)) == (50, 50)


async def test_who_receives_the_progress_may_end_the_run_by_an_exception(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def receive(*values: object) -> None:
        raise Enough

    with pytest.raises(Enough):
        await pooled(["live"], receive)
    (tmp_path / "a.md").write_text("The sea.")
    tables = {
        "providers": {"docs": {"use": "sqlite", "embedder": "", "path": str(tmp_path / "s.db")}},
        "ingest": {"notes": {"from": str(tmp_path / "a.md"), "to": "docs"}},
    }
    async with ContextRouter(tables) as router:
        with pytest.raises(Enough):
            await run(router, progress=receive)


async def test_a_process_that_the_system_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/none/python")
    runner = PooledRunner(WorkerPool(1, lambda: ProcessWorker(b"{}")), "notes", JobOptions(origin="notes"))

    async def changes() -> AsyncGenerator[Change, None]:
        yield Change(Document(id="a", content="a"), "mark", stored=False)

    with pytest.raises(
        IngestError, match=r"do not start, 5 times in a row \(an error of the system: .*none/python"
    ):
        await runner.run(changes(), Progress(None))


async def test_workers_need_no_embedder_of_another_store(
    tmp_path: Path, dsn: str, schemas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(Embedder):
        model, dimensions = "mine", 2

        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
            return [[1.0, 0.0] for _ in texts]

    monkeypatch.chdir(tmp_path)
    folder = Folder(tmp_path, dsn, **many(1))
    tables = tomllib.loads(folder.settings(schemas(), workers=1).read_text())
    tables["providers"]["other"] = {"use": "sqlite", "path": "other.db", "embedder": "mine"}
    async with ContextRouter(tables, embedders={"mine": Mine()}) as router:
        assert (await run(router))["notes"].added == 1
    assert folder.pids() - {os.getpid()}


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
        "Job 'notes' has no workers, this process does its work: its transform Quality looks through the whole"
        " source first. Set `workers = 0` in [ingest.notes]" in caplog.text
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
        "entity": Entity(id="e", name="Ada", attributes={"born": 1815}),
        "document": Document(content="y", metadata={"when": moment, "kinds": {"a"}}),
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
