"""What sources and stages hand over is looked at: a careless one costs its own hits, and none widens the
scope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import (
    Context,
    ContextRouter,
    Document,
    Envelope,
    Fact,
    Hit,
    Query,
    Request,
    Scope,
    SourceError,
    Stage,
    StageContext,
)
from contextrouter.pipeline.admission import Admission
from contextrouter.serialization import plain
from contextrouter.testing import Facts, Fixed, Raising, doc

ONE: dict[str, Any] = {"rag": {"max_retrieval_queries": 1, "cache_enabled": False}}


def flawed(**fields: Any) -> Hit:
    return Hit(document=Document(**{"id": "bad", "content": "bad text", **fields}))


FLAWS = {
    "title is None": flawed(title=None),
    "content is None": flawed(content=None),
    "snippet is None": flawed(snippet=None),
    "url is list": flawed(url=["u"]),
    "id is int": flawed(id=7),
    "path is not": flawed(path=("a", None)),
    "path": flawed(path=None),
    "compartment is int": flawed(compartment=5),
    "job is int": flawed(job=5),
    "metadata is None": flawed(metadata=None),
    "updated_at is str": flawed(updated_at="2024-01-01"),
    "the document is None": Hit(document=None),  # type: ignore[arg-type]  # a wrong type on purpose
}


class Passes(Stage):
    """Hands on what it is given."""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return envelopes


@pytest.mark.parametrize("stages", [{}, {"passes": Passes()}], ids=["no stage", "a stage"])
@pytest.mark.parametrize("flaw", FLAWS)
async def test_a_hit_that_is_not_what_its_types_say_is_left_out_and_named(
    flaw: str, stages: dict[str, Stage]
):
    careless = Fixed([*Fixed("x").answer, FLAWS[flaw]])
    async with ContextRouter(
        ONE, connectors={"careless": careless, "good": Fixed("a b")}, stages=stages
    ) as router:
        context = await router.route("q")
    assert sorted(e.document.id for e in context.envelopes) == ["a", "b", "x"]
    report = next(r for r in context.coverage if r.source == "careless")
    assert (report.status, report.count) == ("partial", 1)
    assert report.error.startswith("1 of 2 hits were left out; the first: ")
    assert flaw in report.error
    assert context.degraded


@pytest.mark.parametrize("score", [10**400, "9", float("nan"), True])
@pytest.mark.parametrize("mode", ["rrf", "weighted"])
async def test_a_score_that_is_no_finite_number_counts_as_none(score: Any, mode: str):
    odd = Fixed([Hit(document=doc("x"), score=score), Hit(document=doc("y"), score=0.5)])
    rag = {**ONE["rag"], "hybrid_fusion": mode}
    async with ContextRouter({"rag": rag}, connectors={"odd": odd, "good": Fixed("a b")}) as router:
        context = await router.route("q")
    assert sorted(e.document.id for e in context.envelopes) == ["a", "b", "x", "y"]


async def ask(
    stage: Callable[[Sequence[Envelope], StageContext], Sequence[Envelope]], **request: Any
) -> Context:
    class Does(Stage):
        async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
            return stage(envelopes, context)

    async with ContextRouter(ONE, connectors={"good": Fixed("a b")}, stages={"does": Does()}) as router:
        return await router.route(Request(question="q", **request))


def note(context: Context) -> str:
    return next(step.note for step in context.trace.steps if step.name == "does")


async def test_a_stage_cannot_put_what_the_caller_may_not_see_into_an_envelope():
    secret = Document(id="s", content="TOP SECRET", tenant="other", sensitivity="restricted")
    context = await ask(lambda e, c: [e[0].replace(document=secret), e[1]], scope=Scope())
    assert "TOP SECRET" not in context.text
    assert note(context) == "failed: ContractError: apply() returned a document outside the caller's scope"
    fuller = await ask(
        lambda e, c: [e[0].replace(document=e[0].document.replace(content="all of it")), e[1]], scope=Scope()
    )
    assert fuller.envelopes[0].document.content == "all of it"


async def test_a_stage_cannot_score_by_what_is_no_number():
    context = await ask(lambda e, c: [e[0].scored(float("nan")), e[1]])
    assert note(context) == "failed: ContractError: apply() returned the score nan"


async def test_seal_keeps_out_what_the_request_keeps_out():
    """It names unknown sources and drops a document that is there already."""

    def add(
        document: Document, source: str = "good"
    ) -> Callable[[Sequence[Envelope], StageContext], list[Envelope]]:
        return lambda e, c: [*filter(None, [c.seal(Hit(document=document), source=source)]), *e]

    video = doc("v", kind="video")
    assert [e.document.id for e in (await ask(add(video))).envelopes] == ["v", "a", "b"]
    assert "v" not in [e.document.id for e in (await ask(add(video), kinds=("document",))).envelopes]
    assert note(await ask(add(video, "nowhere"))).startswith(
        "failed: ContractError: seal() names the source 'nowhere'"
    )
    twice = await ask(add(doc("a")))
    assert [e.document.id for e in twice.envelopes] == ["a", "b"]
    assert [e.dropped for e in twice.trace.dropped] == ["does: brought in what was there already"]


async def test_a_fallback_tells_what_the_route_before_it_met():
    settings = {
        **ONE,
        "routes": {
            "narrow": {"sources": ["none", "broken"], "fallback": "wide"},
            "wide": {"sources": ["some"]},
        },
    }
    sources = {"none": Fixed([]), "broken": Raising(SourceError("down")), "some": Fixed("a")}
    async with ContextRouter(settings, connectors=sources) as router:
        context = await router.route(Request(question="q", mode="narrow"))
    assert {r.source: r.status for r in context.coverage} == {"none": "ok", "broken": "error", "some": "ok"}
    assert context.degraded
    assert context.usage.calls == 3


async def test_a_fallback_that_fails_leaves_the_first_answer_standing():
    settings = {
        **ONE,
        "routes": {"narrow": {"sources": ["none"], "fallback": "wide"}, "wide": {"sources": ["broken"]}},
    }
    async with ContextRouter(
        settings, connectors={"none": Fixed([]), "broken": Raising(SourceError("down"))}
    ) as router:
        context = await router.route(Request(question="q", mode="narrow"))
    assert (context.outcome, context.degraded) == ("empty", True)
    assert [(r.source, r.status) for r in context.coverage if r.status != "skipped"] == [
        ("none", "ok"),
        ("broken", "error"),
    ]


async def test_hurried_callers_do_not_close_a_source_to_the_others():

    class Slow(Fixed):
        hurried = True

        async def search(self, query: Query) -> Sequence[Hit]:
            if self.hurried:
                raise TimeoutError
            return self.answer

    slow = Slow("a")
    settings = {**ONE, "limits": {"breaker_failures": 2}}
    async with ContextRouter(settings, connectors={"slow": slow, "good": Fixed("b")}) as router:
        for _ in range(5):
            await router.route("q", deadline=0.05)
        slow.hurried = False
        context = await router.route("q")
    assert {r.source: r.status for r in context.coverage} == {"slow": "ok", "good": "ok"}


@given(st.lists(st.sampled_from([*FLAWS, "", "", "path of texts", "dated", "own mapping"]), max_size=4))
def test_admission_keeps_what_has_the_right_types_and_names_each_flaw(names: list[str]):
    plain = {
        "": doc("a"),
        "path of texts": Document(content="x", path=("Top",)),
        "dated": Document(content="x", updated_at=datetime.now(UTC)),
        "own mapping": Document(content="x", metadata=MappingProxyType({"a": 1})),
    }
    hits = [FLAWS[name] if name in FLAWS else Hit(document=plain[name]) for name in names]
    admission = Admission(Query(text="q"), None)
    assert admission.hits(hits) == [hit for hit, name in zip(hits, names, strict=True) if name in plain]
    flawed = [name for name in names if name in FLAWS]
    assert len(admission.flaws) == len(flawed)
    assert all(name in flaw for name, flaw in zip(flawed, admission.flaws, strict=True))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", None),
        ("object", 5),
        ("object", ["o"]),
        ("confidence", "x"),
        ("valid_from", "2024"),
        ("attributes", None),
    ],
)
async def test_a_fact_of_wrong_types_costs_itself_only(field: str, value: Any):
    good = Fact(subject="Ada", predicate="knows", object="Bob")
    graph = Facts([good, good.replace(**{field: value})])
    async with ContextRouter({}, connectors={"s": Fixed("a")}, facts={"graph": graph}) as router:
        context = await router.route("Ada")
    assert [fact.object for fact in context.facts] == ["Bob"]
    assert "knows" in context.text
    report = next(report for report in context.coverage if report.source == "graph")
    assert (report.status, report.count) == ("partial", 1)
    assert report.error.startswith(f"1 of 2 facts were left out; the first: {field} is ")
    assert plain(context)


async def test_a_score_that_is_no_number_is_taken_away():
    odd = Fixed([Hit(document=doc("x"), score="high")])  # type: ignore[arg-type]  # wrong on purpose
    async with ContextRouter(ONE, connectors={"odd": odd}) as router:
        context = await router.route("q")
    assert [seal.score for envelope in context.envelopes for seal in envelope.provenance] == [None]
