"""The plan: a value that says which calls are made, and of everything that is not asked, why."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import ContextRouter, Fact, Intent, Plan, Request, RequestRefused, Scope
from contextrouter.pipeline.planning import make_plan
from contextrouter.settings import Settings
from contextrouter.testing import Facts, Fixed, Legs, hits

LEGS = {"vector": hits("a"), "text": hits("b"), "keywords": hits("c")}


def plan(settings: dict | None = None, intent: Intent | None = None, **request: object) -> Plan:
    router = ContextRouter(
        settings or {},
        providers={"docs": Legs(LEGS), "old": Legs({"text": hits("z")})},
        connectors={"web": Fixed()},
        facts={"graph": Facts([])},
    )
    asked = intent or Intent(question="q", queries=("q", "r", "s"))
    return make_plan(
        asked, Request(question=asked.question, **request), router.settings, router.instances.sources
    )


def calls(made: Plan) -> list[str]:
    return [f"{call.source}/{call.query.leg}/{call.query.text}" for call in made.calls]


def test_every_enabled_source_is_asked_once_per_leg_and_query_and_facts_once():
    made = plan()
    assert calls(made) == [
        *[f"docs/{leg}/{q}" for leg in ("vector", "text", "keywords") for q in "qrs"],
        *[f"old/text/{q}" for q in "qrs"],
        *[f"web/default/{q}" for q in "qrs"],
        "graph/facts/q",
    ]
    assert made.excluded == {}
    assert {call.query.limit for call in made.calls} == {30, 50}


@pytest.mark.parametrize(
    ("settings", "gone", "why"),
    [
        ({"rag": {"provider": "docs"}}, "old", "not named in [rag] provider"),
        ({"rag": {"enable_fts": False}}, "docs/text", "enable_fts is false"),
        ({"rag": {"graph_facts_enabled": False}}, "graph/facts", "graph_facts_enabled is false"),
        ({"rag": {"max_graph_facts": 0}}, "graph/facts", "max_graph_facts is 0"),
        ({"providers": {"docs": {"legs": ["text"]}}}, "docs/vector", "not among the source's legs"),
        ({"routes": {"default": {"sources": ["web"]}}}, "docs", "not on route 'default'"),
        ({"routes": {"default": {"legs": ["default"]}}}, "docs/text", "not among the route's legs"),
    ],
)
def test_settings_narrow_the_plan_and_the_plan_says_why(settings: dict, gone: str, why: str):
    made = plan(settings)
    assert why in made.excluded[gone]
    assert not any(name.startswith(f"{gone}/") for name in calls(made))


@pytest.mark.case("R14")
def test_provider_takes_one_name_or_a_list():
    assert {call.source for call in plan({"rag": {"provider": ["docs", "old"]}}).calls} == {
        "docs",
        "old",
        "web",
        "graph",
    }
    assert {call.source for call in plan({"rag": {"provider": "old"}}).calls} == {"old", "web", "graph"}


def test_a_disabled_source_is_not_there():
    assert "web" not in {call.source for call in plan({"connectors": {"web": {"enabled": False}}}).calls}


def test_sources_limit_queries_weights_and_timeouts_of_their_own():
    settings = {"connectors": {"web": {"queries": 1, "limit": 4, "weight": 0.5, "timeout": 2.0}}}
    (call,) = [call for call in plan(settings).calls if call.source == "web"]
    assert (call.query.text, call.query.limit, call.weight, call.timeout) == ("q", 4, 0.5, 2.0)


def test_max_retrieval_queries_caps_the_queries_of_every_source():
    assert len([c for c in plan({"rag": {"max_retrieval_queries": 1}}).calls if c.source == "docs"]) == 3


def test_the_request_chooses_sources_and_legs():
    assert calls(plan(sources=("web",))) == ["web/default/q", "web/default/r", "web/default/s"]
    assert plan(sources=("web",)).excluded["docs"] == "not among the sources asked for"
    assert {c.query.leg for c in plan(legs=("text",)).calls} == {"text"}
    assert plan(legs=("text",)).excluded["graph/facts"] == "not among the legs asked for"
    assert {c.query.leg for c in plan(legs=("text", "facts")).calls} == {"text", "facts"}
    assert calls(plan(legs=("facts",))) == ["graph/facts/q"]
    with pytest.raises(
        RequestRefused, match=r"Source 'wbe' is not defined\. Defined sources: docs, old, web, graph"
    ):
        plan(sources=("wbe",))


def test_should_search_false_asks_nothing():
    made = plan(intent=Intent(question="hi", queries=("hi",), should_search=False))
    assert made.calls == ()
    assert set(made.excluded.values()) == {"the question needs no search"}


def test_a_source_outside_the_scope_is_not_asked():
    settings = {
        "connectors": {"web": {"compartment": "hr"}},
        "providers": {"docs": {"sensitivity": "internal"}, "old": {"tenant": "acme"}},
    }
    asked = {call.source for call in plan(settings, scope=Scope()).calls}
    assert asked == {"graph"}
    wide = Scope(tenant="acme", compartments={"hr"}, ceiling="internal")
    assert {call.source for call in plan(settings, scope=wide).calls} == {"docs", "old", "web", "graph"}


def test_the_request_s_scope_kinds_and_filters_are_pushed_down():
    made = plan(scope=Scope(tenant="t"), kinds=("book",), filters={"year": 2020})
    assert all(call.query.scope == Scope(tenant="t") for call in made.calls)
    assert made.calls[0].query.filters == {"year": 2020, "kind": ["book"]}


def test_facets_and_entities_are_asked_only_where_wanted():
    class WithFacets(Legs):
        async def facets(self, query: object, dimensions: object) -> list:
            return []

    class WithEntities(Facts):
        async def entities(self, query: object) -> list:
            return []

    router = ContextRouter(
        providers={"p": WithFacets({"text": []})},
        facts={"g": WithEntities([Fact(subject="a", predicate="b", object="c")])},
    )
    plain = make_plan(
        Intent(question="q", queries=("q",)), Request(question="q"), router.settings, router.instances.sources
    )
    assert {c.query.leg for c in plain.calls} == {"text", "facts"}
    wanted = Intent(question="q", queries=("q",), facets=("topic",), lookup="attribute")
    full = make_plan(wanted, Request(question="q"), router.settings, router.instances.sources)
    assert {c.query.leg for c in full.calls} == {"text", "facts", "facets", "entities"}


@given(
    st.lists(st.sampled_from(["docs", "old", "web", "graph"]), unique=True),
    st.lists(st.sampled_from(["vector", "text", "default"]), unique=True),
)
def test_every_source_is_either_called_or_excluded_with_a_reason(sources: list[str], legs: list[str]):
    made = plan(sources=tuple(sources), legs=tuple(legs))
    called = {call.source for call in made.calls}
    excused = {name.split("/")[0] for name in made.excluded}
    assert called | excused == {"docs", "old", "web", "graph"}
    assert all(made.excluded.values())


_requests = st.builds(
    dict,
    sources=st.sampled_from([None, ("docs",), ("docs", "web")]),
    legs=st.sampled_from([None, ("text",)]),
    scope=st.sampled_from(
        [None, Scope(tenant="a"), Scope(tenant="b"), Scope(tenant="b", ceiling="restricted")]
    ),
    kinds=st.sampled_from([None, ("book",)]),
    filters=st.sampled_from([{}, {"language": "en"}]),
)
_intents = st.builds(
    Intent,
    question=st.just("q"),
    queries=st.sampled_from([("q",), ("q", "r"), ("q", "r", "s")]),
    kind=st.sampled_from(["default", "near"]),
    facets=st.sampled_from([(), ("kind",)]),
    lookup=st.sampled_from([None, "born"]),
    should_search=st.booleans(),
    concepts=st.sampled_from([(), ("c",)]),
)


@cache
def _router() -> ContextRouter:
    settings = {"routes": {"near": {"sources": ["docs"]}}, "connectors": {"web": {"tenant": "a"}}}
    return ContextRouter(
        settings, providers={"docs": Legs(LEGS)}, connectors={"web": Fixed()}, facts={"graph": Facts([])}
    )


@pytest.mark.parametrize("legs", [["one", "two"], ("one", "two")])
def test_a_source_that_learns_of_a_leg_is_asked_on_it(legs: list[str] | tuple[str, ...]):
    source = Legs({"one": hits("a")})
    source.legs = ["one"]
    router = ContextRouter({}, providers={"s": source})

    def again() -> list[str]:
        return calls(make_plan(*asked, router.settings, router.instances.sources))

    asked = Intent(question="q", queries=("q",)), Request(question="q")
    assert again() == ["s/one/q"]
    if isinstance(legs, list):
        source.legs.append("two")
    else:
        source.legs = legs
    assert again() == ["s/one/q", "s/two/q"]


def test_a_scope_of_odd_values_is_planned_for_all_the_same():
    assert plan(scope=Scope(tenant=["a"])).calls  # type: ignore[arg-type]  # a wrong type on purpose


def test_sources_without_a_table_are_asked_with_the_default_keys():
    """Settings that name no source hide none: whoever calls the step by hand gets every call."""
    sources = {"docs": Legs({"text": hits("a")}), "web": Fixed(), "graph": Facts([])}
    intent = Intent(question="q", queries=("q", "r"))
    made = make_plan(intent, Request(question="q"), Settings(), sources)
    assert calls(made) == ["docs/text/q", "docs/text/r", "web/default/q", "web/default/r", "graph/facts/q"]
    assert made.excluded == {}
