"""The preset `evidence`: what is searched, for whom, and in which order it comes back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.postgres_server import run as run_sql
from support.postgres_server import schema, uri
from support.presets import Plane, fill, ids, ingest, note, piece, system

from contextrouter import Context, Scope
from contextrouter.builtin.stages import reranking_example
from contextrouter.contracts import Entry
from contextrouter.testing import Fixed, hit

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
FUSED = "[rag]\nstages = []\n"


async def answer(
    folder: Path,
    entries: Sequence[Entry],
    toml: str = "",
    question: str = "What about tides?",
    **request: Any,
) -> Context:
    by_hand = {"connectors": request.pop("connectors", {}), "embedders": {"default": Plane()}}
    router = system(folder, "evidence", toml, clock=lambda: NOW, **by_hand)
    await fill(router, "wiki", *entries)
    async with router:
        return await router.route(question, **request)


def scores(context: Context) -> dict[str, float]:
    return {envelope.document.id: round(envelope.score, 6) for envelope in context.envelopes}


def labelled() -> list[Entry]:
    return [
        piece("open"),
        piece("wiki", compartment="engineering", sensitivity="internal"),
        piece("pay", compartment="people", sensitivity="confidential"),
        piece("board", compartment="engineering", sensitivity="restricted"),
    ]


@pytest.mark.case("C04")
@pytest.mark.without("contextrouter/pipeline/planning/planner.py", "scope=self.request.scope,", "scope=None,")
async def test_compartment_and_sensitivity_must_both_match_and_no_scope_of_a_key_sees_nothing(tmp_path: Path):
    async def seen(**scope: Any) -> set[str]:
        return set(ids(await answer(tmp_path, labelled(), FUSED, scope=Scope(**scope))))

    engineer = frozenset({"engineering"})
    assert await seen() == {"open"}
    assert await seen(compartments=engineer) == {"open"}
    assert await seen(compartments=engineer, ceiling="internal") == {"open", "wiki"}
    assert await seen(compartments=engineer, ceiling="restricted") == {"open", "wiki", "board"}
    assert await seen(ceiling="restricted") == {"open"}
    assert await seen(tenant="another", ceiling="restricted") == set()


@pytest.mark.case("C05")
@pytest.mark.without(providers__wiki__legs=["text"])
async def test_questions_and_pieces_are_embedded_by_one_model_and_another_is_refused(tmp_path: Path):
    await ingest(tmp_path, "evidence")

    class Other(Plane):
        model = "plane-2"

    async with system(tmp_path, "evidence", embedders={}) as router:
        assert {r.leg for r in (await router.route("When do we deploy?")).coverage} == {
            "text",
            "vector",
            "keywords",
        }
    async with system(tmp_path, "evidence", embedders={"default": Other()}) as router:
        context = await router.route("When do we deploy?")
    failed = {report.leg: report.error for report in context.coverage if report.status == "error"}
    assert "static-minilm-256" in failed["vector"]


@pytest.mark.case("C06")
@pytest.mark.without(embedders__default__model="m")
async def test_the_embedder_is_a_table_of_the_settings_local_or_over_http(tmp_path: Path):
    toml = '[embedders.default]\nuse = "openai"\nmodel = "small-1"\ndimensions = 8\nbase_url = "http://127.0.0.1:1/v1"\n'
    remote = system(tmp_path, "evidence", toml, embedders={})
    assert remote.instances.embedders["default"].model == "small-1"
    async with system(tmp_path, "evidence", embedders={}) as local:
        assert local.instances.embedders["default"].model.startswith("static-minilm-256")


@pytest.mark.case("C07")
@pytest.mark.without(providers__wiki__legs=["vector"])
async def test_words_and_vectors_are_two_legs_that_are_fused(tmp_path: Path):
    context = await answer(tmp_path, [piece("a", "tides"), piece("b", "waves", cosine=0.9)], FUSED)
    legs = {e.document.id: {seal.leg for seal in e.provenance} for e in context.envelopes}
    assert legs == {"a": {"text", "vector"}, "b": {"vector"}}


@pytest.mark.case("C08")
@pytest.mark.without("contextrouter/text/query_syntax.py", "excluded[token.text] = None", "pass")
async def test_phrase_or_and_minus_work_in_every_leg(tmp_path: Path):
    entries = [
        piece("both", "rate limit and prose", cosine=0.9),
        piece("apart", "limit of the rate", cosine=0.8),
        piece("staging", "rate limit staging", cosine=0.7),
    ]
    phrase = await answer(tmp_path, entries, FUSED, '"rate limit" -staging', legs=["text"])
    assert ids(phrase) == ["both"]
    either = await answer(tmp_path, entries, FUSED, "prose OR staging", legs=["text"])
    assert set(ids(either)) == {"both", "staging"}
    negated = await answer(tmp_path, entries, FUSED, "What about tides -staging?", legs=["vector"])
    assert ids(negated) == ["both", "apart"]
    for odd in ('"unbalanced', "- x", "OR OR", "NEAR(a b)"):
        assert {r.status for r in (await answer(tmp_path, [], FUSED, odd)).coverage} <= {"ok", "skipped"}


@pytest.mark.case("C09")
@pytest.mark.without(providers__wiki__title_weight=1.0)
async def test_a_word_in_the_title_counts_more_than_in_heading_or_text(tmp_path: Path):
    entries = [
        piece("body", "tides one two", title="x"),
        piece("path", "zero one two", title="x", path=("tides",)),
        piece("title", "zero one two", title="tides"),
    ]
    context = await answer(tmp_path, entries, FUSED, legs=["text"])
    assert ids(context) == ["title", "path", "body"]


@pytest.mark.case("C11")
@pytest.mark.without(providers__wiki__index="ivfflat")
async def test_the_vectors_of_a_database_have_an_hnsw_index_of_cosines(tmp_path: Path):
    import asyncio

    dsn, name = await asyncio.to_thread(uri), schema()
    toml = (
        f'[providers.wiki]\nuse = "postgres"\ndsn = "{dsn}"\nschema = "{name}"\nlegs = ["text", "vector"]\n'
    )
    try:
        context = await answer(tmp_path, [piece("a", "tides", cosine=0.8)], FUSED + toml)
        rows = await run_sql("SELECT indexdef FROM pg_indexes WHERE schemaname = $1", name)
    finally:
        await run_sql(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    assert any("USING hnsw" in row["indexdef"] and "vector_cosine_ops" in row["indexdef"] for row in rows)
    assert [round(s.score or 0, 6) for s in context.envelopes[0].provenance if s.leg == "vector"] == [0.8]


@pytest.mark.case("C12")
@pytest.mark.without(rag__rrf_k=61)
async def test_ranks_are_fused_with_sixty(tmp_path: Path):
    entries = [piece("a", "waves", cosine=0.9), piece("b", "tides", cosine=0.8)]
    context = await answer(tmp_path, entries, FUSED)
    assert scores(context) == {"b": round(1 / 62 + 1 / 61, 6), "a": round(1 / 61, 6)}


@pytest.mark.case("C13")
@pytest.mark.without(rag__leg_weights={"text": 0.4})
@pytest.mark.parametrize(("depth", "first"), [(61, "both"), (62, "tie"), (63, "top")])
async def test_both_lists_outrank_one_as_long_as_lists_are_61_deep(tmp_path: Path, depth: int, first: str):
    """2 / (60 + 61) is more than 1 / 61; 2 / (60 + 62) is as much; 2 / (60 + 63) is less."""
    vector = [piece(f"v{n:02}", "zero", cosine=0.99 - n / 100) for n in range(1, depth)]
    text = [piece(f"t{n:02}", "tides " * (100 - n), cosine=-0.9) for n in range(1, depth)]
    both = piece("both", "tides " + "zero " * 500, cosine=0.99 - depth / 100)
    toml = f"{FUSED}candidates = {depth}\ngeneral_retrieval_final_count = 3\ntoken_budget = 0\n"
    context = await answer(tmp_path, [*vector, *text, both], toml)
    by_rank = {
        seal.leg: seal.rank for e in context.envelopes for seal in e.provenance if e.document.id == "both"
    }
    if first == "top":
        assert "both" not in ids(context)[:2]
    else:
        assert by_rank == {"vector": depth, "text": depth}
        by_id = scores(context)
        assert (by_id["both"] > by_id["v01"]) == (first == "both")
        assert (by_id["both"] == by_id["v01"]) == (first == "tie")


@pytest.mark.case("C14")
@pytest.mark.without(stages__freshness__half_life_days=90)
async def test_freshness_halves_with_each_half_life_and_a_document_without_a_date_is_neutral(tmp_path: Path):
    ages = {"now": 0, "half": 180, "quarter": 360, "future": -9}
    entries = [piece(id, updated_at=NOW - timedelta(days=age)) for id, age in ages.items()]
    context = await answer(tmp_path, [*entries, piece("undated")])
    fresh = {e.document.id: round(e.signals["freshness"], 6) for e in context.envelopes}
    assert fresh == {"now": 1.0, "half": 0.5, "quarter": 0.25, "future": 1.0, "undated": 0.5}
    assert {e.document.id for e in context.envelopes if "freshness_missing" in e.signals} == {"undated"}


@pytest.mark.case("C15")
@pytest.mark.without(stages__quality__repeated=0)
async def test_navigation_and_disclaimers_that_texts_share_are_no_content(tmp_path: Path):
    disclaimer = "This page is confidential and no part of it may be copied or shown."
    pages = [
        piece(f"page{n}", f"Tides of place {n} rise and fall twice on each day. {disclaimer}")
        for n in range(2)
    ]
    empty = piece("empty", disclaimer)
    context = await answer(tmp_path, [*pages, empty, piece("menu", "Home | News")])
    assert set(ids(context)) == {"page0", "page1"}
    lost = {e.document.id: e.dropped or "" for e in context.trace.dropped}
    assert lost["empty"].startswith("quality below 0.2")
    assert lost["menu"].startswith("quality below 0.2")


@pytest.mark.case("C16")
@pytest.mark.without(
    "contextrouter/builtin/providers/sqlite/filter.py", 'visible(query.scope, "c")', 'visible(None, "c")'
)
async def test_scope_narrows_before_the_limit_and_is_checked_again_on_arrival(tmp_path: Path):
    secret = [piece(f"s{n}", cosine=0.99, sensitivity="restricted") for n in range(20)]
    mine = [piece(f"m{n}", cosine=0.5) for n in range(3)]
    toml = FUSED + "candidates = 3\n"
    context = await answer(tmp_path, [*secret, *mine], toml, legs=["vector"], scope=Scope())
    assert set(ids(context)) == {"m0", "m1", "m2"}
    careless = Fixed([hit("leak", sensitivity="restricted"), hit("fine")], careless=True)
    context = await answer(tmp_path, [], toml, scope=Scope(), connectors={"careless": careless})
    assert "leak" not in str(context)


def reranker(folder: Path) -> str:
    (folder / "model").mkdir(parents=True, exist_ok=True)
    reranking_example.write_model(folder / "model")
    return '[stages.rerank]\nenabled = true\nhub = ""\nfile = "model.onnx"\npath = "model"\n[stages.least]\nminimum = 0\n'


@pytest.mark.case("C17")
@pytest.mark.without(stages__rerank__top_n=20)
async def test_a_cross_encoder_reads_the_best_thirty_and_keeps_ten(tmp_path: Path):
    entries = [piece(f"d{n:02}", cosine=0.95 - n / 100) for n in range(40)]
    entries[29] = piece("d29", "what about tides and more of them", cosine=0.66)
    toml = reranker(tmp_path) + "[rag]\ncandidates = 40\nenable_fts = false\n"
    context = await answer(tmp_path, entries, toml)
    assert (len(ids(context)), ids(context)[0]) == (10, "d29")


@pytest.mark.case("C18")
@pytest.mark.without(stages__rerank__on_error="raise")
async def test_without_a_cross_encoder_the_order_stays_and_is_cut_to_ten(tmp_path: Path):
    entries = [piece(f"d{n:02}", cosine=0.95 - n / 100) for n in range(20)]
    expected = [f"d{n:02}" for n in range(10)]
    assert ids(await answer(tmp_path, entries)) == expected
    toml = reranker(tmp_path)
    (tmp_path / "model" / "model.onnx").write_bytes(b"no model")
    failed = await answer(tmp_path, entries, toml)
    assert (ids(failed), failed.degraded) == (expected, True)
    assert "cannot load" in note(failed, "rerank")


@pytest.mark.case("C19")
@pytest.mark.without(stages__blend__weights={"vector": 0.5})
async def test_the_score_is_six_three_and_one_tenths_of_vector_words_and_freshness(tmp_path: Path):
    """a: vector 1, no words, fresh: 0.6 + 0.1; b: half of that vector, the best words, half as fresh: 0.3 + 0.3 +
    0.05.
    """
    entries = [
        piece("a", "waves " * 20, cosine=0.9, updated_at=NOW),
        piece("b", "tides " * 20, cosine=0.45, updated_at=NOW - timedelta(days=180)),
    ]
    assert scores(await answer(tmp_path, entries)) == {"a": 0.7, "b": 0.65}


@pytest.mark.case("C20")
@pytest.mark.without(stages__blend__tie=0.0)
async def test_equal_within_a_hundredth_goes_by_trust_counted_from_the_best_of_a_group(tmp_path: Path):
    """0.6 × cosine / 0.9: 0.6, 0.5933, 0.5867, 0.58. The first two are one group, the last two the next."""
    entries = [
        piece("volatile", cosine=0.9, trust="volatile"),
        piece("reference", cosine=0.89, trust="reference"),
        piece("plain", cosine=0.88, trust="volatile"),
        piece("sure", cosine=0.87, trust="authoritative"),
    ]
    toml = '[rag]\nstages = ["blend"]\n'
    assert ids(await answer(tmp_path, entries, toml)) == ["reference", "volatile", "sure", "plain"]


@pytest.mark.case("C41")
@pytest.mark.without(stages__least__minimum=0)
async def test_the_least_relevance_is_three_tenths_of_the_blended_score(tmp_path: Path):
    """0.6 × 0.42 / 0.9 + 0.1 × 0.5 = 0.33; with a cosine of 0.36 it is 0.29."""
    entries = [piece("top", cosine=0.9), piece("in", cosine=0.42), piece("out", cosine=0.36)]
    assert ids(await answer(tmp_path, entries)) == ["top", "in"]
    assert ids(await answer(tmp_path, entries, "[stages.least]\nminimum = 0\n")) == ["top", "in", "out"]
