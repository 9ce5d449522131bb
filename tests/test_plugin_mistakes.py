"""A plugin's mistakes stay its own: what it prints, raises, leaves open, or sets in the context."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine

from contextrouter import (
    Connector,
    ContextRouter,
    Envelope,
    Fact,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
    Stage,
    StageContext,
)
from contextrouter.runtime import lifecycle, plugin_calls
from contextrouter.testing import Facts, Fixed, Raising, hits

NOISY = """
import os
import subprocess
import sys

from contextrouter import Connector, Document, Hit

print("hello from the import")


class Noisy(Connector):
    def __init__(self):
        print("hello from the constructor")

    async def open(self):
        print("hello from open")

    async def search(self, query):
        print("hello from search")
        os.write(1, b"hello from the descriptor\\n")
        subprocess.run([sys.executable, "-c", "print('hello from a process')"])
        return [Hit(document=Document(id="a", content="The otter swims."))]

    async def aclose(self):
        print("hello from aclose")
"""
PLACES = ("the import", "the constructor", "open", "search", "the descriptor", "a process", "aclose")
PANIC = """
class Panic(BaseException):
    pass

raise Panic("odd")
"""
GOOD = """
from contextrouter import Connector

class Good(Connector):
    "Finds nothing."
    async def search(self, query):
        return []
"""
PROGRAM = "from contextrouter.cli import main; main()"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def noisy_folder(folder: Path) -> Path:
    (folder / "p").mkdir()
    (folder / "p" / "noisy.py").write_text(NOISY)
    (folder / "settings.toml").write_text('[plugins]\npaths = ["p"]\n[connectors.noisy]\n')
    return folder


def run(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, where file descriptor 1 is its stdout."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.case("NEW-15")
@pytest.mark.parametrize(
    "arguments",
    [
        ("route", "otter", "--json"),
        ("plan", "otter", "--json"),
        ("settings", "--json"),
        ("check", "--json"),
        ("plugins", "list", "--json"),
        ("plugins", "show", "noisy", "--json"),
        ("plugins", "check", "noisy", "--json"),
    ],
    ids=" ".join,
)
def test_json_on_stdout_stays_json_whatever_a_plugin_prints(tmp_path: Path, arguments: tuple[str, ...]):
    ran = run(noisy_folder(tmp_path), *arguments)
    assert json.loads(ran.stdout)
    assert "hello from the import" in ran.stderr


def test_text_on_stdout_is_the_command_s_alone(tmp_path: Path):
    ran = run(noisy_folder(tmp_path), "route", "otter", "--text")
    assert ran.stdout == "### [1] a — noisy\nThe otter swims.\n"
    assert [place for place in PLACES if f"hello from {place}\n" not in ran.stderr] == []


@pytest.mark.case("MCP-01", "NEW-15")
def test_the_protocol_of_mcp_begins_with_its_first_message(tmp_path: Path):
    """A plugin prints when it is imported, made, opened, asked and closed."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "route", "arguments": {"question": "otter"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    command = [sys.executable, "-c", PROGRAM, "mcp"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=noisy_folder(tmp_path), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
        running.stdin.flush()
        replies = [json.loads(running.stdout.readline()) for _ in range(2)]
        rest, errors = running.communicate(timeout=60)
    assert [reply["id"] for reply in replies] == [1, 2]
    assert "The otter swims." in replies[1]["result"]["content"][0]["text"]
    assert rest == ""
    assert [place for place in PLACES if f"hello from {place}\n" not in errors] == []


def test_a_console_without_unicode_shows_a_question_mark_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    ran = run(noisy_folder(tmp_path), "check")
    assert ran.returncode == 0
    assert "Everything works." in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.case("PLG-01")
@pytest.mark.parametrize("text", [PANIC, "raise SystemExit(3)", "import sys\nsys.exit()"])
def test_a_module_that_raises_anything_is_listed_as_broken(tmp_path: Path, cli: CommandLine, text: str):
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n')
    listed = cli("plugins", "list", "--json", cwd=tmp_path)
    lines = {line["name"]: line for line in json.loads(listed.out)}
    assert listed.code == 1
    assert lines["bad"]["kind"] == "?"
    assert "cannot be imported" in lines["bad"]["problem"]
    assert lines["good"]["problem"] == ""
    assert cli("plugins", "show", "good").code == 0


@pytest.mark.case("PLG-01")
def test_settings_that_use_a_module_that_panics_name_the_line(tmp_path: Path, cli: CommandLine):
    (tmp_path / "bad.py").write_text(PANIC)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n\n[connectors.bad]\n')
    ran = cli("route", "otter", cwd=tmp_path)
    assert ran.code == 2
    assert "settings.toml:4: connectors.bad: Plugin file bad.py cannot be imported: Panic('odd')" in ran.err


@pytest.mark.case("PLG-01")
def test_a_misspelt_use_is_named_beside_a_module_that_panics(tmp_path: Path, cli: CommandLine):
    """All files are imported then, to list what exists."""
    (tmp_path / "bad.py").write_text(PANIC)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.a]\nuse = "goood"\n')
    ran = cli("route", "otter", cwd=tmp_path)
    assert ran.code == 2
    assert "Did you mean `good`?" in ran.err


class Panic(BaseException):
    """What a compiled library raises."""


class Panicking(Fixed):
    """Raises in the method that `where` names."""

    def __init__(self, where: str) -> None:
        super().__init__("a")
        self.where = where

    async def open(self) -> None:
        if self.where == "open":
            raise Panic("odd")

    async def search(self, query: Query) -> Sequence[Hit]:
        if self.where == "search":
            raise Panic("odd")
        return await super().search(query)

    async def aclose(self) -> None:
        if self.where == "aclose":
            raise Panic("odd")


class PanickingInterpreter(Interpreter):
    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        raise Panic("odd")


class PanickingStage(Stage):
    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        raise Panic("odd")


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("where", ["search", "open"])
async def test_a_panic_of_one_source_is_a_report_and_the_other_answers(where: str):
    async with ContextRouter(connectors={"bad": Panicking(where), "good": Fixed("b")}) as router:
        context = await router.route("otter")
    assert [envelope.document.id for envelope in context.envelopes] == ["b"]
    reports = {report.source: report for report in context.coverage}
    assert (reports["bad"].status, reports["bad"].error) == ("error", "Panic: odd")
    assert reports["good"].status == "ok"


@pytest.mark.case("ASY-09")
async def test_a_panic_of_an_interpreter_or_a_stage_is_passed_over():
    async with ContextRouter(
        connectors={"good": Fixed("b")},
        interpreters={"odd": PanickingInterpreter()},
        stages={"strange": PanickingStage()},
    ) as router:
        context = await router.route("otter")
    assert [envelope.document.id for envelope in context.envelopes] == ["b"]
    notes = " ".join(step.note for step in context.trace.steps)
    assert "odd" in notes
    assert "Panic: odd" in notes


class CancellingInterpreter(Interpreter):
    """Raises CancelledError, though nobody cancelled the request."""

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        raise asyncio.CancelledError


class CancellingStage(Stage):
    """Raises CancelledError, though nobody cancelled the request."""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        raise asyncio.CancelledError


@pytest.mark.case("ASY-09")
async def test_an_interpreter_or_a_stage_that_cancels_its_own_call_is_passed_over():
    async with ContextRouter(
        connectors={"good": Fixed("b")},
        interpreters={"odd": CancellingInterpreter()},
        stages={"strange": CancellingStage()},
    ) as router:
        context = await router.route("otter")
    assert [envelope.document.id for envelope in context.envelopes] == ["b"]
    notes = [step.note for step in context.trace.steps if "the plugin cancelled its own call" in step.note]
    assert len(notes) == 2


class Deaf(Stage, Interpreter):
    """Goes on for long, whoever cancels it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return await self._wait(envelopes)

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return await self._wait(intent)

    async def _wait(self, value: Any) -> Any:
        while not self.go_on.is_set():
            with suppress(asyncio.CancelledError):
                await self.go_on.wait()
        return value


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("kind", ["stage", "interpreter"])
async def test_a_stage_or_an_interpreter_that_swallows_its_cancellation_is_left_behind(kind: str):
    deaf = Deaf()
    async with ContextRouter(connectors={"good": Fixed("b")}, **{f"{kind}s": {"deaf": deaf}}) as router:
        answer = asyncio.ensure_future(router.route("otter", deadline=0.3))
        done, _ = await asyncio.wait([answer], timeout=20)  # it would wait for `go_on`, which nobody sets
        deaf.go_on.set()
    assert done
    assert [envelope.document.id for envelope in answer.result().envelopes] == ["b"]
    assert any(step.failed for step in answer.result().trace.steps)


async def test_a_confidence_that_is_not_finite_is_named_by_its_value():
    odd = Fact(subject="Moon", predicate="orbits", object="Earth", confidence=float("nan"))
    async with ContextRouter(connectors={"good": Fixed("b")}, facts={"odd": Facts([odd])}) as router:
        context = await router.route("Moon")
    (report,) = [report for report in context.coverage if report.source == "odd"]
    assert report.error.endswith("confidence is nan, not a finite number")


async def test_a_panic_at_closing_is_an_error_with_the_name_of_the_plugin():
    router = ContextRouter(connectors={"bad": Panicking("aclose"), "good": Fixed("b")})
    await router.open()
    with pytest.raises(Exception, match=r"Closing failed: connector 'bad': .*Panic: odd"):
        await router.aclose()


class Hanging(Fixed):
    """Its aclose() never ends."""

    async def aclose(self) -> None:
        await asyncio.Event().wait()


class Closing(Fixed):
    """Notes that it was closed."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.case("PLG-01")
async def test_an_aclose_that_hangs_is_given_up_and_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(lifecycle, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(lifecycle, "LEAST_CLOSE_SECONDS", 0.02)
    good = Closing("b")
    with caplog.at_level(logging.WARNING):
        async with ContextRouter(
            connectors={"good": good, "stuck": Hanging("a"), "also": Hanging("c")}
        ) as router:
            context = await router.route("otter")
    assert len(context.envelopes) == 3
    assert good.closed
    for name in ("stuck", "also"):
        assert f"connector '{name}' does not close: given up" in caplog.text


@pytest.mark.case("PLG-01")
def test_the_command_line_prints_the_answer_of_a_plugin_that_never_closes(tmp_path: Path):
    hang = GOOD.replace("return []", "return [Hit(document=Document(id='a', content='The otter swims.'))]")
    hang = hang.replace("import Connector", "import Connector, Document, Hit")
    hang += "    async def aclose(self):\n        import asyncio\n        await asyncio.sleep(3600)\n"
    (tmp_path / "hang.py").write_text(hang)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.hang]\n')
    ran = run(tmp_path, "route", "otter", "--text")
    assert "The otter swims." in ran.stdout
    assert f"connector 'hang' does not close: given up after {plugin_calls.CLOSE_SECONDS:g} s" in ran.stderr


STUBBORN = """
    async def aclose(self):
        import asyncio
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
"""


@pytest.mark.case("PLG-01")
def test_an_aclose_that_ignores_its_cancellation_does_not_keep_the_program(tmp_path: Path):
    (tmp_path / "stubborn.py").write_text(GOOD + STUBBORN)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.stubborn]\n')
    ran = run(tmp_path, "check")
    assert ran.returncode == 0
    assert "Everything works." in ran.stdout
    assert "a plugin ignores its cancellation and is left behind." in ran.stderr


MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")


class Marking(Connector):
    """Sets a context variable in each of its methods, and notes the value that it finds."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def mark(self) -> None:
        self.values.append(MARK.get())
        MARK.set("dirty")

    async def open(self) -> None:
        self.mark()

    async def search(self, query: Query) -> Sequence[Hit]:
        self.mark()
        return hits("a")

    async def aclose(self) -> None:
        self.mark()


class MarkingInterpreter(Interpreter):
    def __init__(self) -> None:
        self.values: list[str] = []

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        self.values.append(MARK.get())
        MARK.set("dirty")
        return intent


class MarkingStage(Stage):
    def __init__(self) -> None:
        self.values: list[str] = []

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        self.values.append(MARK.get())
        MARK.set("dirty")
        return envelopes


async def test_context_variables_do_not_leave_a_call():
    sources = {name: Marking() for name in ("one", "two")}
    readers = [MarkingInterpreter(), MarkingInterpreter()]
    stages = [MarkingStage(), MarkingStage()]
    async with ContextRouter(
        connectors=sources,
        interpreters={f"i{number}": reader for number, reader in enumerate(readers)},
        stages={f"s{number}": stage for number, stage in enumerate(stages)},
    ) as router:
        await router.route("otter")
        await router.route("otter and salmon")
    plugins = [*sources.values(), *readers, *stages]
    assert {value for plugin in plugins for value in plugin.values} == {"clean"}
    assert all(len(plugin.values) >= 2 for plugin in plugins)
    assert MARK.get() == "clean"


PANICKING_FILE = """
from contextrouter import Connector, Transform

class Panic(BaseException):
    pass

class Crawling(Connector):
    async def search(self, query):
        return []
    async def ping(self):
        raise Panic("odd ping")
    async def crawl(self):
        raise Panic("odd crawl")
        yield
"""


@pytest.mark.case("ASY-09")
def test_a_panic_of_a_ping_or_a_crawl_is_a_line_and_no_traceback(tmp_path: Path, cli: CommandLine):
    (tmp_path / "crawling.py").write_text(PANICKING_FILE)
    (tmp_path / "settings.toml").write_text(
        '[plugins]\npaths = ["."]\n[connectors.crawling]\n[providers.memory]\n'
        '[ingest.all]\nfrom = "crawling"\nto = "memory"\n'
    )
    checked = cli("check", "--json", cwd=tmp_path)
    (finding,) = [line for line in json.loads(checked.out) if line["name"] == "crawling"]
    assert (finding["status"], finding["detail"]) == ("failed", "Panic: odd ping")
    ingested = cli("ingest")
    assert ingested.code == 4
    assert "odd crawl" in ingested.out + ingested.err
    assert "Traceback" not in ingested.err


class Speechless(Exception):
    """An exception that cannot say what happened."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


async def test_an_exception_without_a_text_is_a_report_and_the_other_answers():
    connectors = {"good": Fixed(hits("a")), "bad": Raising(Speechless())}
    async with ContextRouter(connectors=connectors) as router:
        context = await router.route("otter")
    assert [report.error for report in context.coverage if report.source == "bad"] == ["Speechless: "[:-1]]
    assert [envelope.document.id for envelope in context.envelopes] == ["a"]


class Clearing(Connector):
    """Forgets the filters it is asked with."""

    async def search(self, query: Query) -> Sequence[Hit]:
        query.filters.clear()  # type: ignore[attr-defined]  # that is the fault
        return []


class ClearingInterpreter(Interpreter):
    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        context.request.filters.clear()  # type: ignore[attr-defined]  # that is the fault
        return intent


async def test_a_plugin_that_clears_the_filters_lets_no_document_in():
    connectors = {"clearing": Clearing(), "good": Fixed(hits("a"), careless=True)}
    interpreters = {"clearing": ClearingInterpreter()}
    async with ContextRouter(connectors=connectors, interpreters=interpreters) as router:
        context = await router.route("otter", filters={"kind": "video"})
    assert not context.envelopes
    assert [report.withheld for report in context.coverage if report.source == "good"] == [1]
