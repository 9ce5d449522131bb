"""The router: the eight steps together, lifecycle, cache, streaming, failures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import ClassVar

import pytest

from contextrouter import (
    AllSourcesFailed,
    Context,
    ContextRouter,
    ContextRouterError,
    Document,
    Fact,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    MissingDependency,
    Period,
    Plan,
    Request,
    RequestRefused,
    Scope,
    SettingsError,
    SourceError,
    SourceReport,
)
from contextrouter.testing import Facts, Fixed, Legs, Ones, Raising, doc, hits

ONE = {"rag": {"max_retrieval_queries": 1}}


def found(context: Context) -> list[str]:
    return [envelope.document.id for envelope in context.envelopes]


async def test_the_whole_way_from_question_to_cited_context():
    async with ContextRouter(
        ONE,
        connectors={"a": Fixed("x y"), "b": Fixed("z")},
        facts={"g": Facts([Fact(subject="s", predicate="p", object="o")])},
    ) as router:
        context = await router.route("Why x?")
    assert found(context) == ["x", "z", "y"]
    assert [c.number for c in context.citations] == [1, 2, 3]
    assert context.text.startswith("### [1] X — a\ntext of x\n\n### [2] Z — b")
    assert context.outcome == "answered"
    assert context.facts[0].source == "g"
    assert [(r.source, r.status) for r in context.coverage] == [("a", "ok"), ("b", "ok"), ("g", "ok")]
    assert [step.name for step in context.trace.steps] == [
        "interpret",
        "plan",
        "fan_out",
        "dedupe",
        "calibrate",
        "fuse",
        "select",
        "assemble",
    ]
    assert not context.degraded
    assert context.usage.calls == 3


@pytest.mark.case("R04")
async def test_provenance_reaches_the_caller():
    before = datetime.now(UTC)
    async with ContextRouter(ONE, providers={"docs": Legs({"text": hits("a b", [9.0, 5.0])})}) as router:
        context = await router.route("q")
    (p,) = context.envelopes[1].provenance
    assert (p.source, p.leg, p.query, p.rank, p.score) == ("docs", "text", "q", 2, 5.0)
    assert (p.normalized, p.weight, p.place) == (pytest.approx(5 / 9), 1.0, 2)
    assert p.retrieved_at is not None
    assert before <= p.retrieved_at <= datetime.now(UTC)


async def test_a_hanging_and_a_raising_source_half_a_second():
    settings = {"rag": {"timeout_seconds": 0.5}}
    sources = {"good": Fixed("a b"), "hang": Fixed("c", delay=60), "bad": Raising(RuntimeError("broken"))}
    async with ContextRouter(settings, connectors=sources) as router:
        started = monotonic()
        context = await router.route("what is a")
        assert monotonic() - started < 30
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert found(context) == ["a", "b"]
    assert context.degraded
    assert {r.source: r.status for r in context.coverage} == {"good": "ok", "hang": "timeout", "bad": "error"}


async def test_all_sources_failing_raises_with_the_reports():
    sources = {"hang": Fixed("c", delay=60), "bad": Raising(RuntimeError("broken"))}
    async with ContextRouter(ONE, connectors=sources) as router:
        with pytest.raises(AllSourcesFailed) as caught:
            await router.route("q", deadline=0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [(r.source, r.status) for r in caught.value.reports] == [("hang", "timeout"), ("bad", "error")]
    assert "broken" in str(caught.value)


async def test_empty_is_not_failed_and_only_facts_is_an_answer():
    async with ContextRouter(ONE, connectors={"none": Fixed([])}) as router:
        assert (await router.route("q")).outcome == "empty"
    facts = {"g": Facts([Fact(subject="s", predicate="p", object="o")])}
    async with ContextRouter(ONE, connectors={"bad": Raising(RuntimeError("x"))}, facts=facts) as router:
        context = await router.route("q")
    assert (context.outcome, context.degraded) == ("facts_only", True)
    assert context.text == "### Facts\n- s — p — o"


async def test_nothing_in_scope_is_an_answer():
    async with ContextRouter(
        {"connectors": {"a": {"compartment": "hr"}}}, connectors={"a": Fixed("x")}
    ) as router:
        context = await router.route("q", scope=Scope())
    assert (context.outcome, context.envelopes) == ("empty", ())
    assert [(r.status, r.error) for r in context.coverage] == [("skipped", "outside the caller's scope")]


async def test_thirty_sources_of_a_thousand_hits_and_three_queries():
    def source(index: int) -> Fixed:
        made = [Hit(document=Document(id=f"{index}-{i}", content=f"{index}-{i}")) for i in range(999)]
        return Fixed([*made[:index], Hit(document=Document(id="shared", content="shared")), *made[index:]])

    settings = {"rag": {"candidates": 1000, "calibrate": False}}
    async with ContextRouter(settings, connectors={f"s{i:02}": source(i) for i in range(30)}) as router:
        context = await router.route("What is shared by all of them, and why?")
    assert found(context)[0] == "shared"
    assert context.envelopes[0].score == pytest.approx(sum(1 / (61 + i) for i in range(30)))
    assert len({p.source for p in context.envelopes[0].provenance}) == 30
    dedupe = next(step for step in context.trace.steps if step.name == "dedupe")
    assert dedupe.live == 30 * 999 + 1
    assert len(context.envelopes) + len(context.trace.dropped) == dedupe.live


@pytest.mark.case("B04")
async def test_nothing_disappears_the_trace_says_where_each_document_was_lost():
    settings = {"rag": {"general_retrieval_final_count": 2, "max_retrieval_queries": 1}}
    async with ContextRouter(settings, connectors={"a": Fixed("x y z")}) as router:
        context = await router.route("q")
    select = next(step for step in context.trace.steps if step.name == "select")
    assert select.dropped == {"selection: not among the best 2": (doc("z").fingerprint,)}
    assert [e.document.id for e in context.trace.dropped] == ["z"]


async def test_intent_that_needs_no_search():
    class Greets(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            return intent.replace(should_search=False)

    source = Fixed("a")
    async with ContextRouter(connectors={"a": source}, interpreters={"greets": Greets()}) as router:
        context = await router.route("hello")
    assert (context.outcome, source.queries, context.answerability.level) == ("not_searched", [], "skipped")


async def test_a_failed_interpreter_degrades_the_answer():
    class Fails(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            raise RuntimeError("no model")

    async with ContextRouter(connectors={"a": Fixed("a")}, interpreters={"f": Fails()}) as router:
        context = await router.route("hello")
    assert context.degraded
    assert context.trace.steps[0].note == "failed: f: RuntimeError: no model"


async def test_an_interpreter_that_hangs_leaves_the_sources_their_share_of_the_time():
    class Hangs(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            await asyncio.sleep(60)
            raise AssertionError("nobody waits for it")

    async with ContextRouter(connectors={"a": Fixed("a")}, interpreters={"h": Hangs()}) as router:
        context = await router.route("hello", deadline=0.4)
    assert (found(context), context.trace.steps[0].note) == (["a"], "failed: h: timed out")


@pytest.mark.case("M17")
async def test_a_route_that_finds_nothing_falls_back():
    settings = {
        "routes": {
            "narrow": {"sources": ["none"], "fallback": "wide"},
            "wide": {"sources": ["some"], "fallback": "narrow"},
        }
    }
    async with ContextRouter(settings, connectors={"none": Fixed([]), "some": Fixed("a")}) as router:
        context = await router.route(Request(question="q", mode="narrow"))
        assert (found(context), context.trace.plan.route) == (["a"], "wide")
    settings["routes"]["wide"]["sources"] = ["none"]
    async with ContextRouter(settings, connectors={"none": Fixed([]), "some": Fixed("a")}) as router:
        assert (await router.route(Request(question="q", mode="narrow"))).outcome == "empty"


@pytest.mark.case("M32")
async def test_plan_asks_nobody():
    source = Fixed("a")
    async with ContextRouter(connectors={"a": source}) as router:
        plan = await router.plan("q", sources=["a"])
    assert isinstance(plan, Plan)
    assert ([c.source for c in plan.calls], source.queries) == (["a"], [])


async def test_stream_yields_reports_as_they_come_then_the_context():
    async with ContextRouter(ONE, connectors={"slow": Fixed("a", delay=0.05), "fast": Fixed("b")}) as router:
        items = [item async for item in router.stream("q")]
    assert [item.source for item in items[:-1] if isinstance(item, SourceReport)] == ["fast", "slow"]
    assert isinstance(items[-1], Context)


async def test_a_stream_that_is_left_leaves_nothing_running():
    async with ContextRouter(ONE, connectors={"slow": Fixed("a", delay=10), "fast": Fixed("b")}) as router:
        stream = router.stream("q")
        assert (await anext(stream)).source == "fast"
        await stream.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.case("R15")
async def test_an_equal_question_is_answered_from_the_cache():
    source = Fixed("a")
    async with ContextRouter(ONE, connectors={"a": source}) as router:
        first = await router.route("q")
        second = await router.route("q")
        other = await router.route("q", scope=Scope())
    assert (first.cached, second.cached, other.cached) == (False, True, False)
    assert [second.text, second.envelopes, second.coverage] == [first.text, first.envelopes, first.coverage]
    assert len(source.queries) == 2


async def test_the_cache_can_be_off_and_does_not_keep_degraded_results():
    source = Fixed("a")
    async with ContextRouter({"rag": {"cache_enabled": False}}, connectors={"a": source}) as router:
        await router.route("q")
        assert not (await router.route("q")).cached
    async with ContextRouter(ONE, connectors={"a": source, "bad": Raising(RuntimeError("x"))}) as router:
        await router.route("q")
        assert not (await router.route("q")).cached


async def test_a_source_s_new_version_makes_the_answer_new():
    class Versioned(Fixed):
        current = "1"

        async def version(self) -> str:
            return self.current

    source = Versioned("a")
    async with ContextRouter({"cache": {"version_seconds": 0}}, connectors={"a": source}) as router:
        await router.route("q")
        assert (await router.route("q")).cached
        source.current = "2"
        assert not (await router.route("q")).cached


async def test_equal_questions_at_once_are_one_computation():
    source = Fixed("a", delay=0.05)
    async with ContextRouter(ONE, connectors={"a": source}) as router, asyncio.TaskGroup() as group:
        tasks = [group.create_task(router.route("q")) for _ in range(100)]
    assert len(source.queries) == 1
    assert sum(not task.result().cached for task in tasks) == 1


@pytest.mark.parametrize("question", ["", "  "])
async def test_a_blank_question_asks_nobody(question: str):
    source = Fixed("a")
    async with ContextRouter(connectors={"a": source}) as router:
        with pytest.raises(RequestRefused):
            await router.route(question)
    assert source.queries == []


async def test_a_deadline_must_lie_ahead():
    async with ContextRouter(connectors={"a": Fixed("a")}) as router:
        with pytest.raises(RequestRefused, match="deadline"):
            await router.route("q", deadline=0)


class Opens(Fixed):
    """Counts; fails to open as often as told."""

    def __init__(self, fails: int = 0, error: Exception | None = None) -> None:
        super().__init__("a")
        self.fails, self.error, self.log = fails, error or SourceError("database is down"), []

    async def open(self) -> None:
        self.log.append("open")
        if self.fails:
            self.fails -= 1
            raise self.error

    async def aclose(self) -> None:
        self.log.append("close")


async def test_lifecycle_everything_is_opened_and_closed_twice_is_fine_and_open_works_again():
    source = Opens()
    router = ContextRouter(connectors={"a": source})
    async with router:
        await router.route("q")
    await router.aclose()
    async with router:
        await router.route("q")
    assert source.log == ["open", "close", "open", "close"]


async def test_the_first_request_opens_a_router_that_is_not_open():
    router = ContextRouter(connectors={"a": Fixed("a")})
    assert found(await router.route("q")) == ["a"]
    await router.aclose()


async def test_a_source_that_cannot_be_opened_does_not_stop_the_start():
    """It is tried again."""
    source = Opens(fails=2)
    async with ContextRouter(ONE, connectors={"a": source, "b": Fixed("b")}) as router:
        first = await router.route("q")
        second = await router.route("q")
    assert {r.source: r.status for r in first.coverage} == {"a": "error", "b": "ok"}
    assert "database is down" in next(r.error for r in first.coverage if r.source == "a")
    assert {r.source: r.status for r in second.coverage} == {"a": "ok", "b": "ok"}


async def test_a_missing_package_stops_the_start_and_what_was_opened_is_closed():
    good = Opens()
    bad = Opens(fails=1, error=MissingDependency("numpy", "sqlite"))
    with pytest.raises(MissingDependency, match="sqlite"):
        async with ContextRouter(connectors={"a": good, "b": bad}):
            pass
    assert good.log == ["open", "close"]


@pytest.mark.case("ASY-14", "ASY-15", "ASY-16")
def test_one_loop_owns_a_router_and_another_may_follow():
    router = ContextRouter(connectors={"a": Fixed("a")})

    async def once() -> list[str]:
        async with router:
            return found(await router.route("q"))

    assert asyncio.run(once()) == asyncio.run(once()) == ["a"]

    async def in_two_loops() -> None:
        async with router:

            def other() -> None:
                asyncio.run(router.route("q"))

            with pytest.raises(ContextRouterError, match="another event loop"):
                await asyncio.to_thread(other)

    asyncio.run(in_two_loops())


def test_legs_a_source_does_not_have_stop_the_start():
    with pytest.raises(SettingsError, match=r"'vector' is no leg of this source. Its legs: default"):
        ContextRouter({"connectors": {"a": {"legs": ["vector"]}}}, connectors={"a": Fixed("a")})


def test_an_embedder_of_a_store_that_is_not_defined_stops_the_start(tmp_path: Path):
    store = {"use": "sqlite", "path": str(tmp_path / "store.db"), "embedder": "nope"}
    with pytest.raises(SettingsError, match="'nope' is no defined embedder") as found:
        ContextRouter({"providers": {"library": store}, "embedders": {"static": {"use": "static"}}})
    assert [problem.key for problem in found.value.problems] == ["providers.library.embedder"]


def test_weights_that_are_all_0_stop_the_start():
    with pytest.raises(SettingsError, match="weight of every source is 0"):
        ContextRouter({"connectors": {"a": {"weight": 0.0}}}, connectors={"a": Fixed("a")})


async def test_the_embedder_s_profile_sets_the_weights_of_its_legs():
    """Scores: t has 1, and 0.9 of what the vector leg gave v, which weighs 0.5. Ranks: 1/61 and 0.25/61."""

    class Weak(Ones):
        score_weights: ClassVar = {"vector": 0.5}
        leg_weights: ClassVar = {"vector": 0.25}

    docs = Legs({"vector": hits("v"), "text": hits("t")}, embedder="e")
    for mode, t, v in (("scores", 1.45, 0.5), ("rrf", 1 / 61, 0.25 / 61)):
        settings = {"rag": {**ONE["rag"], "hybrid_fusion": mode}}
        async with ContextRouter(settings, providers={"docs": docs}, embedders={"e": Weak()}) as router:
            context = await router.route("q")
        scores = {e.document.id: e.score for e in context.envelopes}
        assert scores == {"t": pytest.approx(t), "v": pytest.approx(v)}


@pytest.mark.case("M08")
async def test_documents_outside_the_period_are_kept_out():
    class Dated(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            return intent.replace(period=Period(start=datetime(2026, 1, 1, tzinfo=UTC)))

    old = Hit(document=Document(id="old", content="o", updated_at=datetime(2025, 1, 1, tzinfo=UTC)))
    new = Hit(document=Document(id="new", content="n", updated_at=datetime(2026, 5, 1, tzinfo=UTC)))
    async with ContextRouter(
        {"rag": {"interpreters": ["d"], "period_boost": 0}},
        connectors={"a": Fixed([old, new], careless=True)},
        interpreters={"d": Dated()},
    ) as router:
        assert found(await router.route("q")) == ["new"]


_SEED = """
import asyncio
from contextrouter import ContextRouter
from contextrouter.testing import Fixed
async def main():
    async with ContextRouter(connectors={n: Fixed("a b c d e f " + n) for n in "xyz"}) as router:
        context = await router.route("What books talk about machine learning and rank fusion?")
    print([e.id[:8] for e in context.envelopes], context.text)
asyncio.run(main())
"""


def test_the_answer_does_not_depend_on_the_hash_seed():
    outputs = set()
    for seed in ("0", "1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."}
        outputs.add(
            subprocess.run(
                [sys.executable, "-c", _SEED], env=env, capture_output=True, text=True, check=True
            ).stdout
        )
    assert len(outputs) == 1


async def test_the_answer_does_not_depend_on_who_is_faster():
    async def ask(*delays: float) -> Context:
        sources = {n: Fixed("a b c " + n, delay=d) for n, d in zip("xyz", delays, strict=True)}
        async with ContextRouter(connectors=sources) as router:
            return await router.route("What books talk about machine learning?")

    one, other = await ask(0.0, 0.02, 0.04), await ask(0.04, 0.0, 0.02)
    assert one.text == other.text
    assert [(e.id, e.score) for e in one.envelopes] == [(e.id, e.score) for e in other.envelopes]
