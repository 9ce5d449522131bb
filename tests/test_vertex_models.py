"""Embedder, reranker and generator `vertex` against models on loopback: what is sent, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.vertex import Script, Step, listening, opened

from contextrouter import ContextRouter, Document
from contextrouter.builtin.embedders.prediction_server import PredictionServer
from contextrouter.builtin.embedders.vertex import VertexEmbedder
from contextrouter.builtin.generators.gemini_server import GeminiServer
from contextrouter.builtin.generators.vertex import VertexGenerator
from contextrouter.builtin.stages.rank_server import RankServer
from contextrouter.builtin.stages.vertex import VertexReranker
from contextrouter.contracts import Completion, Writing
from contextrouter.errors import PluginError
from contextrouter.testing import Fixed, envelope, hit, stage_context


@asynccontextmanager
async def embedder(
    server: PredictionServer | None = None, **keys: Any
) -> AsyncIterator[tuple[VertexEmbedder, PredictionServer, Script]]:
    server = server or PredictionServer()
    keys = {"project": "p", "dimensions": 4, **keys}
    async with (
        listening(server) as (endpoint, script),
        opened(VertexEmbedder(endpoint=endpoint, **keys)) as plugin,
    ):
        yield plugin, server, script


@asynccontextmanager
async def reranker(server: RankServer, **keys: Any) -> AsyncIterator[VertexReranker]:
    async with (
        listening(server) as (endpoint, _),
        opened(VertexReranker(endpoint=endpoint, project="p", **keys)) as plugin,
    ):
        yield plugin


@asynccontextmanager
async def generator(server: GeminiServer, **keys: Any) -> AsyncIterator[tuple[VertexGenerator, Script]]:
    async with (
        listening(server) as (endpoint, script),
        opened(VertexGenerator(endpoint=endpoint, project="p", **keys)) as plugin,
    ):
        yield plugin, script


# The embedder


async def test_texts_go_in_one_request_with_their_task_and_come_back_as_unit_vectors():
    async with embedder() as (plugin, server, script):
        vectors = await plugin.embed(["moon", " ", "tides"])
        assert [pytest.approx(math.hypot(*vector)) for vector in vectors] == [1.0, 0.0, 1.0]
        assert server.asked == [(["moon", "tides"], "RETRIEVAL_DOCUMENT")]
        await plugin.embed(["moon"], query=True)
        assert server.asked[1] == (["moon"], "RETRIEVAL_QUERY")
        name = "projects/p/locations/us-central1/publishers/google/models/gemini-embedding-001"
        assert script.seen[0].metadata["x-goog-request-params"] == f"endpoint={name}"


async def test_a_request_holds_no_more_texts_and_tokens_than_the_service_takes():
    async with embedder(batch_size=250) as (plugin, server, _):
        assert len(await plugin.embed([f"text {n}" for n in range(501)])) == 501
        assert sorted(len(texts) for texts, _ in server.asked) == [1, 250, 250]
        server.asked.clear()
        await plugin.embed(["word " * 1000] * 20)  # 2,048 tokens each, by a careful guess
        assert [len(texts) for texts, _ in server.asked] == [9, 9, 2]


async def test_a_model_that_makes_one_vector_of_several_texts_gets_one_text_a_request():
    async with embedder(model="gemini-embedding-2") as (plugin, server, script):
        together = await plugin.embed(["moon", "tides"])
        assert sorted(server.asked) == [(["moon"], "RETRIEVAL_DOCUMENT"), (["tides"], "RETRIEVAL_DOCUMENT")]
        assert script.methods() == ["EmbedContent"] * 2
        assert await plugin.embed(["tides"]) == [together[1]]


async def test_vectors_of_another_length_say_which_length_to_set():
    async with embedder() as (plugin, server, _):
        server.dimensions = 3
        with pytest.raises(
            PluginError, match=r"vector of 3 numbers where dimensions = 4.*Set dimensions = 3"
        ):
            await plugin.embed(["moon"])


async def test_the_service_refuses_more_than_250_texts():
    async with embedder() as (plugin, _, _):
        with pytest.raises(PluginError, match="251 instances; at most 250"):
            await plugin._predict(["x"] * 251, "RETRIEVAL_QUERY")


async def test_long_texts_are_cut_by_the_service_or_refused_as_the_settings_say():
    long = "word " * 2_049
    async with embedder() as (plugin, _, _):
        assert len(await plugin.embed([long, "moon"])) == 2
        with pytest.raises(PluginError, match="the input token count is 20490; at most 20000"):
            await plugin._predict([long] * 10, "RETRIEVAL_QUERY")
    async with embedder(cut_long_texts=False) as (plugin, _, _):
        assert len(await plugin.embed(["moon"])) == 1
        with pytest.raises(
            PluginError, match="the input token count is 2050; at most 20000, 2048 of one text"
        ):
            await plugin.embed([long, "moon"])


async def test_a_daily_quota_of_the_embedder_pauses_the_leg_at_once():
    message = "Quota exceeded for limit 'Embeddings per day per project'"
    async with embedder() as (plugin, _, script):
        script.always = Step(status="RESOURCE_EXHAUSTED", message=message)
        store = Fixed("a")
        store.legs, store.vector_legs, store.embedder = ("vector",), ("vector",), "remote"  # type: ignore[misc]  # a fixed source takes any legs
        settings = {"rag": {"cache_enabled": False, "max_retrieval_queries": 1}}
        async with ContextRouter(
            settings, connectors={"docs": store, "good": Fixed("b")}, embedders={"remote": plugin}
        ) as router:
            statuses = []
            for _ in range(2):
                context = await router.route("moon")
                statuses += [(each.source, each.status) for each in context.coverage if each.source == "docs"]
        assert statuses == [("docs", "error"), ("docs", "open")]


# The reranker


async def test_scores_go_with_their_documents_and_blank_texts_are_sent_as_something():
    async with reranker(RankServer()) as plugin:
        texts = ["dust and ice", "the moon raises the tides", "moon"]
        scores = await plugin.score("moon tides", [Document(content=text) for text in texts])
        assert scores == pytest.approx([0.0001, 1.0, 0.5])
        assert await plugin.score("moon", [Document(content="\x00"), Document(content="", title="")])


async def test_more_than_200_records_go_in_several_requests():
    server = RankServer()
    async with reranker(server) as plugin:
        documents = [Document(content="moon" if n == 333 else "dust") for n in range(401)]
        scores = await plugin.score("moon", documents)
        assert sorted(server.sizes) == [1, 200, 200]
        assert max(range(401), key=scores.__getitem__) == 333


async def test_documents_of_one_score_keep_the_order_that_they_had():
    async with reranker(RankServer()) as plugin:
        given = [envelope(Document(id=id, content="moon dust"), rank) for rank, id in enumerate("cab", 1)]
        ranked = await plugin.apply(given, stage_context("moon"))
        assert [each.document.id for each in ranked] == ["c", "a", "b"]


async def test_an_answer_that_lacks_a_document_is_an_error():
    server = RankServer()
    server.left_out = 1
    async with reranker(server) as plugin:
        with pytest.raises(PluginError, match="scored 1 records where 2 were sent"):
            await plugin.score("moon", [Document(content="a"), Document(content="b")])


async def test_the_service_refuses_too_many_records_and_records_without_text():
    from google.cloud import discoveryengine_v1 as types

    async with reranker(RankServer()) as plugin:
        for records, problem in (
            ([types.RankingRecord(id=str(n), content="x") for n in range(201)], "201 records"),
            ([types.RankingRecord(id="1")], "neither title nor content"),
        ):
            request = types.RankRequest(ranking_config="c", query="q", records=records)
            with pytest.raises(PluginError, match=problem):
                await plugin._connection.call(plugin._client.rank, request)


async def test_a_router_ranks_with_it_and_goes_on_without_it():
    server = RankServer()
    async with listening(server) as (endpoint, script):
        settings = {
            "rag": {"stages": ["rerank"], "cache_enabled": False},
            "stages": {"rerank": {"use": "vertex", "project": "p", "endpoint": endpoint}},
        }
        found = Fixed([hit("dust", 0.9), hit("moon", 0.8)])
        async with ContextRouter(settings, connectors={"docs": found}) as router:
            context = await router.route("moon")
            assert [each.document.id for each in context.envelopes] == ["moon", "dust"]
            script.always = Step(status="PERMISSION_DENIED")
            context = await router.route("moon please")
            assert [each.document.id for each in context.envelopes] == ["dust", "moon"]
            assert context.degraded


# The generator


TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "What raises"},
    {"role": "user", "content": "the tides?"},
]


async def test_an_answer_comes_whole_with_its_tokens_and_turns_alternate():
    server = GeminiServer()
    async with generator(server) as (plugin, script):
        answer = await plugin.complete(TALK)
        assert answer == Completion(
            text="You said: the tides?", model="example", tokens_in=5, tokens_out=7, finish="stop"
        )
        (request,) = server.requests
        assert request.model == "projects/p/locations/us-central1/publishers/google/models/gemini-2.5-flash"
        assert [part.text for part in request.system_instruction.parts] == ["Be brief."]
        turns = [(turn.role, [part.text for part in turn.parts]) for turn in request.contents]
        assert turns == [("user", ["Hello"]), ("model", ["Hello."]), ("user", ["What raises", "the tides?"])]
        assert script.methods() == ["GenerateContent"]


@pytest.mark.parametrize(
    ("messages", "turns", "system"),
    [
        ([("system", "List the tides.")], [("user", "List the tides.")], ""),
        ([("system", "A."), ("system", "B."), ("user", " ")], [("user", "A. B.")], ""),
        ([("system", "A."), ("assistant", "Hello.")], [("user", "…"), ("model", "Hello.")], "A."),
        ([("user", "Hi"), ("assistant", ""), ("user", "there")], [("user", "Hi there")], ""),
    ],
)
async def test_every_conversation_becomes_turns_that_the_service_takes(
    messages: list[tuple[str, str]], turns: list[tuple[str, str]], system: str
):
    """There is a message, none is blank, and the user begins: else the service refuses the request."""
    server = GeminiServer()
    talk = [{"role": role, "content": text} for role, text in messages]
    async with generator(server) as (plugin, _):
        assert (await plugin.complete(talk)).text
        assert [piece async for piece in plugin.stream(talk)]
    for request in server.requests:
        sent = [(turn.role, " ".join(part.text for part in turn.parts)) for turn in request.contents]
        assert sent == turns
        assert " ".join(part.text for part in request.system_instruction.parts) == system


@pytest.mark.parametrize("messages", [[], [("user", "")], [("model", "Hello.")]])
async def test_the_service_refuses_a_conversation_without_a_message(messages: list[tuple[str, str]]):
    from google.cloud.aiplatform_v1 import types

    async with generator(GeminiServer()) as (plugin, _):
        contents = [types.Content(role=role, parts=[types.Part(text=text)]) for role, text in messages]
        request = types.GenerateContentRequest(model="m", contents=contents)
        with pytest.raises(PluginError, match="Unable to submit request because"):
            await plugin._connection.call(plugin._client.generate_content, request)


async def test_messages_that_are_all_blank_are_an_error_before_anything_is_asked():
    server = GeminiServer()
    async with generator(server) as (plugin, script):
        for messages in ([], [{"role": "user", "content": " "}]):
            with pytest.raises(PluginError, match="was not asked: no message has a text"):
                await plugin.complete(messages)
        assert script.seen == []


async def test_with_a_schema_the_answer_is_an_object_of_it():
    server = GeminiServer()
    schema = {"type": "object", "properties": {"queries": {"type": "array"}}, "required": ["queries"]}
    async with generator(server) as (plugin, _):
        assert (await plugin.complete(TALK, schema=schema)).data == {"queries": ["example"]}
        assert server.requests[0].generation_config.response_mime_type == "application/json"
        server.text = "{cut"
        with pytest.raises(PluginError, match="answered with what is no JSON"):
            await plugin.complete(TALK, schema=schema)


async def test_an_answer_is_streamed_with_its_limits_and_ends_with_the_completion():
    server = GeminiServer()
    server.finish = "MAX_TOKENS"
    async with generator(server, max_tokens=99) as (plugin, _):
        assert [piece async for piece in plugin.stream(TALK)] == ["You ", "said: ", "the ", "tides?"]
        writing = Writing(max_tokens=7, temperature=0.5, top_p=0.9, stop=("END",))
        pieces = [piece async for piece in plugin.write(TALK, writing)]
        assert pieces[-1] == Completion(
            text="You said: the tides?", model="example", finish="length", tokens_in=5, tokens_out=7
        )
        first, second = (request.generation_config for request in server.requests)
        assert first.max_output_tokens == 99
        assert (second.max_output_tokens, list(second.stop_sequences)) == (7, ["END"])
        assert (second.temperature, second.top_p) == (0.5, pytest.approx(0.9))


async def test_an_answer_that_was_blocked_says_why():
    server = GeminiServer()
    server.finish = "SAFETY"
    async with generator(server) as (plugin, _):
        with pytest.raises(PluginError, match=r"wrote no answer: SAFETY. Ask in other words"):
            await plugin.complete(TALK)
        with pytest.raises(PluginError, match="wrote no answer: SAFETY"):
            [piece async for piece in plugin.stream(TALK)]
        pieces = [piece async for piece in plugin.write(TALK, Writing())]
    assert isinstance(pieces[-1], Completion)
    assert pieces[-1].finish == "filter"


async def test_a_reader_that_leaves_ends_the_call():
    async with generator(GeminiServer()) as (plugin, _):
        stream = plugin.stream(TALK)
        assert await anext(stream) == "You "
        await stream.aclose()
        assert (await plugin.complete(TALK)).text


@pytest.mark.parametrize(
    ("cls", "keys", "problem"),
    [
        (VertexEmbedder, {"model": ""}, "model '' is no name"),
        (VertexEmbedder, {"dimensions": 0}, "dimensions 0 is out of range"),
        (VertexEmbedder, {"dimensions": 10**11}, "dimensions 100000000000 is out of range"),
        (VertexGenerator, {"max_tokens": 10**11}, "max_tokens 100000000000 is out of range"),
        (VertexEmbedder, {"query_task": "SEARCH"}, "query_task 'SEARCH' is no task type. Give one of RETR"),
        (VertexEmbedder, {"document_task": ""}, "document_task '' is no task type"),
        (VertexEmbedder, {"batch_size": 251}, "batch_size 251 is out of range.*at most 250"),
        (VertexReranker, {"model": " "}, "model is empty"),
        (VertexReranker, {"max_characters": 0}, "max_characters 0 is out of range"),
        (VertexGenerator, {"model": "a b"}, "model 'a b' is no name"),
        (VertexGenerator, {"request_timeout": math.nan}, "request_timeout nan is out of range"),
    ],
)
def test_a_wrong_key_says_what_is_wrong(cls: Any, keys: Mapping[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        cls(**keys)
