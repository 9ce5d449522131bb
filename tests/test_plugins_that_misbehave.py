"""Plugins that raise what nobody expects, or return what never ends: the router reports them and goes on."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine

from contextrouter import (
    ContextRouter,
    Embedder,
    Envelope,
    Fact,
    Generator,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
    Stage,
    StageContext,
)
from contextrouter.contracts import Completion, Partial, Writing
from contextrouter.testing import Echo, Facts, Fixed, hits

ANSWER = ["b"]


class Panic(BaseException):
    """What a compiled library raises."""


def ids(context: Any) -> list[str]:
    return [envelope.document.id for envelope in context.envelopes]


class Raising(Fixed):
    """Raises an exception in the method that `where` names."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__("a")
        self.where, self.error = where, error

    def _raise_in(self, method: str) -> None:
        if self.where == method:
            raise self.error

    async def open(self) -> None:
        self._raise_in("open")

    async def search(self, query: Query) -> Sequence[Hit]:
        self._raise_in("search")
        return await super().search(query)

    async def version(self) -> str:
        self._raise_in("version")
        return "1"

    async def aclose(self) -> None:
        self._raise_in("aclose")


class RaisingStep(Stage, Interpreter):
    """Raises an exception as a stage and as an interpreter."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        raise self.error

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        raise self.error


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("where", ["open", "search"])
@pytest.mark.parametrize("error", [GeneratorExit("odd"), BaseExceptionGroup("odd", [Panic("x")])])
async def test_an_exception_that_is_none_is_a_report_and_the_other_answers(where: str, error: BaseException):
    async with ContextRouter(connectors={"bad": Raising(where, error), "good": Fixed("b")}) as router:
        context = await router.route("otter")
    (report,) = [report for report in context.coverage if report.source == "bad"]
    assert ids(context) == ANSWER
    assert report.status == "error"
    assert f"{type(error).__name__}: odd" in report.error


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("error", [GeneratorExit("odd"), Panic("odd")])
async def test_a_version_that_raises_what_is_no_exception_ends_no_route(
    error: BaseException, caplog: pytest.LogCaptureFixture
):
    async with ContextRouter(connectors={"bad": Raising("version", error), "good": Fixed("b")}) as router:
        context = await router.route("otter")
    assert sorted(ids(context)) == ["a", "b"]
    assert "'bad' does not say its version" in caplog.text


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("kind", ["stages", "interpreters"])
async def test_a_generator_exit_of_a_stage_or_an_interpreter_is_passed_over(kind: str):
    steps: dict[str, Any] = {kind: {"odd": RaisingStep(GeneratorExit("odd"))}}
    async with ContextRouter(connectors={"good": Fixed("b")}, **steps) as router:
        context = await router.route("otter")
    assert ids(context) == ANSWER
    assert [step.note for step in context.trace.steps if "GeneratorExit: odd" in step.note]


class RaisingEmbedder(Embedder):
    """Raises an exception for every text."""

    model, dimensions = "odd-1", 2

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
        raise self.error


class ByVector(Fixed):
    """Needs the vectors of the embedder `odd`."""

    legs = vector_legs = ("vector",)
    embedder = "odd"


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("error", [GeneratorExit("odd"), Panic("odd")])
async def test_an_embedder_that_raises_what_is_no_exception_costs_its_leg_only(error: BaseException):
    async with ContextRouter(
        connectors={"bad": ByVector("a"), "good": Fixed("b")}, embedders={"odd": RaisingEmbedder(error)}
    ) as router:
        context = await router.route("otter")
    assert ids(context) == ANSWER
    assert [report.error for report in context.coverage if report.source == "bad"] == [
        f"{type(error).__name__}: odd"
    ]


GROUP = ExceptionGroup("two failed", [ExceptionGroup("inner", [ValueError("the port is taken")]), OSError()])


async def test_the_report_of_a_group_of_exceptions_names_the_first_inner_error():
    steps: dict[str, Any] = {"odd": RaisingStep(GROUP)}
    async with ContextRouter(
        connectors={"bad": Raising("search", GROUP), "good": Fixed("b")}, stages=steps, interpreters=steps
    ) as router:
        context = await router.route("otter")
    said = "ExceptionGroup: two failed (2 sub-exceptions); the first: ValueError: the port is taken"
    assert [report.error for report in context.coverage if report.source == "bad"] == [said]
    assert sum(said in step.note for step in context.trace.steps) == 2


class Closing(Fixed):
    """Notes that it was closed."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.case("PLG-01")
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit("x"), asyncio.CancelledError(), Panic("x")]
)
def test_whatever_an_aclose_raises_all_other_plugins_are_closed(
    error: BaseException, caplog: pytest.LogCaptureFixture
):
    """An exit or an interrupt ends the program, and after that."""
    first, last = Closing("b"), Closing("c")
    router = ContextRouter(connectors={"first": first, "bad": Raising("aclose", error), "last": last})

    async def use() -> None:
        async with router:
            await router.route("otter")

    expected = type(error) if isinstance(error, SystemExit | KeyboardInterrupt) else Exception
    with caplog.at_level(logging.WARNING), pytest.raises(expected) as raised:
        asyncio.run(use())
    assert (first.closed, last.closed) == (True, True)
    if expected is Exception:
        assert "connector 'bad'" in str(raised.value)


class Endless(list[Any]):
    """A list that iterates without an end."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self[0]


class EndlessTuple(tuple[Any, ...]):
    """A tuple that iterates without an end."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self[0]


class EndlessPartial(Partial):
    """A part of an answer that iterates without an end."""

    __iter__ = Endless.__iter__


class Answering(Fixed):
    """Returns an answer as it is."""

    def __init__(self, answer: Any) -> None:
        super().__init__("a")
        self.answer = answer

    async def search(self, query: Query) -> Any:
        return self.answer


@pytest.mark.parametrize("question", ["otter", "otter -salmon"])
@pytest.mark.parametrize(
    "answer",
    [Endless(hits("a")), EndlessTuple(hits("a")), EndlessPartial(hits("a"), "one did not answer")],
    ids=lambda answer: type(answer).__name__,
)
async def test_hits_that_iterate_without_an_end_are_those_that_the_list_holds(answer: Any, question: str):
    connectors = {"odd": Answering(answer), "good": Fixed("b")}
    async with ContextRouter(connectors=connectors) as router:
        context = await router.route(question)
    assert sorted(ids(context)) == ["a", "b"]
    (report,) = [report for report in context.coverage if report.source == "odd"]
    assert report.error == ("one did not answer" if isinstance(answer, Partial) else "")


class EndlessFacts(Facts):
    """Its facts iterate without an end."""

    async def facts(self, query: Query) -> Sequence[Fact]:
        return Endless(await super().facts(query))


class EndlessSteps(Stage, Interpreter):
    """Returns lists that iterate without an end."""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        return Endless(envelopes)

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        queries: Any = Endless((*intent.queries, "salmon"))
        return intent.replace(queries=queries)


async def test_facts_queries_and_envelopes_that_iterate_without_an_end_end():
    odd: dict[str, Any] = {"odd": EndlessSteps()}
    moon = Fact(subject="Moon", predicate="orbits", object="Earth")
    async with ContextRouter(
        connectors={"good": Fixed("b")}, facts={"facts": EndlessFacts([moon])}, stages=odd, interpreters=odd
    ) as router:
        context = await router.route("Moon")
    assert ids(context) == ANSWER
    assert [(fact.subject, fact.object) for fact in context.facts] == [("Moon", "Earth")]
    assert context.intent.queries == ("Moon", "salmon")
    assert any(step.failed and "twice" in step.note for step in context.trace.steps)


class OddGenerator(Generator):
    """Returns an answer as it is, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class OddWriter(OddGenerator):
    """Writes its answer as a piece."""

    async def write(self, messages: Sequence[Mapping[str, str]], writing: Writing) -> AsyncIterator[Any]:
        yield await self.complete(messages)


UNTYPED: Any = 5


@pytest.mark.case("ASY-09")
@pytest.mark.parametrize("cls", [OddGenerator, OddWriter])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (KeyError("choices"), "KeyError: 'choices'"),
        (Panic("odd"), "Panic: odd"),
        (GeneratorExit("odd"), "GeneratorExit: odd"),
        (GROUP, "the first: ValueError: the port is taken"),
        ({"text": "x"}, "dict, not a"),
        (None, "NoneType, not a"),
        (Completion(text=UNTYPED), "int"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_generator_that_raises_or_returns_anything_is_replaced(
    cls: type[OddGenerator], answer: Any, said: str
):
    async with ContextRouter(
        {"chat": {"synthesis_model": "odd"}},
        connectors={"good": Fixed(hits("b"))},
        generators={"odd": cls(answer)},
    ) as router:
        written = await router.answer("otter")
    assert written.generator == "extractive"
    assert "Generator 'odd' failed" in written.note
    assert said in written.note


@pytest.mark.parametrize("error", [ValueError("odd"), Panic("odd")])
async def test_examples_are_chosen_by_words_where_the_embedder_raises_anything(
    tmp_path: Path, error: BaseException
):
    (tmp_path / "examples.json").write_text('[{"question": "otter?", "answer": "It swims."}]')
    chat = {
        "examples": str(tmp_path / "examples.json"),
        "examples_embedder": "odd",
        "synthesis_model": "echo",
    }
    async with ContextRouter(
        {"chat": chat},
        connectors={"good": Fixed(hits("b"))},
        embedders={"odd": RaisingEmbedder(error)},
        generators={"echo": Echo()},
    ) as router:
        written = await router.answer("otter")
    assert written.generator == "echo"


class SortsInPlace(Stage):
    """Returns what `list.sort` returns."""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Any:
        return list(envelopes).sort(key=lambda envelope: envelope.score)  # type: ignore[func-returns-value]  # that is the fault


async def test_a_stage_that_returns_nothing_is_passed_over_by_name():
    async with ContextRouter(connectors={"good": Fixed("b")}, stages={"odd": SortsInPlace()}) as router:
        context = await router.route("otter")
    assert ids(context) == ANSWER
    (note,) = [step.note for step in context.trace.steps if step.failed]
    assert note == "failed: ContractError: apply() returned NoneType, not a list of envelopes"


LEAVING = """
import sys

from contextrouter import Connector


class Leaving(Connector):
    "Ends the program."

    async def search(self, query):
        sys.exit(0)
"""


def test_a_plugin_that_ends_the_program_is_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "leaving.py").write_text(LEAVING)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.leaving]\n')
    ran = CommandLine(monkeypatch, capsys)("route", "otter", cwd=tmp_path)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.count("A plugin ended the program: sys.exit(0).") == 1
    gc.collect()  # a loop that is left open would be told now
