"""Every key of `[rag]` changes the result in the mode that reads it, beside the defaults of all others; elsewhere
it warns. A key without a line here fails the last test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from contextrouter import (
    Context,
    ContextRouter,
    Document,
    Embedder,
    Fact,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
    Rag,
    SettingsError,
)
from contextrouter.testing import Facts, Fixed, Legs, Ones, hits

QUESTION = "What books talk about machine learning for beginners?"


def kinds() -> list[Hit]:
    listed = [("book", 7), ("video", 5), ("qa", 7), ("web", 5), ("note", 5)]
    made = [
        Document(id=f"{kind}{i}", content=f"{kind} {i}", kind=kind)
        for i in range(7)
        for kind, count in listed
        if i < count
    ]
    return [Hit(document=d) for d in made]


def count_of(kind: str) -> Callable[[Context], int]:
    return lambda context: sum(e.document.kind == kind for e in context.envelopes)


def first(context: Context) -> str:
    return context.envelopes[0].document.id


def place(name: str) -> Callable[[Context], int | None]:
    """The place of a document in the order of its source."""
    return lambda context: next(
        p.place
        for e in (*context.envelopes, *context.trace.dropped)
        if e.document.id == name
        for p in e.provenance
    )


def score(name: str) -> Callable[[Context], float]:
    return lambda context: next(
        round(e.score, 5) for e in (*context.envelopes, *context.trace.dropped) if e.document.id == name
    )


def note(context: Context) -> str:
    """What calibration says of itself."""
    return next((step.note for step in context.trace.steps if step.name == "calibrate"), "")


def ids(context: Context) -> list[str]:
    return [e.document.id for e in context.envelopes]


async def ask(rag: dict[str, Any]) -> Context:
    legs = Legs(
        {"vector": hits("v both", [9.0, 1.0]), "text": hits("t x both", [0.9, 0.5, 0.1])}, embedder="e"
    )
    same = [
        Hit(document=Document(id="1", url="u1", title="T", content="same")),
        Hit(document=Document(id="2", url="u2", title="T", content="same")),
    ]
    embedders: dict[str, Embedder] = {"e": Ones()}
    settings = {"rag": {"cache_enabled": False, **rag}}
    router = ContextRouter(
        settings,
        providers={"docs": legs, "old": Legs({"text": hits("o")})},
        connectors={"kinds": Fixed(kinds()), "same": Fixed(same[:1]), "twin": Fixed(same[1:])},
        facts={"g": Facts([Fact(subject=str(i), predicate="p", object="o") for i in range(60)])},
        embedders=embedders,
    )
    async with router:
        return await router.route(QUESTION)


def steps(context: Context) -> list[str]:
    return [step.name for step in context.trace.steps if step.name in ("centrality", "neighbours", "gate")]


PER_KIND = {"general_retrieval_enabled": False, "quotas": {"other": 50}}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Context], Any], Any, Any]] = {
    # key: settings, settings with the key changed, what is looked at, before, after
    "provider": (
        {},
        {"provider": "docs"},
        lambda c: {r.source for r in c.coverage if r.status == "skipped"},
        set(),
        {"old"},
    ),
    "interpreters": ({}, {"interpreters": []}, lambda c: len(c.intent.queries), 3, 1),
    "stages": ({}, {"stages": ["freshness"]}, lambda c: "freshness" in c.envelopes[0].signals, False, True),
    "interpret_seconds": ({}, {"interpret_seconds": 1.0}, lambda c: None, None, None),
    "least_confidence": ({}, {"least_confidence": 0.5}, lambda c: None, None, None),
    "period_boost": ({}, {"period_boost": 0}, lambda c: None, None, None),
    "exact_legs": ({}, {"exact_legs": []}, lambda c: None, None, None),
    "max_facets": ({}, {"max_facets": 3}, lambda c: None, None, None),
    "max_retrieval_queries": ({}, {"max_retrieval_queries": 2}, lambda c: len(c.intent.queries), 3, 2),
    "use_enhancements": (
        {"stages": ["freshness"]},
        {"use_enhancements": False},
        lambda c: (len(c.intent.queries), "freshness" in c.envelopes[0].signals),
        (3, True),
        (1, False),
    ),
    "enable_multi_query": ({}, {"enable_multi_query": False}, lambda c: len(c.intent.queries), 3, 1),
    "enable_reranker": ({"stages": ["centrality"]}, {"enable_reranker": False}, steps, ["centrality"], []),
    "enable_multidoc": ({"stages": ["neighbours"]}, {"enable_multidoc": False}, steps, ["neighbours"], []),
    "enable_cross_encoder": ({}, {"enable_cross_encoder": False}, lambda c: None, None, None),
    "enable_fewshot": ({}, {"enable_fewshot": False}, lambda c: None, None, None),
    "candidates": (
        {"general_retrieval_final_count": 99},
        {"candidates": 1},
        lambda c: len(c.envelopes),
        36,
        6,
    ),
    "enable_fts": (
        {},
        {"enable_fts": False},
        lambda c: any(r.leg == "text" and r.status == "ok" for r in c.coverage),
        True,
        False,
    ),
    "timeout_seconds": ({}, {"timeout_seconds": 3.0}, lambda c: None, None, None),
    "max_concurrency": ({}, {"max_concurrency": 1}, lambda c: None, None, None),
    "hybrid_fusion": ({}, {"hybrid_fusion": "rrf"}, place("both"), 4, 1),
    "rrf_k": (
        {"hybrid_fusion": "rrf", "leg_weights": {"vector": 0.6}},
        {"rrf_k": 0},
        place("both"),
        1,  # 0.6/62 + 1/63 is more than 1/61
        2,  # 0.6/2 + 1/3 is less than 1/1
    ),
    "hybrid_vector_weight": (
        {"hybrid_fusion": "weighted"},
        {"hybrid_vector_weight": 0.0},
        place("v"),
        1,
        None,
    ),
    "hybrid_text_weight": ({"hybrid_fusion": "weighted"}, {"hybrid_text_weight": 0.0}, place("t"), 2, None),
    "leg_weights": ({}, {"leg_weights": {"docs.vector": 0.0}}, place("v"), 2, None),
    "levels": (
        {"hybrid_fusion": "rrf", "calibrate": False},
        {"levels": 1},
        score("both"),
        round(1 / 61, 5),
        round(1 / 62 + 1 / 63, 5),
    ),
    "derived_query_weight": ({}, {"derived_query_weight": 0.5}, lambda c: None, None, None),
    "calibrate": (
        {},
        {"calibrate": False},
        lambda c: any(p.calibrated is not None for e in c.envelopes for p in e.provenance),
        True,
        False,
    ),
    "keep_order": ({}, {"keep_order": 0.0}, lambda c: ids(c)[:2], ["book0", "video0"], ["book0", "book1"]),
    "calibrate_embed": (
        {},
        {"calibrate_embed": 40},
        lambda c: note(c).partition(";")[0],
        "by text",
        "by text+vector",
    ),
    "identity": (
        {"general_retrieval_final_count": 99},
        {"identity": "content"},
        lambda c: sum(e.document.content == "same" for e in c.envelopes),
        2,
        1,
    ),
    "general_retrieval_enabled": ({}, PER_KIND, lambda c: len(c.envelopes), 10, 28),
    "general_retrieval_final_count": (
        {},
        {"general_retrieval_final_count": 4},
        lambda c: len(c.envelopes),
        10,
        4,
    ),
    "max_books": (PER_KIND, {"max_books": 2}, count_of("book"), 5, 2),
    "max_videos": (PER_KIND, {"max_videos": 1}, count_of("video"), 3, 1),
    "max_qa": (PER_KIND, {"max_qa": 0}, count_of("qa"), 5, 0),
    "max_web": (PER_KIND, {"max_web": 1}, count_of("web"), 3, 1),
    "max_per_source": (
        {"general_retrieval_final_count": 99},
        {"max_per_source": {"kinds": 2}},
        lambda c: sum(e.provenance[0].source == "kinds" for e in c.envelopes),
        29,
        2,
    ),
    "quotas": (PER_KIND, {"quotas": {"note": 1, "other": 50}}, count_of("note"), 5, 1),
    "graph_facts_enabled": ({}, {"graph_facts_enabled": False}, lambda c: len(c.facts), 50, 0),
    "max_graph_facts": ({}, {"max_graph_facts": 7}, lambda c: len(c.facts), 50, 7),
    "token_budget": ({}, {"token_budget": 30}, lambda c: len(c.envelopes) < 10, False, True),
    "merge_neighbours": ({}, {"merge_neighbours": False}, lambda c: None, None, None),
    "timezone": ({}, {"timezone": "Asia/Tokyo"}, lambda c: None, None, None),
    "cache_enabled": ({}, {}, lambda c: None, None, None),
    "cache_ttl_seconds": ({}, {}, lambda c: None, None, None),
}

ELSEWHERE = {
    "interpret_seconds": "test_routes",
    "least_confidence": "test_routes",
    "exact_legs": "test_routes",
    "period_boost": "test_routes",
    "max_facets": "test_routes",
    "timeout_seconds": "test_router: a hanging source",
    "max_concurrency": "test_fanout: concurrency",
    "merge_neighbours": "test_neighbour_merging",
    "timezone": "below: the day of the cache key",
    "cache_enabled": "test_router: the cache can be off",
    "cache_ttl_seconds": "below",
    "derived_query_weight": "below",
    "enable_cross_encoder": "test_rerankers",
    "enable_fewshot": "test_chat: examples",
}


@pytest.mark.parametrize("key", [key for key in CASES if key not in ELSEWHERE])
@pytest.mark.case("R16")
async def test_the_key_changes_the_result(key: str):
    base, changed, look, before, after = CASES[key]
    assert look(await ask(base)) == before
    assert look(await ask({**base, **changed})) == after


@pytest.mark.parametrize(
    ("mode", "weight", "order"),
    [
        ("scores", 1.0, "c a b"),
        ("scores", 0.6, "a c b"),
        ("scores", 0.0, "a b"),
        ("rrf", 1.0, "c a b"),
        ("rrf", 0.5, "a b c"),
        ("rrf", 0.0, "a b"),
    ],
)
async def test_derived_query_weight_says_how_much_a_model_s_queries_count(
    mode: str, weight: float, order: str
):
    """Scores: a 1, b .5, c the weight. Ranks: c the weight ÷ 61, b 1 ÷ 62. At 1 the name of the list decides."""

    class Model(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            return intent.replace(queries=(QUESTION, "What a model asks"))

    class ByQuery(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            return hits("a b", [2.0, 1.0]) if query.text == QUESTION else hits("c", [7.0])

    rag = {"interpreters": ["model"], "hybrid_fusion": mode, "derived_query_weight": weight}
    given = {"connectors": {"a": ByQuery("")}, "interpreters": {"model": Model()}}
    async with ContextRouter({"rag": rag}, **given) as router:  # type: ignore[arg-type]  # plugins of two kinds
        assert " ".join(ids(await router.route(QUESTION))) == order


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("rrf_k", 1, {"hybrid_fusion": "scores"}),
        ("rrf_k", 1, {"hybrid_fusion": "weighted"}),
        ("hybrid_vector_weight", 0.2, {"hybrid_fusion": "scores"}),
        ("hybrid_text_weight", 0.2, {"hybrid_fusion": "rrf"}),
        ("levels", 2, {"hybrid_fusion": "scores"}),
        ("keep_order", 0.5, {"calibrate": False}),
        ("calibrate_embed", 40, {"calibrate": False}),
        ("calibrate", True, {"hybrid_fusion": "rrf", "levels": 1}),
    ],
)
def test_check_warns_of_a_key_that_its_mode_does_not_read(key: str, value: object, other: dict[str, object]):
    settings = {"rag": {**other, key: value}}
    (warning,) = [w for w in ContextRouter(settings).settings.warnings if f"[rag] {key} " in w]
    assert "has no effect here: it is read only with" in warning
    assert not [w for w in ContextRouter({"rag": other}).settings.warnings if key in w]


def test_weighted_fusion_with_the_embedder_that_knows_few_names_is_warned_of():
    settings = {"rag": {"hybrid_fusion": "weighted"}, "providers": {"docs": {"use": "memory"}}}
    assert any("ranks names badly" in warning for warning in ContextRouter(settings).settings.warnings)
    settings["embedders"] = {"default": {"use": "minilm"}}
    assert not any("ranks names badly" in warning for warning in ContextRouter(settings).settings.warnings)


def test_a_key_that_is_gone_says_what_takes_its_place():
    with pytest.raises(SettingsError, match="keep_order"):
        ContextRouter({"rag": {"calibrate_weight": 30.0}})
    with pytest.raises(SettingsError, match="two levels"):
        ContextRouter({"rag": {"levels": 1}})


@pytest.mark.case("K39")
async def test_without_enhancements_gate_and_quality_stay():
    names = ["gate", "quality", "centrality", "neighbours"]
    found = steps(await ask({"stages": names, "use_enhancements": False}))
    assert found == ["gate"]


def test_a_switch_that_is_no_key_never_means_on():
    assert Rag().runs("")
    assert Rag().runs("enable_reranker")
    assert not Rag(enable_reranker=False).runs("enable_reranker")
    with pytest.raises(AttributeError):
        Rag().runs("enable_rerankr")


@pytest.mark.case("R15")
async def test_cache_ttl_seconds_ends_what_is_kept():
    import asyncio

    source = Fixed("a")
    async with ContextRouter({"rag": {"cache_ttl_seconds": 0.05}}, connectors={"a": source}) as router:
        await router.route("q")
        assert (await router.route("q")).cached
        await asyncio.sleep(0.08)
        assert not (await router.route("q")).cached


async def test_timezone_sets_the_day_in_the_cache_key():
    """At 14:00 UTC it is 23:00 in Tokyo; at 16:00 it is 01:00 of the next day there."""
    times: list[datetime] = []
    for zone, same_day in (("UTC", True), ("Asia/Tokyo", False)):
        router = ContextRouter(
            {"rag": {"timezone": zone}}, connectors={"a": Fixed("a")}, clock=lambda: times[-1]
        )
        async with router:
            times.append(datetime(2026, 1, 1, 14, tzinfo=UTC))
            await router.route("q")
            times.append(datetime(2026, 1, 1, 16, tzinfo=UTC))
            assert (await router.route("q")).cached is same_day


def test_every_key_has_its_line():
    assert set(CASES) == set(Rag.__struct_fields__)


@pytest.mark.parametrize(
    ("mode", "note"),
    [("scores", "by scores"), ("rrf", "by ranks, k = 60"), ("weighted", "by weighted scores")],
)
async def test_the_trace_says_the_mode_of_the_fusion(mode: str, note: str):
    context = await ask({"hybrid_fusion": mode})
    assert next(step.note for step in context.trace.steps if step.name == "fuse") == note


@pytest.mark.parametrize(
    ("key", "value", "told"), [("KEEP_ORDER", "1.5", "<= 1"), ("MAX_RETRIEVAL_QUERIES", "4", "<= 3")]
)
def test_a_number_out_of_range_from_the_environment_is_told_with_its_limit(
    key: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(f"CONTEXTROUTER_RAG__{key}", value)
    with pytest.raises(SettingsError, match=told):
        ContextRouter({})


def test_a_wrong_value_in_a_table_is_named_with_its_key(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("[rag]\nmax_per_source = { notes = 2, web = 0 }\n", "utf-8")
    with pytest.raises(SettingsError, match=r"settings.toml:2: rag.max_per_source: .* at 'web', not 0\."):
        ContextRouter.from_toml(path)
