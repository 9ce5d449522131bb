"""Facts on their way into the answer: fair to every source, stamped by the router, and lost in nobody's
silence.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contextrouter import ContextRouter, Envelope, Fact, Plan, SettingsError, Stage, StageContext
from contextrouter.builtin.stages.gate import Gate
from contextrouter.pipeline.deduplication import distinct_facts
from contextrouter.pipeline.run import GATED
from contextrouter.testing import Facts, Fixed

ONE = {"rag": {"token_budget": 0, "max_graph_facts": 3}}


def fact(name: str, source: str = "") -> Fact:
    return Fact(subject=name, predicate="is", object="x", source=source)


def test_sources_take_turns_in_their_own_order_and_a_fact_comes_once() -> None:
    a = [fact(name, "a") for name in ("a1", "both", "a2", "a3")]
    b = [fact(name, "b") for name in ("both", "b1")]
    kept, beyond = distinct_facts([*a, *b], 4)
    assert [(each.subject, each.source) for each in kept] == [
        ("a1", "a"),
        ("both", "b"),
        ("b1", "b"),
        ("a2", "a"),
    ]
    assert [each.subject for each in beyond] == ["a3"]
    assert distinct_facts([], 4) == ([], [])


async def test_no_source_takes_all_places_and_the_trace_has_what_found_none() -> None:
    many = {name: Facts([fact(f"{name}{n}") for n in range(3)]) for name in ("a", "b")}
    async with ContextRouter(ONE, connectors={"s": Fixed("x")}, facts=many) as router:
        context = await router.route("q")
    assert [each.subject for each in context.facts] == ["a0", "b0", "a1"]
    (step,) = [step for step in context.trace.steps if step.lost_facts]
    assert (step.name, [each.subject for each in step.lost_facts]) == ("facts", ["b1", "a2", "b2"])
    assert step.note == "3 facts beyond max_graph_facts"


async def test_facts_beyond_the_token_budget_are_in_the_trace() -> None:
    graph = Facts([fact("first"), Fact(subject="second", predicate="is", object="word " * 200)])
    async with ContextRouter(
        {"rag": {"token_budget": 60}}, connectors={"s": Fixed("x")}, facts={"g": graph}
    ) as router:
        context = await router.route("q")
    (step,) = [step for step in context.trace.steps if step.lost_facts]
    assert [each.subject for each in context.facts] == ["first"]
    assert (step.name, [each.subject for each in step.lost_facts]) == ("assemble", ["second"])
    assert "1 facts were beyond the token budget" in step.note


async def test_no_plugin_says_from_which_source_its_facts_are() -> None:
    async with ContextRouter(ONE, facts={"rumour": Facts([fact("a", "encyclopaedia")])}) as router:
        assert [each.source for each in (await router.route("q")).facts] == ["rumour"]


@pytest.mark.parametrize(
    "key", ["weight = 2.0", 'legs = ["text"]', "queries = 2", 'kind = "book"', 'trust = "volatile"']
)
def test_keys_that_mean_nothing_for_facts_are_refused(key: str, tmp_path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'[facts.graph]\nuse = "sqlite"\npath = "x.db"\n{key}\n')
    with pytest.raises(SettingsError, match=rf"settings.toml:4: .*{key.split()[0]}.*unknown key"):
        ContextRouter.from_toml(path)


async def test_keys_that_mean_something_for_facts_change_the_answer() -> None:
    def router(**keys: object) -> ContextRouter:
        graph = Facts([fact(f"a{n}") for n in range(3)])
        return ContextRouter({**ONE, "facts": {"g": keys}}, connectors={"s": Fixed("x")}, facts={"g": graph})

    async with router(limit=2) as two:
        assert len((await two.route("q")).facts) == 2
    async with router(timeout=1.5) as timed:
        made: Plan = await timed.plan("q")
        assert [call.timeout for call in made.calls if call.source == "g"] == [1.5]
    async with router(compartment="hr") as labelled:
        assert {each.compartment for each in (await labelled.route("q")).facts} == {"hr"}


async def test_legs_of_a_route_apply_to_facts_too() -> None:
    settings = {**ONE, "routes": {"default": {"legs": ["default"]}}}
    async with ContextRouter(
        settings, connectors={"s": Fixed("x")}, facts={"g": Facts([fact("a")])}
    ) as router:
        context = await router.route("q")
        assert context.facts == ()
        assert context.trace.plan.excluded == {"g/facts": "not among the route's legs"}


@pytest.mark.case("K11", "K12")
async def test_behind_a_gate_there_is_no_context_and_the_outcome_says_so() -> None:
    """The trace has every document."""
    settings = {"rag": {"stages": ["gate"]}, "chat": {"no_context_text": "Not near enough."}}
    graph = Facts([fact("a")])
    async with ContextRouter(
        settings, connectors={"s": Fixed("x y")}, facts={"g": graph}, stages={"gate": Gate()}
    ) as router:
        context = await router.route("q")
    assert context.outcome == "confidence_gated_fallback"
    assert (context.text, context.envelopes, context.facts, context.entities) == ("", (), (), ())
    assert [each.document.id for each in context.trace.dropped] == ["x", "y"]
    (step,) = [step for step in context.trace.steps if step.lost_facts]
    assert (step.name, [each.subject for each in step.lost_facts]) == ("gate", ["a"])


async def test_behind_a_gate_the_fallback_of_the_route_is_tried() -> None:
    settings = {
        "rag": {"stages": ["gate"]},
        "routes": {"default": {"fallback": "all"}, "all": {"stages": []}},
    }
    async with ContextRouter(settings, connectors={"s": Fixed("x")}, stages={"gate": Gate()}) as router:
        context = await router.route("q")
    assert (context.outcome, [each.document.id for each in context.envelopes]) == ("answered", ["x"])


class Policy(Stage):
    """A gate of a third party: it drops everything, with a reason of its own."""

    switch = ""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return [envelope.drop("policy: not good enough") for envelope in envelopes]


class StrictPolicy(Policy):
    withholds_facts = True


@pytest.mark.parametrize(
    ("stage", "outcome", "facts"), [(Policy(), "facts_only", 1), (StrictPolicy(), GATED, 0)]
)
async def test_a_third_party_stage_withholds_facts_by_its_field(stage: Stage, outcome: str, facts: int):
    graph = Facts([Fact(subject="Ada", predicate="knows", object="Bob")])
    async with ContextRouter(
        {}, connectors={"s": Fixed("a")}, facts={"graph": graph}, stages={"policy": stage}
    ) as router:
        context = await router.route("Ada")
    assert (context.outcome, len(context.facts)) == (outcome, facts)
    step = next(step for step in context.trace.steps if step.name == "policy")
    assert step.gated == (outcome == GATED)
    assert not step.failed


async def test_degraded_goes_by_the_field_failed_not_by_the_words_of_a_note():
    class Fails(Policy):
        async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
            raise RuntimeError("broken")

    async with ContextRouter({}, connectors={"s": Fixed("a")}, stages={"x": Fails()}) as router:
        context = await router.route("Ada")
    assert context.degraded
    steps = tuple(step.replace(note="translated") for step in context.trace.steps)
    assert context.replace(trace=context.trace.replace(steps=steps)).degraded
    assert not context.replace(
        trace=context.trace.replace(steps=tuple(step.replace(failed=False) for step in steps))
    ).degraded
