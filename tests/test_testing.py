"""contextrouter.testing: builders, fakes, the watch over constructors, verdicts, suites, deviations, and the
command line.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.example import ROOT, CommandLine

from contextrouter import testing
from contextrouter.contracts import Connector, Plugin
from contextrouter.errors import MissingDependency
from contextrouter.model import Document, Hit, Intent, Period, Query
from contextrouter.scope import Scope
from contextrouter.testing import (
    LAWS,
    SUITES,
    ConnectorSuite,
    Fixed,
    Hashing,
    InterpreterSuite,
    Lines,
    Raising,
    Reversing,
    admits,
    deviates,
    doc,
    embedding,
    envelope,
    fact,
    hits,
    judge,
    kind_of,
    laws_of,
    query,
    ranked,
    stage_context,
    subject_of,
    verdict,
)
from contextrouter.testing.imports import third_party
from contextrouter.testing.measure import idle, shortest, stall
from contextrouter.testing.side_effects import deny_side_effects
from contextrouter.testing.texts import HOSTILE, library

SLOPPY = """
from contextrouter.contracts import Connector
from contextrouter.model import Document, Hit

class Sloppy(Connector):
    "Forgets the limit."
    async def search(self, query):
        if query.filters or query.period or query.labels:
            return []
        return [Hit(document=Document(id=str(n), content=f"text {n}")) for n in range(3)]
"""


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def status(cls: type[Plugin], name: str) -> tuple[str, str]:
    """Status and reason of one law."""
    subject = subject_of(cls)
    law = next(law for law in laws_of(cls) if law.name == name)
    finding = judge(subject, law)
    return finding.status, finding.why


class TestBuilders:
    def test_names_become_documents_with_texts_of_their_own(self) -> None:
        assert [(hit.document.id, hit.document.content, hit.score) for hit in hits("a b", [2.0, None])] == [
            ("a", "text of a", 2.0),
            ("b", "text of b", None),
        ]
        assert doc("a", "", title="T", kind="book") == Document(id="a", content="", title="T", kind="book")
        assert ranked("s", "a b", leg="text").hits == hits("a b")
        assert fact("OpenAI founded_by Sam Altman").object == "Sam Altman"

    def test_an_envelope_has_the_score_of_its_rank(self) -> None:
        made = envelope("a", 3, 0.5, source="s")
        assert (made.score, made.provenance[0].rank, made.provenance[0].score, made.provenance[0].source) == (
            1 / 63,
            3,
            0.5,
            "s",
        )
        assert envelope("a").normalized == 1.0

    def test_seal_works_as_the_router_s(self) -> None:
        sealed: list[object] = []
        context = stage_context(scope=Scope(), sealed=sealed)  # type: ignore[arg-type]  # a list of anything
        assert context.seal(testing.hit("secret", sensitivity="restricted"), source="s") is None
        made = context.seal(testing.hit("open"), source="s")
        assert made is not None
        assert sealed == [made]
        assert made.provenance[0].source == "s"

    def test_embeddings_of_texts_that_share_words_are_close(self) -> None:
        moon, tide, salt = (
            embedding(text, 64) for text in ("the moon moves", "the moon turns", "salt lies about")
        )
        assert math.sumprod(moon, tide) > math.sumprod(moon, salt) if hasattr(math, "sumprod") else True
        assert sum(a * b for a, b in zip(moon, tide, strict=True)) > sum(
            a * b for a, b in zip(moon, salt, strict=True)
        )

    @given(st.text(), st.integers(1, 40))
    def test_an_embedding_has_length_one_or_is_that_of_a_blank_text(self, text: str, dimensions: int) -> None:
        vector = embedding(text, dimensions)
        assert len(vector) == dimensions
        assert math.isclose(math.hypot(*vector), 1.0) or (not text.strip() and not any(vector))


class TestFakes:
    async def test_fixed_minds_limit_scope_period_and_filters_unless_careless(self) -> None:
        old, new = datetime(2024, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        answer = [
            Hit(document=doc("old", updated_at=old)),
            Hit(document=doc("new", updated_at=new, metadata={"year": 2026})),
            Hit(document=doc("secret", sensitivity="restricted")),
        ]
        asked = query(
            scope=Scope(), period=Period(start=datetime(2025, 1, 1, tzinfo=UTC)), filters={"year": [2026]}
        )
        assert [hit.document.id for hit in await Fixed(answer).search(asked)] == ["new"]
        assert len(await Fixed(answer, careless=True).search(asked)) == 3
        assert len(await Fixed(answer, careless=True).search(query(limit=2))) == 2

    def test_a_document_without_a_tenant_takes_its_source_s(self) -> None:
        assert admits(doc("a"), query(scope=Scope(tenant="acme")))
        assert not admits(doc("a", tenant="globex"), query(scope=Scope(tenant="acme")))
        assert not admits(doc("a", compartment="hr"), query(scope=Scope(tenant="acme")))

    async def test_raising_raises_what_it_was_given(self) -> None:
        with pytest.raises(KeyError):
            await Raising(KeyError("x")).search(query())

    async def test_lines_cut_at_line_ends_and_at_the_longest(self) -> None:
        made = await Lines(longest=4).transform(doc("d", "abcdef\n\n gh"))
        assert [(each.id, each.content) for each in made] == [("d#0", "abcd"), ("d#1", "ef"), ("d#2", " gh")]
        assert {each.parent for each in made} == {"d"}

    def test_hashing_refuses_no_dimensions(self) -> None:
        with pytest.raises(ValueError, match="dimensions 0 is not a positive number"):
            Hashing(dimensions=0)


class TestWatch:
    @pytest.mark.parametrize(
        ("touch", "said"),
        [
            (lambda: Path(__file__).read_bytes(), "open"),
            (lambda: os.open(__file__, os.O_RDONLY), "open"),
            (lambda: socket.socket(), "socket"),
            (lambda: socket.getaddrinfo("localhost", 80), "socket.getaddrinfo"),
            (lambda: sqlite3.connect(":memory:"), "sqlite3.connect"),
            (lambda: subprocess.run(["true"], check=False), "subprocess.Popen"),
            (lambda: os.listdir("."), "os.listdir"),
            (lambda: Path("x").exists(), "os.stat"),
            (lambda: Path("x").resolve(), "os.lstat"),
            (lambda: os.access("x", os.R_OK), "os.access"),
        ],
    )
    def test_what_touches_the_outside_is_noted_and_denied(self, touch: object, said: str) -> None:
        with deny_side_effects() as touched, pytest.raises(RuntimeError, match=r"do it in open\(\)"):
            touch()  # type: ignore[operator]  # the cases are functions
        assert touched
        assert touched[0].startswith(said)

    def test_imports_and_time_zones_are_not_the_plugin_s_doing(self) -> None:
        sys.modules.pop("this_module_is_new", None)
        with deny_side_effects() as touched:
            import colorsys  # noqa: F401 - read from its file

            ZoneInfo.no_cache("Asia/Kathmandu")
        assert touched == []

    def test_other_threads_go_on_and_everything_is_as_before_behind(self) -> None:
        before = os.stat
        read: list[str] = []
        with deny_side_effects() as touched:
            thread = threading.Thread(target=lambda: read.append(Path(__file__).read_text("utf-8")))
            thread.start()
            thread.join()
        assert (len(read), touched, os.stat) == (1, [], before)
        assert Path(__file__).exists()


class TestMeasure:
    async def test_a_blocked_loop_is_seen_and_a_waiting_one_is_not(self) -> None:
        async def block() -> None:
            time.sleep(0.12)  # noqa: ASYNC251 - that is what is measured

        assert await stall(block) >= 0.12
        assert await shortest(lambda: stall(lambda: asyncio.sleep(0.12)), 0.1) < 0.1
        assert await shortest(idle, 0.1) < 0.1

    async def test_the_least_of_three_attempts_counts_and_a_good_one_is_the_last(self) -> None:
        given = iter([0.9, 0.5, 0.7, 0.1])

        async def attempt() -> float:
            return next(given)

        assert await shortest(attempt, 0.2) == 0.5
        assert await shortest(attempt, 0.2) == 0.1


@deviates("shows the newest whatever is asked", law="filters_are_honoured")
class Newest(Fixed):
    """A source that minds no filter, and says so."""

    async def search(self, query: Query) -> Sequence[Hit]:
        return await super().search(query.replace(filters={}))


@deviates("has no limit by design", law="no_more_than_the_limit")
class NewestOfAll(Newest):
    """One that deviates further."""


class TestDeviations:
    @pytest.mark.parametrize("reason", ["", " \n"])
    def test_a_deviation_needs_a_reason(self, reason: str) -> None:
        with pytest.raises(ValueError, match="has no reason; say why"):
            deviates(reason, law="best_come_first")

    def test_a_deviation_from_what_is_no_law_is_refused(self) -> None:
        wrong = deviates("why not", law="best_comes_first")(type("Wrong", (Fixed,), {}))
        with pytest.raises(
            ValueError, match=r"'best_comes_first' is no law of a connector. Did you mean 'best_come_first'\?"
        ):
            subject_of(wrong)
        with pytest.raises(ValueError, match="has no reason"):
            subject_of(Fixed, deviations={"best_come_first": " "})

    def test_a_class_among_tests_may_import_what_tests_need(self) -> None:
        state, why = status(Newest, "module_imports_nothing_heavy")
        assert state == "not applicable"
        assert why.startswith("the class is defined among tests")

    def test_the_verdict_shows_it_and_the_class_above_is_not_touched(self) -> None:
        assert status(Newest, "filters_are_honoured") == ("deviates", "shows the newest whatever is asked")
        assert subject_of(NewestOfAll).deviations.keys() == {"filters_are_honoured", "no_more_than_the_limit"}
        assert subject_of(Newest).deviations.keys() == {"filters_are_honoured"}
        assert subject_of(Fixed).deviations == {}
        found = verdict(subject_of(Newest))
        assert found.broken == ()
        assert [f.law for f in found.findings if f.status == "deviates"] == ["filters_are_honoured"]

    def test_without_it_the_law_is_broken(self) -> None:
        class Undeclared(Newest):
            """The same without a word."""

            deviations: ClassVar[dict[str, str]] = {}

        assert status(Undeclared, "filters_are_honoured")[0] == "broken"


class Asleep(Connector):
    """Its example does not open."""

    async def open(self) -> None:
        raise ConnectionError("nobody answers")

    async def search(self, query: Query) -> Sequence[Hit]:
        return []


class Unpacked(Connector):
    """Needs a package that is not there."""

    async def open(self) -> None:
        raise MissingDependency("no_such_package", "none")

    async def search(self, query: Query) -> Sequence[Hit]:
        return []


class SharedDefault(Connector):
    """A list as a default, which all instances fill."""

    def __init__(self, *, names: list[str] = []) -> None:  # noqa: B006 - that is the fault
        self.names = names

    async def search(self, query: Query) -> Sequence[Hit]:
        self.names.append(query.text)
        return [Hit(document=Document(id=name, content=name)) for name in dict.fromkeys(self.names)][
            : query.limit
        ]


class TestVerdict:
    def test_an_example_that_does_not_work_is_one_finding_not_forty(self) -> None:
        found = verdict(subject_of(Asleep))
        assert [finding.law for finding in found.broken] == ["example_works"]
        assert "ConnectionError: nobody answers" in found.broken[0].why
        at = [finding.law for finding in found.findings].index("example_works")
        assert {finding.status for finding in found.findings[:at]} == {"ok"}
        assert {finding.status for finding in found.findings[at + 1 :]} == {"not applicable"}
        assert (found.kind, found.plugin, len(found.findings)) == (
            "connector",
            "Asleep",
            len(LAWS["connector"]),
        )

    def test_a_missing_package_breaks_nothing_and_names_its_extra(self) -> None:
        state, why = status(Unpacked, "same_answer_twice")
        assert state == "not applicable"
        assert "pip install 'contextrouter-rag[none]'" in why

    def test_laws_of_abilities_say_nothing_about_who_lacks_them(self) -> None:
        assert status(Fixed, "canaries_never_leave_their_scope") == (
            "not applicable",
            "it is no SupportsUpsert",
        )

    @pytest.mark.case("CHK-21")
    def test_a_mutable_default_that_instances_share_is_found(self) -> None:
        state, why = status(SharedDefault, "instances_share_no_state")
        assert state == "broken"
        assert why == "use changed the default of 'names', which all instances share"

    def test_kinds_are_told_from_classes(self) -> None:
        assert (kind_of(Fixed), kind_of(testing.Overlap), kind_of(Reversing)) == (
            "connector",
            "reranker",
            "stage",
        )
        with pytest.raises(TypeError, match="Document is no plugin of any kind"):
            kind_of(Document)

    def test_hostile_texts_hold_what_has_broken_search_before(self) -> None:
        joined = "".join(HOSTILE)
        for part in (
            "\x00",
            "'; DROP",
            "NEAR(",
            "🌕",
            "\u202e",
            "\ud800",
            "<|endoftext|>",
            "\u02bc",
            "R&D | ",
        ):
            assert part in joined
        assert max(map(len, HOSTILE)) >= 10_000
        assert len({document.id for document in library()}) == 8


class TestSuites:
    def test_every_law_is_a_test_method_of_its_kind_s_suite(self) -> None:
        for kind, suite in SUITES.items():
            assert {name for name in dir(suite) if name.startswith("test_")} == {
                f"test_{law.name}" for law in LAWS[kind]
            }
            for law in LAWS[kind]:
                assert getattr(suite, f"test_{law.name}").__doc__ == law.says

    def test_a_suite_fails_with_the_law_and_what_was_found(self) -> None:
        class Mine(ConnectorSuite):
            plugin = SharedDefault

        with pytest.raises(
            testing.Broken, match=r"SharedDefault: Using and closing .* But use changed the default of"
        ):
            Mine().test_instances_share_no_state()  # type: ignore[attr-defined]  # made for the suite at run time
        Mine().test_legs_are_named()  # type: ignore[attr-defined]  # made for the suite at run time

    def test_make_questions_and_deviations_are_the_suite_s_own(self) -> None:
        @deviates("the made one keeps no order", law="best_come_first")
        class Mine(ConnectorSuite):
            plugin = Fixed
            questions = ("what?",)

            def make(self) -> Plugin:
                return Fixed(hits("a b", [1.0, 2.0]))

        with pytest.raises(unittest.SkipTest, match=r"^deviates: the made one keeps no order$"):
            Mine().test_best_come_first()  # type: ignore[attr-defined]  # made for the suite at run time
        assert Mine().subject().questions == ("what?",)
        Mine.deviations = {}  # type: ignore[attr-defined]  # set by the decorator
        with pytest.raises(testing.Broken, match=r"scores of 'what\?' on 'default' are \[1.0, 2.0\]"):
            Mine().test_best_come_first()  # type: ignore[attr-defined]  # made for the suite at run time

    def test_a_law_that_does_not_apply_is_a_skipped_test_with_the_reason(self) -> None:
        class Mine(ConnectorSuite):
            plugin = Fixed

        with pytest.raises(unittest.SkipTest, match=r"^not applicable: it is no SupportsUpsert$"):
            Mine().test_deleted_is_gone()  # type: ignore[attr-defined]  # made for the suite at run time

    def test_a_suite_without_a_plugin_says_what_to_write(self) -> None:
        with pytest.raises(TypeError, match="Nameless names no plugin; write `plugin = TheClass` in it"):
            type("Nameless", (InterpreterSuite,), {})().test_question_is_kept()

    def test_pytest_collects_a_suite_and_its_laws_fail_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "sloppy.py").write_text(SLOPPY)
        (tmp_path / "test_sloppy.py").write_text(
            "from contextrouter.testing import ConnectorSuite\nfrom sloppy import Sloppy\n\n"
            "class TestSloppy(ConnectorSuite):\n    plugin = Sloppy\n"
        )
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rsf",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            str(tmp_path),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
        assert len(failed) == 1, ran.stdout
        assert "TestSloppy::test_no_more_than_the_limit" in failed[0]
        abilities = sum(law.ability is not None for law in LAWS["connector"])
        assert f"{len(LAWS['connector']) - 1 - abilities} passed, {abilities} skipped" in ran.stdout
        assert "not applicable: it is no SupportsUpsert" in ran.stdout


class TestImports:
    def test_the_kit_needs_no_pytest_and_loads_nothing_heavy(self) -> None:
        code = (
            "import sys, contextrouter.testing\nprint([m for m in ('pytest', 'numpy', 'hypothesis',"
            " 'aiohttp', 'contextrouter.builtin') if m in sys.modules])"
        )
        assert (
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
            == "[]\n"
        )

    def test_a_neighbour_s_imports_count_and_a_neighbour_does_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "light_neighbour.py").write_text("import json\n")
        (tmp_path / "heavy_neighbour.py").write_text("import numpy\n")
        for name in ("light", "heavy"):
            (tmp_path / f"{name}_plugin.py").write_text(f"import {name}_neighbour\nclass Mine: pass\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        import heavy_plugin  # type: ignore[import-not-found]  # written above
        import light_plugin  # type: ignore[import-not-found]  # written above

        assert third_party(light_plugin.Mine) == ()
        assert third_party(heavy_plugin.Mine) == ("numpy",)


class TestCommand:
    def test_check_gives_a_line_per_law_and_a_sum(self, cli: CommandLine, tmp_path: Path) -> None:
        ran = cli("plugins", "check", "taxonomy", cwd=tmp_path)
        assert (ran.code, ran.err) == (0, "")
        assert all(law.name in ran.out for law in LAWS["interpreter"])
        assert (
            f"{len(LAWS['interpreter'])} laws kept, 0 broken, 0 deviated from, 0 not applicable." in ran.out
        )

    def test_a_broken_law_of_a_file_is_shown_with_its_reason_and_exits_1(
        self, cli: CommandLine, tmp_path: Path
    ) -> None:
        (tmp_path / "sloppy.py").write_text(SLOPPY)
        (tmp_path / "neighbour.py").write_text("raise RuntimeError('is not looked at')")
        ran = cli("plugins", "check", str(tmp_path / "sloppy.py"), cwd=tmp_path)
        assert ran.code == 1
        assert "✗" in ran.out
        told = " ".join(ran.out.split())
        assert "At most `query.limit` hits come back" in told
        assert "3 hits for" in told
        assert "1 broken" in told

    def test_json_has_law_sentence_status_and_reason(self, cli: CommandLine, tmp_path: Path) -> None:
        (tmp_path / "sloppy.py").write_text(SLOPPY)
        ran = cli("plugins", "check", "sloppy.py", "--json", cwd=tmp_path)
        (told,) = json.loads(ran.out)
        assert (ran.code, told["kind"], told["name"], told["broken"]) == (1, "connector", "sloppy", 1)
        (line,) = [line for line in told["laws"] if line["status"] == "broken"]
        assert line["law"] == "no_more_than_the_limit"
        assert line["why"].startswith("3 hits for")

    def test_a_file_of_two_kinds_has_two_verdicts_and_the_plugin_folder_counts(
        self, cli: CommandLine, tmp_path: Path
    ) -> None:
        told = json.loads(cli("plugins", "check", "glossary", "--json", cwd=ROOT).out)
        assert [(each["kind"], each["broken"]) for each in told] == [("connector", 0)]
        text = "from contextrouter.testing import Reversing\nclass Turn(Reversing):\n    'Turns.'\n"
        (tmp_path / "double.py").write_text(SLOPPY + text)
        both = json.loads(cli("plugins", "check", "double.py", "--json", cwd=tmp_path).out)
        assert [(each["kind"], each["broken"]) for each in both] == [("connector", 1), ("stage", 0)]

    @pytest.mark.parametrize(
        ("text", "said"),
        [("import no_such_module\n", "cannot be imported"), ("x = 1\n", "it defines no plugin class")],
    )
    def test_a_file_that_holds_no_plugin_exits_1_and_says_why(
        self, cli: CommandLine, tmp_path: Path, text: str, said: str
    ) -> None:
        (tmp_path / "empty.py").write_text(text)
        ran = cli("plugins", "check", "empty.py", cwd=tmp_path)
        assert ran.code == 1
        assert said in " ".join(ran.out.split())

    def test_a_plugin_whose_package_is_not_installed_is_not_said_to_keep_laws(
        self, cli: CommandLine, tmp_path: Path
    ) -> None:
        opening = (
            "    async def open(self):\n        raise MissingDependency('no_such_package', 'none')\n    async"
            " def search"
        )
        text = "from contextrouter.errors import MissingDependency\n" + SLOPPY.replace(
            "    async def search", opening
        )
        (tmp_path / "unpacked.py").write_text(text)
        ran = cli("plugins", "check", "unpacked.py", cwd=tmp_path)
        assert ran.code == 1
        assert "pip install 'contextrouter-rag[none]'" in ran.out
        assert "laws kept" not in ran.out

    def test_what_is_not_there_is_wrong_usage(self, cli: CommandLine, tmp_path: Path) -> None:
        assert cli("plugins", "check", "nobody.py", cwd=tmp_path).code == 2
        ran = cli("plugins", "check", "taxonom")
        assert ran.code == 2
        assert "Did you mean 'taxonomy'?" in ran.err

    def test_a_deviation_is_shown_with_its_reason(self, cli: CommandLine, tmp_path: Path) -> None:
        text = SLOPPY.replace(
            "class Sloppy", '@deviates("shows all", law="no_more_than_the_limit")\nclass Sloppy'
        )
        (tmp_path / "open_handed.py").write_text("from contextrouter.testing import deviates\n" + text)
        ran = cli("plugins", "check", "open_handed.py", cwd=tmp_path)
        assert ran.code == 0
        assert "deviates: shows all" in ran.out
        assert "1 deviated from" in ran.out


def test_every_law_public_name_and_suite_is_documented() -> None:
    page = (ROOT / "docs" / "testing-plugins.md").read_text("utf-8")
    assert [
        law.name for laws in LAWS.values() for law in laws if f"| `{law.name}` | {law.says} |" not in page
    ] == []
    fakes = [
        name for name, value in vars(testing).items() if isinstance(value, type) and issubclass(value, Plugin)
    ]
    assert [
        name for name in (*fakes, *(suite.__name__ for suite in SUITES.values())) if f"`{name}`" not in page
    ] == []


def test_public_names_exist_and_are_sorted() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert (
        sorted(testing.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
        == testing.__all__
    )
    assert Intent(question="q", queries=("q",)) == testing.intent()
