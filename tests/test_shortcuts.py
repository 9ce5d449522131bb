"""What is done quickly is what would be done slowly: shortcuts of dedupe, fusion and interpretation beside
the long way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import engine_of

from contextrouter import Document, Hit, Intent, Interpreter, InterpreterContext, Rag, RankedList, Request
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion import fuse
from contextrouter.pipeline.interpretation import FAILED, interpret
from contextrouter.settings import InterpreterKeys

NAMES = [(source, leg, query) for source in "xyz" for leg in ("text", "vector") for query in ("1", "2")]


def many_lists(rng: random.Random, *, longest: int, clashing_ids: bool = False) -> list[RankedList]:
    """Lists over few texts and urls, some blank, so that documents meet again in every way."""
    one_of = rng.choice
    texts = [
        (one_of(["", "u", f"u{i}"]), one_of(["", "s", "u"]), one_of(["", "c", f"c{i}"]))
        for i in range(longest)
    ]
    lists = []
    for source, leg, query in rng.sample(NAMES, rng.randint(1, len(NAMES))):
        hits = []
        for _ in range(rng.randint(0, longest)):
            url, snippet, content = texts[rng.randrange(len(texts))]
            name = (
                str(rng.randint(0, 3))
                if clashing_ids
                else f"{url}|{snippet}|{content}"
                if rng.random() < 0.9
                else ""
            )
            hits.append(
                Hit(document=Document(id=name, url=url, snippet=snippet, content=content), score=rng.random())
            )
        lists.append(
            RankedList(
                source=source, leg=leg, query=query, hits=hits, weight={"x": 1.0, "y": 2.0, "z": 0.3}[source]
            )
        )
    return lists


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("mode", ["rrf", "weighted"])
@given(rng=st.randoms(use_true_random=False), count=st.integers(1, 12))
def test_the_best_few_are_the_head_of_the_whole_order(mode: str, levels: int, rng: random.Random, count: int):
    lists = many_lists(rng, longest=60)
    rag = Rag(hybrid_fusion=mode, levels=levels, leg_weights=rng.choice([{}, {"text": 0.0}, {"text": 0.5}]))
    pool = dedupe(lists)
    whole = list(fuse(pool, rag).live)
    assert list(fuse(pool, rag).live[:count]) == whole[:count]
    if whole:
        step_by_step = fuse(pool, rag).live
        assert [step_by_step[i] for i in range(min(count, len(whole)))] == whole[:count]


def test_a_tie_goes_by_the_best_place_and_copies_take_none():
    """Copies take no place: Z, X and Y are second in one source and third in another, 1/62 + 1/63. Equal, they
    go by the place, then by the order of the sources: Z is second in a, X in e, Y in f.
    """
    raw = {"a": "a a a a Z", "b": "b c X", "c": "d e Y", "d": "f g Z", "e": "h h h h X", "f": "i i i i Y"}
    lists = [
        RankedList(
            source=source,
            leg="l",
            query="q",
            hits=[Hit(document=Document(id=n, content=n)) for n in names.split()],
        )
        for source, names in raw.items()
    ]
    best = fuse(dedupe(lists), Rag()).live[:3]
    assert [envelope.document.id for envelope in best] == ["Z", "X", "Y"]
    assert {envelope.score for envelope in best} == {1 / 62 + 1 / 63}


def test_copies_in_one_list_take_no_place_among_its_first():
    copies, others = (
        [Hit(document=Document(id=n, content=n)) for n in names] for names in ("xxxxxyzuvw", "mnopqrst")
    )
    lists = [
        RankedList(source="a", leg="l", query="q", hits=copies),
        RankedList(source="b", leg="l", query="q", hits=others, weight=0.1),
    ]
    best = fuse(dedupe(lists), Rag()).live[:3]
    assert [envelope.document.id for envelope in best] == ["x", "y", "z"]


def test_what_lies_deep_in_many_lists_is_among_the_best():
    """Rank 50 in four lists gives 4/110, more than rank 1 in one list, 1/61: heads of lists are not all that
    can win.
    """
    deep = Document(id="deep", content="deep")
    lists = []
    for source in "abcd":
        hits = [Hit(document=Document(id=f"{source}{i}", content=f"{source}{i}")) for i in range(100)]
        hits[49] = Hit(document=deep)
        lists.append(RankedList(source=source, leg="default", query="q", hits=hits))
    (best,) = fuse(dedupe(lists), Rag()).live[:1]
    assert (best.document.id, best.score) == ("deep", pytest.approx(4 / 110))


class Asking(Interpreter):
    """Answers with what a function makes of the intent."""

    def __init__(self, answer: Callable[[Intent], Awaitable[Intent]]) -> None:
        self.answer = answer

    def interpret(self, intent: Intent, context: InterpreterContext) -> Awaitable[Intent]:  # type: ignore[override]  # no coroutine function: what it calls is
        return self.answer(intent)


async def asked(answer: Callable[[Intent], Awaitable[Intent]], timeout: float = 5.0) -> Intent:
    return await interpret(
        Request(question="q"),
        engine_of(interpreters={"a": Asking(answer)}, keys={"a": InterpreterKeys(timeout=timeout)}),
    )


async def test_an_interpreter_that_waits_several_times_is_heard_out():
    async def slowly(intent: Intent) -> Intent:
        found = []
        for wait in (0, 0.001, 0):
            found.append(await asyncio.sleep(wait, f"concept {wait}"))
        return intent.replace(concepts=tuple(found))

    assert (await asked(slowly)).concepts == ("concept 0", "concept 0.001", "concept 0")


async def test_an_error_after_a_wait_reaches_the_interpreter():
    """The interpreter can handle it."""

    async def failing(intent: Intent) -> Intent:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        except TimeoutError:
            await asyncio.sleep(0)
        raise ValueError("no")

    assert (await asked(failing)).attributes[FAILED] == {"a": "ValueError: no"}


async def test_a_late_interpreter_is_cancelled_where_it_waits():
    ended = []

    async def hanging(intent: Intent) -> Intent:
        try:
            await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return intent

    assert (await asked(hanging, 0.01)).attributes[FAILED] == {"a": "timed out"}
    assert ended == ["cancelled"]


async def test_a_cancelled_caller_ends_the_interpreter_he_waits_for():
    ended = asyncio.Event()

    async def hanging(intent: Intent) -> Intent:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return intent

    task = asyncio.create_task(asked(hanging))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_any_awaitable_is_an_answer():
    def later(intent: Intent) -> Awaitable[Intent]:
        future: asyncio.Future[Intent] = asyncio.get_running_loop().create_future()
        future.get_loop().call_later(0.001, future.set_result, intent.replace(concepts=("c",)))
        return future

    assert (await asked(later)).concepts == ("c",)
