"""How a job runs: several things at once within bounds, one run at a time in a store, dry runs, and keeping
up with a source.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.example import CommandLine
from support.postgres_server import open_store

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.providers.sqlite.ingest_lock import IngestLock
from contextrouter.builtin.transforms.chunking import Headings
from contextrouter.builtin.transforms.quality import Quality
from contextrouter.cli import terminal
from contextrouter.cli.ingest import bar, keep_up
from contextrouter.contracts import Connector, Embedder, Entry, Transform
from contextrouter.errors import IngestError, SettingsError, SourceError
from contextrouter.ingest import Report, SupportsSize, SupportsTurns, ingest, run, watch
from contextrouter.ingest.document_queue import AHEAD, CharacterBudget
from contextrouter.ingest.job import JobRun
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.preparation import AT_ONCE, build_entry
from contextrouter.ingest.runners.local import LocalRunner
from contextrouter.ingest.store_lock import turn
from contextrouter.model import Document, Hit, Query, Vector
from contextrouter.router import ContextRouter

SETTINGS = (
    '[providers.store]\nuse = "sqlite"\npath = "s.db"\nembedder = ""\n[ingest.all]\nfrom = "texts"\nto ='
    ' "store"\n'
)
HOLDER = """
import asyncio, sys
from contextrouter.builtin.providers.sqlite import Sqlite
async def main():
    store = Sqlite(path=sys.argv[1], embedder=None)
    print(repr(await store.take_turn()), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


class Pages:
    """Lists pages, and counts how many it was asked for."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.given = texts, 0

    async def crawl(self) -> AsyncIterator[Document]:
        for number, text in enumerate(self.texts):
            self.given += 1
            yield Document(id=f"p{number}", content=text)


class Shut:
    """A store that keeps what it gets, each time it is let."""

    embedder: str | None = None
    vector_legs: Sequence[str] = ()

    def __init__(self, *, free: bool = False) -> None:
        self.let = asyncio.Event()
        self.kept: list[str] = []
        self.calls: list[list[str]] = []
        if free:
            self.let.set()

    async def upsert(self, entries: Sequence[Entry]) -> None:
        await self.let.wait()
        self.calls.append([entry.document.id for entry in entries])
        self.kept += self.calls[-1]

    async def fingerprints(self, tenant: str | None = None) -> dict[str, str]:
        return {}

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        return 0


class Slow(Transform):
    """Takes the longer the earlier a page comes, and knows how many were in its hands at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def transform(self, document: Document) -> Sequence[Document]:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20 - int(document.id.removeprefix("x:p"))):
            await asyncio.sleep(0)
        self.now -= 1
        return [document]


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_source_waits_for_a_store_that_is_behind() -> None:
    source, store = Pages(*"abcdefghijklmnopqrstuvwxyz"), Shut()
    job = asyncio.ensure_future(ingest(source, store, [], None, origin="x", batch=3))
    await settled()
    # 3 being stored, AHEAD in line, one taken off it, one that waits to be put on it
    assert source.given <= 3 + AHEAD + 2
    store.let.set()
    report = await job
    assert (source.given, report.documents) == (26, 26)
    assert store.kept == [f"x:p{n}" for n in range(26)]


async def test_documents_are_enriched_several_at_once_and_stored_in_their_order() -> None:
    store, slow = Shut(free=True), Slow()
    await ingest(Pages(*"abcdefghij"), store, [slow], None, origin="x", batch=4)
    assert 2 <= slow.most <= AHEAD + 2
    assert store.calls == [[f"x:p{n}" for n in group] for group in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))]


async def test_a_transform_handles_several_chunks_of_a_document_at_once() -> None:
    """The chunks stay in their order."""

    class Waiting(Transform):
        now = most = 0

        async def transform(self, document: Document) -> Sequence[Document]:
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(30 - len(document.content)):
                await asyncio.sleep(0)
            self.now -= 1
            if len(document.content) == 30:
                raise LookupError("thirty")
            return [document, document]

    class Cut(Transform):
        async def transform(self, document: Document) -> Sequence[Document]:
            return [document.replace(content="x" * n) for n in range(1, int(document.content))]

    waiting, document = Waiting(), Document(id="d", content="12")
    entry, _ = await build_entry(document, [Cut(), waiting], "")
    assert [len(chunk.content) for chunk in entry.chunks] == [n for n in range(1, 12) for _ in range(2)]
    assert waiting.most == AT_ONCE
    with pytest.raises(LookupError, match="thirty"):
        await build_entry(document.replace(content="40"), [Cut(), Waiting()], "")


async def test_work_in_progress_is_bounded_by_length() -> None:
    """A longer document is in work alone."""
    store = Shut(free=True)
    source = Pages("a" * 4, "b" * 4, "c" * 4, "d" * 30, "e" * 10, "f")
    job = JobRun(JobPlugins(source, store, [], None), JobOptions(origin="x"))
    runner = LocalRunner(job.plugins, job.options)
    job.runner, runner.budget = runner, CharacterBudget(10)
    await job.execute()
    assert store.calls == [["x:p0", "x:p1"], ["x:p2"], ["x:p3"], ["x:p4"], ["x:p5"]]
    assert runner.budget.used == 0


async def test_the_report_counts_what_was_added_changed_and_cut(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    first = await ingest(Pages("the moon", "the tides"), store, [], None, origin="x")
    assert (first.added, first.changed, first.documents, first.chunks, first.tokens) == (2, 0, 2, 2, 4)
    second = await ingest(Pages("the moon", "the sea", "the sun"), store, [], None, origin="x")
    assert (second.added, second.changed, second.unchanged, second.documents, second.read) == (1, 1, 1, 2, 3)
    dry = await ingest(Pages("a moon"), store, [], None, origin="x", dry_run=True, remove=True)
    assert dry.changes == [("changed", "x:p0"), ("removed", "x:p1"), ("removed", "x:p2")]
    assert (dry.changed, dry.deleted, second.changes) == (1, 2, [])
    await store.aclose()


async def test_a_dry_run_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("# Moon\n\nTides.\n")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    report = (await run(tmp_path / "settings.toml", dry_run=True))["all"]
    assert report.changes == [("added", "all:a.md")]
    assert sorted(os.listdir(tmp_path)) == ["settings.toml", "texts"]


async def test_progress_knows_how_many_files_there_are(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.md").write_text("text")
    source = Files(path=str(tmp_path))
    assert isinstance(source, SupportsSize)
    await source.open()
    seen: list[tuple[int | None, int]] = []
    await ingest(
        source,
        Shut(free=True),
        [],
        None,
        origin="x",
        progress=lambda report: seen.append((report.total, report.read)),
    )
    assert seen[-1] == (3, 3)
    await source.aclose()


async def test_a_changed_document_embeds_only_the_chunks_that_changed(tmp_path: Path) -> None:
    """The store knows the model of its vectors, and another model is refused."""

    class Fixed(Embedder):
        dimensions, model = 2, "fixed-1"

        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
            return [(1.0, float(len(text))) for text in texts]

    store, embedder = Sqlite(path=str(tmp_path / "s.db")), Fixed()
    await store.open()
    text = "# A\n\nOne.\n\n# B\n\nTwo.\n\n# C\n\n"
    first = await ingest(Pages(text + "Three."), store, [Headings()], embedder, origin="x")
    second = await ingest(Pages(text + "Four."), store, [Headings()], embedder, origin="x")
    assert (first.embedded, second.chunks, second.embedded) == (3, 3, 1)
    embedder.model = "other-1"
    with pytest.raises(
        IngestError, match=r"does not take vectors of 'other-1': Store was filled by .*'fixed-1'"
    ):
        await ingest(Pages(text), store, [Headings()], embedder, origin="x")
    await store.aclose()


# Documents that are known without being parsed


class Counted(Files):
    """Says which files it parsed."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self.parsed: list[str] = []
        parse = self._files.parse

        def noted(name: str, data: bytes) -> Parsed:
            self.parsed.append(name)
            return parse(name, data)

        self._files.parse = noted  # type: ignore[method-assign]  # a note for each call


async def again(
    source: Counted, store: Memory, *transforms: Transform, **more: Any
) -> tuple[list[str], Report]:
    """What a run parses, and its report."""
    source.parsed.clear()
    report = await ingest(source, store, transforms, None, **{"origin": "x", **more})
    return sorted(source.parsed), report


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Counted]:
    (tmp_path / "a.md").write_text("moon")
    (tmp_path / "b.md").write_text("---\ntenant: acme\n---\ntides")
    (tmp_path / "odd.md").write_text("---\nkind: x\nno pair\n---\nsalt")
    counted = Counted(path=str(tmp_path))
    await counted.open()
    yield counted
    await counted.aclose()


async def test_an_unchanged_file_is_parsed_again_only_after_a_problem(
    source: Counted, tmp_path: Path
) -> None:
    """A file is unchanged if its bytes are the same."""
    store = Memory()
    parsed, first = await again(source, store)
    assert (parsed, first.added) == (["a.md", "b.md", "odd.md"], 3)
    parsed, second = await again(source, store)
    assert (parsed, second.unchanged, second.deleted, second.documents) == (["odd.md"], 3, 0, 0)
    assert (
        first.skipped == second.skipped == [("x", "odd.md: front matter line 'no pair' is not `key: value`.")]
    )
    os.utime(tmp_path / "a.md", (1, 1))
    (tmp_path / "b.md").unlink()
    parsed, third = await again(source, store)
    assert (parsed, third.unchanged, third.deleted) == (["odd.md"], 2, 1)
    (tmp_path / "a.md").write_text("moon\n")  # other bytes, the same text
    parsed, fourth = await again(source, store)
    assert (parsed, fourth.unchanged, fourth.documents) == (["a.md", "odd.md"], 2, 0)


async def test_other_labels_transforms_and_a_rebuild_parse_everything_again(source: Counted) -> None:
    store = Memory()
    await again(source, store)
    everything = ["a.md", "b.md", "odd.md"]
    parsed, report = await again(source, store, labels={"kind": "book"})
    assert (parsed, report.changed) == (everything, 2)  # the third says what it is itself
    assert (await again(source, store, Headings(), labels={"kind": "book"}))[0] == everything
    assert (await again(source, store, Headings(), labels={"kind": "book"}))[0] == ["odd.md"]
    assert (await again(source, store, Headings(), labels={"kind": "book"}, rebuild=True))[0] == everything
    assert (await again(source, store, Headings(), Quality(repeated=2), labels={"kind": "book"}))[
        0
    ] == sorted(everything * 2)


# One run at a time


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the turn at the store `s.db`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "s.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "''\n"
        yield other
        other.kill()


async def test_a_second_run_waits_for_the_first_and_gives_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, holder: subprocess.Popen[str]
) -> None:
    """The error says who has the store."""
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    assert isinstance(store, SupportsTurns)
    await store.open()
    has = rf"Store 'x' is being filled by process {holder.pid} since \d\d:\d\d:\d\d UTC"
    with pytest.raises(IngestError, match=has + ", for longer than 0 s"):
        await ingest(Pages("moon"), store, [], None, origin="x", wait=0.0)
    job = asyncio.ensure_future(ingest(Pages("moon"), store, [], None, origin="x", wait=60.0))
    for _ in range(3000):
        if "waiting up to" in caplog.text:
            break
        await asyncio.sleep(0.01)
    assert re.search(has + "; waiting up to 60 s", caplog.text.replace('"', "'"))
    assert not job.done()
    holder.kill()  # the turn goes with the process
    assert (await job).added == 1
    assert await store.take_turn() == ""
    await store.aclose()


async def test_one_store_instance_has_one_turn_and_gives_it_back_when_a_run_fails(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    with pytest.raises(IngestError, match="is being filled by this process"):
        async with turn(store, "s", 0.0), turn(store, "s", 0.0):
            pass
    other = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    async with turn(other, "s", 0.0):
        assert "process" in await store.take_turn()
    await store.aclose()


async def test_a_turn_whose_taker_is_cancelled_is_nobody_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    take = IngestLock._take

    def slowly(lock: IngestLock) -> Any:
        began.set()
        goes_on.wait()
        try:
            return take(lock)
        finally:
            ended.set()

    monkeypatch.setattr(IngestLock, "_take", slowly)
    stores = [Sqlite(path=str(tmp_path / "s.db"), embedder=None) for _ in range(2)]
    task = asyncio.create_task(stores[0].take_turn())
    await asyncio.to_thread(began.wait)
    task.cancel()
    await asyncio.wait([task])
    goes_on.set()
    await asyncio.to_thread(ended.wait)
    monkeypatch.undo()
    for _ in range(200):  # the event loop gives it back at once, a moment later
        if not (owner := await stores[1].take_turn()):
            break
        await asyncio.sleep(0.01)
    assert owner == ""
    await stores[1].end_turn()


async def test_a_store_that_cannot_be_taken_says_why() -> None:
    class Broken(Shut):
        async def take_turn(self) -> str:
            raise SourceError("disk full")

        async def end_turn(self) -> None: ...

    with pytest.raises(IngestError, match="Store 'x' cannot be taken for filling: disk full"):
        await ingest(Pages("moon"), Broken(free=True), [], None, origin="x")


async def test_postgres_has_turns_per_schema_that_end_with_the_connection() -> None:
    async with open_store() as store, open_store() as elsewhere:
        async with turn(store, "s", 0.0):
            second = type(store)(dsn=store.pool.dsn, schema=store.pool.schema, embedder=None)
            await second.open()
            assert " (pid " in await second.take_turn()
            assert await elsewhere.take_turn() == ""
            await elsewhere.end_turn()
        assert await second.take_turn() == ""
        await second.aclose()
        assert await store.take_turn() == ""
        await store.end_turn()


class Withholding(Pages):
    """A source that says of its first document that the store has it."""

    async def crawl_since(self, known: object) -> AsyncIterator[tuple[str, str, Document | None]]:
        yield "p0", "v1", None


async def test_a_document_that_only_the_source_takes_for_stored_is_reported() -> None:
    store = Memory(embedder=None)
    said = "was listed without its document, in a version that the store does not have"
    for stored in (0, 1):
        for rebuild in (False, True):
            report = await ingest(Withholding(), store, [], None, origin="x", rebuild=rebuild)
            assert (report.unchanged, report.deleted, report.skipped) == (0, 0, [("x:p0", said)])
            assert len(await store.fingerprints()) == stored
        await ingest(Pages("moon"), store, [], None, origin="x")


# Keeping up


async def test_a_watched_folder_is_read_again_when_it_changes_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("moon")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    async with aclosing(watch(tmp_path / "settings.toml", every=0.01)) as changes:
        assert (await anext(changes))["all"].added == 1
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        (tmp_path / "texts" / "b.md").write_text("tides")
        assert (await waiting)["all"].added == 1
        (tmp_path / "texts" / "a.md").unlink()
        assert (await anext(changes))["all"].deleted == 1


async def test_a_run_that_breaks_off_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Unsteady(Pages):
        async def crawl(self) -> AsyncIterator[Document]:
            self.given += 1
            if self.given == 1:
                raise OSError("gone")
            yield Document(id="a", content="moon")

    settings = {
        "providers": {"memory": {}},
        "ingest": {"all": {"from": "mine", "to": "memory", "transforms": []}},
    }
    router = ContextRouter(settings, connectors={"mine": _connector(Unsteady())})
    async with router, aclosing(watch(router, every=0.01)) as changes:
        reports: dict[str, Report] = await anext(changes)
    assert reports["all"].documents == 1
    assert (
        "is tried again in 0.01 s: Source 'all' broke off after 0 documents, nothing was removed: gone"
        in caplog.text
    )
    with pytest.raises(ValueError, match="give seconds above 0"):
        await anext(watch("nowhere.toml", every=0.0))
    with pytest.raises(SettingsError):
        await anext(watch("nowhere.toml"))


async def test_a_watch_goes_on_while_a_folder_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder of a share that is not mounted for a time is no mistake in the settings."""
    folders = {name: tmp_path / name for name in ("shared", "own")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "a.md").write_text("moon")
    settings = {
        "providers": {"store": {"use": "sqlite", "path": str(tmp_path / "s.db"), "embedder": ""}},
        "ingest": {name: {"from": str(folder), "to": "store"} for name, folder in folders.items()},
    }
    async with ContextRouter(settings) as router, aclosing(watch(router, every=0.01)) as changes:
        assert (await anext(changes)).keys() == {"shared", "own"}
        folders["shared"].rename(tmp_path / "away")
        (folders["own"] / "b.md").write_text("tides")
        reports: dict[str, Report] = await anext(changes)
        assert (reports.keys(), reports["own"].added) == ({"own"}, 1)
        assert "Run of shared broke off, and is tried again in 0.01 s: ingest.shared.from: " in caplog.text
        (tmp_path / "away" / "c.md").write_text("sand")
        (tmp_path / "away").rename(folders["shared"])
        reports = await anext(changes)
        assert (reports.keys(), reports["shared"].added) == ({"shared"}, 1)


# From the terminal


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    for number in range(25):
        (tmp_path / "texts" / f"{number:02}.md").write_text(f"# Page {number}\n\nThe moon.\n")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return tmp_path


def test_a_dry_run_names_what_would_change_the_first_of_each_kind(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(monkeypatch, capsys)
    ran = cli("ingest", "--dry-run", cwd=home)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[2].split() == ["all", "25", "0", "0", "0", "25", "0", "150"]  # tokens: # page 0 the moon .
    assert [line for line in lines if line.startswith("added")][:2] == [
        "added    all:00.md",
        "added    all:01.md",
    ]
    assert "added    5 more; --json lists them all" in lines
    told = json.loads(cli("ingest", "--dry-run", "--json").out)["all"]
    assert len(told["changes"]) == told["added"] == told["total"] == 25
    assert cli("ingest").code == 0
    (home / "texts" / "00.md").unlink()
    (home / "texts" / "01.md").write_text("# Other\n")
    lines = cli("ingest", "--dry-run").out.splitlines()
    assert lines[2].split()[:5] == ["all", "0", "1", "23", "1"]
    assert [line for line in lines if "all:" in line] == ["changed  all:01.md", "removed  all:00.md"]


def test_flags_that_contradict_each_other_are_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(monkeypatch, capsys)
    for flags in (["--dry-run"], ["--rebuild"], ["--remove"]):
        ran = cli("ingest", "--watch", *flags, cwd=home)
        assert (ran.code, "leave out --rebuild, --remove and --dry-run" in ran.err) == (2, True)
    assert cli("ingest", "--watch", "--forget", "x", cwd=home).code == 2


async def test_a_watch_that_is_interrupted_ends_well(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with ContextRouter.from_toml(home / "settings.toml") as router:
        watching = asyncio.ensure_future(keep_up(router, (), every=0.01, wait=0.0, as_json=True))
        store = router.instances.all["provider", "store"]
        assert isinstance(store, Sqlite)
        for _ in range(1000):
            if len(await store.fingerprints()) == 25:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        watching.cancel()  # as Ctrl-C does
        assert await watching == 0
    assert json.loads(capsys.readouterr().out)["all"]["added"] == 25


def test_the_bar_shows_rate_and_rest_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(terminal, "err", Console(file=written, force_terminal=True, width=120))
    with bar() as progress:
        progress("all", Report(documents=30, unchanged=20, chunks=90, read=50, total=200, seconds=5.0))
    assert "50 of 200 documents, 90 chunks" in written.getvalue()
    assert "10/s" in written.getvalue()
    quiet = io.StringIO()
    monkeypatch.setattr(terminal, "err", Console(file=quiet, force_terminal=False))
    with bar() as progress:
        progress("all", Report(documents=30, total=200, seconds=5.0))
    assert quiet.getvalue() == ""


def _connector(pages: Pages) -> Connector:
    class Mine(Connector):
        async def search(self, query: Query) -> Sequence[Hit]:
            return []

        def crawl(self) -> AsyncIterator[Document]:
            return pages.crawl()

    return Mine()
