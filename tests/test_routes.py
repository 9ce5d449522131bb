"""Routes as data: what a kind of question needs, ignores and searches, and the fallback that it leads to."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from contextrouter import (
    Clarification,
    ContextRouter,
    Document,
    Entity,
    Facet,
    Fact,
    Hit,
    Intent,
    Period,
    Query,
    SettingsError,
)
from contextrouter.contracts import FactSource, Interpreter, InterpreterContext, Provider
from contextrouter.testing import Facts, Fixed, Legs

DAY = datetime(2026, 3, 5, 12, tzinfo=UTC)


class Infers(Interpreter):
    """An interpreter that infers the same of every question, and counts how often it is run."""

    def __init__(self, **fields: Any) -> None:
        self.fields, self.runs = fields, 0

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        self.runs += 1
        return intent.replace(**self.fields)


class Library(Provider):
    """Counts documents, and knows which of them name an entity."""

    legs = ("text",)

    def __init__(self) -> None:
        self.queries: list[Query] = []

    async def search(self, query: Query) -> list[Hit]:
        self.queries.append(query)
        return [Hit(document=Document(id="t", content="text"))]

    async def mentions(self, query: Query) -> list[Hit]:
        self.queries.append(query)
        return [Hit(document=Document(id="m", content=f"names {query.entities[0]}"))]

    async def facets(self, query: Query, dimensions: Any) -> list[Facet]:
        self.queries.append(query)
        return [Facet(dimension=name, value="x", count=2) for name in dimensions or ("labels",)]


class Graph(FactSource):
    """Knows a fact, an entity, and the way between two names."""

    async def facts(self, query: Query) -> list[Fact]:
        return [Fact(subject="Ada", predicate="knows", object="Bo")]

    async def entities(self, query: Query) -> list[Entity]:
        return [Entity(id="ada", name="Ada", attributes={query.attribute or "all": "36"})]

    async def path(self, start: str, goal: str, query: Query, *, hops: int = 4) -> list[Fact]:
        return [Fact(subject=start, predicate="knows", object=goal)]

    async def related(self, name: str, query: Query) -> list[Entity]:
        return []


def router(routes: dict[str, Any], *, rag: dict[str, Any] | None = None, **inferred: Any) -> ContextRouter:
    settings = {"rag": {"interpreters": ["infers"], **(rag or {})}, "routes": routes}
    return ContextRouter(
        settings,
        providers={"docs": Library()},
        facts={"graph": Graph()},
        interpreters={"infers": Infers(**inferred)},
        clock=lambda: DAY,
    )


def legs(plan: Any) -> set[str]:
    return {call.query.leg for call in plan.calls}


@pytest.mark.parametrize(
    ("needs", "inferred", "unmet"),
    [
        (["labels"], {}, "labels"),
        (["labels"], {"labels": ("x",)}, ""),
        (["period"], {}, "period"),
        (["period"], {"period": Period(start=date(2026, 1, 1))}, ""),
        (["entities:2"], {"entities": ("Ada",)}, "entities:2"),
        (["entities:2"], {"entities": ("Ada", "Bo")}, ""),
        (["entities", "attribute"], {"entities": ("Ada",)}, "attribute"),
    ],
)
async def test_a_route_whose_needs_are_unmet_leads_to_its_fallback(needs: Any, inferred: Any, unmet: str):
    routes = {"kind": {"needs": needs, "fallback": "open"}, "open": {"legs": ["text"]}}
    async with router(routes, kind="kind", **inferred) as made:
        context = await made.route("q?")
    assert context.trace.plan.route == ("open" if unmet else "kind")
    notes = " ".join(step.note for step in context.trace.steps)
    assert (f"'kind' needs {unmet}: 'open' instead" in notes) == bool(unmet)


async def test_what_the_caller_demands_meets_a_need():
    async with router({"kind": {"needs": ["labels", "period"], "fallback": "open"}, "open": {}}) as made:
        period = Period(start=date(2026, 1, 1))
        plan = await made.plan("q?", mode="kind", labels=["x"], period=period)
    assert plan.route == "kind"


@pytest.mark.parametrize("default", [{}, {"needs": ["period"], "fallback": "a"}])
async def test_needs_in_a_circle_end_at_the_default_route(default: dict[str, Any]):
    routes = {"a": {"needs": ["labels"], "fallback": "b"}, "b": {"needs": ["labels"], "fallback": "a"}}
    async with router({**routes, "default": default}, kind="a") as made:
        context = await made.route("q?")
    assert (context.trace.plan.route, context.outcome) == ("default", "answered")
    notes = " ".join(step.note for step in context.trace.steps)
    assert "'a' needs labels: 'b' instead; 'b' needs labels: 'default' instead" in notes


@pytest.mark.case("M07", "M09", "M11")
async def test_a_route_names_the_legs_that_answer_otherwise_than_with_hits():
    routes = {"kind": {"legs": ["mentions", "path", "entities", "facets", "facts"]}}
    async with router(routes, kind="kind", entities=("Ada", "Bo"), attribute="age") as made:
        context = await made.route("How old is Ada?")
    assert legs(context.trace.plan) == {"mentions", "path", "entities", "facets", "facts"}
    assert [envelope.document.id for envelope in context.envelopes] == ["m"]
    assert context.entities[0].attributes == {"age": "36"}
    assert {(fact.subject, fact.object) for fact in context.facts} == {("Ada", "Bo")}
    assert {facet.count for facet in context.facets} == {2}
    assert "### Entities" in context.text
    assert "### Counts" in context.text


async def test_a_request_names_such_legs_too_and_without_a_name_none_is_searched():
    async with router({}, entities=("Ada",)) as made:
        assert legs(await made.plan("q?")) == {"text", "facts"}
        assert legs(await made.plan("q?", legs=["mentions"])) == {"mentions"}
        plan = await made.plan("q?", legs=["path", "text"])
    assert plan.excluded["graph/path"] == "the question names fewer than two entities"


@pytest.mark.case("M31")
async def test_inferred_labels_and_filters_do_not_reach_exact_legs():
    by_leg = {leg: [Hit(document=Document(id=leg, content=leg, labels=("b",)))] for leg in ("text", "vector")}
    docs = Legs(by_leg)
    made = ContextRouter(
        {"rag": {"interpreters": ["infers"]}},
        providers={"docs": docs},
        interpreters={"infers": Infers(labels=("a",), filters={"year": 2026})},
    )
    async with made:
        context = await made.route("q?")
    seen = {query.leg: (query.labels, dict(query.filters)) for query in docs.queries}
    assert seen == {"text": ((), {}), "vector": (("a",), {"year": 2026})}
    assert [envelope.document.id for envelope in context.envelopes] == ["text"]
    async with ContextRouter(
        {"rag": {"interpreters": ["infers"], "exact_legs": []}, "routes": {"default": {}}},
        providers={"docs": Legs(by_leg)},
        interpreters={"infers": Infers(labels=("a",))},
    ) as strict:
        assert (await strict.route("q?")).outcome == "empty"


async def test_what_was_inferred_never_widens_what_is_demanded():
    inferred = {"labels": ("secret",), "filters": {"kind": "any", "team": "b"}, "period": Period()}
    async with router({}, **inferred) as made:
        demands = {"labels": ["a"], "kinds": ["book"], "filters": {"team": "a"}}
        period = Period(start=date(2026, 1, 1), end=date(2026, 1, 31))
        plan = await made.plan("q?", period=period, **demands)
    for call in plan.calls:
        assert call.query.labels == ("a",)
        assert dict(call.query.filters) == {"kind": ["book"], "team": "a"}
        assert call.query.period == period


async def test_a_route_ignores_what_was_inferred_and_the_plan_says_so():
    fields = {"labels": ("a",), "period": Period(start=date(2026, 1, 1)), "entities": ("Ada",)}
    async with router({"open": {"ignore": ["labels", "period", "entities"]}}, kind="open", **fields) as made:
        plan = await made.plan("q?")
    assert {(call.query.labels, call.query.period, call.query.entities) for call in plan.calls} == {
        ((), None, ())
    }
    assert plan.note == "inferred labels, period, entities not used on route 'open'"


@pytest.mark.case("M21")
async def test_a_route_has_a_period_of_its_own_where_the_question_has_none():
    routes = {"recent": {"period_days": 7}}
    async with router(routes, kind="recent") as made:
        plan = await made.plan("q?")
    assert plan.calls[0].query.period == Period(start=date(2026, 2, 27), end=date(2026, 3, 5))
    inferred = Period(start=date(2025, 1, 1), end=date(2025, 1, 2))
    async with router(routes, rag={"period_boost": 0}, kind="recent", period=inferred) as made:
        assert (await made.plan("q?")).calls[0].query.period == inferred


async def test_a_route_has_kinds_and_filters_which_hold_beside_the_callers():
    routes = {"books": {"kinds": ["book", "video"], "filters": {"team": ["a", "b"]}}}
    async with router(routes, kind="books") as made:
        plan = await made.plan("q?", kinds=["book", "web"], filters={"team": "b", "x": 1})
    (query,) = {call.query.leg: call.query for call in plan.calls if call.query.leg == "text"}.values()
    assert dict(query.filters) == {"kind": ["book"], "team": ["b"], "x": 1}


async def test_a_route_has_any_key_of_rag():
    routes = {"short": {"rrf_k": 5, "hybrid_fusion": "rrf", "enable_fts": False, "max_facets": 3}}
    async with router(routes, kind="short", facets=("labels",)) as made:
        context = await made.route("q?")
    assert context.trace.plan.excluded["docs/text"] == "[rag] enable_fts is false"
    assert {call.query.limit for call in context.trace.plan.calls if call.query.leg == "facets"} == {3}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("timeout_seconds = 3", "acts before the kind of a question is known"),
        ('interpreters = ["x"]', "acts before the kind of a question is known"),
        ('needs = ["wishes"]', "needs"),
        ('ignore = ["scope"]', "'labels', 'filters', 'period', 'entities'"),
        ("period_days = 0", "period_days"),
        ('hybrid_fusion = "weighted"\nhybrid_vector_weight = 0\nhybrid_text_weight = 0', "every score is 0"),
        ("candidate = 3", "candidates"),
    ],
)
def test_a_wrong_key_of_a_route_is_named_with_its_line(line: str, message: str, tmp_path: Path):
    path = tmp_path / "settings.toml"
    path.write_text(f"[routes.x]\n{line}\n", "utf-8")
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(path)
    assert message in str(caught.value)
    assert "settings.toml:" in str(caught.value)


async def test_a_request_is_interpreted_once_whatever_its_fallbacks():
    infers = Infers(kind="a", labels=("none",))
    routes = {name: {"fallback": after, "sources": ["web"]} for name, after in (("a", "b"), ("b", "c"))}
    async with ContextRouter(
        {"rag": {"interpreters": ["infers"]}, "routes": {**routes, "c": {"ignore": ["labels"]}}},
        connectors={"web": Fixed("x")},
        interpreters={"infers": infers},
    ) as made:
        context = await made.route("q?")
    assert (context.intent.kind, context.outcome, infers.runs) == ("c", "answered", 1)
    notes = [step.note for step in context.trace.steps if step.name == "plan"]
    assert notes[1].startswith("route 'a' found nothing: 'b' instead")


@pytest.mark.case("NEW-29")
async def test_an_inferred_period_that_leaves_nothing_is_given_up_and_reported():
    old = Hit(document=Document(id="old", content="old", updated_at=datetime(2020, 1, 1, tzinfo=UTC)))
    infers = Infers(period=Period(start=date(2026, 1, 1)))
    async with ContextRouter(
        {"rag": {"interpreters": ["infers"], "period_boost": 0}},
        connectors={"web": Fixed([old])},
        interpreters={"infers": infers},
    ) as made:
        context = await made.route("q?")
        assert [envelope.document.id for envelope in context.envelopes] == ["old"]
        notes = " ".join(step.note for step in context.trace.steps)
        assert "nothing matches the inferred period: searched without" in notes
        demanded = await made.route("q?", period=Period(start=date(2026, 1, 1)))
    assert (demanded.outcome, demanded.envelopes) == ("empty", ())


def dated(name: str, month: int | None, score: float) -> Hit:
    moment = None if month is None else datetime(2026, month, 10, tzinfo=UTC)
    return Hit(document=Document(id=name, content=name, updated_at=moment), score=score)


MARCH = Period(start=date(2026, 3, 1), end=date(2026, 3, 31))


@pytest.mark.parametrize(
    ("boost", "expected"),
    [
        # score ÷ 10, and the boost in March: may 1, march .7, none .6, early .2
        (0.5, ["march", "may", "early", "none"]),
        (0.35, ["march", "may", "none", "early"]),
        (0.1, ["may", "march", "none", "early"]),
        (0, ["march", "early"]),
    ],
)
async def test_documents_of_an_inferred_period_stand_higher(boost: float, expected: list[str]):
    hits = [dated("may", 5, 10.0), dated("march", 3, 7.0), dated("none", None, 6.0), dated("early", 3, 2.0)]
    async with ContextRouter(
        {"rag": {"interpreters": ["infers"], "period_boost": boost}},
        providers={"docs": Legs({"text": hits})},
        interpreters={"infers": Infers(period=MARCH)},
    ) as made:
        context = await made.route("q?")
        demanded = await made.route("q?", period=MARCH)
    assert [envelope.document.id for envelope in context.envelopes] == expected
    assert [envelope.document.id for envelope in demanded.envelopes] == ["march", "early"]
    notes = [step.note for step in context.trace.steps if step.name == "prefer"]
    said = "2 of 4 documents are of 2026-03-01 to 2026-03-31, and stand higher"
    assert notes == ([said] if boost else [])


async def test_a_store_is_asked_for_the_inferred_period_too_and_a_connector_once():
    """What lies in the period may be beyond the best of all times."""
    many = [dated(f"may{n}", 5, 100.0 - n) for n in range(40)]
    store, web = Legs({"text": [*many, dated("march", 3, 60.0)]}), Fixed("x")
    async with ContextRouter(
        {"rag": {"interpreters": ["infers"], "candidates": 5}},
        providers={"docs": store},
        connectors={"web": web},
        interpreters={"infers": Infers(period=MARCH)},
    ) as made:
        context = await made.route("q?")
    assert "march" in [envelope.document.id for envelope in context.envelopes]
    assert [query.period for query in store.queries] == [None, MARCH]
    assert [query.period for query in web.queries] == [None]
    (envelope,) = [each for each in context.envelopes if each.document.id == "march"]
    assert (envelope.signals["period"], envelope.provenance[0].rank) == (0.6, 6)


@pytest.mark.case("M05")
@pytest.mark.parametrize(
    ("confidence", "outcome"), [(0.19, "not_searched"), (0.2, "answered"), (1, "answered")]
)
async def test_an_intent_below_the_least_confidence_is_not_searched(confidence: float, outcome: str):
    async with router({}, confidence=confidence) as made:
        context = await made.route("q?")
    assert context.outcome == outcome
    assert ({report.status for report in context.coverage} == {"skipped"}) == (outcome == "not_searched")


@pytest.mark.case("T15")
async def test_a_vague_question_is_asked_back_and_nothing_is_searched():
    async with ContextRouter({"rag": {"interpreters": ["clarify"]}}, connectors={"web": Fixed("x")}) as made:
        for question in ("help", "tell me about it?", "I need to know something", "?"):
            context = await made.route(question)
            assert (context.outcome, context.envelopes) == ("clarify", ())
            assert context.clarification is not None
            assert context.clarification.reason == "vague"
            assert "name the thing" in context.clarification.question
        for question in ("sourdough", "What is bread?", "如何照顾酵母"):
            assert (await made.route(question)).outcome == "answered"
        history = ({"role": "user", "content": "What is bread?"},)
        assert (await made.route("help", history=history)).outcome == "answered"
        assert (await made.route("help", profile={"grade": 4})).outcome == "answered"


async def test_an_interpreter_asks_back_with_a_question_of_its_own():
    back = Clarification(question="Which Ada?", reason="vague")
    async with router({}, clarify=back) as made:
        context = await made.route("Who is Ada?")
        plan = await made.plan("Who is Ada?")
    assert (context.outcome, context.clarification, plan.calls) == ("clarify", back, ())


@pytest.mark.case("T16", "K12")
@pytest.mark.parametrize(("answer", "reason"), [("", "no_match"), ("x", "weak")])
async def test_a_gate_asks_back_where_nothing_or_nothing_good_was_found(answer: str, reason: str):
    settings = {
        "rag": {"stages": ["gate"]},
        "stages": {"gate": {"outcome": "clarify", "clarification": "Can you say more?"}},
    }
    graph = Facts([Fact(subject="a", predicate="b", object="c")])
    async with ContextRouter(settings, connectors={"web": Fixed(answer)}, facts={"g": graph}) as made:
        context = await made.route("q?")
    assert (context.outcome, context.facts, context.text) == ("clarify", (), "")
    assert context.clarification == Clarification(question="Can you say more?", reason=reason)


@pytest.mark.case("K12")
async def test_a_gate_counts_for_nothing_where_no_source_was_asked_for_documents():
    settings = {"rag": {"stages": ["gate"]}, "routes": {"default": {"legs": ["facts"]}}}
    async with ContextRouter(settings, connectors={"web": Fixed("x")}, facts={"g": Graph()}) as made:
        assert (await made.route("q?")).outcome == "facts_only"


@pytest.mark.case("K09", "M27")
async def test_a_caller_limits_the_documents_and_the_trace_says_what_was_out_of_range():
    names = " ".join(f"d{n}" for n in range(40))
    async with ContextRouter({"rag": {"token_budget": 0}}, connectors={"web": Fixed(names)}) as made:
        sizes = {limit: len((await made.route("q?", limit=limit)).envelopes) for limit in (1, 3, 35, None)}
        assert sizes == {1: 1, 3: 3, 35: 35, None: 10}
        for limit, used in ((0, 1), (-5, 1), (5000, 1000)):
            context = await made.route("q?", limit=limit)
            notes = [step.note for step in context.trace.steps if step.name == "select"]
            assert notes == [f"limit {limit} is not between 1 and 1000: {used} instead"]


async def test_a_caller_limit_bounds_the_quotas_together():
    hits = [
        Hit(document=Document(id=f"{kind}{n}", content="x", kind=kind)) for n in range(3) for kind in "ab"
    ]
    settings = {"rag": {"general_retrieval_enabled": False, "quotas": {"a": 3, "b": 3}, "identity": "id"}}
    async with ContextRouter(settings, connectors={"web": Fixed(hits)}) as made:
        assert len((await made.route("q?")).envelopes) == 6
        assert [e.document.id for e in (await made.route("q?", limit=3)).envelopes] == ["a0", "b0", "a1"]


async def test_another_text_is_searched_and_the_question_stays_a_query():
    docs, web = Library(), Fixed("x")
    web.default_queries = 1
    async with ContextRouter(
        {"rag": {"interpreters": ["infers"]}},
        providers={"docs": docs},
        connectors={"web": web},
        interpreters={"infers": Infers(text="What is sourdough?")},
    ) as made:
        context = await made.route("Was ist Sauerteig?")
    assert context.question == context.intent.question == "Was ist Sauerteig?"
    assert context.intent.queries == ("Was ist Sauerteig?", "What is sourdough?")
    assert context.intent.derived == ()
    assert {query.text for query in docs.queries} == set(context.intent.queries)
    assert [query.text for query in web.queries] == ["What is sourdough?"]


async def test_the_interpreters_have_a_time_limit_of_their_own():
    class Waits(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            await asyncio.sleep(60)
            return intent

    settings = {"rag": {"interpreters": ["waits"], "interpret_seconds": 0.05}}
    async with ContextRouter(
        settings, connectors={"web": Fixed("x")}, interpreters={"waits": Waits()}
    ) as made:
        context = await made.route("q?", deadline=30)
    assert (context.outcome, context.degraded) == ("answered", True)
    assert "waits: timed out" in " ".join(step.note for step in context.trace.steps)


class Counts(Library):
    """A store with some documents of each kind."""

    def __init__(self, **counts: int) -> None:
        super().__init__()
        self.counts = counts

    async def facets(self, query: Query, dimensions: Any) -> list[Facet]:
        counts = [Facet(dimension="kind", value=value, count=n) for value, n in self.counts.items()]
        return counts[: query.limit]


class Statements(Facts):
    """A fact source that counts statements."""

    async def facets(self, query: Query, dimensions: Any) -> list[Facet]:
        return [Facet(dimension="kind", value="note", count=100)]


@pytest.mark.case("M09")
async def test_counts_of_several_stores_are_added_up_and_statements_are_no_documents():
    made = ContextRouter(
        {"rag": {"interpreters": ["infers"], "max_facets": 2}, "routes": {"kind": {"legs": ["facets"]}}},
        providers={"a": Counts(note=5, mail=4), "b": Counts(mail=3, page=2, note=1)},
        facts={"graph": Statements([])},
        interpreters={"infers": Infers(kind="kind", facets=("kind",))},
    )
    async with made:
        context = await made.route("how much is there?")
    counts = [(facet.value, facet.count) for facet in context.facets]
    assert counts == [("mail", 7), ("note", 6)], "most first; statements are counted apart"
    lost = [facet for step in context.trace.steps for facet in step.lost_facets]
    assert {(facet.value, facet.count) for facet in lost} == {("page", 2), ("note", 100)}
    assert "- kind: mail (7), note (6)" in context.text


@pytest.mark.parametrize("question", ["???", '""', "-", "\u061f\u061f", "\u200b", "\ufeff!", "…"])
async def test_a_question_of_punctuation_alone_is_not_searched_unless_more_is_demanded(question: str):
    """The nearest vectors of "???" are no answer. A filter or a leg says what is wanted without a question."""
    async with ContextRouter(connectors={"web": Fixed("x")}, facts={"graph": Graph()}) as made:
        context = await made.route(question)
        named = await made.route(question, legs=["facts"])
    assert (context.outcome, context.usage.calls) == ("not_searched", 0)
    assert context.trace.plan.excluded["web"] == "the question has no letter or digit to look for"
    assert named.outcome == "facts_only"


@pytest.mark.parametrize("question", ["?", "C", "42", "\U0001f600", "的", "the"])
async def test_a_question_of_one_sign_or_stop_words_alone_is_searched_or_completed(question: str):
    followup = {"text": "What do cats eat?", "queries": (question, "What do cats eat?")}
    inferred = followup if question == "?" else {}
    made = ContextRouter(
        {"rag": {"interpreters": ["infers"]}},
        connectors={"web": Fixed("x")},
        interpreters={"infers": Infers(**inferred)},
    )
    async with made:
        assert (await made.route(question)).outcome == "answered"


async def test_a_question_of_punctuation_alone_is_asked_back_where_an_interpreter_does():
    settings = {"rag": {"interpreters": ["clarify"]}, "interpreters": {"clarify": {}}}
    async with ContextRouter(settings, connectors={"web": Fixed("x")}) as made:
        context = await made.route("???")
    assert (context.outcome, context.clarification is not None) == ("clarify", True)


@pytest.mark.parametrize(
    ("as_of", "lines"),
    [
        (None, ["- Ada — lives in — Rome (2022-01-01 to …)"]),
        (datetime(2021, 1, 1, tzinfo=UTC), ["- Ada — lives in — Paris (2020-01-01 to 2022-01-01)"]),
        (datetime(2021, 1, 1), ["- Ada — lives in — Paris (2020-01-01 to 2022-01-01)"]),
        (datetime(1850, 1, 1, tzinfo=UTC), []),
    ],
)
@pytest.mark.case("M27")
async def test_what_held_at_the_demanded_time_is_not_called_no_longer_true(
    as_of: datetime | None, lines: list[str]
):
    start, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2022, 1, 1, tzinfo=UTC)
    ada = {"subject": "Ada", "predicate": "lives in"}
    facts = [
        Fact(**ada, object="Paris", valid_from=start, valid_to=end),
        Fact(**ada, object="Rome", valid_from=end),
    ]
    async with ContextRouter(facts={"graph": Facts(facts)}, clock=lambda: DAY) as made:
        context = await made.route("Where does Ada live?", as_of=as_of)
    assert "No longer true" not in context.text
    assert [line for line in context.text.splitlines() if "Ada" in line] == lines
