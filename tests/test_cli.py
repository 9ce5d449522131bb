"""The command line: tables for people, JSON for programs, a clean stdout, exit codes that mean something."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli
from support.example import QUESTION, ROOT, CommandLine, ingest_example

from contextrouter.cli.command_examples import EXAMPLES

HANGS = """
import asyncio
from contextrouter import Connector, SourceError
from contextrouter.cli import terminal
from contextrouter.cli.command_examples import EXAMPLES
class Broken(Connector):
    "Fails."
    async def search(self, query):
        raise SourceError("the cable is cut; password=hunter22")
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(ingest_example(tmp_path_factory.mktemp("example")))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def settings(folder: Path, text: str) -> Path:
    (folder / "settings.toml").write_text(text, "utf-8")
    return folder


def broken(folder: Path) -> Path:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "broken.py").write_text(HANGS)
    return settings(folder, '[plugins]\npaths = ["plugins"]\n[connectors.broken]\n')


@pytest.mark.case("USE-18")
def test_route_fits_on_a_screen_with_the_best_first(cli: CommandLine, example: Path):
    """Documents with what opens, facts, and one line for all sources that answered."""
    ran = cli("route", QUESTION, cwd=example)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert len(lines) <= 26
    assert max(map(len, lines)) <= 100
    assert [line[:3] for line in lines if line.startswith("[")][:3] == ["[1]", "[2]", "[3]"]
    assert any(line.strip().startswith("https://example.org/news/five-books · news") for line in lines)
    assert lines[-2].startswith("Coverage: all of 19 calls to 5 sources answered; the slowest, ")
    assert "\n[4]: 1 more document\n" in cli("route", QUESTION, "--limit", "4").out
    notes = cli("route", "When does the reading group meet?", "--source", "notes")
    assert "    examples/notes/reading-group.md:" in notes.out
    assert in_a_process(example, "route", QUESTION, LINES="60", COLUMNS="100").stdout.count("\n") > 40


def test_a_source_that_fails_stands_in_the_whole_coverage(cli: CommandLine, example: Path):
    cli.monkeypatch.setenv("CONTEXTROUTER_CONNECTORS__NOTES__PATH", str(example / "nowhere"))
    ran = cli("route", QUESTION, cwd=example)
    assert ran.code == 0
    assert "Coverage: something failed, and is missing from the answer." in ran.out
    assert re.search(r"notes +default +error", ran.out)


def test_explained_route_shows_context_citations_facts_and_coverage(cli: CommandLine, example: Path):
    ran = cli("route", QUESTION, "--explain", cwd=example)
    assert ran.code == 0
    assert ran.err == ""
    for word in (
        "Context",
        "Facts",
        "Citations",
        "Coverage",
        "[1]",
        "library",
        "keywords",
        "notes",
        "news",
        "glossary",
        "graph",
    ):
        assert word in ran.out


def test_explain_adds_plan_scores_steps_and_every_lost_document(cli: CommandLine, example: Path):
    cli.monkeypatch.setenv("CONTEXTROUTER_RAG__STAGES", '["freshness"]')
    ran = cli("route", QUESTION, "--explain", cwd=example)
    words = (
        "Plan",
        "Scores",
        "[1] score",
        "fuse   freshness",
        "Steps",
        "Lost",
        "concepts: AI, Machine Learning, Education",
    )
    for word in words:
        assert word in ran.out
    told = json.loads(cli("route", QUESTION, "--json").out)
    lost = [envelope for step in told["trace"]["steps"] for envelope in step["lost"]]
    groups = [int(part.split(")")[0]) for part in ran.out.split("Lost ")[1].split("is used up  (")[1:]]
    assert sum(groups) == len(lost) > 0


def test_route_json_is_the_whole_context_without_vectors(cli: CommandLine, example: Path):
    told = json.loads(cli("route", QUESTION, "--json", cwd=example).out)
    assert told["question"] == QUESTION
    assert told["outcome"] == "answered"
    assert told["degraded"] is False
    assert len(told["envelopes"]) == len(told["citations"]) > 5
    seal = told["envelopes"][0]["provenance"][0]
    assert {"source", "leg", "query", "rank", "score"} <= seal.keys()
    assert not any("vector" in envelope for envelope in told["envelopes"])


@pytest.mark.case("USE-11")
def test_ask_answers_with_citations_and_no_key(cli: CommandLine, example: Path):
    ran = cli("ask", "What is BM25?", cwd=example)
    assert (ran.code, ran.err) == (0, "")
    text, _, documents = ran.out.partition("\n\n")
    assert text.startswith("BM25 gives a document points for every word of the question it holds.")
    assert text.endswith("[1]")
    assert documents.startswith("[1] How a search engine ranks its results\n    https://example.org/")
    told = json.loads(cli("ask", "What is BM25?", "--json", cwd=example).out)
    assert (told["text"], told["outcome"]) == (text, "answered")
    assert [citation["number"] for citation in told["citations"]] == [1]
    later = cli("ask", "When was that?", "--after", "What does BM25 do?", cwd=example)
    assert "London in the 1990s" in later.out


@pytest.mark.case("USE-11")
def test_ask_abstains_with_exit_code_1_and_says_what_to_do(cli: CommandLine, example: Path):
    ran = cli("ask", "What is our vacation policy?", cwd=example)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("No passage of the context answers this.\nNo document answers this. Ask in")


def test_text_prints_the_assembled_text_alone(cli: CommandLine, example: Path):
    told = json.loads(cli("route", QUESTION, "--json", cwd=example).out)
    text = cli("route", QUESTION, "--text").out
    marks = [re.search(r"<<<untrusted ([0-9a-f]{16})>>>", each)[1] for each in (text, told["text"])]
    assert text.replace(marks[0], marks[1]) == told["text"] + "\n"


def test_source_and_leg_narrow_what_is_asked(cli: CommandLine, example: Path):
    told = json.loads(
        cli("route", QUESTION, "--json", "--source", "library", "--leg", "text", cwd=example).out
    )
    asked = {(r["source"], r["leg"]) for r in told["coverage"] if r["status"] != "skipped"}
    assert asked == {("library", "text")}


def test_a_scope_narrows_what_is_seen(cli: CommandLine, example: Path):
    ran = cli("route", QUESTION, "--json", "--tenant", "nobody", cwd=example)
    assert ran.code == 1
    assert json.loads(ran.out)["envelopes"] == []
    assert cli("route", QUESTION, "--ceiling", "secret").code == 2
    allowed = json.loads(cli("route", QUESTION, "--json", "--compartment", "a", "--ceiling", "internal").out)
    assert allowed["envelopes"]


def test_nothing_found_exits_1(cli: CommandLine, tmp_path: Path):
    settings(tmp_path, '[providers.memory]\ndocuments = [{ content = "tides" }]\n')
    ran = cli("route", "volcanoes", cwd=tmp_path)
    assert ran.code == 1
    assert "Nothing was found" in ran.out


def test_wrong_settings_exit_2_with_every_problem_and_no_traceback(cli: CommandLine, tmp_path: Path):
    settings(tmp_path, "[rag]\nrrf_kk = 3\ntimeout_seconds = -1\n")
    ran = cli("route", "anything", cwd=tmp_path)
    assert ran.code == 2
    assert ran.out == ""
    assert "settings.toml:2: rag.rrf_kk: unknown key. Did you mean `rrf_k`?" in ran.err
    assert "settings.toml:3: rag.timeout_seconds" in ran.err
    assert "Traceback" not in ran.err


def test_a_missing_settings_file_exits_2_and_names_init(cli: CommandLine, tmp_path: Path):
    ran = cli("check", "--settings", "nowhere.toml", cwd=tmp_path)
    assert ran.code == 2
    assert "contextrouter init" in ran.err


def test_usage_errors_exit_2(cli: CommandLine):
    assert cli("route").code == 2
    assert cli("route", "x", "--no-such-option").code == 2
    assert cli("route", " ", "--settings", str(ROOT / "settings.toml")).code == 2


@pytest.mark.case("CFG-10")
def test_all_sources_failed_exits_3_and_says_how_each_did(cli: CommandLine, tmp_path: Path):
    """What a failing source says is shown without its secrets, on every way out."""
    broken(tmp_path)
    ran = cli("route", "anything", cwd=tmp_path)
    assert ran.code == 3
    assert ran.out == ""
    assert "the cable is cut" in ran.err
    assert "hunter22" not in ran.err
    told = cli("route", "anything", "--json")
    assert told.code == 3
    coverage = json.loads(told.out)["coverage"]
    assert {(r["source"], r["status"]) for r in coverage} == {("broken", "error")}
    assert "hunter22" not in told.out


def test_plan_asks_nobody(cli: CommandLine, tmp_path: Path):
    broken(tmp_path)
    ran = cli("plan", "anything at all", "--json", cwd=tmp_path)
    assert ran.code == 0
    assert {call["source"] for call in json.loads(ran.out)["calls"]} == {"broken"}
    assert "broken" in cli("plan", "anything at all").out


def test_check_exits_1_while_the_store_is_absent(cli: CommandLine, tmp_path: Path, example: Path):
    """It exits 0 once the store exists."""
    settings(
        tmp_path,
        '[providers.store]\nuse = "sqlite"\npath = "s.db"\n[ingest.all]\nfrom = "texts"\nto = "store"\n',
    )
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("# A\n\nThe moon raises the tides.\n")
    ran = cli("check", "--json", cwd=tmp_path)
    assert ran.code == 1
    assert {f["name"] for f in json.loads(ran.out) if f["status"] == "failed"} == {"store"}
    assert "contextrouter ingest" in ran.out
    assert cli("ingest").code == 0
    assert cli("check").code == 0
    assert cli("check", cwd=example).code == 0


def test_check_names_a_store_that_another_embedder_filled(cli: CommandLine, tmp_path: Path):
    assert cli("init", cwd=tmp_path).code == 0
    assert cli("ingest").code == 0
    text = (tmp_path / "settings.toml").read_text()
    other = (
        '[embedders.other]\nuse = "openai"\nmodel = "m"\ndimensions = 8\nbase_url ='
        ' "http://127.0.0.1:9"\napi_key = "none"\n'
    )
    settings(tmp_path, text.replace('use = "sqlite"', 'use = "sqlite"\nembedder = "other"') + other)
    ran = cli("check", "--json")
    assert ran.code == 1
    failed = {
        finding["name"]: finding["detail"] for finding in json.loads(ran.out) if finding["status"] == "failed"
    }
    assert failed.keys() == {"store", "other"}
    assert "--rebuild" in failed["store"]


def test_check_finds_a_job_whose_source_is_not_there_or_lists_nothing(cli: CommandLine, tmp_path: Path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("otter")
    jobs = {"right": "texts", "wrong": "txets", "misspelt": "memry", "live": "web"}
    tables = "".join(f'[ingest.{name}]\nfrom = "{source}"\nto = "memory"\n' for name, source in jobs.items())
    web = '[connectors.web]\nuse = "http_api"\nurl = "http://127.0.0.1:9/?q={query}"\nfields = { content = "text" }\n'
    settings(tmp_path, "[providers.memory]\n" + web + tables)
    ran = cli("check", "--json", cwd=tmp_path)
    jobs_of = {f["name"]: (f["status"], f["detail"]) for f in json.loads(ran.out) if f["what"] == "job"}
    assert {name: status for name, (status, _) in jobs_of.items()} == {
        "right": "ok",
        "wrong": "failed",
        "misspelt": "failed",
        "live": "failed",
    }
    assert ran.code == 1
    assert "'txets' is neither a path that exists" in jobs_of["wrong"][1]
    assert "Did you mean 'memory'?" in jobs_of["misspelt"][1]
    assert "'web' cannot list its documents" in jobs_of["live"][1]


def test_check_reports_warnings(cli: CommandLine, tmp_path: Path):
    settings(tmp_path, "[providers.memory]\n[stages.freshness]\nhalf_life_days = 3.0\n")
    ran = cli("check", cwd=tmp_path)
    assert ran.code == 0
    assert "does not run" in ran.out


@pytest.mark.case("CFG-05")
def test_settings_show_every_value_with_its_origin_and_mask_secrets(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One mapping of environment variables to keys, and a command that shows what came of it."""
    monkeypatch.setenv("MY_KEY", "sk-very-secret-1")
    monkeypatch.setenv("CONTEXTROUTER_RAG__RRF_K", "17")
    text = (
        '[rag]\ncandidates = 7\n[providers.memory]\n[embedders.far]\nuse = "openai"\nmodel = "m"\ndimensions'
        " = 8\n"
    )
    settings(tmp_path, text + 'api_key = "${MY_KEY}"\n')
    ran = cli("settings", "--json", cwd=tmp_path)
    shown = {value["key"]: (value["value"], value["origin"]) for value in json.loads(ran.out)}
    assert shown["rag.candidates"] == (7, "settings.toml:2")
    assert shown["rag.rrf_k"] == (17, "environment variable CONTEXTROUTER_RAG__RRF_K")
    assert shown["rag.timeout_seconds"] == (10, "default")
    assert {key.split(".")[0] for key in shown} >= {
        "rag",
        "cache",
        "limits",
        "plugins",
        "providers",
        "embedders",
    }
    assert shown["embedders.far.api_key"] == ("***", "settings.toml:8")
    assert shown["embedders.far.batch_size"] == (256, "default")
    table = cli("settings")
    assert "sk-very-secret-1" not in ran.out + table.out + table.err
    assert "environment variable" in table.out


def test_ingest_reports_each_job_and_does_nothing_twice(cli: CommandLine, tmp_path: Path):
    assert cli("init", "here", cwd=tmp_path).code == 0
    here = tmp_path / "here"
    dry = json.loads(cli("ingest", "--dry-run", "--json", cwd=here).out)
    assert dry["documents"]["documents"] == 2
    assert not (here / "data").exists()
    first = json.loads(cli("ingest", "--json").out)
    assert (first["documents"]["documents"], first["documents"]["unchanged"]) == (2, 0)
    again = json.loads(cli("ingest", "--json").out)
    assert (again["documents"]["documents"], again["documents"]["unchanged"]) == (0, 2)
    rebuilt = json.loads(cli("ingest", "documents", "--rebuild", "--json").out)
    assert rebuilt["documents"]["documents"] == 2
    assert "documents" in cli("ingest").out


def test_ingest_exits_4_when_something_was_left_out_and_2_for_an_unknown_job(
    cli: CommandLine, tmp_path: Path
):
    assert cli("init", cwd=tmp_path).code == 0
    (tmp_path / "documents" / "binary.md").write_bytes(b"\x00\x01\x02" * 99)
    ran = cli("ingest")
    assert ran.code == 4
    assert "binary.md" in ran.out
    misspelt = cli("ingest", "documnets")
    assert misspelt.code == 2
    assert "Did you mean 'documents'?" in misspelt.err


def test_ingest_names_what_a_renamed_job_left_and_forget_removes_it(cli: CommandLine, tmp_path: Path):
    assert cli("init", cwd=tmp_path).code == 0
    assert cli("ingest").err == ""
    path = tmp_path / "settings.toml"
    path.write_text(path.read_text("utf-8").replace("[ingest.documents]", "[ingest.papers]"), "utf-8")
    ran = cli("ingest")
    assert ran.code == 0
    assert "'store' holds 2 documents of 'documents'" in ran.err
    assert "contextrouter ingest --forget documents" in ran.err
    assert cli("ingest", "papers", "--forget", "documents").code == 2
    assert cli("ingest", "--forget", "papers").code == 2
    assert "would be removed" in cli("ingest", "--forget", "documents", "--dry-run").out
    assert json.loads(cli("ingest", "--forget", "documents", "--json").out)[0]["documents"] == 2
    assert cli("ingest").err == ""


def test_init_never_overwrites(cli: CommandLine, tmp_path: Path):
    settings(tmp_path, "# mine\n")
    ran = cli("init", cwd=tmp_path)
    assert ran.code == 2
    assert (tmp_path / "settings.toml").read_text() == "# mine\n"
    assert not (tmp_path / "documents").exists()


def test_what_init_writes_works_at_once(cli: CommandLine, tmp_path: Path):
    assert cli("init", cwd=tmp_path).code == 0
    assert cli("ingest").code == 0
    assert cli("check").code == 0
    told = json.loads(cli("route", "How often must a sourdough starter be fed?", "--json").out)
    assert told["envelopes"][0]["document"]["title"] == "Keeping a sourdough starter"


def test_plugins_list_names_every_kind_and_the_local_file(cli: CommandLine, example: Path):
    listed = {
        (line["kind"], line["name"]) for line in json.loads(cli("plugins", "list", "--json", cwd=example).out)
    }
    assert {
        ("provider", "sqlite"),
        ("fact", "sqlite"),
        ("connector", "glossary"),
        ("transform", "chunk"),
    } <= listed
    assert "glossary" in cli("plugins", "list").out


def test_plugins_list_exits_1_for_a_broken_plugin(cli: CommandLine, tmp_path: Path):
    broken(tmp_path)
    (tmp_path / "plugins" / "worse.py").write_text("import no_such_module\n")
    ran = cli("plugins", "list", cwd=tmp_path)
    assert ran.code == 1
    assert "no_such_module" in ran.out


def test_plugins_show_gives_keys_with_types_and_defaults(cli: CommandLine, tmp_path: Path):
    ran = cli("plugins", "show", "sqlite", "--json", cwd=tmp_path)
    provider, fact = json.loads(ran.out)
    keys = {key["key"]: key for key in provider["keys"]}
    assert (provider["kind"], fact["kind"]) == ("provider", "fact")
    assert keys["path"]["required"] is True
    assert (keys["title_weight"]["type"], keys["title_weight"]["default"]) == ("number", 3.0)
    assert "weight" in {key["key"] for key in provider["router_keys"]}
    assert "title_weight" in cli("plugins", "show", "sqlite").out
    misspelt = cli("plugins", "show", "sqlit")
    assert misspelt.code == 2
    assert "Did you mean 'sqlite'?" in misspelt.err


def test_demo_ingests_asks_and_explains(cli: CommandLine, tmp_path: Path):
    ran = cli("demo", "--into", "demo", cwd=tmp_path)
    assert ran.code == 0
    assert ran.err == ""
    for word in (
        "1. Ingest",
        "2. Ask",
        "3. Explain",
        "library",
        "keywords",
        "notes",
        "news",
        "glossary",
        "graph",
    ):
        assert word in ran.out
    assert (tmp_path / "demo" / "data" / "library.db").exists()
    assert cli("demo", "--into", "demo").code == 2


def test_control_characters_from_a_source_do_not_reach_the_terminal(cli: CommandLine, tmp_path: Path):
    hostile = '{ title = "t\\u001b[2Jides", content = "moon \\u001b]0;x\\u0007 [red]tides" }'
    settings(tmp_path, f"[providers.memory]\ndocuments = [{hostile}]\n")
    ran = cli("route", "tides moon", cwd=tmp_path)
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out
    assert "[red]tides" in ran.out


def test_a_question_that_is_no_text_is_made_one(cli: CommandLine, tmp_path: Path):
    settings(tmp_path, '[providers.memory]\ndocuments = [{ content = "tides" }]\n')
    ran = cli("route", "tides \udcff", "--json", cwd=tmp_path)
    assert json.loads(ran.out)["question"] == "tides \N{REPLACEMENT CHARACTER}"


def test_help_and_version_name_the_exit_codes_and_the_version(cli: CommandLine):
    text = " ".join(cli("--help").out.split())
    assert "3 every source failed" in text
    project = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert cli("--version").out == f"contextrouter {project['version']}\n"


def test_a_fault_shows_its_traceback_and_exits_70(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings(tmp_path, "[providers.memory]\n")
    monkeypatch.setattr("contextrouter.router.ContextRouter.route", lambda *_: 1 / 0)
    ran = cli("route", "anything", cwd=tmp_path)
    assert ran.code == 70
    assert ran.out == ""
    assert "ZeroDivisionError" in ran.err


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "100", **environment}
    command = [sys.executable, "-W", "error", "-m", "contextrouter", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_as_a_process_stdout_is_json_and_warnings_go_to_stderr(example: Path):
    ran = process("route", QUESTION, "--json", cwd=example, CONTEXTROUTER_RAGG__X="1")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["outcome"] == "answered"
    assert "CONTEXTROUTER_RAGG__X sets nothing" in " ".join(ran.stderr.split())


def test_a_reader_that_goes_away_leaves_no_traceback(example: Path):
    command = [sys.executable, "-m", "contextrouter", "route", QUESTION, "--json"]
    with subprocess.Popen(
        command, cwd=example, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
        running.wait(60)


def test_without_typer_the_command_line_says_what_to_install(tmp_path: Path):
    code = "import sys; sys.modules['typer'] = None; import importlib.util as u; f = u.find_spec\n"
    code += "u.find_spec = lambda name, *rest: None if name == 'typer' else f(name, *rest)\n"
    code += "from contextrouter.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "pip install 'contextrouter-rag[cli]'" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.case("USE-18")
def test_every_help_has_an_example_and_names_tables_as_they_are(cli: CommandLine):
    commands = re.findall(
        r"^  (\w+)  ", cli("--help").out.partition("\nCommands:\n")[2].partition("\n\n")[0], re.M
    )
    groups = {"plugins", "cache", "db", "graph", "keys"}
    assert {"route", "serve"} | groups <= set(commands)
    for command in commands:
        text = cli(command, "--help").out
        helps = {command: text}
        if command in groups:
            subs = re.findall(r"^  (\w+)  ", text.partition("\nCommands:\n")[2], re.M)
            helps = {f"{command} {sub}": cli(command, sub, "--help").out for sub in subs}
        for name, told in helps.items():
            assert f"\n  Example:\n    contextrouter {name}" in told
            assert not re.search(r"\[\[|<str|list\[|\{", told), told
    assert cli("route", "--help").out.startswith("Usage: contextrouter route [OPTIONS] QUESTION\n")
    assert cli("ingest", "--help").out.startswith("Usage: contextrouter ingest [OPTIONS] [NAME]...\n")
    assert "instead of [serve] host." in cli("serve", "--help").out


def test_examples_of_helps_are_commands_that_exist(cli: CommandLine):
    """With options that they know."""
    for command, example in EXAMPLES.items():
        text = cli(*command.split(), "--help").out
        assert example.startswith(f"contextrouter {command}")
        assert [flag for flag in re.findall(r"--[a-z][a-z-]*", example) if flag not in text] == []


def in_a_process(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which then says what of the heavy packages it imported."""
    code = (
        "import sys, atexit\n"
        "heavy = ('numpy', 'tokenizers', 'pydantic', 'contextrouter.ingest', 'feedparser')\n"
        "atexit.register(lambda: sys.stderr.write(' '.join(name for name in heavy if name in sys.modules)))\n"
        f"sys.argv = ['contextrouter', *{arguments!r}]\n"
        "from contextrouter.cli import main\nmain()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def test_plan_and_settings_load_no_model_and_a_command_no_other(example: Path):
    """Nor does a route import what only other commands need."""
    for command in (["plan", QUESTION], ["settings"], ["--version"], ["route", "--help"]):
        ran = in_a_process(example, *command)
        assert (ran.returncode, ran.stderr) == (0, ""), command
    loaded = in_a_process(example, "route", QUESTION).stderr.split()
    assert "tokenizers" in loaded
    assert not {"pydantic", "contextrouter.ingest"} & set(loaded)


def test_shells_complete_commands_and_options(tmp_path: Path):
    def completed(words: str, place: int) -> list[str]:
        ran = in_a_process(
            tmp_path, COMP_WORDS=words, COMP_CWORD=str(place), _CONTEXTROUTER_COMPLETE="complete_bash"
        )
        return ran.stdout.split()

    assert completed("contextrouter pl", 1) == ["plan", "plugins"]
    assert completed("contextrouter route --so", 2) == ["--source"]
    assert completed("contextrouter graph pa", 2) == ["path"]
