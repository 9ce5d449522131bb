"""The kit speaks to authors: it names what a class lacks, in one line, and checks a table of the settings."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine

from contextrouter import Connector, ContextRouter, Document, Hit, Query
from contextrouter.errors import ContractError, SettingsError
from contextrouter.runtime.registry import Registry
from contextrouter.testing import ConnectorSuite, Fixed, admits, subject_of, verdict

HEAD = "from contextrouter import Connector, Document, Hit\nfrom contextrouter.testing import admits\n\n"
POS = """
class Pos(Connector):
    "Tills of the shop."
    async def serch(self, query):
        return []
"""
NUMBERS = """
class Numbers(Connector):
    "Answers with two rows of a table, whose keys are numbers."
    async def search(self, query):
        rows = [Document(id=n, content=f"the sea {n}") for n in (1, 2)]
        return [Hit(document=row) for row in rows if admits(row, query)][: query.limit]
"""
TICKETS = """
class Tickets(Connector):
    "Answers from a file of tickets."
    def __init__(self, *, path: str) -> None:
        self._path = path
        self._tickets = []

    async def open(self):
        with open(self._path) as file:
            self._tickets = file.read().splitlines()

    async def search(self, query):
        words = set(query.text.casefold().split())
        rows = [
            Document(id=str(n), content=text)
            for n, text in enumerate(self._tickets)
            if words & set(text.casefold().split())
        ]
        return [Hit(document=row) for row in rows if admits(row, query)][: query.limit]
"""


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.case("USE-04")
def test_a_connector_whose_ids_are_numbers_breaks_the_law_of_types(tmp_path: Path, cli: CommandLine):
    (tmp_path / "shop.py").write_text(HEAD + NUMBERS)
    ran = cli("plugins", "check", "shop.py", "--json", cwd=tmp_path)
    (report,) = json.loads(ran.out)
    broken = {line["law"]: line["why"] for line in report["laws"] if line["status"] == "broken"}
    assert ran.code == 1
    assert broken == {"fields_have_their_types": "in a Hit, document.id is int, not a text"}


@pytest.mark.case("USE-04")
def test_a_class_that_almost_is_a_plugin_says_what_it_lacks(tmp_path: Path, cli: CommandLine):
    (tmp_path / "pos.py").write_text(HEAD + POS)
    said = "Pos lacks search(). It has serch(). Did you mean search()?"
    ran = cli("plugins", "check", "pos.py", cwd=tmp_path)
    assert (ran.code, said in words(ran.out)) == (1, True)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.pos]\n')
    listed = json.loads(cli("plugins", "list", "--json").out)
    assert [line["problem"] for line in listed if line["name"] == "pos"] == [said]
    used = cli("route", "otter")
    assert used.code == 2
    assert f"settings.toml:3: connectors.pos: pos.py: {said}" in used.err


def test_a_class_without_a_contract_is_told_which_one(tmp_path: Path):
    (tmp_path / "loose.py").write_text(
        "class Loose:\n    async def search(self, query):\n        return []\n"
    )
    registry = Registry([tmp_path])
    said = "Loose has search() and derives from no contract. Derive it from Connector or Provider."
    assert [line.problem for line in registry.list_plugins() if line.name == "loose"] == [said]
    with pytest.raises(ContractError, match=r"loose\.py: Loose has search"):
        registry.load("connector", "loose")


class NeedsPath(Connector):
    """Needs a keyword, and has no example."""

    def __init__(self, *, path: str) -> None:
        self.path = path

    async def search(self, query: Query) -> Sequence[Hit]:
        return []


@pytest.mark.case("USE-04")
def test_an_absent_example_is_one_line(tmp_path: Path, cli: CommandLine):
    (tmp_path / "tickets.py").write_text(HEAD + TICKETS)
    ran = cli("plugins", "check", "tickets.py", cwd=tmp_path)
    lines = [line for line in ran.out.splitlines() if line.strip()]
    assert ran.code == 1
    assert len(lines) < 20
    assert "the class has no example() of its own, and the constructor needs 'path'" in words(ran.out)
    assert "more laws: nothing else can be checked while the law example_works is broken." in words(ran.out)


@pytest.mark.case("USE-04")
def test_an_absent_example_fails_one_test_of_a_suite():
    class Mine(ConnectorSuite):
        plugin = NeedsPath

    with pytest.raises(AssertionError, match="the constructor needs 'path'"):
        Mine().test_example_works()  # type: ignore[attr-defined]  # made for the suite at run time
    names = [n for n in dir(Mine) if n.startswith("test_")]
    skipped = 0
    for name in names:
        try:
            getattr(Mine(), name)()
        except unittest.SkipTest:
            skipped += 1
        except AssertionError:
            assert name == "test_example_works"
    assert skipped > 40


@pytest.mark.case("USE-04")
def test_a_table_of_the_settings_is_checked_as_it_stands(tmp_path: Path, cli: CommandLine):
    """By its name where the plugin has no example, and by `connectors.NAME` always."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "tickets.py").write_text(HEAD + TICKETS)
    (tmp_path / "till.txt").write_text("the till is broken\nthe sea is calm\n")
    path = str(tmp_path / "till.txt")
    text = f'[plugins]\npaths = ["p"]\n\n[connectors.desk]\nuse = "tickets"\npath = "{path}"\n'
    (tmp_path / "settings.toml").write_text(text)
    for name in ("desk", "connectors.desk"):
        ran = cli("plugins", "check", name, "--question", "the till", "--json", cwd=tmp_path)
        (report,) = json.loads(ran.out)
        assert (report["kind"], report["name"], report["origin"]) == ("connector", "desk", "settings.toml:4")
        broken = [line for line in report["laws"] if line["status"] == "broken"]
        assert (broken, ran.code) == ([], 0)
    ran = cli("plugins", "check", "desc", cwd=tmp_path)
    assert ran.code == 2
    assert "connectors.desk" in ran.err


def test_a_store_of_the_settings_is_checked_and_nothing_is_written(tmp_path: Path, cli: CommandLine):
    text = '[providers.shelf]\nuse = "memory"\ndocuments = [{ id = "a", content = "the sea is calm" }]\n'
    (tmp_path / "settings.toml").write_text(text)
    ran = cli("plugins", "check", "providers.shelf", "--question", "the sea", "--json", cwd=tmp_path)
    (report,) = json.loads(ran.out)
    status = {line["law"]: (line["status"], line["why"]) for line in report["laws"]}
    assert status["deleted_is_gone"] == (
        "not applicable",
        "the kit writes nothing into a store of the settings",
    )
    assert status["answers_are_hits"][0] == "ok"
    assert ran.code == 0, [line for line in report["laws"] if line["status"] == "broken"]


def test_progress_names_every_law_before_it_is_checked():
    calls: list[tuple[int, int, str]] = []
    judged = verdict(subject_of(Fixed), lambda *call: calls.append(call))
    names = [finding.law for finding in judged.findings]
    assert calls == [(number, len(names), name) for number, name in enumerate(names, 1)]


@pytest.mark.parametrize("group", ["contextrouter.connector", "contextrouter_connectors", "contextrouter.x"])
def test_an_entry_point_in_a_misspelt_group_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
):
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nlost = contextrouter.testing.fakes:Fixed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (line,) = [line for line in Registry().list_plugins() if line.name == "lost"]
    assert line.kind == "?"
    assert line.problem.startswith(f"the entry point is in the group {group!r}, which nobody reads.")
    hint = "Groups: contextrouter.connectors," if group.endswith("x") else "mean 'contextrouter.connectors'?"
    assert hint in line.problem
    (tmp_path / "settings.toml").write_text("[connectors.lost]\n")
    with pytest.raises(SettingsError, match=r"settings\.toml:1: connectors\.lost: .*which nobody reads"):
        ContextRouter.from_toml(tmp_path / "settings.toml")


async def test_the_router_says_of_a_plain_method_what_to_write():
    class Plain(Fixed):
        def search(self, query: Query) -> list[Hit]:  # type: ignore[override]  # that is the fault
            return [Hit(document=Document(id="a", content="x"))]

    async with ContextRouter(connectors={"plain": Plain(), "good": Fixed("b")}) as router:
        context = await router.route("otter")
    (report,) = [report for report in context.coverage if report.source == "plain"]
    assert report.status == "error"
    assert admits(context.envelopes[0].document, Query(text=""))


def test_the_kit_loads_no_pydantic():
    code = "import sys, contextrouter, contextrouter.testing; print('pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_an_answer_of_another_type_is_named_by_its_law(tmp_path: Path):
    class Nothing(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            return None  # type: ignore[return-value]  # that is the fault

    judged = verdict(subject_of(Nothing))
    broken = {finding.law: finding.why for finding in judged.broken}
    assert "example_works" not in broken
    assert broken["answers_are_hits"].endswith("was answered with None")


def test_a_key_of_metadata_that_is_no_text_is_named():
    class Keyed(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            metadata: Any = {1: "x"}
            return [Hit(document=Document(id="a", content="moon", metadata=metadata))]

    broken = {finding.law: finding.why for finding in verdict(subject_of(Keyed, lambda: Keyed("a"))).broken}
    assert broken["fields_have_their_types"] == "in a Hit, a key of document.metadata is int, not a text"


class Panic(BaseException):
    """A panic of a compiled library."""


@pytest.mark.parametrize(
    "error", [Panic("at the disco"), SystemExit("at the disco"), asyncio.CancelledError("at the disco")]
)
def test_what_is_no_exception_is_a_finding(error: BaseException):
    class Leaving(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            raise error

    found = verdict(subject_of(Leaving, lambda: Leaving("a")))
    assert [finding.law for finding in found.broken] == ["example_works"]
    assert f"it raised {type(error).__name__}: at the disco" in found.broken[0].why
