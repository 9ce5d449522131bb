"""The preset `packs`: other wordings of a question, examples of good answers, and the answer itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.model_server import ModelServer
from support.presets import fill, ingest, piece, system
from support.serving import serve_router

from contextrouter import Context

QUESTION = "How far is a foghorn heard?"
WORDINGS = ["range of a fog signal in kilometres", "audible distance of a foghorn"]


def writer(server: ModelServer, more: str = "") -> str:
    """Settings with a language model on this machine."""
    return (
        f"[rag]\n{more or 'enable_multi_query = true'}\n"
        f'[generators.writer]\nuse = "openai"\nmodel = "m"\nbase_url = "{server.url}"\n'
    )


async def answer(
    folder: Path, server: ModelServer, more: str = "", question: str = QUESTION, toml: str = ""
) -> Context:
    router = system(folder, "packs", writer(server, more) + toml)
    await fill(router, "pack", piece("foghorn"))
    async with router:
        return await router.route(question)


async def chat(folder: Path, toml: str, question: str) -> Any:
    """The answer of the server to one question about the example articles."""
    await ingest(folder, "packs", toml)
    body = {"model": "contextrouter", "messages": [{"role": "user", "content": question}]}
    async with serve_router(system(folder, "packs", toml, embedders={})) as ask:
        return (await ask("/v1/chat/completions", body)).json


def prompt(server: ModelServer) -> str:
    return "\n".join(str(message["content"]) for message in server.requests[-1]["messages"])


@pytest.mark.case("K01")
@pytest.mark.without(interpreters__expand__alternatives=1)
async def test_two_other_wordings_are_asked_beside_the_question(tmp_path: Path):
    async with ModelServer({"queries": [*WORDINGS, "a third one of them"]}) as server:
        context = await answer(tmp_path, server)
    assert context.intent.queries == (QUESTION, *WORDINGS)
    assert {report.query for report in context.coverage if report.leg == "vector"} == {QUESTION, *WORDINGS}


@pytest.mark.case("K02")
@pytest.mark.without(interpreters__expand__max_characters=501)
async def test_the_model_reads_500_characters_of_the_question(tmp_path: Path):
    async with ModelServer({"queries": WORDINGS}) as server:
        await answer(tmp_path, server, question="x " * 249 + "yz" + "tail")
    assert "x yz" in prompt(server)
    assert "x yzt" not in prompt(server)


@pytest.mark.case("K03")
@pytest.mark.without(interpreters__expand__max_query_characters=400)
async def test_a_wording_has_at_most_300_characters(tmp_path: Path):
    async with ModelServer({"queries": ["signal " * 80]}) as server:
        context = await answer(tmp_path, server)
    assert [len(query) <= 300 for query in context.intent.queries] == [True, True]
    assert len(context.intent.queries[1]) > 280


@pytest.mark.case("K05")
@pytest.mark.without(interpreters__expand__on_error="raise")
async def test_a_model_that_fails_leaves_the_question_alone_and_the_trace_says_why(tmp_path: Path):
    async with ModelServer({}, "limited") as server:
        context = await answer(tmp_path, server)
    assert context.intent.queries == (QUESTION,)
    assert "transport" in context.trace.steps[0].note
    assert [envelope.document.id for envelope in context.envelopes] == ["foghorn"]


@pytest.mark.case("K06")
@pytest.mark.without(rag__enable_multi_query=True)
async def test_as_it_is_the_question_never_leaves_the_process(tmp_path: Path):
    async with ModelServer({"queries": WORDINGS}) as server:
        await answer(tmp_path, server, "max_graph_facts = 20")
    assert server.requests == []


@pytest.mark.case("K34")
@pytest.mark.without(rag__enable_fewshot=False)
async def test_examples_come_from_a_file_beside_the_pack_and_without_it_there_are_none(tmp_path: Path):
    async with ModelServer({}, "talk") as server:
        toml = writer(server, "timeout_seconds = 9")
        await chat(tmp_path, toml, "How high was the Eddystone Lighthouse?")
        assert "Henry Winstanley built the first tower in 1698 [1]. John" in prompt(server)
        (tmp_path / "eval" / "questions.jsonl").unlink()
        async with serve_router(system(tmp_path, "packs", toml, embedders={})) as ask:
            turn = {"role": "user", "content": "How high was the Eddystone Lighthouse?"}
            await ask("/v1/chat/completions", {"model": "contextrouter", "messages": [turn]})
        assert "Examples of good answers" not in prompt(server)


@pytest.mark.case("K35")
@pytest.mark.without(chat__max_examples=3)
async def test_the_two_most_similar_examples_are_used_and_never_the_question_itself(tmp_path: Path):
    async with ModelServer({}, "talk") as server:
        await chat(tmp_path, writer(server, "timeout_seconds = 9"), "What does a lighthouse keeper do?")
    text = prompt(server)
    lines = (tmp_path / "eval" / "questions.jsonl").read_text("utf-8").splitlines()
    used = [json.loads(line)["question"] for line in lines if json.loads(line)["answer"] in text]
    assert len(used) == 2
    assert "What does a lighthouse keeper do?" not in used


@pytest.mark.case("K36")
@pytest.mark.without(chat__examples="")
async def test_examples_stand_before_the_context_and_the_question(tmp_path: Path):
    async with ModelServer({}, "talk") as server:
        await chat(tmp_path, writer(server, "timeout_seconds = 9"), "Who built the Bell Rock Lighthouse?")
    system_turn, user_turn = server.requests[-1]["messages"]
    text = system_turn["content"]
    assert text.index("John Smeaton built the third in 1759 [1].") < text.index("### [1]")
    assert user_turn["content"] == "Who built the Bell Rock Lighthouse?"


@pytest.mark.case("K38")
@pytest.mark.without(rag__graph_facts_enabled=False)
async def test_an_answer_has_its_sources_entities_facts_kind_and_tokens(tmp_path: Path):
    told = await chat(tmp_path, "", "Who built the Eddystone Lighthouse?")
    receipt = told["contextrouter"]
    assert (receipt["outcome"], receipt["query_type"]) == ("answered", "default")
    assert len(receipt["sources"]) == 7
    assert "Eddystone Lighthouse" in {source["title"] for source in receipt["sources"]}
    assert {fact["subject"] for fact in receipt["facts"]} >= {"John Smeaton", "Henry Winstanley"}
    assert receipt["entities"] == []
    assert told["usage"]["prompt_tokens"] > 300
    assert "Eddystone" in told["choices"][0]["message"]["content"]
