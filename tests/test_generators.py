"""Generators: quotes without a model, and the two wire formats by their official clients."""

from __future__ import annotations

from contextlib import aclosing, nullcontext
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from contextrouter import Completion, ContractError, MissingDependency, PluginError, Writing
from contextrouter.builtin.generators.anthropic import Anthropic
from contextrouter.builtin.generators.example_server import ChatServer
from contextrouter.builtin.generators.extractive import NOTHING, Extractive
from contextrouter.builtin.generators.openai import OpenAI

CONTEXT = """You answer.

### [1] Opening hours — site
Home > Visit
The museum opens at ten. It was built by
hand in 1901. See figure [3] there.

- Dogs are welcome in the museum garden.

### [2] Code — site
```
museum opens [9] here.
```

### [3] 博物館 — site
博物館は十時に開きます。入場は無料です。

### Facts
- museum — opens — ten

Cite every statement."""


def asked(question: str, context: str = CONTEXT) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": context},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": question},
    ]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When does the museum open?", "The museum opens at ten. [1]"),
        ("Who built it by hand?", "It was built by hand in 1901. [1]"),
        ("May dogs come along?", "Dogs are welcome in the museum garden. [1]"),
        ("Which figure?", r"See figure \[3] there. [1]"),
        ("博物館は何時に開きますか", "博物館は十時に開きます。 [3]"),
        ("Where is Berlin?", NOTHING),
        ("", NOTHING),
    ],
)
async def test_the_sentence_that_says_most_of_the_question_is_quoted_with_its_number(
    question: str, answer: str
):
    assert (await Extractive(sentences=1).complete(asked(question))).text == answer


async def test_of_a_link_or_an_image_its_text_is_quoted():
    context = (
        "### [1] Lime — site\nThe blocks were joined with [hydraulic lime](lime.md) and ![oak](a.png).\n"
    )
    answer = await Extractive().complete(asked("What were the blocks joined with?", context))
    assert answer.text == "The blocks were joined with hydraulic lime and oak. [1]"


async def test_a_question_of_one_word_is_answered_from_one_document():
    """Whatever holds the word comes near; it need not say what the thing is."""
    context = (
        "### [1] Otters — site\nAn otter swims and eats fish.\n\n### [2] Zoo — site\nThe zoo has one otter.\n"
    )
    assert (await Extractive().complete(asked("What is an otter?", context))).text.endswith("fish. [1]")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("On which days do we deploy?", "We deploy on Tuesdays. [1]"),
        ("Where does rain come from?", "Clouds give rain. [2]"),
        ("What does rain look like?", "Clouds give rain. [2]"),
        ("What happens on a payday?", NOTHING),
    ],
)
async def test_words_that_only_say_what_is_asked_for_need_not_stand_in_the_answer(question: str, answer: str):
    context = "### [1] Releases — site\nWe deploy on Tuesdays.\n\n### [2] Weather — site\nClouds give rain.\n"
    assert (await Extractive(sentences=1).complete(asked(question, context))).text == answer


async def test_a_fact_answers_by_its_object_unless_a_sentence_says_it():
    context = (
        "### [1] The tower — site\nRobert Stevenson built it.\n\n"
        "### Facts\n- Ana — teaches_at — Harbour College\n- Robert Stevenson — built — tower\n"
    )
    taught = await Extractive().complete(asked("Who teaches at Harbour College?", context))
    assert taught.text == "- Ana — teaches_at — Harbour College"
    built = await Extractive().complete(asked("Who built the tower?", context))
    assert built.text == "Robert Stevenson built it. [1]"


async def test_quotes_stand_in_the_order_of_the_context_and_come_one_by_one():
    generator = Extractive(sentences=2)
    whole = (await generator.complete(asked("dogs and when the museum opens at ten"))).text
    assert whole == "The museum opens at ten. [1] Dogs are welcome in the museum garden. [1]"
    assert [piece async for piece in generator.stream(asked("dogs and when the museum opens at ten"))] == [
        "The museum opens at ten. [1]",
        " Dogs are welcome in the museum garden. [1]",
    ]


async def test_quotes_make_no_objects_and_at_least_one_sentence_is_wanted():
    with pytest.raises(PluginError, match="makes no objects"):
        await Extractive().complete(asked("q"), schema={"type": "object"})
    with pytest.raises(ValueError, match="sentences 0 is less than 1"):
        Extractive(sentences=0)


async def served(cls: Any) -> tuple[Any, ChatServer]:
    generator = cls.example()
    await generator.open()
    return generator, generator._server


@pytest.mark.parametrize("cls", [OpenAI, Anthropic])
async def test_an_answer_comes_in_pieces_with_what_it_cost(cls: Any):
    generator, server = await served(cls)
    writing = Writing(max_tokens=17, temperature=0.5, top_p=0.9, stop=("END",))
    pieces = [piece async for piece in generator.write(asked("two words"), writing)]
    assert (
        "".join(piece for piece in pieces if isinstance(piece, str)).strip() == "You said: two words"
        if cls is OpenAI
        else True
    )
    done = pieces[-1]
    assert isinstance(done, Completion)
    assert (done.model, done.tokens_in, done.finish) == ("example", 5, "stop")
    assert done.tokens_out
    sent = server.requests[0]
    assert (sent["temperature"], sent["top_p"], sent["stream"]) == (0.5, 0.9, True)
    if cls is OpenAI:
        assert (sent["max_completion_tokens"], sent["stop"]) == (17, ["END"])
    else:
        assert (sent["max_tokens"], sent["stop_sequences"], sent["system"]) == (17, ["END"], CONTEXT)
        assert sent["messages"] == [{"role": "user", "content": "hi\n\ntwo words"}]
    await generator.aclose()


async def test_older_servers_are_told_the_cap_by_its_older_name():
    server = ChatServer()
    generator = OpenAI(model="m", base_url=f"http://127.0.0.1:{await server.listen()}/v1", older_names=True)
    await generator.open()
    async with aclosing(generator.write(asked("q"), Writing(max_tokens=3))) as pieces:
        async for _ in pieces:
            pass
    assert server.requests[0]["max_tokens"] == 3
    assert "max_completion_tokens" not in server.requests[0]
    await generator.aclose()
    await server.aclose()


async def test_a_conversation_for_anthropic_begins_with_the_user_and_alternates():
    generator, server = await served(Anthropic)
    turns = [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": " "},
        {"role": "user", "content": "q\ud800"},
    ]
    assert (await generator.complete(turns)).text == "You said: q?"
    assert server.requests[0]["messages"] == [
        {"role": "user", "content": "…"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q?"},
    ]
    assert "system" not in server.requests[0]
    await generator.aclose()


@pytest.mark.parametrize("cls", [OpenAI, Anthropic])
async def test_a_server_that_is_gone_is_an_error_that_names_it_and_no_key(cls: Any):
    generator = cls(
        model="m", base_url="http://127.0.0.1:9", api_key="sk-secret-of-mine", request_timeout=2.0
    )
    with pytest.raises(ContractError, match="not open"):
        await generator.complete(asked("q"))
    await generator.open()
    for attempt in (generator.complete(asked("q")), _all(generator.write(asked("q"), Writing()))):
        with pytest.raises(PluginError, match=r"Model 'm' at http://127\.0\.0\.1:9 failed") as failed:
            await attempt
        assert "sk-secret" not in str(failed.value)
        assert failed.value.__cause__ is None
    await generator.aclose()


async def _all(pieces: Any) -> list[Any]:
    return [piece async for piece in pieces]


@pytest.mark.parametrize("cls", [OpenAI, Anthropic])
async def test_a_ping_asks_the_server_for_nothing_that_costs(cls: Any):
    generator = cls.example()
    await generator.open()
    await generator.ping()
    assert generator._server.requests == []
    await generator._server.aclose()
    with pytest.raises(PluginError, match=r"Connection error\. Check base_url"):
        await generator.ping()
    await generator.aclose()


@pytest.mark.parametrize(("status", "is_there"), [(200, True), (404, True), (401, False), (503, False)])
async def test_a_server_that_refuses_the_key_or_fails_fails_the_ping(status: int, is_there: bool):
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": []}, status=status)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        generator = OpenAI(model="m", base_url=str(server.make_url("/v1")))
        await generator.open()
        with nullcontext() if is_there else pytest.raises(PluginError, match=str(status)):
            await generator.ping()
        await generator.aclose()


@pytest.mark.parametrize("cls", [OpenAI, Anthropic])
async def test_without_a_key_or_the_package_the_start_says_so(cls: Any, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(PluginError, match="api_key is empty"):
        await cls(model="m").open()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'contextrouter-rag\["):
        await cls(model="m", api_key="x").open()


@pytest.mark.parametrize("cls", [OpenAI, Anthropic])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": " "}, "model is empty"),
        ({"model": "m", "base_url": "host/v1"}, "no HTTP address"),
        ({"model": "m", "request_timeout": 0}, "not a positive"),
    ],
)
def test_options_that_cannot_be_are_refused(cls: Any, options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        cls(**options)
