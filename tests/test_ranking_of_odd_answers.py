"""Odd scores, vectors, weights and counts of plugins: the answer comes, in time, and says what was left out."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from contextrouter import (
    Context,
    ContextRouter,
    ContractError,
    Document,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Provider,
    Scope,
    SettingsError,
)
from contextrouter.contracts import TermStatistics
from contextrouter.model.plain_form import encode_json
from contextrouter.pipeline.explanation import explain_order, explain_score
from contextrouter.serialization import plain
from contextrouter.testing import Fixed, Legs, Ones


def hits(prefix: str, scores: Sequence[Any], vectors: Sequence[Any] = ()) -> list[Hit]:
    return [
        Hit(
            document=Document(id=f"{prefix}{n}", content=f"moon {prefix} {n}"),
            score=score,
            vector=vectors[n] if n < len(vectors) else None,
        )
        for n, score in enumerate(scores)
    ]


class OnlyVectors(Legs):
    score_range = (-1.0, 1.0)


def sources_of(scores: Sequence[Any]) -> dict[str, Provider]:
    return {
        "a": OnlyVectors({"vector": hits("a", scores)}, embedder="e"),
        "b": OnlyVectors({"vector": hits("b", [0.8])}, embedder="e"),
    }


async def routed(providers: dict[str, Provider], embedder: Ones | None = None, **rag: Any) -> Context:
    """Route a question, and see that what comes is JSON and can be explained."""
    settings = {"rag": {"interpreters": [], "cache_enabled": False, **rag}}
    async with ContextRouter(settings, providers=providers, embedders={"e": embedder or Ones()}) as router:
        context = await router.route("moon")
    json.loads(encode_json(plain(context)), parse_constant=pytest.fail)
    for upper, lower in zip(context.envelopes, context.envelopes[1:], strict=False):
        assert explain_score(upper)
        assert explain_order(upper, lower)
    return context


@pytest.mark.parametrize(
    "scores",
    [
        [0.9, math.nan],
        [math.nan, 0.5],
        [math.inf, 0.5],
        [10**400, 1],
        [Fraction(3, 2), Fraction(1, 2)],
        [1.7e308, 1.0],
        [True, None],
        [-1.7e308, -1.7e308],
        [np.float32(0.5), np.float64(0.25)],
    ],
)
async def test_scores_that_are_no_usual_numbers_lose_nothing(scores: list[Any]):
    context = await routed(sources_of(scores))
    assert {e.document.id for e in context.envelopes} == {"a0", "a1", "b0"}
    assert all(math.isfinite(e.score) and 0 <= e.normalized <= 1 for e in context.envelopes)


@pytest.mark.parametrize(
    "vector",
    [
        5,
        "ab",
        b"ab",
        {1, 2},
        {"x": 1.0, "y": 2.0},
        ["a", "b"],
        [[1.0], [0.0]],
        [10**400, 0],
        [1j, 0],
        [],
        [None, 1.0],
        np.array(1.0),
        (n for n in (1.0, 0.0)),
    ],
)
async def test_a_vector_that_is_none_counts_as_none(vector: Any):
    """Alone, and beside another source, where it is compared with the candidates of both."""
    legs = {"text": hits("a", [2.0, 1.0], [vector, [1.0, 0.0]]), "vector": hits("c", [0.5], [[1.0, 0.0]])}
    other = {"text": hits("b", [2.0], [[0.6, 0.8]]), "vector": hits("b", [0.9], [[0.6, 0.8]])}
    alone = await routed({"a": Legs(legs, embedder="e")})
    beside = await routed({"a": Legs(legs, embedder="e"), "b": Legs(other, embedder="e")})
    assert {e.document.id for e in alone.envelopes} == {"a0", "a1", "c0"}
    assert {e.document.id for e in beside.envelopes} == {"a0", "a1", "c0", "b0"}


class Stubborn(Ones):
    """Embeds questions at once; documents it embeds badly, or never, whatever cancels it."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer, self.over = answer, False

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        if query:
            return await super().embed(texts, query=True)
        if self.answer == "never":
            for _ in range(40):
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    continue
        if self.answer == "cancelled":
            raise asyncio.CancelledError
        return self.answer


@pytest.mark.parametrize("answer", [None, 5, [], ["x"], "never", "cancelled"])
@pytest.mark.case("ASY-06")
async def test_an_embedder_that_fails_candidates_costs_their_vectors_alone(answer: Any):
    sources = {
        "a": Legs({"text": hits("a", [2.0]), "vector": []}, embedder="e"),
        "b": Legs({"text": hits("b", [1.0]), "vector": []}, embedder="e"),
    }
    loop = asyncio.get_running_loop()
    started = loop.time()
    context = await routed(sources, Stubborn(answer), calibrate_embed=5, timeout_seconds=1.0)
    assert len(context.envelopes) == 2
    assert loop.time() - started < 3.5  # it hangs for four seconds
    note = next(step.note for step in context.trace.steps if step.name == "calibrate")
    assert "not embedded" in note or answer == ["x"]


class Counts(Fixed):
    """A source whose statistics are odd, or never come, whatever cancels them."""

    def __init__(self, prefix: str, **counts: Any) -> None:
        super().__init__(hits(prefix, [1.0]))
        self.counts = counts

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        if not self.counts:
            for _ in range(40):
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    continue
        values = {"documents": 10, "average_length": 2.0, "frequency": 1, **self.counts}
        frequencies = dict.fromkeys(terms, values["frequency"])
        return TermStatistics(
            documents=values["documents"], average_length=values["average_length"], frequencies=frequencies
        )


@pytest.mark.parametrize(
    "counts",
    [
        {"documents": 10**400},
        {"documents": math.inf},
        {"documents": math.nan},
        {"frequency": math.nan},
        {"frequency": math.inf},
        {"frequency": -1},
        {},
    ],
)
async def test_odd_statistics_are_not_believed_and_late_ones_not_awaited(counts: dict[str, Any]):
    settings = {"rag": {"interpreters": [], "timeout_seconds": 1.0}}
    sources = {"a": Counts("a", **counts), "b": Counts("b", documents=5)}
    loop = asyncio.get_running_loop()
    async with ContextRouter(settings, connectors=sources) as router:
        started = loop.time()
        context = await router.route("moon")
        assert loop.time() - started < 3.5
    note = next(step.note for step in context.trace.steps if step.name == "calibrate")
    assert note == "by text; statistics of what was returned for a"
    assert all(math.isfinite(e.score) for e in context.envelopes)


@pytest.mark.parametrize("weights", [None, [1], {"vector": None}, {"vector": math.inf}, {"vector": -1.0}])
@pytest.mark.parametrize("name", ["score_weights", "leg_weights"])
def test_an_embedder_whose_weights_are_none_stops_the_start(name: str, weights: Any):
    embedder = Ones()
    setattr(embedder, name, weights)
    with pytest.raises(ContractError, match=name):
        ContextRouter(providers={"a": Legs({"vector": []}, embedder="e")}, embedders={"e": embedder})


@pytest.mark.parametrize("weight", [1e308, 1e-320])
async def test_a_weight_too_large_to_multiply_leaves_ranks(weight: float):
    settings = {"rag": {"interpreters": []}, "connectors": {"a": {"weight": weight}}}
    sources = {"a": Counts("a", documents=5), "b": Counts("b", documents=5)}
    async with ContextRouter(settings, connectors=sources) as router:
        context = await router.route("moon")
    assert {e.document.id for e in context.envelopes} == {"a0", "b0"}
    assert all(math.isfinite(e.score) for e in context.envelopes)


def test_weights_of_legs_that_are_all_0_stop_the_start():
    with pytest.raises(SettingsError, match="weight of every leg is 0"):
        ContextRouter({"rag": {"leg_weights": {"default": 0}}}, connectors={"a": Fixed("a")})
    names = {"a.default": 0, "b.default": 0}
    with pytest.raises(SettingsError, match="weight of every leg is 0"):
        ContextRouter({"rag": {"leg_weights": names}}, connectors={"a": Fixed("a"), "b": Fixed("b")})


async def test_what_a_source_of_weight_0_found_too_is_cited_from_the_other():
    same = [Hit(document=Document(content=f"moon {n}"), score=1.0) for n in range(3)]
    settings = {"rag": {"max_per_source": {"a": 1}}, "connectors": {"a": {"weight": 0.0}}}
    async with ContextRouter(settings, connectors={"a": Fixed(same), "b": Fixed(same)}) as router:
        context = await router.route("moon")
    assert [citation.source for citation in context.citations] == ["b"] * 3


async def test_noise_in_the_last_digit_is_no_other_order():
    source = Legs({"text": hits("a", [100.0, 1.0, 1.0000000000000002])})
    async with ContextRouter(providers={"docs": source}) as router:
        context = await router.route("moon")
    assert [e.score for e in context.envelopes] == [1.0, 0.01, 0.01]


async def test_candidates_beyond_those_that_are_compared_are_told():
    sources = {name: Fixed(hits(name, [1.0] * 1500)) for name in "ab"}
    rag = {"interpreters": [], "candidates": 1500}
    async with ContextRouter({"rag": rag}, connectors=sources) as router:
        context = await router.route("moon")
    note = next(step.note for step in context.trace.steps if step.name == "calibrate")
    assert "the best 2,000 of 3,000 candidates" in note


class OldStyle(Interpreter):
    async def interpret(self, intent: Intent) -> Intent:  # type: ignore[override]  # as interpreters were before
        return intent


class Refusing(Interpreter):
    seen: ClassVar[list[InterpreterContext]] = []

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        self.seen.append(context)
        return intent


async def test_an_interpreter_knows_the_request_its_routes_sources_and_the_time():
    with pytest.raises(ContractError, match=r"does not take the arguments \(intent, context\)"):
        ContextRouter({"rag": {"interpreters": ["old"]}}, interpreters={"old": OldStyle()})
    settings = {
        "rag": {"interpreters": ["knows"], "timezone": "Asia/Tokyo"},
        "routes": {"news": {"description": "what is new"}},
    }
    sources = {"a": Fixed("a"), "b": Fixed("b")}
    router = ContextRouter(settings, connectors=sources, interpreters={"knows": Refusing()})
    async with router:
        await router.route("moon", sources=["b"])
    (context,) = Refusing.seen
    assert (context.request.question, dict(context.routes)) == ("moon", {"news": "what is new"})
    assert list(context.sources) == ["b"]
    assert str(context.now.tzinfo) == "Asia/Tokyo"


async def test_provenance_says_place_and_score_within_the_source():

    context = await routed({"a": Legs({"text": hits("a", [4.0, 1.0])})})
    assert [(p.place, p.source_score, p.calibrated) for e in context.envelopes for p in e.provenance] == [
        (1, 1.0, None),
        (2, 0.25, None),
    ]


class Switched(Interpreter):
    """Adds a query, unless `[rag] enable_multi_query` is false."""

    switch = "enable_multi_query"

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(queries=(*intent.queries, "another"), concepts=("seen",))


@pytest.mark.parametrize("key", ["enable_multi_query", "use_enhancements"])
async def test_the_switch_of_an_interpreter_turns_it_off(key: str):
    for value, concepts in ((True, ("seen",)), (False, ())):
        settings = {"rag": {"interpreters": ["more"], key: value}}
        made = ContextRouter(settings, connectors={"a": Fixed("a")}, interpreters={"more": Switched()})
        async with made as router:
            assert (await router.plan("moon")).intent.concepts == concepts


def test_a_misspelt_switch_of_an_interpreter_stops_the_start():
    interpreter = Switched()
    interpreter.switch = "enable_multi_qery"
    with pytest.raises(ContractError, match="enable_multi_query"):
        ContextRouter({"rag": {"interpreters": ["more"]}}, interpreters={"more": interpreter})
