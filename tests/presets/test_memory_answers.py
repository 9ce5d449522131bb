"""The preset `memory`: what comes back of a question, its order, its length, and what is true now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.presets import Plane, fill, ids, note, piece, system

from contextrouter import Context, Fact, Hit
from contextrouter.builtin.stages import reranking_example
from contextrouter.contracts import Entry
from contextrouter.serialization import plain
from contextrouter.testing import Fixed

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
QUESTION = "What about tides?"
NO_LABELS = '[rag]\ninterpreters = ["periods", "names", "understand"]\n'


async def answer(
    folder: Path, entries: Sequence[Entry], toml: str = NO_LABELS, question: str = QUESTION, **request: Any
) -> Context:
    by_hand = {"connectors": request.pop("connectors", {}), "embedders": {"default": Plane(elsewhere=0.0)}}
    router = system(folder, "memory", toml, clock=lambda: NOW, **by_hand)
    await fill(router, "memories", *entries)
    async with router:
        return await router.route(question, **request)


@pytest.mark.case("M12")
@pytest.mark.without(rag__identity="id")
async def test_what_several_legs_and_sources_find_is_merged_into_one(tmp_path: Path):
    entry = piece("a", "tides and harbours")
    notes = Fixed([Hit(document=entry.document.replace(id="twin"))])
    (envelope,) = (await answer(tmp_path, [entry], connectors={"notes": notes})).envelopes
    assert {(seal.source, seal.leg) for seal in envelope.provenance} == {
        ("memories", "vector"),
        ("memories", "text"),
        ("notes", "default"),
    }


def reranker(folder: Path) -> str:
    (folder / "model").mkdir(parents=True, exist_ok=True)
    reranking_example.write_model(folder / "model")
    return NO_LABELS + '[stages.rerank]\nenabled = true\nhub = ""\nfile = "model.onnx"\npath = "model"\n'


@pytest.mark.case("M13")
@pytest.mark.without(stages__rerank__on_error="raise")
async def test_a_reranker_may_order_and_where_it_fails_the_order_stays(tmp_path: Path):
    entries = [piece("a", "waves", cosine=0.9), piece("b", "what about tides", cosine=0.1)]
    toml = reranker(tmp_path).replace("[rag]\n", "[rag]\nenable_fts = false\n")
    assert ids(await answer(tmp_path, entries, toml)) == ["b", "a"]
    (tmp_path / "model" / "model.onnx").write_bytes(b"no model")
    failed = await answer(tmp_path, entries, toml)
    assert (ids(failed), failed.degraded) == (["a", "b"], True)
    assert "cannot load" in note(failed, "rerank")


@pytest.mark.case("M14")
@pytest.mark.without(rag__token_budget=0)
async def test_the_text_has_at_most_ten_thousand_tokens_and_at_least_one_block(tmp_path: Path):
    entries = [piece(f"d{n}", "tides " * 3000, cosine=0.9 - n / 10) for n in range(5)]
    context = await answer(tmp_path / "many", entries)
    assert (ids(context), (context.usage.tokens or 0) <= 10_000) == (["d0", "d1", "d2"], True)
    assert {e.document.id for e in context.trace.dropped} == {"d3", "d4"}
    one = await answer(tmp_path / "one", [piece("long", "tides " * 20_000)])
    assert (ids(one), (one.usage.tokens or 0) <= 10_000) == (["long"], True)


@pytest.mark.case("M15")
@pytest.mark.without(routes__open__fallback="temporal")
async def test_the_payload_says_how_the_question_was_read_and_which_route_it_took(tmp_path: Path):
    context = await answer(
        tmp_path, [piece("a", "tides")], question="What about Anna in 2020?", mode="temporal"
    )
    payload = json.loads(json.dumps(plain(context)))
    assert payload["intent"]["kind"] == "everything"
    assert payload["intent"]["entities"] == ["Anna"]
    assert payload["intent"]["period"]["start"] == "2020-01-01"
    assert payload["trace"]["plan"]["route"] == "everything"
    notes = " ".join(step["note"] for step in payload["trace"]["steps"])
    assert "route 'temporal' found nothing: 'open' instead" in notes
    assert "route 'open' found nothing: 'everything' instead" in notes


def episodes(count: int) -> list[Entry]:
    found = [
        piece(f"e{n}", f"tides {n}", kind="episode", cosine=0.9 - n / 10, metadata={"session": "s1"})
        for n in range(count)
    ]
    summary = piece("diary:sessions/s1", "summary of the week", kind="session", cosine=-0.9)
    return [*found, summary]


@pytest.mark.case("M26")
@pytest.mark.without(stages__sessions__least=4)
async def test_three_episodes_of_a_session_make_place_for_its_summary(tmp_path: Path):
    context = await answer(tmp_path / "three", episodes(3), mode="exploratory")
    assert ids(context) == ["diary:sessions/s1"]
    assert context.envelopes[0].signals["collapsed"] == 3.0
    assert ids(await answer(tmp_path / "two", episodes(2), mode="exploratory"))[:2] == ["e0", "e1"]


def home(place: str, start: int, end: int | None) -> Fact:
    return Fact(
        subject="Anna",
        predicate="lives_in",
        object=place,
        valid_from=datetime(start, 1, 1, tzinfo=UTC),
        valid_to=datetime(end, 1, 1, tzinfo=UTC) if end else None,
    )


@pytest.mark.case("M27")
@pytest.mark.without(
    "contextrouter/pipeline/planning/restrictions.py", "as_of = request.as_of", "as_of = None"
)
async def test_what_is_true_now_comes_and_at_another_day_what_was_true_then(tmp_path: Path):
    entries = [piece("a", "x", facts=[home("Hamburg", 2015, 2024), home("Bremen", 2024, None)])]
    question = "Where does Anna live?"
    now = await answer(tmp_path, entries, question=question, mode="entity_lookup")
    then = await answer(
        tmp_path, entries, question=question, mode="entity_lookup", as_of=datetime(2020, 5, 1, tzinfo=UTC)
    )
    assert [[fact.object for fact in context.facts] for context in (now, then)] == [["Bremen"], ["Hamburg"]]
    assert "No longer true:" not in then.text  # on that day it was true


@pytest.mark.case("M31")
@pytest.mark.without(rag__exact_legs=[])
async def test_exact_words_are_found_whatever_label_was_inferred(tmp_path: Path):
    toml = (
        '[rag]\ninterpreters = ["labels"]\n[interpreters.labels]\nthreshold = 0.8\n'
        '[interpreters.labels.labels]\nwork = { description = "at 0.9" }\n'
    )
    entries = [piece("exact", "the word zeppelin", labels=("home",)), piece("work", "x", labels=("work",))]
    context = await answer(tmp_path, entries, toml, "What about the zeppelin?")
    assert "work" in context.intent.labels
    assert ids(context)[0] == "exact"
    settings = system(tmp_path, "memory").settings
    searching = [route.legs for route in settings.routes.values() if route.legs and "mentions" in route.legs]
    assert len(searching) == 3
    assert all("text" in route_legs for route_legs in searching)


@pytest.mark.case("M32")
@pytest.mark.without(
    "contextrouter/router.py",
    "return await Run(request, until, self.engine).make_plan()",
    "await (run := Run(request, until, self.engine)).make_plan(); await run.fan_out(); return run.plan",
)
async def test_a_plan_shows_what_would_be_asked_and_asks_nothing(tmp_path: Path):
    notes = Fixed("x")
    router = system(tmp_path, "memory", NO_LABELS, clock=lambda: NOW, connectors={"notes": notes})
    async with router:
        plan = await router.plan("What did Anna say last week?", mode="exploratory")
    assert {call.query.leg for call in plan.calls if call.source == "memories"} == {
        "vector",
        "keywords",
        "text",
        "mentions",
    }
    assert notes.queries == []
