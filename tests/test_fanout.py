"""The fan-out: everything at once, inside one deadline; failures are data and nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Mapping, Sequence
from time import monotonic

import pytest
from support.engines import engine_of

from contextrouter import (
    Call,
    Document,
    Fact,
    Harvest,
    Hit,
    Intent,
    Partial,
    Plan,
    Query,
    Scope,
    Source,
    SourceError,
    SourceTimeout,
)
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.fan_out import fan_out
from contextrouter.runtime.threads import Threads
from contextrouter.settings import SourceKeys
from contextrouter.testing import Facts, Fixed, Legs, Ones, Raising, hits


def plan_of(
    sources: Mapping[str, object], *, queries: str = "q", timeout: float | None = None, **query: object
) -> Plan:
    made = []
    for name, source in sources.items():
        legs = source.legs if isinstance(source, Source) else ("facts",)
        made += [
            Call(source=name, query=Query(text=t, leg=leg, **query), timeout=timeout)
            for leg in legs
            for t in queries.split()
        ]
    return Plan(intent=Intent(question="q", queries=("q",)), calls=tuple(made))


async def run(
    deadline: float | None = None,
    *,
    embedders: dict | None = None,
    engine: Engine | None = None,
    timeout: float | None = None,
    query: dict | None = None,
    **sources: object,
) -> Harvest:
    until = None if deadline is None else Deadline.after(deadline)
    plan = plan_of(sources, timeout=timeout, **(query or {}))
    return await fan_out(plan, engine or engine_of(sources, embedders=embedders), until)


def statuses(harvest: Harvest) -> dict[str, str]:
    return {report.source: report.status for report in harvest.reports}


@pytest.mark.case("ASY-02")
async def test_one_hanging_one_raising_the_others_results_are_used_and_nothing_runs_on():
    started = monotonic()
    harvest = await run(0.5, good=Fixed("a"), hang=Fixed("b", delay=60), bad=Raising(ValueError("broken")))
    assert 0.4 < monotonic() - started < 30
    assert statuses(harvest) == {"good": "ok", "hang": "timeout", "bad": "error"}
    assert [ranked.source for ranked in harvest.lists] == ["good"]
    assert "ValueError: broken" in next(r.error for r in harvest.reports if r.source == "bad")
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.case("R03")
async def test_the_time_is_that_of_the_slowest_not_the_sum():
    everyone = asyncio.Barrier(10)

    class WaitsForTheOthers(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            await everyone.wait()
            return self.answer

    sources = {f"s{i}": WaitsForTheOthers("a") for i in range(10)}
    assert statuses(await run(30, **sources)) == dict.fromkeys(sources, "ok")


@pytest.mark.case("B01")
async def test_a_source_has_a_timeout_of_its_own_inside_the_deadline():
    started = monotonic()
    harvest = await run(60, timeout=0.05, slow=Fixed("a", delay=60))
    assert monotonic() - started < 30
    assert statuses(harvest) == {"slow": "timeout"}


class Cancels(Fixed):
    """Cancels the task it is called in, and answers all the same."""

    async def search(self, query: Query) -> Sequence[Hit]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await super().search(query)


class Tasks(Fixed):
    """Notes in which task it was called."""

    def __init__(self, *args: object, seen: list[object], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # whatever the base class takes
        self.seen = seen

    async def search(self, query: Query) -> Sequence[Hit]:
        self.seen.append(asyncio.current_task())
        return await super().search(query)


async def test_a_source_that_cancels_its_own_task_harms_no_other():
    harvest = await run(1, first=Fixed("a"), odd=Cancels("b"), good=Fixed("c"), slow=Fixed("d", delay=0.01))
    assert statuses(harvest) == {"first": "ok", "odd": "ok", "good": "ok", "slow": "ok"}


async def test_every_call_has_a_task_of_its_own():
    seen: list[object] = []
    a, b, d, e = (Tasks(name, seen=seen) for name in "abde")
    await run(1, a=a, b=b, wait=Tasks("c", seen=seen, delay=0.01), d=d, e=e)
    assert len({*seen}) == 5


async def test_lists_come_in_the_order_of_the_plan_whoever_answers_first():
    harvest = await run(5, late=Fixed("a", delay=0.05), early=Fixed("b"))
    assert [ranked.source for ranked in harvest.lists] == ["late", "early"]


@pytest.mark.case("ASY-11")
async def test_a_dead_leg_leaves_the_others():
    class HalfDead(Legs):
        async def search(self, query: Query) -> Sequence[Hit]:
            if query.leg == "text":
                raise SourceError("query too long")
            return await super().search(query)

    harvest = await run(5, docs=HalfDead({"vector": hits("a"), "text": hits("b")}))
    assert [(r.leg, r.status, r.error) for r in harvest.reports] == [
        ("vector", "ok", ""),
        ("text", "error", "query too long"),
    ]
    assert [ranked.leg for ranked in harvest.lists] == ["vector"]


@pytest.mark.case("ASY-10")
async def test_a_partial_answer_is_used_and_what_is_missing_is_said():
    class Pages(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            return Partial(self.answer, "1 of 3 pages did not answer")

    harvest = await run(5, pages=Pages("a b"))
    (report,) = harvest.reports
    assert (report.status, report.count, report.error) == ("partial", 2, "1 of 3 pages did not answer")
    assert len(harvest.lists[0].hits) == 2


async def test_a_source_that_says_it_timed_out_is_reported_so():
    assert statuses(await run(5, s=Raising(SourceTimeout("too slow")), t=Raising(TimeoutError()))) == {
        "s": "timeout",
        "t": "timeout",
    }


async def test_a_source_is_told_a_deadline_a_little_before_the_cut():
    """Of five seconds 50 ms are kept back, of a timeout of its own a twentieth."""

    class Careful(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            assert query.deadline is not None
            self.deadline, self.called = query.deadline, monotonic()
            return self.answer

    for timeout, left in ((None, 4.95), (2.0, 1.9)):
        source, began = Careful("a"), monotonic()
        assert statuses(await run(5, timeout=timeout, careful=source)) == {"careful": "ok"}
        assert began + left - 1e-6 <= source.deadline <= source.called + left + 1e-6


async def test_a_cancelled_caller_leaves_nothing_running():
    begun, ended = asyncio.Event(), asyncio.Event()

    class Watched(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()
            return []

    task = asyncio.create_task(run(60, s=Watched("a")))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_source_that_ignores_cancellation_does_not_hold_the_answer_up():
    released = asyncio.Event()

    class Stubborn(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()
            return []

    sources = {"stubborn": Stubborn("a"), "good": Fixed("b")}
    engine = engine_of(sources)
    harvest = await run(0.3, engine=engine, **sources)
    assert statuses(harvest) == {"stubborn": "timeout", "good": "ok"}
    assert engine.limits.abandoned.counts()["source 'stubborn'"] == 1
    released.set()
    await engine.limits.aclose()
    assert engine.limits.abandoned.counts()["source 'stubborn'"] == 0


async def test_each_text_is_embedded_once_per_embedder_while_other_legs_already_run():
    embedder = Ones(delay=0.05)
    order: list[str] = []

    class Noting(Legs):
        async def search(self, query: Query) -> Sequence[Hit]:
            order.append(query.leg)
            return await super().search(query)

    docs = Noting({"vector": hits("a"), "text": hits("b")}, embedder="e")
    more = Legs({"vector": hits("a")}, embedder="e")
    await run(5, embedders={"e": embedder}, docs=docs, more=more)
    assert embedder.asked == [["q"]]
    assert order == ["text", "vector"]
    assert {q.leg: q.vector for q in docs.queries} == {"vector": (1.0, 0.0), "text": None}


async def test_an_embedder_s_failure_is_the_error_of_its_legs_only():
    docs = Legs({"vector": hits("a"), "text": hits("b")}, embedder="e")
    harvest = await run(5, embedders={"e": Ones(error=RuntimeError("no model"))}, docs=docs)
    assert {r.leg: (r.status, r.error) for r in harvest.reports} == {
        "vector": ("error", "RuntimeError: no model"),
        "text": ("ok", ""),
    }


async def test_a_hanging_embedder_costs_its_legs_and_no_more():
    docs = Legs({"vector": hits("a"), "text": hits("b")}, embedder="e")
    harvest = await run(0.1, embedders={"e": Ones(delay=10)}, docs=docs)
    assert {r.leg: r.status for r in harvest.reports} == {"vector": "timeout", "text": "ok"}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_embedder_that_does_not_exist_is_named():
    harvest = await run(5, docs=Legs({"vector": hits("a")}, embedder="missing"))
    assert "embedder 'missing' is not defined" in harvest.reports[0].error


@pytest.mark.case("C16")
async def test_scope_is_enforced_on_arrival_whatever_the_source_does():
    secret = Hit(document=Document(id="s", content="x", sensitivity="restricted"))
    other = Hit(document=Document(id="o", content="y", tenant="other"))
    unknown = Hit(document=Document(id="u", content="z", sensitivity="cosmic"))
    harvest = await run(
        5, query={"scope": Scope()}, s=Fixed([secret, *hits("a"), other, unknown], careless=True)
    )
    assert [h.document.id for h in harvest.lists[0].hits] == ["a"]
    bare = await run(5, query={"scope": Scope()}, s=Fixed("a", careless=True))
    seen, known = (
        report.replace(elapsed=0.0, started=0.0) for report in (harvest.reports[0], bare.reports[0])
    )
    assert seen == known  # nothing says that there is more
    facts = [Fact(subject="s", predicate="p", object="o", tenant="other")]
    told = await run(5, query={"scope": Scope()}, g=Facts(facts, careless=True))
    assert (told.reports[0].count, told.reports[0].withheld) == (0, 0)


async def test_what_is_in_scope_and_filtered_out_is_counted():
    given = [("b", "t"), ("c", "t"), ("b", "other")]
    both = [Hit(document=Document(id=kind, content=kind, kind=kind, tenant=tenant)) for kind, tenant in given]
    harvest = await run(
        5, query={"scope": Scope(tenant="t"), "filters": {"kind": "a"}}, s=Fixed(both, careless=True)
    )
    assert (harvest.reports[0].count, harvest.reports[0].withheld) == (0, 2)


@pytest.mark.parametrize(
    ("declared", "taken"),
    [
        ([0, 1], (0, 1)),
        ((0.0, 2.0), (0.0, 2.0)),
        ({"default": [0, 1]}, (0, 1)),
        ({"other": (0, 1)}, None),
        (None, None),
    ],
)
async def test_a_score_range_may_be_any_pair_of_numbers(declared: object, taken: object):
    source = Fixed("a")
    source.score_range = declared  # type: ignore[assignment]  # any value: that is the test
    harvest = await run(5, s=source)
    assert harvest.lists[0].score_range == taken


@pytest.mark.parametrize(
    "declared", [[0], (0, 1, 2), "01", (1, 0), (0, float("inf")), (float("nan"), 1), 5, ("a", "b"), [None, 1]]
)
async def test_what_is_no_score_range_is_that_call_s_error(declared: object):
    source = Fixed("a")
    source.score_range = declared  # type: ignore[assignment]  # any value: that is the test
    harvest = await run(5, s=source, good=Fixed("b"))
    assert statuses(harvest) == {"s": "error", "good": "ok"}
    assert "give the lowest and the highest score" in harvest.reports[0].error


async def test_labels_of_the_table_fill_gaps_and_only_tighten():
    keys = SourceKeys(kind="web", trust="volatile", tenant="t", compartment="hr", sensitivity="internal")
    given = [
        Document(id="1", content="a"),
        Document(
            id="2",
            content="b",
            sensitivity="restricted",
            kind="book",
            trust="authoritative",
            compartment="fin",
            tenant="u",
        ),
        Document(id="3", content="c", sensitivity="public"),
    ]
    sources = {"s": Fixed([Hit(document=d) for d in given])}
    harvest = await run(5, engine=engine_of(sources, keys={"s": keys}), **sources)
    got = [
        (d.kind, d.trust, d.tenant, d.compartment, d.sensitivity)
        for d in (h.document for h in harvest.lists[0].hits)
    ]
    assert got[0] == ("web", "volatile", "t", "hr", "internal")
    assert got[1] == ("book", "authoritative", "u", "fin", "restricted")
    assert got[2] == ("web", "volatile", "t", "hr", "internal")


async def test_filters_and_kinds_are_enforced_on_arrival():
    found = [
        Hit(document=Document(id=k, content=k, kind=k, metadata={"year": y}))
        for k, y in (("book", 2020), ("book", 2021), ("web", 2020))
    ]
    harvest = await run(5, query={"filters": {"kind": ["book"], "year": 2020}}, s=Fixed(found, careless=True))
    assert len(harvest.lists[0].hits) == 1


async def test_more_than_the_limit_is_cut_and_what_is_no_answer_is_an_error():
    class Wrong(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            return {"a": 1}  # type: ignore[return-value]  # a wrong type on purpose

    class Many(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            return hits("a b c d")

    harvest = await run(5, query={"limit": 2}, many=Many(), wrong=Wrong())
    assert len(harvest.lists[0].hits) == 2
    assert statuses(harvest) == {"many": "ok", "wrong": "error"}


async def test_facts_are_stamped_with_their_source_and_scope_checked():
    forged = Fact(subject="a", predicate="p", object="b", source="the oracle")
    facts = [forged, Fact(subject="a", predicate="p", object="c", compartment="hr")]
    harvest = await run(5, query={"scope": Scope()}, g=Facts(facts, careless=True))
    assert [(f.object, f.source) for f in harvest.facts] == [("b", "g")]


async def test_concurrency_of_a_source_and_of_all_is_limited():
    running = 0
    most = 0

    class Counting(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return []

    sources = {f"s{i}": Counting() for i in range(3)}
    await fan_out(plan_of(sources, queries="1 2 3"), engine_of(sources, rag={"max_concurrency": 4}))
    assert most == 4
    most = 0
    one = {"s": Counting()}
    engine = engine_of(one, keys={"s": SourceKeys(concurrency=1)})
    await fan_out(plan_of(one, queries="1 2 3"), engine)
    assert most == 1


@pytest.mark.case("CFG-10")
async def test_secrets_never_reach_a_report():
    error = RuntimeError(
        "403 for https://user:hunter2@host/?api_key=abcdef123456 Authorization: Bearer zzzzzzzzzz, known"
        " s3cr3t-value"
    )
    sources = {"s": Raising(error)}
    harvest = await run(5, engine=engine_of(sources, secrets=("s3cr3t-value",)), **sources)
    text = harvest.reports[0].error
    for secret in ("hunter2", "abcdef123456", "zzzzzzzzzz", "s3cr3t-value"):
        assert secret not in text
    assert "403 for" in text


@pytest.mark.case("ASY-18")
async def test_context_variables_reach_sources_and_their_threads():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")

    class Blocking(Fixed):
        async def search(self, query: Query) -> Sequence[Hit]:
            threads = Threads(1, "t")
            try:
                return [Hit(document=Document(id=await threads.run(variable.get), content="x"))]
            finally:
                threads.close()

    variable.set("request-7")
    harvest = await run(5, s=Blocking())
    assert harvest.lists[0].hits[0].document.id == "request-7"


async def test_reports_are_told_as_they_come():
    told: list[str] = []
    sources = {"slow": Fixed("a", delay=0.05), "fast": Fixed("b")}
    await fan_out(plan_of(sources), engine_of(sources), on_report=lambda r: told.append(r.source))
    assert told == ["fast", "slow"]
