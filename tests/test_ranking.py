"""Ranking stages: nothing disappears, the order before a failing stage stands, new documents enter only
sealed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import rank_by

from contextrouter import (
    ContextRouter,
    Document,
    Envelope,
    Hit,
    Intent,
    Provenance,
    Rag,
    Reranker,
    Scope,
    Stage,
    StageContext,
    StageError,
)
from contextrouter.builtin.stages.freshness import Freshness
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion import fuse
from contextrouter.pipeline.trace import TraceBuilder
from contextrouter.settings import StageKeys
from contextrouter.testing import Fixed, doc, ranked

NOW = datetime(2026, 11, 28, tzinfo=UTC)
CONTEXT = StageContext(
    intent=Intent(question="q"),
    scope=None,
    profile={},
    sources={},
    facts=(),
    now=NOW,
    seal=lambda *a, **k: None,
)


class Does(Stage):
    def __init__(self, function: object) -> None:
        self.function = function

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return (
            await self.function(envelopes, context)
            if asyncio.iscoroutinefunction(self.function)
            else self.function(envelopes, context)
        )


def pool(names: str = "a b c d") -> list[Envelope]:
    return fuse(dedupe([ranked("s", names)]), Rag())


def ids(envelopes: Sequence[Envelope], *, dropped: bool = False) -> str:
    return "".join(e.document.id for e in envelopes if (e.dropped is not None) == dropped)


async def test_the_order_a_stage_returns_is_the_new_rank():
    """The trace names the stage for each document that it leaves out."""
    result = await rank_by(pool(), {"pick": Does(lambda e, c: [e[2], e[0]])}, CONTEXT)
    assert ids(result) == "ca"
    assert {e.document.id: e.dropped for e in result if e.dropped} == {"b": "pick", "d": "pick"}


async def test_a_stage_may_drop_with_a_reason_of_its_own():
    result = await rank_by(pool("a b"), {"gate": Does(lambda e, c: [e[0], e[1].drop("too far")])}, CONTEXT)
    assert [e.dropped for e in result] == [None, "too far"]


async def test_top_n_and_keep():
    stages = {"reverse": Does(lambda e, c: e[::-1])}
    assert ids(await rank_by(pool(), stages, CONTEXT, keys={"reverse": StageKeys(top_n=2)})) == "bacd"
    result = await rank_by(pool(), stages, CONTEXT, keys={"reverse": StageKeys(keep=3)})
    assert ids(result) == "dcb"
    assert result[3].dropped == "reverse: not among the best 3"
    assert ids(await rank_by(pool(), stages, CONTEXT, keys={"reverse": StageKeys(enabled=False)})) == "abcd"


@pytest.mark.case("C18")
async def test_a_failing_or_late_stage_keeps_the_order_and_the_cut_and_is_named():
    async def late(envelopes: object, context: object) -> None:
        await asyncio.sleep(5)

    def bad(envelopes: object, context: object) -> None:
        raise RuntimeError("model is gone, token=abcdefgh")

    for function, why in ((late, "timed out"), (bad, "RuntimeError: model is gone")):
        trace = TraceBuilder()
        result = await rank_by(
            pool(), {"x": Does(function)}, CONTEXT, keys={"x": StageKeys(keep=2, timeout=0.02)}, trace=trace
        )
        assert ids(result) == "ab"
        assert trace.steps[0].note.startswith(f"failed: {why}")
        assert "abcdefgh" not in trace.steps[0].note


def leaves(*notes: object, fail: bool = False) -> Does:
    def apply(envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        for note in notes:
            context.note(note)  # type: ignore[arg-type]  # one test leaves what is no text
        return envelopes if not fail else 1 / 0

    return Does(apply)


async def note_of(stage: Stage) -> tuple[str, bool]:
    trace = TraceBuilder()
    await rank_by(pool(), {"x": stage}, CONTEXT, trace=trace)
    return trace.steps[0].note, trace.steps[0].failed


async def test_notes_of_a_stage_stand_in_its_step_masked_and_cut():
    assert await note_of(leaves()) == ("", False)
    assert await note_of(leaves("2 of 3\nfilled", "2 of 3 filled", " ", "off")) == (
        "2 of 3 filled; off",
        False,
    )
    assert await note_of(leaves("token=abcdefgh")) == ("token=***", False)
    assert await note_of(leaves("x" * 301)) == ("x" * 300 + "…", False)
    assert (await note_of(leaves(*"abcdefg")))[0] == "a; b; c; d; e; 2 more notes"


async def test_the_notes_of_a_stage_that_fails_follow_the_failure():
    note, failed = await note_of(leaves("half done", fail=True))
    assert (note, failed) == ("failed: ZeroDivisionError: division by zero; half done", True)
    note, failed = await note_of(leaves(7))
    assert failed
    assert note.startswith("failed: ContractError: note() was given int")


async def test_on_error_raise_raises():
    with pytest.raises(StageError, match="'x' failed") as caught:
        await rank_by(
            pool(), {"x": Does(lambda e, c: 1 / 0)}, CONTEXT, keys={"x": StageKeys(on_error="raise")}
        )
    assert caught.value.plugin == "x"


async def test_provenance_cannot_be_forged_and_nothing_comes_twice():
    forged = Envelope(
        document=doc("new"), provenance=(Provenance(source="s", leg="l", query="q", rank=1, score=1.0),)
    )
    for function in (lambda e, c: [*e, forged], lambda e, c: [*e, e[0]], lambda e, c: [*e, "text"]):
        trace = TraceBuilder()
        assert ids(await rank_by(pool(), {"x": Does(function)}, CONTEXT, trace=trace)) == "abcd"
        assert trace.steps[0].note.startswith("failed: ContractError")


async def test_a_stage_may_replace_a_document_s_text_and_rescore_it():
    def hydrate(envelopes: Sequence[Envelope], context: StageContext) -> list[Envelope]:
        return [
            e.replace(document=e.document.replace(content="full")).scored(9.0, 0.5, depth=1.0)
            for e in envelopes
        ]

    (envelope,) = await rank_by(pool("a"), {"h": Does(hydrate)}, CONTEXT)
    assert (envelope.document.content, envelope.score, envelope.normalized, envelope.signals) == (
        "full",
        9.0,
        0.5,
        {"fused": 1.0, "depth": 1.0},
    )


async def test_new_documents_enter_only_through_seal_labelled_and_scope_checked():
    def add(envelopes: Sequence[Envelope], context: StageContext) -> list[Envelope]:
        new = context.seal(Hit(document=doc("new", kind="document")), source="s")
        refused = context.seal(Hit(document=doc("secret", sensitivity="restricted")), source="s")
        assert refused is None
        return [new, *envelopes]

    router = ContextRouter(
        {"connectors": {"s": {"kind": "web", "queries": 1}}},
        connectors={"s": Fixed("a")},
        stages={"add": Does(add)},
    )
    async with router:
        context = await router.route("question", scope=Scope())
    assert ids(context.envelopes) == "newa"
    assert (context.envelopes[0].document.kind, context.envelopes[0].provenance[0].leg) == ("web", "stage")


async def test_a_reranker_orders_by_score_and_never_sees_blanks():
    asked: list[list[str]] = []

    class ByLength(Reranker):
        async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
            asked.append([d.id for d in documents])
            return [float(len(d.content)) for d in documents]

    lists = [ranked("s", "")]
    hits = [Hit(document=Document(id=i, content=c)) for i, c in (("a", "xx"), ("blank", "  "), ("b", "xxxx"))]
    envelopes = fuse(dedupe([lists[0].replace(hits=hits)]), Rag())
    result = await rank_by(envelopes, {"r": ByLength()}, CONTEXT)
    assert [e.document.id for e in result] == ["b", "a", "blank"]
    assert asked == [["a", "b"]]
    assert [e.signals.get("rerank") for e in result] == [4.0, 2.0, None]


async def test_no_candidates_no_call():
    result = await rank_by(
        [], {"x": Does(lambda e, c: 1 / 0)}, CONTEXT, keys={"x": StageKeys(on_error="raise")}
    )
    assert list(result) == []


@given(st.permutations("abcdef"), st.integers(0, 6), st.integers(1, 6), st.integers(1, 6))
def test_conservation_every_envelope_comes_out_exactly_once(
    order: list[str], count: int, top_n: int, keep: int
):
    def some(envelopes: Sequence[Envelope], context: StageContext) -> list[Envelope]:
        return sorted(envelopes, key=lambda e: order.index(e.document.id))[:count]

    given_ = pool("a b c d e f")
    before = [repr(e) for e in given_]
    result = asyncio.run(
        rank_by(given_, {"x": Does(some)}, CONTEXT, keys={"x": StageKeys(top_n=top_n, keep=keep)})
    )
    assert sorted(e.document.id for e in result) == list("abcdef")
    assert [repr(e) for e in given_] == before


def aged(*days: float | None) -> list[Envelope]:
    made = []
    for index, age in enumerate(days):
        moment = None if age is None else NOW - timedelta(days=age)
        document = Document(id=str(index), content=str(index), updated_at=moment)
        stamp = Provenance(source="s", leg="l", query="q", rank=index + 1, score=None)
        made.append(Envelope(document=document, provenance=(stamp,), score=1.0, normalized=0.5))
    return made


async def fresh(*days: float | None, **options: object) -> list[Envelope]:
    return await rank_by(aged(*days), {"freshness": Freshness(**options)}, CONTEXT)


@pytest.mark.case("C14")
async def test_freshness_is_one_half_after_a_half_life():
    result = {e.document.id: e for e in await fresh(0, 30, 60)}
    assert [result[i].signals["freshness"] for i in "012"] == [1.0, 0.5, 0.25]
    assert [result[i].score for i in "012"] == pytest.approx([1.1, 1.05, 1.025])
    assert [result[i].normalized for i in "012"] == pytest.approx([1.0, 1.05 / 1.1, 1.025 / 1.1])


@pytest.mark.case("FRE-01")
async def test_the_future_is_as_fresh_as_now_and_no_fresher():
    (envelope,) = await fresh(-3650)
    assert envelope.signals["freshness"] == 1.0


@pytest.mark.case("FRE-02")
async def test_decay_has_a_floor():
    result = {e.document.id: e for e in await fresh(0, 30, 36500, mode="decay", floor=0.7)}
    assert [result[i].score for i in "012"] == pytest.approx([1.0, 0.7, 0.7])


async def test_a_missing_time_is_neutral_and_traced():
    result = {e.document.id: e for e in await fresh(None, 0, 365)}
    assert result["0"].signals == {"freshness": 0.5, "freshness_missing": 1.0}
    assert "freshness_missing" not in result["1"].signals


async def test_a_vague_new_hit_does_not_overtake_an_exact_old_one_by_default():
    old, new = aged(3650, 0)
    result = await rank_by([old.scored(1.0), new.scored(0.7)], {"f": Freshness()}, CONTEXT)
    assert [e.document.id for e in result] == ["0", "1"]


@pytest.mark.parametrize("mode", ["boost", "decay"])
async def test_documents_of_one_age_keep_their_order(mode: str):
    """So the weights of sources still act."""
    lists = [ranked("heavy", "a b c", weight=1.0), ranked("light", "x y b", weight=0.2)]
    fused = list(fuse(dedupe(lists), Rag()))
    assert "".join(e.document.id for e in fused) == "bacxy"
    assert ids(await rank_by(fused, {"f": Freshness(mode=mode)}, CONTEXT)) == "bacxy"


async def test_negative_scores_are_no_trouble():
    first, second = aged(0, 0)
    result = await rank_by([first.scored(-1.0), second.scored(-3.0)], {"f": Freshness()}, CONTEXT)
    assert [(e.document.id, e.score) for e in result] == [
        ("0", pytest.approx(1.1)),
        ("1", pytest.approx(0.1)),
    ]


async def test_the_trace_keeps_the_order_behind_the_fusion_and_behind_each_stage():
    trace = TraceBuilder()
    trace.add("fuse", 4)
    stages = {
        "turn": Does(lambda envelopes, context: envelopes[::-1]),
        "cut": Does(lambda envelopes, context: envelopes[:2]),
    }
    await rank_by(pool(), stages, CONTEXT, trace=trace)
    assert [(step.name, "".join(step.order)) for step in trace.steps] == [
        ("fuse", "abcd"),
        ("turn", "dcba"),
        ("cut", "dc"),
    ]
    many = fuse(dedupe([ranked("s", " ".join(f"d{n}" for n in range(60)))]), Rag())
    await rank_by(many, {"none": Does(lambda envelopes, context: envelopes)}, CONTEXT, trace=trace)
    assert len(trace.steps[-1].order) == 50
