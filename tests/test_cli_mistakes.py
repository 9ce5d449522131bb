"""Mistakes of newcomers at the command line: each is one short message, and no traceback."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import ContextRouter, Document, Fact, Request, RequestRefused
from contextrouter.builtin.connectors.files.documents import file_documents
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.errors import SettingsError, SourceError

QUESTION = "How often must a sourdough starter be fed?"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.mark.parametrize("command", [("init", "notes.txt"), ("demo", "--into", "notes.txt")])
def test_a_file_in_place_of_a_folder_is_named(command: tuple[str, ...], cli: CommandLine, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    ran = cli(*command, cwd=tmp_path)
    assert ran.code == 2
    assert "'notes.txt' is a file, where a folder is needed" in " ".join(ran.err.split())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_place_of_a_folder_below_is_named(cli: CommandLine, tmp_path: Path):
    (tmp_path / "documents").write_text("mine")
    ran = cli("init", cwd=tmp_path)
    assert ran.code == 2
    assert "'documents' is a file, where a folder is needed" in " ".join(ran.err.split())


def test_a_source_that_cannot_name_its_problems_fails_its_own_check(cli: CommandLine, tmp_path: Path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "odd.py").write_text(
        "from contextrouter import Connector\n"
        "class Odd(Connector):\n"
        "    unread = ()\n"
        "    @property\n"
        "    def problems(self):\n"
        "        raise RuntimeError('not now')\n"
        "    async def search(self, query):\n"
        "        return []\n"
    )
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["plugins"]\n[connectors.odd]\n')
    ran = cli("check", cwd=tmp_path)
    assert (ran.code, "not now" in ran.out, "1 check failed" in ran.out) == (1, True, True)


def test_the_next_command_can_be_pasted_whatever_the_name_of_the_folder(cli: CommandLine, tmp_path: Path):
    assert "cd 'my folder' && contextrouter ingest" in cli("init", "my folder", cwd=tmp_path).out
    assert "cd mine && contextrouter ingest" in cli("init", "mine", cwd=tmp_path).out


@pytest.mark.parametrize("arguments", [("settings", "--json"), ("route", "--help")])
def test_output_that_cannot_be_written_is_one_message(
    arguments: tuple[str, ...], cli: CommandLine, tmp_path: Path
):
    assert cli("init", cwd=tmp_path).code == 0
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "contextrouter", *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 74
    assert ran.stderr.startswith("error: There is no room to write the output")
    assert "Traceback" not in ran.stderr


def test_a_home_folder_of_nobody_is_named_with_its_key(cli: CommandLine, tmp_path: Path):
    assert cli("init", cwd=tmp_path).code == 0
    path = tmp_path / "settings.toml"
    text = path.read_text("utf-8")
    path.write_text(text.replace('path = "data/store.db"', 'path = "~no_such_user/store.db"', 1), "utf-8")
    ran = cli("ingest")
    assert ran.code == 2
    assert "providers.store.path: '~no_such_user/store.db' begins with a home folder" in ran.err
    path.write_text(text.replace('from = "documents"', 'from = "~no_such_user/notes"', 1), "utf-8")
    ran = cli("ingest")
    assert ran.code == 2
    assert "ingest.documents.from: '~no_such_user/notes' is neither a path" in ran.err


def test_a_nul_in_the_name_of_a_file_is_a_problem_of_the_settings(tmp_path: Path):
    with pytest.raises(SettingsError, match="cannot be read: embedded null"):
        ContextRouter.from_toml("a\0b")
    secret = '[generators.g]\nuse = "openai"\nmodel = "m"\napi_key = "file:a\\u0000b"\n'
    (tmp_path / "settings.toml").write_text(secret)
    with pytest.raises(SettingsError, match=r"generators\.g\.api_key: secret file .* cannot be read"):
        ContextRouter.from_toml(tmp_path / "settings.toml")


def test_a_current_folder_that_was_deleted_is_no_traceback(tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os; os.rmdir(os.getcwd()); from contextrouter.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "route", "anything"],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert "Settings file 'settings.toml' does not exist" in ran.stderr


def test_a_damaged_lock_is_named_with_its_remedy(cli: CommandLine, tmp_path: Path):
    assert cli("init", cwd=tmp_path).code == 0
    (tmp_path / "data").mkdir()
    lock = tmp_path / "data" / "store.db-turn"
    lock.write_text("no database, but long enough to be read as the beginning of one" * 9)
    ran = cli("ingest")
    assert ran.code == 4
    assert f"{str(lock)!r} is no lock of a store" in ran.err
    assert "remove this file" in ran.err
    lock.unlink()
    assert cli("ingest").code == 0


@pytest.mark.parametrize(
    ("option", "name"), [("--save", "taken"), ("--picture", "taken/p.png"), ("--picture", "p.xyz")]
)
def test_eval_shows_its_figures_also_where_a_file_cannot_be_written(
    option: str, name: str, cli: CommandLine, tmp_path: Path
):
    assert cli("init", cwd=tmp_path).code == 0
    assert cli("ingest").code == 0
    (tmp_path / "taken").write_text("a file, no folder")
    judged = {"question": QUESTION, "relevant": ["documents:sourdough.md"]}
    (tmp_path / "judged.jsonl").write_text(json.dumps(judged))
    ran = cli("eval", "judged.jsonl", option, name)
    assert ran.code == 2
    assert "1 question" in ran.out
    assert f"{name.partition('/')[0]}" in ran.err
    assert "cannot be " in ran.err


def test_a_file_of_a_time_beyond_the_calendar_is_undated():
    """As broken disks and archives have it."""
    ((document, problems),) = file_documents(
        "a.txt", Parsed(text="a", media_type="text/plain"), 10**21, "note"
    )
    assert (document.updated_at, problems) == (None, [])


def test_settings_with_a_byte_order_mark_are_read(cli: CommandLine, tmp_path: Path):
    """Some editors of Windows put it before every text."""
    (tmp_path / "settings.toml").write_text("[rag]\nrrf_kk = 1\n", "utf-8-sig")
    ran = cli("settings", cwd=tmp_path)
    assert ran.err.startswith("error: settings.toml:2: rag.rrf_kk: unknown key")


def test_a_job_without_a_source_is_refused(cli: CommandLine, tmp_path: Path):
    """An empty path is the folder of the settings, which hold secrets."""
    assert cli("init", cwd=tmp_path).code == 0
    path = tmp_path / "settings.toml"
    path.write_text(path.read_text("utf-8").replace('from = "documents"', 'from = ""', 1), "utf-8")
    ran = cli("ingest")
    assert ran.code == 2
    assert "ingest.documents.from: expected `str` of length >= 1" in ran.err


@pytest.mark.parametrize(
    ("path", "message"),
    [("documents", "is a folder; give the path of a file"), ("mine.txt", "correct `path`, or restore")],
)
def test_a_store_at_the_path_of_something_else_names_the_path(
    path: str, message: str, cli: CommandLine, tmp_path: Path
):
    assert cli("init", cwd=tmp_path).code == 0
    (tmp_path / "mine.txt").write_text("My own text. Removing it would be a pity. " * 20)
    settings = tmp_path / "settings.toml"
    settings.write_text(settings.read_text("utf-8").replace('"data/store.db"', f'"{path}"', 1), "utf-8")
    ran = cli("ingest")
    assert ran.code != 0
    assert message in " ".join(ran.err.split())
    assert (tmp_path / "mine.txt").read_text().startswith("My own text.")


def test_a_source_that_is_down_is_no_mistake_of_its_author(
    cli: CommandLine, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "settings.toml").write_text('[connectors.notes]\nuse = "files"\npath = "no/such"\n')
    ran = cli("route", "anything", cwd=tmp_path)
    assert ran.code == 3
    assert "No such file or directory" in ran.err
    assert "async def version" not in caplog.text


def test_check_warns_of_what_a_source_left_out(cli: CommandLine, tmp_path: Path):
    (tmp_path / "a.md").write_text("# Otter\n")
    (tmp_path / "settings.toml").write_text(
        '[connectors.notes]\nuse = "files"\npath = "."\npatterns = ["*.md", "*.pdf"]\n'
    )
    ran = cli("check", "--json", cwd=tmp_path)
    assert ran.code == 0
    (finding,) = [finding for finding in json.loads(ran.out) if finding["name"] == "notes"]
    assert finding["status"] == "warning"
    assert "pattern '*.pdf' matches no file" in finding["detail"]


def test_a_long_question_does_not_fill_the_screen(cli: CommandLine, tmp_path: Path):
    (tmp_path / "settings.toml").write_text('[providers.memory]\ndocuments = [{ content = "otter" }]\n')
    ran = cli("route", "otter " * 17_000, cwd=tmp_path)
    assert ran.code == 0
    assert len(ran.out) < 2_000
    assert " …" in ran.out


def test_a_period_that_ends_before_it_begins_is_refused(cli: CommandLine, tmp_path: Path):
    (tmp_path / "settings.toml").write_text('[providers.memory]\ndocuments = [{ content = "otter" }]\n')
    ran = cli("route", "otter", "--since", "2026-02-01", "--until", "2026-01-01", cwd=tmp_path)
    assert ran.code == 2
    assert "The period ends (2026-01-01) before it begins (2026-02-01)" in ran.err
    assert cli("route", "otter", "--since", "2026-01-01", "--until", "2026-01-01").code != 2


def test_fetch_tells_an_unread_robots_txt_from_one_that_forbids(cli: CommandLine, tmp_path: Path):
    ran = cli("fetch", "http://127.0.0.1:1/", cwd=tmp_path)
    assert ran.code == 1
    assert "robots.txt could not be read" in ran.out


def test_a_command_without_standard_output_runs(tmp_path: Path):
    """As a scheduler may start it."""
    code = "import sys; sys.stdout = sys.stderr = None; from contextrouter.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "init"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert (tmp_path / "settings.toml").exists()


@pytest.mark.parametrize("command", ["route", "ask", "plan"])
def test_a_question_without_quotes_is_told_what_is_missing(command: str, cli: CommandLine, tmp_path: Path):
    ran = cli(command, "What", "is", "BM25?", cwd=tmp_path)
    assert ran.code == 2
    assert "Put the question in quotes." in ran.err
    assert "quotes" not in cli("init", "a", "b").err


def test_a_filter_whose_key_is_no_text_is_refused():
    """It matched nothing."""
    with pytest.raises(RequestRefused, match=r"A key of Request\.filters is a text, not int 5"):
        Request(question="otter", filters={5: "a"})  # type: ignore[dict-item]  # the mistake


async def test_graph_never_says_that_there_are_no_facts_where_none_were_asked_for(
    cli: CommandLine, tmp_path: Path
):
    (tmp_path / "settings.toml").write_text(
        '[providers.s]\nuse = "sqlite"\npath = "s.db"\nembedder = ""\n[facts.g]\nuse = "sqlite"\nstore = "s"\n'
    )
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    note = Document(id="a", content="Ada wrote to Babbage.")
    fact = Fact(subject="Ada", predicate="wrote_to", object="Babbage")
    await store.upsert([Entry(document=note, chunks=[note], facts=[fact])])
    await store.aclose()
    assert "Babbage" in (await asyncio.to_thread(cli, "graph", "related", "Ada", cwd=tmp_path)).out
    ran = await asyncio.to_thread(cli, "graph", "related", "Ada", "--limit", "0")
    assert ran.code == 2
    assert "--limit" in ran.err
    ran = await asyncio.to_thread(cli, "graph", "facets", "colour")
    assert ran.err.strip() == "note: g: no statement has a colour to count."


async def test_a_store_that_may_not_be_looked_at_is_not_said_to_be_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Who runs the tests may be root, whom no rights keep out."""
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    with pytest.raises(SourceError, match="does not exist; fill it"):
        await store.ping()
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.name == "s.db":
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(SourceError, match=r"s\.db' cannot be used .*Permission denied.*permissions"):
        await store.ping()
    await store.aclose()


def test_a_width_of_zero_hides_no_output():
    ran = subprocess.run(
        [sys.executable, "-m", "contextrouter", "plugins", "list"],
        env={**os.environ, "COLUMNS": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "extractive" in ran.stdout


def test_a_key_in_place_of_its_hash_is_not_shown(cli: CommandLine, tmp_path: Path):
    key = "cr_ThisIsTheKeyItself"
    (tmp_path / "settings.toml").write_text(
        f'[providers.memory]\n[keys.anna]\nhash = "{key}"\nceiling = "public"\n'
    )
    ran = cli("check", cwd=tmp_path)
    assert ran.code == 2
    assert "settings.toml:3: keys.anna.hash: a hash is expected, not the key" in ran.err
    assert key not in ran.err + ran.out
