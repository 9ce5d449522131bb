"""The preset `memory`: reading a question, and the six routes that it may take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.model_server import ModelServer
from support.presets import Plane, fill, ids, ingest, piece, system

from contextrouter import Context, Fact, Period
from contextrouter.contracts import Entry

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
NO_LABELS = '[rag]\ninterpreters = ["periods", "names", "understand"]\n'


def day(number: int, month: int = 3) -> datetime:
    return datetime(2026, month, number, 12, tzinfo=UTC)


def fact(text: str, **fields: Any) -> Fact:
    subject, predicate, end = text.split(" | ")
    return Fact(subject=subject, predicate=predicate, object=end, **fields)


FAMILY = (
    fact("Anna | birthday | 17 March"),
    fact("Anna | is | wife of the user"),
    fact("Anna | mother_of | Ben"),
    fact("Clara | works_with | Anna"),
    fact("Bob | likes | jazz"),
)


async def answer(
    folder: Path,
    entries: Sequence[Entry],
    toml: str = "",
    question: str = "What about tides?",
    **request: Any,
) -> Context:
    plane = {"default": Plane(elsewhere=0.0)}
    router = system(folder, "memory", toml or NO_LABELS, clock=lambda: NOW, embedders=plane)
    await fill(router, "memories", *entries)
    async with router:
        return await router.route(question, **request)


def reading(server: ModelServer, interpreters: str = NO_LABELS) -> str:
    """Settings with a language model that reads the question."""
    return (
        f"{interpreters}[interpreters.understand]\nenabled = true\nanswer_seconds = 15.0\n"
        f'[generators.writer]\nuse = "openai"\nmodel = "m"\nbase_url = "{server.url}"\n'
    )


async def understood(
    folder: Path, said: Any, question: str = "What about tides?", play: str = "plain", **request: Any
):
    """The answer to a question of which the model says `said`, and what the model was sent."""
    async with ModelServer(said, play) as server:
        entries = [piece("a", "tides", labels=("work",), updated_at=day(27), facts=FAMILY)]
        context = await answer(folder, entries, reading(server), question, **request)
        return context, server.requests


LABELLED = """
[interpreters.labels]
threshold = 0.7
[interpreters.labels.labels]
near = { description = "at 0.71" }
far = { description = "at 0.69" }
"""


@pytest.mark.case("M01")
@pytest.mark.without(interpreters__labels__limit=7)
async def test_labels_are_matched_by_meaning_from_the_threshold_on_at_most_eight(tmp_path: Path):
    entries = [piece("a", labels=("near", "far", *(f"label{n}" for n in range(9))))]
    toml = '[rag]\ninterpreters = ["labels"]\n' + LABELLED
    few = await answer(tmp_path / "few", entries, toml)
    assert few.intent.labels == ("near",)
    many = "".join(f'label{n} = {{ description = "at 0.9{n}" }}\n' for n in range(9))
    context = await answer(tmp_path / "many", entries, toml + many)
    assert context.intent.labels == tuple(f"label{n}" for n in range(8, 0, -1))


@pytest.mark.case("M02")
@pytest.mark.without(interpreters__understand__fill=["kind"])
async def test_a_model_keeps_labels_that_were_matched_and_gives_no_other(tmp_path: Path):
    labels = "".join(f'{name} = {{ description = "at 0.9" }}\n' for name in ("work", "family"))
    entries = [piece("a", labels=("work", "family", "secret"))]
    async with ModelServer({"labels": ["work", "secret"], "confidence": 1.0}) as server:
        toml = reading(server, '[rag]\ninterpreters = ["labels", "understand"]\n')
        toml += f"[interpreters.labels]\nthreshold = 0.8\n[interpreters.labels.labels]\n{labels}"
        context = await answer(tmp_path, entries, toml)
    assert context.intent.labels == ("work",)


@pytest.mark.case("M03")
@pytest.mark.without(routes__relationship__description="")
async def test_the_kind_is_one_of_six_routes(tmp_path: Path):
    context, requests = await understood(tmp_path, {"kind": "temporal", "confidence": 1.0})
    shape = requests[0]["response_format"]["json_schema"]["schema"]["properties"]["kind"]
    assert shape["anyOf"][0]["enum"] == [
        "aspect_query",
        "entity_lookup",
        "entity_attribute",
        "temporal",
        "temporal_facets",
        "exploratory",
        "relationship",
    ]
    assert (context.intent.kind, context.trace.plan.route) == ("temporal", "temporal")
    other, _ = await understood(tmp_path, {"kind": "admin", "confidence": 1.0})
    assert other.intent.kind == "default"


@pytest.mark.case("M04")
@pytest.mark.without(interpreters__understand__facets=["labels"])
async def test_period_filters_facets_attribute_and_people_come_from_closed_sets(tmp_path: Path):
    said = {
        "kind": "aspect_query",
        "period": {"start": "2026-03-01", "end": "2026-03-31"},
        "filters": {"aspect": ["view", "secret"], "tenant": "globex"},
        "facets": ["aspect", "password"],
        "entities": ["Anna", "Zoe"],
        "attribute": "birthday",
        "confidence": 0.9,
    }
    context, _ = await understood(tmp_path, said, "What does Anna think about tides?")
    intent = context.intent
    assert intent.period == Period(start=date(2026, 3, 1), end=date(2026, 3, 31))
    assert (dict(intent.filters), intent.facets) == ({"aspect": "view"}, ("aspect",))
    assert (intent.entities, intent.attribute, intent.confidence) == (("Anna",), "birthday", 0.9)


@pytest.mark.case("M05")
@pytest.mark.without(rag__least_confidence=0.1)
async def test_no_need_of_a_search_and_a_confidence_below_a_fifth_ask_nothing(tmp_path: Path):
    for said, outcome in (
        ({"should_search": False, "confidence": 1.0}, "not_searched"),
        ({"confidence": 0.19}, "not_searched"),
        ({"confidence": 0.2}, "answered"),
    ):
        context, _ = await understood(tmp_path, said)
        assert (context.outcome, len(context.envelopes)) == (outcome, int(outcome == "answered"))


@pytest.mark.case("M20")
@pytest.mark.without(interpreters__understand__otherwise={"kind": "temporal"})
async def test_a_model_that_fails_leaves_broad_recall_with_a_confidence_of_three_tenths(tmp_path: Path):
    async with ModelServer({}, "refusal") as server:
        entries = [piece("a", "tides", kind="episode")]
        context = await answer(tmp_path, entries, reading(server))
    assert (context.intent.kind, context.intent.confidence) == ("exploratory", 0.3)
    assert (context.outcome, ids(context)) == ("answered", ["a"])


def legs(plan: Any) -> set[str]:
    return {call.query.leg for call in plan.calls}


@pytest.mark.case("M06")
@pytest.mark.without(routes__aspect_query__legs=["text", "vector"])
async def test_views_are_found_by_label_and_by_vector_only_where_no_label_matches(tmp_path: Path):
    entries = [
        piece("view", "no such word", keywords=("x",), labels=("work",), updated_at=day(20), cosine=0.3),
        piece("other", "no such word", keywords=("x",), labels=("home",), updated_at=day(20)),
        piece("old", "no such word", keywords=("x",), labels=("work",), updated_at=day(20, 2)),
    ]
    toml = (
        '[rag]\ninterpreters = ["periods", "labels"]\n[interpreters.labels]\nthreshold = 0.8\n'
        '[interpreters.labels.labels]\nwork = { description = "at 0.9" }\nhome = { description = "at 0.1" }\n'
    )
    question = "What did I think about tides in March?"
    context = await answer(tmp_path, entries, toml, question, mode="aspect_query")
    assert (ids(context), "vector" in legs(context.trace.plan)) == (["view"], False)
    none = await answer(tmp_path, entries, toml.replace("at 0.9", "at 0.2"), question, mode="aspect_query")
    assert (none.trace.plan.route, "vector" in legs(none.trace.plan)) == ("open", True)
    assert ids(none)[0] == "other"


@pytest.mark.case("M07")
@pytest.mark.without(routes__entity_attribute__legs=["entities", "facts"])
async def test_an_attribute_comes_alone_from_who_has_it_and_broad_brings_mentions(tmp_path: Path):
    said = {
        "kind": "entity_attribute",
        "entities": ["Anna", "Bob"],
        "attribute": "birthday",
        "confidence": 1.0,
    }
    context, _ = await understood(tmp_path, said, "When do Anna and Bob have their birthday?")
    assert [(e.name, e.attributes) for e in context.entities] == [("Anna", {"birthday": "17 March"})]
    assert (context.facts, context.envelopes) == ((), ())
    entries = [piece("named", "x", facts=FAMILY), piece("other", "x")]
    broad = await answer(tmp_path / "broad", entries, question="Who is Anna?", mode="entity_lookup")
    assert ids(broad) == ["named"]
    assert {seal.leg for seal in broad.envelopes[0].provenance} == {"mentions"}
    assert len(broad.facts) == 4


def march() -> list[Entry]:
    """An episode a day in March, the nearest last; none of them but those of `period` is near the question."""
    return [piece(f"d{n:02}", f"tides {n}", cosine=n / 40, updated_at=day(n)) for n in range(1, 29)]


@pytest.mark.case("M08")
@pytest.mark.without(rag__period_boost=0.6)
async def test_a_period_holds_in_every_leg_before_the_limit_and_its_days_are_inclusive(tmp_path: Path):
    toml = NO_LABELS + 'timezone = "Pacific/Auckland"\ncandidates = 3\n'
    edge = piece(
        "edge", "tides", cosine=0.1, updated_at=datetime(2026, 3, 4, 12, tzinfo=UTC)
    )  # the 5th, there
    question = "What about tides before 2026-03-04?"
    context = await answer(tmp_path, [*march(), edge], toml, question, mode="temporal")
    assert sorted(ids(context)) == ["d01", "d02"]  # noon of the 3rd is the 4th in Auckland
    assert {seal.leg for e in context.envelopes for seal in e.provenance} == {"vector", "text"}
    between = "What about tides from 2026-03-03 to 2026-03-05?"
    context = await answer(tmp_path, [*march(), edge], toml, between, mode="temporal")
    assert sorted(ids(context)) == ["d02", "d03", "d04", "edge"]


@pytest.mark.case("M09")
@pytest.mark.without(routes__temporal_facets__legs=["facets", "vector"])
async def test_counts_are_of_the_whole_time_before_any_limit_and_bring_no_episodes(tmp_path: Path):
    entries = [
        piece(f"d{n}", "x", labels=("work" if n % 2 else "home",), updated_at=day(25), facts=FAMILY[:1])
        for n in range(41)
    ]
    entries.append(piece("old", "x", labels=("old",), updated_at=day(1)))
    context = await answer(tmp_path, entries, NO_LABELS + "candidates = 3\n", mode="temporal_facets")
    counts = {(facet.dimension, facet.value): facet.count for facet in context.facets}
    assert (counts["labels", "home"], counts["labels", "work"]) == (21, 20)
    assert ("labels", "old") not in counts
    assert ("entity", "Anna") in counts
    assert context.envelopes == ()


@pytest.mark.case("M10")
@pytest.mark.without(routes__exploratory__kinds=["note"])
async def test_broad_recall_brings_sessions_episodes_and_what_is_known_of_a_name(tmp_path: Path):
    entries = [
        piece("s", "a summary", kind="session", cosine=0.9),
        piece("e", "an episode", kind="episode", cosine=0.8, facts=FAMILY),
        piece("n", "a note", kind="note", cosine=0.99),
    ]
    context = await answer(tmp_path, entries, question="What about Anna?", mode="exploratory")
    assert set(ids(context)) == {"s", "e"}
    found = {seal.leg for e in context.envelopes for seal in e.provenance}
    assert found == {"vector", "mentions"}
    assert fact("Anna | birthday | 17 March").object in {each.object for each in context.facts}


@pytest.mark.case("M11")
@pytest.mark.without(routes__relationship__legs=["facts"])
async def test_two_names_bring_the_statements_that_link_them_in_order(tmp_path: Path):
    entries = [piece("a", "x", facts=FAMILY)]
    question = "How are Clara and Ben connected?"
    context = await answer(tmp_path, entries, question=question, mode="relationship")
    assert [(each.subject, each.predicate, each.object) for each in context.facts] == [
        ("Clara", "works_with", "Anna"),
        ("Anna", "mother_of", "Ben"),
    ]
    one = await answer(tmp_path, entries, question="How is Clara?", mode="relationship")
    assert one.trace.plan.route == "entity_lookup"


@pytest.mark.case("M17")
@pytest.mark.without(routes__temporal__fallback="temporal_facets")
async def test_a_route_that_finds_nothing_leads_to_another(tmp_path: Path):
    old = piece("old", "tides", updated_at=day(1, 1))
    context = await answer(tmp_path, [old], mode="temporal")
    assert ids(context) == ["old"]
    assert "route 'temporal' found nothing: 'open' instead" in str(context.trace.steps)


@pytest.mark.case("M21")
@pytest.mark.without(routes__temporal__period_days=30)
async def test_last_week_and_no_time_at_all_are_the_seven_days_up_to_today(tmp_path: Path):
    week = Period(start=NOW.date() - timedelta(days=6), end=NOW.date())
    router = system(tmp_path, "memory", NO_LABELS, clock=lambda: NOW)
    for question in ("What happened?", "What happened last week?", "What happened recently?"):
        plan = await router.plan(question, mode="temporal")
        assert {call.query.period for call in plan.calls} == {week}, question
    await router.aclose()


@pytest.mark.case("M33")
@pytest.mark.without(providers__memories__entity_threshold=0.95)
async def test_wife_means_anna_in_scope_and_above_a_threshold(tmp_path: Path):
    await ingest(tmp_path, "memory")
    said = {"kind": "entity_attribute", "entities": ["wife"], "attribute": "birthday", "confidence": 1.0}
    async with ModelServer(said) as server:
        router = system(tmp_path, "memory", reading(server), embedders={})
        async with router:
            context = await router.route("When does my wife have her birthday?")
    assert [(e.name, e.attributes) for e in context.entities] == [("Anna", {"birthday": "17 March"})]
    assert '"wife" → Anna' in str(context.trace.steps)
