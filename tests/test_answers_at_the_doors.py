"""What each door tells of an answer: its whole text in the stream too, and how it came out."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from support.serving import ScriptedGenerator, document, router, serve_router
from test_answers import QUESTION, Vague, answering, chat_reply, model_server, streamed

from contextrouter import ContextRouter, Fact, Refusal, Thought
from contextrouter.builtin.generators.openai import OpenAI
from contextrouter.builtin.stages.gate import Gate
from contextrouter.server.auth import Caller
from contextrouter.server.mcp_server.tools import make_mcp_server
from contextrouter.testing.fakes import Facts, Fixed

DECLINED = "The model declined to answer."
UNANSWERED = "How is the library heated in the cold winter months?"


@pytest.mark.case("NEW-52")
@pytest.mark.parametrize("guard", ["note", "retry"])
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((Refusal("I may "), Refusal("not.")), "I may not."),
        (("At nine [1].", Refusal("I may "), Refusal("not.")), "At nine [1].\n\nI may not."),
        ((Thought("Hm."), "At nine [1]."), "At nine [1]."),
    ],
)
async def test_the_pieces_of_a_stream_are_the_answer_with_a_refusal_too(
    guard: str, pieces: tuple[str, ...], text: str
):
    async with answering(*pieces, chat={"guard": guard}) as made:
        whole = await made.answer(QUESTION)
        parts, last = await streamed(made, QUESTION)
    assert (whole.text, last.text, "".join(parts)) == (text, text, text)
    async with serve_router(answering(*pieces, chat={"guard": guard})) as ask:
        events = (await ask("/v1/answer", {"question": QUESTION, "stream": True})).events
    assert "".join(data["text"] for name, data in events if name != "result") == text
    assert events[-1][1]["text"] == text


@pytest.mark.case("NEW-52")
@pytest.mark.parametrize("guard", ["note", "retry"])
async def test_a_filter_that_leaves_no_text_is_said_in_a_stream(guard: str):
    async with model_server({"content": None}, "content_filter") as (url, _):
        remote = OpenAI(model="m", base_url=url, api_key="k")
        async with answering(chat={"guard": guard}, generators={"said": remote}) as made:
            parts, last = await streamed(made, QUESTION)
    assert (parts, last.text, last.outcome) == ([DECLINED], DECLINED, "declined")


@pytest.mark.case("NEW-05")
async def test_thinking_is_streamed_with_guard_retry_too():
    made = answering("<think>Hm [2].</think>At nine [1].", chat={"guard": "retry"})
    message, receipt = await chat_reply(made, stream=True)
    assert (message["reasoning_content"], message["content"]) == ("Hm [2].", "At nine [1].")
    assert list(receipt["citations"]) == ["1"]


@pytest.mark.case("NEW-52", "T14")
async def test_an_answer_stays_where_the_second_try_is_declined():
    class Turning(ScriptedGenerator):
        async def stream(self, messages):
            self.pieces = (Refusal("I may not."),) if self.seen else ("It opens at nine.",)
            async for piece in super().stream(messages):
                yield piece

    said = Turning()
    async with answering(chat={"guard": "retry"}, generators={"said": said}) as made:
        answer = await made.answer(QUESTION)
    assert (answer.text, answer.outcome, len(said.seen)) == ("It opens at nine.", "answered", 2)
    assert (answer.note, answer.checks["cited"]) == ("The second try was declined", False)
    assert answer.usage.models[0].calls == 2


@pytest.mark.case("USE-11")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_says_that_nothing_that_was_found_answers(stream: bool):
    async with serve_router(router(answer=[document("one", "The library opens at nine.")])) as ask:
        messages = [{"role": "user", "content": UNANSWERED}]
        body = {"model": "contextrouter", "messages": messages, "stream": stream}
        reply = await ask("/v1/chat/completions", body)
    receipts = [data for _, data in reply.events if "contextrouter" in data] if stream else [reply.json]
    assert [receipt["contextrouter"]["outcome"] for receipt in receipts] == ["empty"]


GATED = {"rag": {"interpreters": [], "cache_enabled": False, "stages": ["gate"]}}
ASKED_BACK = {"rag": {"interpreters": ["vague"]}}
FOUNDER = Facts([Fact(subject="Acme", predicate="founded_by", object="Ada Stone")])


@pytest.mark.case("K12", "T16")
@pytest.mark.parametrize(
    ("made", "tool", "outcome", "said"),
    [
        (
            lambda: router(GATED, stages={"gate": Gate()}),
            "route",
            "confidence_gated_fallback",
            "What was found is not near enough to the question.",
        ),
        (lambda: router(answer=[]), "route", "empty", "Nothing was found."),
        (lambda: router(ASKED_BACK, interpreters={"vague": Vague()}), "route", "clarify", "Which library?"),
        (
            lambda: router(connectors={"docs": Fixed([])}, facts={"graph": FOUNDER}),
            "route",
            "facts_only",
            "No document was found. The tool `facts` finds facts.",
        ),
        (lambda: router(), "facts", "answered", "No fact was found. The tool `route` finds documents."),
    ],
)
async def test_an_agent_reads_why_its_tool_has_nothing_to_show(made: Any, tool: str, outcome: str, said: str):
    opened: ContextRouter = made()
    async with opened, Client(make_mcp_server(opened, lambda _: Caller(name="x"))) as client:
        reply = await client.call_tool(tool, {"question": "Who founded Acme?"})
    assert (reply.structured_content["outcome"], reply.content[0].text) == (outcome, said)
