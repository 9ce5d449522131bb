"""Nothing of a request holds the event loop for long: what reads long texts does so in a thread, and once."""

from __future__ import annotations

import threading
from typing import Any

import markdown_it
import pytest
from support.serving import serve_router

from contextrouter import ContextRouter, Document, Hit, Request
from contextrouter.answering import conversation, markdown_markers, writing
from contextrouter.builtin.generators.extractive import Extractive
from contextrouter.pipeline import admission, run
from contextrouter.server import router_endpoints
from contextrouter.testing import Fixed
from contextrouter.text import query_syntax

SETTINGS = {"rag": {"cache_enabled": False, "interpreters": []}}


def router(content: str, number: int = 10) -> ContextRouter:
    documents = [Hit(document=Document(id=f"d{n}", content=content)) for n in range(number)]
    return ContextRouter(SETTINGS, connectors={"docs": Fixed(documents)})


class Recorder:
    """Calls a function, and keeps in which thread."""

    def __init__(self, function: Any) -> None:
        self.function, self.threads = function, list[threading.Thread]()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.threads.append(threading.current_thread())
        return self.function(*arguments, **keywords)

    @property
    def away(self) -> list[bool]:
        """Of each call, whether it was in another thread than that of the event loop."""
        return [thread is not threading.main_thread() for thread in self.threads]


@pytest.mark.case("ASY-13")
async def test_long_texts_are_assembled_in_a_thread_and_short_ones_are_not(monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(run.assemble)
    monkeypatch.setattr(run, "assemble", recorder)
    for content in ("otter " * 10, "otter " * 10_000):
        async with router(content) as made:
            assert len((await made.route("otter")).envelopes) > 0
    assert recorder.away == [False, True]


@pytest.mark.case("ASY-13")
async def test_an_answer_with_its_trace_is_encoded_in_a_thread(monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(router_endpoints.plain)
    monkeypatch.setattr(router_endpoints, "plain", recorder)
    async with serve_router(router("otter")) as ask:
        for detail in ("full", "trace"):
            assert (await ask("/v1/route", {"question": "otter", "detail": detail})).status == 200
    assert recorder.away == [False, True]


@pytest.mark.case("ASY-13")
async def test_excluded_words_are_looked_for_in_a_thread_and_among_few(monkeypatch: pytest.MonkeyPatch):
    excluded, compared = " ".join(f"-w{n}" for n in range(2_000)), list[Any]()
    occurs = query_syntax.occurs
    monkeypatch.setattr(query_syntax, "occurs", lambda *some: compared.append(some) or occurs(*some))
    recorder = Recorder(admission.holds_any)
    monkeypatch.setattr(admission, "holds_any", recorder)
    source = Fixed([Hit(document=Document(id=str(n), content="sea " * 5_000 + f"w{n}")) for n in range(3)])
    source.careless = True
    async with ContextRouter(SETTINGS, connectors={"docs": source}) as made:
        context = await made.route(f"sea {excluded} w5000")
    assert context.envelopes == ()
    assert context.coverage[0].withheld == 3
    assert recorder.away == [False] * 3  # 60,000 characters
    assert len(compared) <= 2 * 3
    source.answer = source.answer * 3
    async with ContextRouter(SETTINGS, connectors={"docs": source}) as made:
        await made.route(f"sea {excluded}")
    assert recorder.away[3:] == [True] * 9


@pytest.mark.case("SEC-11")
@pytest.mark.parametrize("length", [10, 2_000])
async def test_long_conversations_are_read_in_a_thread(monkeypatch: pytest.MonkeyPatch, length: int):
    recorders = []
    for owner, name in (
        (conversation, "checked" if length == 10 else "_without_markers"),
        (writing, "_count_absent_tokens"),
        (Extractive, "_quotes"),
    ):
        recorder = Recorder(getattr(owner, name))
        recorders.append(recorder)
        monkeypatch.setattr(
            owner, name, staticmethod(recorder) if owner is not Extractive else _method(recorder)
        )
    history = [
        {"role": "user", "content": "What?"},
        {"role": "assistant", "content": "A river. [1] " * length},
    ]
    async with router("The otter swims in the river.") as made:
        answer = await made.answer(Request(question="Where does the otter swim?", history=history))
    assert answer.outcome == "answered"
    assert [recorder.away[-1] for recorder in recorders] == [length > 10] * 3


def _method(recorder: Recorder) -> Any:
    return lambda self, *arguments: recorder(self, *arguments)


@pytest.mark.case("SEC-11")
@pytest.mark.parametrize("text", ["![a](" * 40_000, "[1]" * 60_000, "[" * 190_000])
async def test_a_long_former_answer_is_not_parsed(monkeypatch: pytest.MonkeyPatch, text: str):
    parsed = Recorder(conversation.checked)
    monkeypatch.setattr(conversation, "checked", parsed)
    turns = [{"role": "assistant", "content": text}, {"role": "user", "content": "otter"}]
    cleaned = await conversation.Conversation(turns=turns, index=1).without_markers()
    assert parsed.threads == []
    assert cleaned == [{**turns[0], "content": text.replace("[1]", "")}, turns[1]]


@pytest.mark.case("SEC-11")
async def test_extractive_reads_the_beginning_of_a_long_question(monkeypatch: pytest.MonkeyPatch):
    lengths: list[int] = []
    parse = query_syntax.parse

    def measured(text: str) -> Any:
        lengths.append(len(text))
        return parse(text)

    monkeypatch.setattr(query_syntax, "parse", measured)
    prompt = [
        {"role": "system", "content": "### [1] Otters — docs\nThe otter swims in the river."},
        {"role": "user", "content": "Where does the otter swim? " + "river " * 30_000},
    ]
    assert "swims" in (await Extractive().complete(prompt)).text
    assert 0 < max(lengths) <= 4_000


@pytest.mark.case("SEC-11")
async def test_what_the_first_answer_needs_is_loaded_in_a_thread(monkeypatch: pytest.MonkeyPatch):
    parser = Recorder(markdown_it.MarkdownIt)
    monkeypatch.setattr(markdown_it, "MarkdownIt", parser)
    markdown_markers._parser.cache_clear()
    async with router("The otter swims in the river.") as made:
        build = Recorder(made.registry.build)
        monkeypatch.setattr(made.registry, "build", build)
        assert (await made.answer("Where does the otter swim?")).generator == "extractive"
    assert (parser.away, build.away) == ([True], [True])
