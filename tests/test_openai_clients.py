"""What the programs send that speak to OpenAI: Open WebUI, LibreChat, Continue and the official clients."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from support.serving import ScriptedGenerator, document, key, router, serve_router

from contextrouter import ContextRouter
from contextrouter.testing.fakes import Fixed

DOCS = [document("one", "The library opens at nine.")]
QUESTION = {"role": "user", "content": "When does it open?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
TITLE = "### Task:\nGenerate a short title.\n### Chat History:\n<chat_history>\nUSER: When?\n</chat_history>"


class Counted(Fixed):
    """A source that counts how often it is asked."""

    asked = 0

    async def search(self, query):
        self.asked += 1
        return await super().search(query)


def made(*pieces: str, chat: dict[str, Any] | None = None, **more: Any) -> tuple[ContextRouter, Any, Counted]:
    said, source = ScriptedGenerator(*pieces), Counted(DOCS)
    table = {"synthesis_model": "said", "models": ["said"], **(chat or {})}
    settings = {"chat": table, **more}
    return router(settings, connectors={"docs": source}, generators={"said": said}), said, source


def asked(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "contextrouter", "messages": list(turns or [QUESTION]), **more}


@pytest.mark.case("NEW-19")
@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": -1},
        {"max_tokens": 0},
        {"max_tokens": 1024.0},
        {"max_completion_tokens": 16.0, "max_tokens": None},
        {"n": 1.0},
        {"stop": ["a?", "b?", "c?", "d?", None, "e?"]},
        {"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": TOOLS, "tool_choice": "none"},
        {"functions": [{"name": "f"}], "function_call": "auto"},
        {"response_format": {"type": "text"}, "modalities": ["text"], "logprobs": False, "seed": 1},
        {"stream_options": None, "temperature": None, "metadata": {"chat": "x"}, "user": "u", "n": None},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_what_clients_send_beside_the_messages_is_taken(more: dict[str, Any]):
    wanted, _, source = made("At nine [1].")
    async with serve_router(wanted) as ask:
        answer = await ask("/v1/chat/completions", asked(**more))
    assert answer.status == 200, answer.text
    assert answer.json["choices"][0]["message"]["content"] == "At nine [1]."
    assert source.asked > 0


@pytest.mark.case("NEW-19")
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "f"}}, "function_call"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"n": 2}, "n"),
        ({"max_tokens": 10.5}, "max_tokens"),
        ({"logprobs": True}, "logprobs"),
    ],
    ids=str,
)
async def test_what_would_make_another_kind_of_answer_is_refused_by_name(more: dict[str, Any], param: str):
    wanted, _, source = made("At nine [1].")
    async with serve_router(wanted) as ask:
        answer = await ask("/v1/chat/completions", asked(**more))
    assert (answer.status in (400, 422), answer.json["error"]["param"]) == (True, param)
    assert source.asked == 0


@pytest.mark.case("NEW-19")
async def test_older_turns_with_pictures_and_results_of_tools_are_read_without_them():
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "Be short."}]},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, PICTURE]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a library"}]},
        {"role": "assistant", "content": "A library.", "refusal": None},
        {
            "role": "user",
            "content": [{"type": "text", "text": None}, {"type": "text", "text": "When does it open?"}],
        },
    ]
    wanted, said, _ = made("At nine [1].")
    async with serve_router(wanted) as ask:
        answer = await ask("/v1/chat/completions", asked(*turns))
        new = await ask("/v1/chat/completions", asked(*turns[:2], {"role": "user", "content": [PICTURE]}))
    assert answer.status == 200, answer.text
    told = [(message["role"], message["content"]) for message in said.seen[0] if message["role"] != "system"]
    assert told == [("user", "What is this?"), ("assistant", "A library."), ("user", "When does it open?")]
    assert (new.status, new.json["error"]["param"]) == (400, "messages[1].content")


@pytest.mark.case("NEW-17")
async def test_a_model_is_found_by_its_name_even_with_slashes():
    models = {"generators": {"house": {"use": "extractive"}}, "chat": {"models": ["house"]}}
    async with serve_router(router(models)) as ask:
        listed = await ask("/v1/models/")
        shown = [await ask(f"/v1/models/{name}") for name in ("contextrouter", "house", "house/")]
        other = await ask("/v1/models/org/model")
        async with openai.AsyncOpenAI(api_key="none", base_url=f"{ask.url}/v1") as client:
            retrieved = await client.models.retrieve("contextrouter")
    assert [each.json for each in shown[:2]] == listed.json["data"]
    assert shown[2].json == shown[1].json
    assert retrieved.id == "contextrouter"
    assert (other.status, other.json["error"]["code"]) == (404, "model_not_found")
    assert "'org/model'" in other.json["error"]["message"]
    async with serve_router(router(models | key(generator="house"))) as ask:
        assert (await ask("/v1/models/contextrouter")).status == 401
        bound = {"Authorization": "Bearer cr_of-the-tests"}
        assert (await ask("/v1/models/house", headers=bound)).status == 404


@pytest.mark.case("NEW-17")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/v1/completions", "/v1/audio/speech"])
async def test_what_is_not_served_is_refused_in_the_form_that_clients_read(path: str):
    async with serve_router(router()) as ask:
        answer = await ask(path, {"model": "contextrouter", "input": "x"})
        async with openai.AsyncOpenAI(api_key="none", base_url=f"{ask.url}/v1", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError, match="answered at /v1/chat/completions") as refused:
                await client.embeddings.create(model="contextrouter", input="x")
    assert (answer.status, answer.json["error"]["code"]) == (404, "unsupported_endpoint")
    assert refused.value.code == "unsupported_endpoint"


@pytest.mark.case("NEW-21")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("content", "more"),
    [
        (TITLE, {}),
        ("\n### Task:\nGenerate 1-3 broad tags", {}),
        ("Provide a concise, 5-word-or-less title for the conversation", {}),
        ("Given the following... please reply with a title for the chat", {}),
        ("Name this conversation.", {"metadata": {"task": "title_generation"}}),
    ],
    ids=["title", "tags", "libre", "continue", "named"],
)
async def test_a_title_is_written_without_a_search(content: str, more: dict[str, Any], stream: bool):
    wanted, said, source = made('{"title": ', '"Opening [1] hours"}')
    async with serve_router(wanted) as ask:
        answer = await ask(
            "/v1/chat/completions", asked({"role": "user", "content": content}, stream=stream, **more)
        )
    if stream:
        chunks = [data for _, data in answer.events if data != "[DONE]"]
        text = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
        receipt = chunks[-1]["contextrouter"]
    else:
        text, receipt = answer.json["choices"][0]["message"]["content"], answer.json["contextrouter"]
    assert text.replace(" ", "") == '{"title":"Openinghours"}'
    assert (receipt["outcome"], receipt["sources"], receipt["generator"]) == ("not_searched", [], "said")
    assert source.asked == 0
    assert said.seen == [[{"role": "user", "content": content}]]


@pytest.mark.case("NEW-21")
async def test_who_quotes_documents_refuses_to_write_a_title_and_a_question_stays_one():
    title = {"role": "user", "content": TITLE}
    wanted, _, source = made(chat={"synthesis_model": "extractive"})
    async with serve_router(wanted) as ask:
        answer = (await ask("/v1/chat/completions", asked(title))).json
        streamed = (await ask("/v1/chat/completions", asked(title, stream=True))).events
    message = answer["choices"][0]["message"]
    assert (message["content"], answer["choices"][0]["finish_reason"]) == ("", "stop")
    assert "quotes documents" in message["refusal"]
    assert [data["choices"][0]["delta"].get("refusal") for _, data in streamed[:-1]].count(
        message["refusal"]
    ) == 1
    assert source.asked == 0
    wanted, _, source = made("At nine [1].", chat={"task_prompts": []})
    async with serve_router(wanted) as ask:
        await ask("/v1/chat/completions", asked(title))
    assert source.asked > 0
