"""The kit ends, whatever a plugin does: it gives a plugin up that never ends, names it, and goes on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import Hit, Query
from contextrouter.testing import Fixed, judge, law_runs, laws_of, subject_of, verdict
from contextrouter.testing.laws import calls

DEAF = """
import asyncio

from contextrouter import Connector, Stage


class Deaf(Connector):
    "Goes on for good, whoever cancels it."

    async def search(self, query):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass


class Good(Stage):
    "Changes nothing."

    async def apply(self, envelopes, context):
        return envelopes
"""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_runs, "PATIENCE", 3.0)
    monkeypatch.setattr(law_runs, "GRACE", 0.1)
    monkeypatch.setattr(calls, "FOR_GOOD", 1.0)


def test_a_plugin_that_swallows_its_cancellation_is_given_up_and_the_next_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "deaf.py").write_text(DEAF)
    ran = CommandLine(monkeypatch, capsys)("plugins", "check", "deaf.py", "--json", cwd=tmp_path)
    deaf, good = json.loads(ran.out)
    assert ran.code == 1
    assert [(line["law"], line["why"]) for line in deaf["laws"] if line["status"] == "broken"] == [
        (
            "example_works",
            "the plugin did not end within 3 s, nor when it was cancelled: it must let CancelledError pass",
        )
    ]
    assert (good["kind"], good["broken"]) == ("stage", 0)


class DeafWhenCancelled(Fixed):
    """Answers, unless it is cancelled: then it goes on for good."""

    async def search(self, query: Query) -> Sequence[Hit]:
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
        return await super().search(query)


def test_a_call_that_goes_on_when_cancelled_costs_one_law_only():
    found = verdict(subject_of(DeafWhenCancelled, lambda: DeafWhenCancelled("moon")))
    broken = {finding.law: finding.why for finding in found.broken}
    assert broken == {
        "cancelled_it_leaves_at_once": "a cancelled call goes on for good; it must let CancelledError pass"
    }
    assert found.findings[-1].status != "broken"


class Blocking(Fixed):
    """Waits for what never comes, and blocks the event loop."""

    async def search(self, query: Query) -> Sequence[Hit]:
        threading.Event().wait()
        return []


def test_a_plugin_that_blocks_for_good_is_named_with_the_line_that_blocks():
    subject = subject_of(Blocking, lambda: Blocking("a"))
    (law,) = [law for law in laws_of(Blocking) if law.name == "example_works"]
    finding = judge(subject, law)
    line = Blocking.search.__code__.co_firstlineno + 1
    said = f"the plugin did not end within 3 s, and it blocks the event loop (search, line {line})"
    assert (finding.status, finding.why) == ("broken", said)


class EndlessWithDemands(Fixed):
    """Never answers a query with a scope, filters or a period."""

    async def search(self, query: Query) -> Sequence[Hit]:
        if query.scope or query.filters or query.period:
            await asyncio.Event().wait()
        return await super().search(query)


def test_after_three_laws_that_did_not_end_no_other_is_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(law_runs, "PATIENCE", 1.5)
    found = verdict(subject_of(EndlessWithDemands, lambda: EndlessWithDemands("moon")))
    endless = [finding.law for finding in found.broken if finding.why.startswith(law_runs.NO_END)]
    assert endless == ["scope_is_never_widened", "filters_are_honoured", "period_is_honoured"]
    (phrases,) = [finding for finding in found.findings if finding.law == "phrases_are_honoured"]
    assert phrases.why == "nothing else can be checked while the law period_is_honoured is broken"


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, SystemExit])
def test_what_a_task_of_a_plugin_raises_is_a_finding(error: type[BaseException]):
    class Leaving(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            async def leave() -> None:
                raise error("at the disco")

            await asyncio.get_running_loop().create_task(leave())
            return []

    found = verdict(subject_of(Leaving, lambda: Leaving("a")))
    assert [finding.law for finding in found.broken] == ["example_works"]
    assert f"it raised {error.__name__}: at the disco" in found.broken[0].why


async def test_a_law_is_not_judged_where_an_event_loop_runs():
    subject = subject_of(Fixed)
    with pytest.raises(RuntimeError, match="call it where no event loop runs"):
        judge(subject, laws_of(Fixed)[0])
