"""Answers in OpenAI's wire format, by the official client and by hand: prompt, citations, routing, streams,
errors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from support.serving import KEY, ScriptedGenerator, document, key, router, serve_router

from contextrouter import ContextRouter, Fact, PluginError, SettingsError, SourceError
from contextrouter.answering.answer_language import script
from contextrouter.answering.examples import Example, load_examples, similar
from contextrouter.builtin.stages.gate import Gate
from contextrouter.server.auth import hash_key
from contextrouter.testing.fakes import Facts, Fixed, Raising

DOCS = [
    document("one", "The library opens at nine."),
    document("two", "It closes at six."),
    document("three", "It rains."),
]


def made(
    *pieces: str, chat: dict[str, Any] | None = None, error: Exception | None = None, **more: Any
) -> tuple[ContextRouter, ScriptedGenerator]:
    """A router whose answers are written as said, and who says it."""
    said = ScriptedGenerator(*pieces, error=error)
    more.setdefault("generators", {"said": said})
    settings = {"chat": {"synthesis_model": "said", **(chat or {})}, **more.pop("settings", {})}
    return router(settings, answer=more.pop("answer", DOCS), **more), said


def asked(*contents: str, **more: Any) -> dict[str, Any]:
    roles = ["user", "assistant"]
    turns = [
        {"role": roles[place % 2], "content": content}
        for place, content in enumerate(contents or ["When does it open?"])
    ]
    return {"model": "contextrouter", "messages": turns, **more}


async def test_the_official_client_gets_a_whole_answer_with_usage_and_citations():
    wanted, _ = made("At nine [1].")
    async with (
        serve_router(wanted) as ask,
        openai.AsyncOpenAI(api_key="none", base_url=f"{ask.url}/v1", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(**asked())
        models = [model.id async for model in client.models.list()]
    assert answer.choices[0].message.content == "At nine [1]."
    assert (answer.choices[0].finish_reason, answer.object, answer.model) == (
        "stop",
        "chat.completion",
        "contextrouter",
    )
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 20
    receipt = answer.model_extra["contextrouter"]
    cited = {"number": 1, "id": "one", "title": "one", "url": "https://example.org/one", "source": "docs"}
    assert list(receipt["citations"]) == ["1"]
    assert receipt["citations"]["1"].items() >= cited.items()
    assert models == ["contextrouter"]


@pytest.mark.case("K38")
async def test_an_answer_says_outcome_sources_entities_facts_query_type_and_tokens():
    wanted, _ = made("At nine [1].")
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    receipt = told["contextrouter"]
    assert (receipt["outcome"], receipt["query_type"], receipt["generator"]) == (
        "answered",
        "default",
        "said",
    )
    assert [each["id"] for each in receipt["sources"]] == ["one", "two", "three"]
    assert (receipt["facts"], receipt["entities"], receipt["degraded"]) == ([], [], False)
    assert receipt["answerability"]["level"] in ("strong", "weak")
    assert told["usage"]["prompt_tokens"] > 0


async def test_the_official_client_reads_a_stream_to_its_end():
    wanted, _ = made("At ", "nine [", "1", "].", " Or [7].")
    async with (
        serve_router(wanted) as ask,
        openai.AsyncOpenAI(api_key="none", base_url=f"{ask.url}/v1", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(
            **asked(), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        == "At nine [1]. Or."
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert list(chunks[-2].model_extra["contextrouter"]["citations"]) == ["1"]


async def test_the_official_client_gets_errors_as_its_own():
    wanted, _ = made("x", settings=key())
    async with serve_router(wanted) as ask:
        async with openai.AsyncOpenAI(api_key="wrong", base_url=f"{ask.url}/v1", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
                await client.chat.completions.create(**asked())
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{ask.url}/v1", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError) as unknown:
                await client.chat.completions.create(**{**asked(), "model": "gpt-nothing"})
            with pytest.raises(openai.UnprocessableEntityError):
                await client.chat.completions.create(model="contextrouter", messages=[], temperature=0.5)
            with pytest.raises(openai.BadRequestError, match="tool_choice"):
                await client.chat.completions.create(
                    **asked(), tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="required"
                )
            with pytest.raises(openai.BadRequestError, match="no user message"):
                await client.chat.completions.create(
                    model="contextrouter", messages=[{"role": "system", "content": "x"}]
                )
            assert (await client.chat.completions.create(**asked())).choices[0].message.content == "x"
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")


async def events(wanted: ContextRouter, **more: Any) -> list[Any]:
    async with serve_router(wanted) as ask:
        answer = await ask("/v1/chat/completions", asked(stream=True, **more))
    assert {name for name, _ in answer.events} == {""}  # every line of a chat stream is plain data
    return [data for _, data in answer.events]


@pytest.mark.case("SSE-03", "SSE-05")
async def test_an_error_in_the_middle_is_an_error_object_and_the_stream_ends():
    wanted, _ = made("At nine", error=PluginError("The model is gone; api_key=hunter22"))
    found = await events(wanted)
    assert found[-1] == "[DONE]"
    error = found[-2]["error"]
    assert (error["type"], error["code"]) == ("server_error", "plugin_failed")
    assert "hunter22" not in error["message"]
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in found[:-2]) == "At nine"
    async with (
        serve_router(wanted) as ask,
        openai.AsyncOpenAI(api_key="none", base_url=f"{ask.url}/v1", max_retries=0) as client,
    ):
        with pytest.raises(openai.APIError, match="The model is gone"):
            async for _ in await client.chat.completions.create(**asked(), stream=True):
                pass


@pytest.mark.case("SSE-05")
async def test_what_is_wrong_before_the_stream_begins_is_an_answer_not_a_stream():
    wanted, _ = made("x")
    async with serve_router(wanted) as ask:
        answer = await ask("/v1/chat/completions", asked(stream=True, n=0))
        several = await ask("/v1/chat/completions", asked(n=2))
    assert (answer.status, answer.headers["Content-Type"]) == (422, "application/json")
    assert answer.json["error"]["param"] == "n"
    assert several.json["error"]["param"] == "n"


@pytest.mark.case("SSE-06")
async def test_every_stream_ends_with_done():
    wanted, _ = made("At nine [1].")
    assert (await events(wanted))[-1] == "[DONE]"
    assert (await events(made(chat={"no_context_text": "Nothing."}, answer=[])[0]))[-1] == "[DONE]"


@pytest.mark.case("SSE-07")
async def test_the_reason_is_null_until_the_end():
    wanted, _ = made("a", "b", "c")
    reasons = [each["choices"][0]["finish_reason"] for each in (await events(wanted))[:-1]]
    assert reasons == [None, None, None, None, "stop"]


@pytest.mark.parametrize("cap", ["max_tokens", "max_completion_tokens"])
@pytest.mark.case("SSE-09")
async def test_the_last_text_and_the_reason_come_apart(cap: str):
    wanted, _ = made(*["word "] * 50)
    found = (await events(wanted, **{cap: 5}))[:-1]
    assert (found[-1]["choices"][0]["delta"], found[-1]["choices"][0]["finish_reason"]) == ({}, "length")
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in found).split() == ["word"] * 5


@pytest.mark.case("SSE-10")
async def test_nothing_but_chunks_is_on_the_stream_and_the_receipt_only_in_the_last():
    wanted, _ = made("a [1]", "b")
    found = (await events(wanted))[:-1]
    assert {each["object"] for each in found} == {"chat.completion.chunk"}
    assert ["contextrouter" in each for each in found] == [False] * (len(found) - 1) + [True]
    assert not any("usage" in each for each in found)


@pytest.mark.case("C02", "C03")
async def test_the_last_user_message_is_searched_up_to_500_characters_and_given_whole():
    source = Fixed("a")
    wanted, said = made("x", connectors={"docs": source})
    long = "word " * 200
    async with serve_router(wanted) as ask:
        await ask("/v1/chat/completions", asked("first?", "an answer", long))
    assert source.queries[0].text == long[:500].strip()
    assert said.seen[0][-3:] == [
        {"role": "user", "content": "first?"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": long},
    ]
    shorter, _ = made("x", chat={"max_query_chars": 7}, connectors={"docs": source})
    async with serve_router(shorter) as ask:
        await ask("/v1/chat/completions", asked(long))
    assert source.queries[-1].text == long[:7]


@pytest.mark.case("C21", "C22", "C23")
async def test_the_prompt_is_system_context_citation_instructions_history():
    wanted, said = made(
        "x",
        chat={"system_prompt": "Be brief.", "citation_prompt": "Cite [n]."},
        answer=[document("pay", "Gold.", compartment="hr")],
    )
    turns = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": "a1"},
    ]
    parts = [{"type": "text", "text": "q2"}, {"type": "text", "text": "and q3"}]
    async with serve_router(wanted) as ask:
        await ask(
            "/v1/chat/completions",
            {"model": "contextrouter", "messages": [*turns, {"role": "user", "content": parts}]},
        )
    system, *history = said.seen[0]
    assert system["role"] == "system"
    order = ["Be brief.", "Be kind.", "### [1] pay — docs — hr\nGold.", "Cite [n]."]
    assert [system["content"].index(part) for part in order] == sorted(
        system["content"].index(part) for part in order
    )
    assert history == [*turns[1:], {"role": "user", "content": "q2\nand q3"}]


@pytest.mark.case("K34", "K35", "K36")
async def test_the_two_most_similar_examples_stand_before_the_context_and_never_the_question(tmp_path: Path):
    lines = [
        ("When does it open?", "SELF"),
        ("When does the museum open?", "MUSEUM"),
        ("When does it close?", "CLOSE"),
        ("Who?", "WHO"),
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text("\n".join(json.dumps({"question": q, "answer": a}) for q, a in lines))
    wanted, said = made("x", chat={"examples": str(path)})
    async with serve_router(wanted) as ask:
        await ask("/v1/chat/completions", asked("When does it open?"))
    text = said.seen[0][0]["content"]
    assert [word in text for word in ("SELF", "MUSEUM", "CLOSE", "WHO")] == [False, True, True, False]
    assert text.index("MUSEUM") < text.index("### [1]") < text.index("Cite every")
    off = [({"max_examples": 0}, {}), ({}, {"enable_fewshot": False}), ({}, {"use_enhancements": False})]
    for chat, rag in off:
        without, said = made("x", chat={"examples": str(path), **chat}, settings={"rag": rag})
        async with serve_router(without) as ask:
            await ask("/v1/chat/completions", asked())
        assert "MUSEUM" not in said.seen[0][0]["content"]


@pytest.mark.case("K34")
def test_no_file_is_no_examples_and_a_wrong_line_is_named(tmp_path: Path):
    assert load_examples("") == load_examples(str(tmp_path / "none.jsonl")) == []
    path = tmp_path / "bad.jsonl"
    path.write_text('{"question": "q", "answer": "a"}\n{"question": "q"}\n')
    with pytest.raises(SettingsError, match=r"bad\.jsonl:2: chat\.examples: no example"):
        load_examples(str(path))


def test_examples_are_similar_by_rare_words():
    known = [
        Example(question=q, answer="") for q in ("the cat and the dog", "the weather", "the car", "a zebra")
    ]
    assert [each.question for each in similar("the zebra", known, 1)] == ["a zebra"]
    assert similar("nothing shared", known, 2) == []


@pytest.mark.parametrize(
    ("more", "keyed", "expected"),
    [
        ({}, {}, "default"),
        ({"compartment_generators": {"hr": "inner"}}, {"compartments": ["hr"]}, "inner"),
        ({"compartment_generators": {"hr": "inner"}}, {"compartments": ["law"]}, "default"),
        ({"compartment_generators": {"hr": "inner"}}, {"compartments": ["hr"], "generator": "own"}, "own"),
    ],
    ids=["default", "scope", "other scope", "user"],
)
@pytest.mark.case("C24")
async def test_the_generator_is_the_default_or_the_scope_s_or_the_user_s(
    more: Any, keyed: Any, expected: str
):
    writers = {name: ScriptedGenerator(name) for name in ("default", "inner", "own")}
    wanted, _ = made(chat={"synthesis_model": "default", **more}, settings=key(**keyed), generators=writers)
    async with serve_router(wanted, token=KEY) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert (told["choices"][0]["message"]["content"], told["contextrouter"]["generator"]) == (
        expected,
        expected,
    )


@pytest.mark.case("C24")
async def test_a_request_names_listed_models_only_and_never_passes_by_what_binds_its_key():
    writers = {name: ScriptedGenerator(name) for name in ("default", "other", "hidden")}
    chat = {"synthesis_model": "default", "models": ["other"], "compartment_generators": {"hr": "hidden"}}
    async with serve_router(made(chat=chat, settings=key(), generators=writers)[0], token=KEY) as ask:
        assert [each["id"] for each in (await ask("/v1/models")).json["data"]] == ["contextrouter", "other"]
        told = (await ask("/v1/chat/completions", {**asked(), "model": "other"})).json
        assert told["choices"][0]["message"]["content"] == "other"
        assert (await ask("/v1/chat/completions", {**asked(), "model": "hidden"})).status == 404
    async with serve_router(
        made(chat=chat, settings=key(compartments=["hr"]), generators=writers)[0], token=KEY
    ) as ask:
        assert [each["id"] for each in (await ask("/v1/models")).json["data"]] == ["contextrouter"]
        assert (await ask("/v1/chat/completions", {**asked(), "model": "other"})).status == 404


OPEN = {"keys": {"anna": {"hash": hash_key(KEY), "unrestricted": True}}}
HR = {"compartment_generators": {"hr": "inner", "law": "lawyer"}, "models": ["other"]}


@pytest.mark.case("SEC-02")
@pytest.mark.parametrize(
    "settings", [{}, OPEN, {"keys": {"anna": {**OPEN["keys"]["anna"], "generator": "own"}}}]
)
@pytest.mark.parametrize("model", ["contextrouter", "other"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_compartment_binds_its_generator_whoever_asks(settings: Any, model: str, stream: bool):
    writers = {name: ScriptedGenerator(name) for name in ("default", "inner", "lawyer", "own", "other")}
    pay = [document("pay", "About pay.", compartment="hr"), document("tea", "About tea.")]
    wanted, _ = made(
        chat={"synthesis_model": "default", **HR}, settings=settings, generators=writers, answer=pay
    )
    if model == "other" and settings and settings["keys"]["anna"].get("generator"):
        model = "contextrouter"  # a key with a generator of its own names no other
    async with serve_router(wanted, token=KEY if settings else None) as ask:
        reply = await ask("/v1/chat/completions", {**asked(stream=stream), "model": model})
    assert reply.status == 200
    assert [name for name, writer in writers.items() if writer.seen] == ["inner"]


@pytest.mark.case("SEC-02")
async def test_a_fact_binds_its_generator_and_two_rules_refuse_one_context():
    writers = {name: ScriptedGenerator(name) for name in ("default", "inner", "lawyer", "other")}
    fact = Fact(subject="pay", predicate="is", object="low", compartment="hr")
    chat = {"synthesis_model": "default", **HR}
    wanted, _ = made(chat=chat, generators=writers, facts={"graph": Facts([fact])})
    async with serve_router(wanted) as ask:
        assert (await ask("/v1/chat/completions", asked())).status == 200
    assert [name for name, writer in writers.items() if writer.seen] == ["inner"]
    both = [document("a", compartment="hr"), document("b", compartment="law")]
    wanted, _ = made(chat=chat, generators=writers, answer=both)
    async with serve_router(wanted) as ask:
        reply = await ask("/v1/chat/completions", asked())
    assert reply.status == 422
    assert "the settings bind 'hr' to 'inner' and 'law' to 'lawyer'" in reply.json["error"]["message"]
    assert not writers["lawyer"].seen


@pytest.mark.case("T08")
async def test_the_token_cap_of_the_settings_bounds_what_a_request_may_ask_for():
    wanted, _ = made(*["word "] * 50, chat={"synthesis_max_tokens": 3})
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked(max_tokens=40))).json
    assert (told["choices"][0]["message"]["content"].split(), told["choices"][0]["finish_reason"]) == (
        ["word"] * 3,
        "length",
    )


async def test_an_answer_ends_at_a_stop_text_however_it_is_cut():
    for pieces in (["one END two"], ["one E", "N", "D two"], list("one END two")):
        wanted, _ = made(*pieces)
        async with serve_router(wanted) as ask:
            told = (await ask("/v1/chat/completions", asked(stop=["END", "never"]))).json
        assert (told["choices"][0]["message"]["content"].strip(), told["choices"][0]["finish_reason"]) == (
            "one",
            "stop",
        )


@pytest.mark.case("K12")
async def test_where_nothing_was_found_the_configured_answer_comes_with_its_outcome():
    wanted, said = made("Invented.", chat={"no_context_text": "I found nothing."}, answer=[])
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert told["choices"][0]["message"]["content"] == "I found nothing."
    assert (told["contextrouter"]["outcome"], told["contextrouter"]["sources"], said.seen) == (
        "empty",
        [],
        [],
    )
    free, said = made("From memory [1].", chat={"no_context": "generate"}, answer=[])
    async with serve_router(free) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert told["choices"][0]["message"]["content"] == "From memory."
    assert (told["contextrouter"]["outcome"], "Cite every" in said.seen[0][0]["content"]) == ("empty", False)


@pytest.mark.case("K11", "K12")
async def test_behind_a_gate_the_configured_answer_says_so():
    """The generator sees no document that was found."""
    settings = {"rag": {"interpreters": [], "cache_enabled": False, "stages": ["gate"]}}
    wanted, said = made(
        "Invented.", chat={"no_context_text": "Not sure."}, settings=settings, stages={"gate": Gate()}
    )
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    receipt = told["contextrouter"]
    assert (told["choices"][0]["message"]["content"], said.seen) == ("Not sure.", [])
    assert (receipt["outcome"], receipt["sources"], receipt["facts"]) == ("confidence_gated_fallback", [], [])
    chat = {"no_context": "generate"}
    free, said = made("From memory [1].", chat=chat, settings=settings, stages={"gate": Gate()})
    async with serve_router(free) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert (told["choices"][0]["message"]["content"], "nine" in str(said.seen)) == ("From memory.", False)


@pytest.mark.case("T14")
async def test_an_answer_without_citations_or_in_another_script_is_noted():
    for pieces, guard in (
        ("At nine [1].", (True, True)),
        ("At nine.", (False, True)),
        ("В девять [1].", (True, False)),
    ):
        wanted, _ = made(pieces)
        async with serve_router(wanted) as ask:
            found = (await ask("/v1/chat/completions", asked())).json["contextrouter"]["guard"]
        assert (found["cited"], found["language"]) == guard


@pytest.mark.case("T14")
async def test_with_retry_such_an_answer_is_asked_for_once_more():
    class Learning(ScriptedGenerator):
        async def stream(self, messages):
            self.pieces = ("At nine [1].",) if len(self.seen) else ("At nine.",)
            async for piece in super().stream(messages):
                yield piece

    said = Learning()
    wanted, _ = made(chat={"guard": "retry"}, generators={"said": said})
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert told["choices"][0]["message"]["content"] == "At nine [1]."
    assert (len(said.seen), told["contextrouter"]["guard"]["cited"]) == (2, True)
    assert said.seen[1][-2]["content"] == "At nine."


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("When does it open?", "LATIN"),
        ("Когда?", "CYRILLIC"),
        ("図書館はいつ", "CJK"),
        ("123 !?", ""),
        ("ok", ""),
        ("Wann в?", "LATIN"),
    ],
)
@pytest.mark.case("T11")
def test_the_script_of_a_text_is_that_of_most_of_its_letters(text: str, name: str):
    assert script(text) == name


@pytest.mark.case("CIT-04")
async def test_two_pieces_of_one_document_keep_their_own_numbers():
    """One number per document is a way to show them, left to who shows them: each entry says its document's
    address.
    """
    pieces = [document("a", "Opens at nine.", parent="doc"), document("b", "Closes at six.", parent="doc")]
    wanted, _ = made("Nine [1], six [2].", answer=pieces)
    async with serve_router(wanted) as ask:
        cited = (await ask("/v1/chat/completions", asked())).json["contextrouter"]["citations"]
    assert [(number, each["id"], each["url"]) for number, each in cited.items()] == [
        ("1", "a", "https://example.org/a"),
        ("2", "b", "https://example.org/b"),
    ]


@pytest.mark.case("CIT-05")
async def test_a_number_stands_for_a_document_by_its_id_whatever_was_left_out():
    docs = [document("kept"), document("hidden", compartment="hr"), document("last")]
    wanted, _ = made("See [2].", answer=docs, settings=key())
    async with serve_router(wanted, token=KEY) as ask:
        receipt = (await ask("/v1/chat/completions", asked())).json["contextrouter"]
    assert receipt["citations"]["2"]["id"] == "last"
    assert [(each["number"], each["id"]) for each in receipt["sources"]] == [(1, "kept"), (2, "last")]


@pytest.mark.case("CIT-12")
async def test_numbers_are_those_of_the_context_in_the_order_of_their_first_use():
    wanted, _ = made("First [3], then [1], again [3].")
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert told["choices"][0]["message"]["content"] == "First [3], then [1], again [3]."
    assert list(told["contextrouter"]["citations"]) == ["3", "1"]


@pytest.mark.case("CIT-13")
async def test_a_number_that_the_context_lacks_is_not_cited():
    """The number may stand in a list or in a link."""
    wanted, said = made("As [1](https://x.example) and [8](https://y.example) say.")
    async with serve_router(wanted) as ask:
        told = (await ask("/v1/chat/completions", asked())).json
    assert list(told["contextrouter"]["citations"]) == ["1"]
    assert "[8]" not in told["choices"][0]["message"]["content"]
    assert "the number of the context block" in said.seen[0][0]["content"]


async def test_when_every_source_fails_so_does_the_answer_in_openai_s_words():
    wanted, said = made("x", connectors={"gone": Raising(SourceError("no line"))})
    async with serve_router(wanted) as ask:
        answer = await ask("/v1/chat/completions", asked(stream=True))
    assert (answer.status, answer.json["error"]["code"], said.seen) == (502, "all_sources_failed", [])


async def test_with_no_generator_at_all_the_answer_quotes_the_context():
    async with serve_router(router(answer=DOCS)) as ask:
        told = (await ask("/v1/chat/completions", asked("When does the library open?"))).json
    assert told["choices"][0]["message"]["content"] == "The library opens at nine. [1]"
    assert told["contextrouter"]["generator"] == "extractive"


async def test_quotes_are_of_documents_alone_and_of_strangers_without_their_fence():
    """Neither the instructions that follow the last block nor the lines around foreign text are ever
    quoted.
    """
    async with serve_router(router(answer=[document("page", "A page opens.", untrusted=True)])) as ask:
        question = "Is a page untrusted, by the end?"
        told = (await ask("/v1/chat/completions", asked(question))).json
    assert told["choices"][0]["message"]["content"] == "A page opens. [1]"


@pytest.mark.parametrize("role", ["critic", "root", ""])
async def test_roles_and_parts_that_cannot_be_read_are_refused_by_place(role: str):
    wanted, _ = made("x")
    async with serve_router(wanted) as ask:
        turns = [{"role": "user", "content": "q"}, {"role": role, "content": "x"}]
        answer = await ask("/v1/chat/completions", {"model": "contextrouter", "messages": turns})
        image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
        picture = await ask("/v1/chat/completions", {"model": "contextrouter", "messages": [image]})
    assert (answer.status, answer.json["error"]["param"]) == (400, "messages[1].role")
    assert (picture.status, picture.json["error"]["code"]) == (400, "unsupported_content")


def test_a_generator_that_is_not_there_stops_the_start():
    for table in (
        {"synthesis_model": "sayd"},
        {"models": ["sayd"]},
        {"compartment_generators": {"hr": "sayd"}},
    ):
        with pytest.raises(SettingsError, match=r"'sayd' is no defined generator\. Did you mean 'said'\?"):
            ContextRouter({"chat": table}, generators={"said": ScriptedGenerator("x")})
