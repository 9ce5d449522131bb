"""The preset `evidence`: the server, its answers with citations, and the explanation of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from support.presets import fill, piece, system
from support.serving import KEY, ScriptedGenerator, serve_router

from contextrouter import ContextRouter
from contextrouter.server.auth import hash_key
from contextrouter.testing import Fixed, hit

CHAT = "/v1/chat/completions"
SAID = '[chat]\nsynthesis_model = "said"\n'


def key(
    name: str, *, compartments: str = "[]", ceiling: str = "internal", more: str = "", secret: str = KEY
) -> str:
    return (
        f'[keys.{name}]\nhash = "{hash_key(secret)}"\ncompartments = {compartments}\n'
        f'ceiling = "{ceiling}"\n{more}\n'
    )


async def wiki(folder: Path, toml: str = "", *pieces: str, **by_hand: Any) -> ContextRouter:
    """A router of two pages, which answers in the given words."""
    generators = {"said": ScriptedGenerator(*(pieces or ("At ten [1].",))), **by_hand.pop("generators", {})}
    router = system(folder, "evidence", SAID + toml, generators=generators, **by_hand)
    entries = (
        piece("engineering:deploy", "tides " * 20, title="Deployment", compartment="engineering"),
        piece(
            "people:pay",
            "waves " * 20,
            title="Pay",
            compartment="people",
            sensitivity="confidential",
            cosine=0.6,
        ),
    )
    await fill(router, "wiki", *entries)
    return router


def said(router: ContextRouter) -> ScriptedGenerator:
    generator = router.instances.generators["said"]
    assert isinstance(generator, ScriptedGenerator)
    return generator


def turns(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return {"model": "contextrouter", "messages": messages, **more}


@pytest.mark.case("C01")
@pytest.mark.without("contextrouter/server/chat.py", 'path="/v1/chat/completions"', 'path="/v1/chat"')
async def test_the_official_client_gets_an_answer(tmp_path: Path):
    async with (
        serve_router(await wiki(tmp_path)) as ask,
        openai.AsyncOpenAI(api_key="none", base_url=f"{ask.url}/v1", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(**turns("When about tides?"))
    assert answer.choices[0].message.content == "At ten [1]."
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


class Listening(Fixed):
    """A source that says what it was asked."""


@pytest.mark.case("C02")
@pytest.mark.without(
    "contextrouter/answering/conversation.py", 'self.turns[self.index]["content"]', 'self.turns[0]["content"]'
)
async def test_the_last_turn_of_the_user_is_searched(tmp_path: Path):
    source = Listening("x")
    async with serve_router(await wiki(tmp_path, connectors={"notes": source})) as ask:
        await ask(CHAT, turns("First about rain?", "It rains.", "And what about tides?"))
    assert [query.text for query in source.queries] == ["And what about tides?"]


@pytest.mark.case("C03")
@pytest.mark.without(chat__max_query_chars=501)
async def test_five_hundred_characters_are_searched_and_the_model_gets_all(tmp_path: Path):
    source, long = Listening("x"), "tides " * 100
    router = await wiki(tmp_path, connectors={"notes": source})
    async with serve_router(router) as ask:
        await ask(CHAT, turns(long))
    assert [len(query.text) for query in source.queries] == [500]
    assert said(router).seen[0][-1]["content"].strip() == long.strip()


@pytest.mark.case("C10")
@pytest.mark.without("contextrouter/pipeline/assembly.py", 'below = " > ".join', 'below = " / ".join')
async def test_the_heading_path_stands_below_the_header_joined_by_angles(tmp_path: Path):
    router = system(tmp_path, "evidence")
    await fill(router, "wiki", piece("a", "tides rise " * 10, path=("Sea", "Tides")))
    async with router:
        text = (await router.route("What about tides?")).text
    assert text.startswith("### [1] a — wiki\nSea > Tides\ntides rise")


@pytest.mark.case("C21")
@pytest.mark.without(ingest__engineering__title="Wiki of the engineers")
async def test_a_header_has_number_title_connection_and_compartment(tmp_path: Path):
    async with await wiki(tmp_path) as router:
        text = (await router.route("What about tides?")).text
    assert "### [1] Deployment — Engineering wiki — engineering\n" in text
    assert "### [2] Pay — People handbook — people\n" in text


@pytest.mark.case("C22")
@pytest.mark.without(
    "contextrouter/pipeline/assembly.py",
    "make_citation(len(self.blocks) + 1,",
    "make_citation(len(self.blocks) + 2,",
)
async def test_the_number_of_a_block_is_that_of_its_citation(tmp_path: Path):
    router = await wiki(tmp_path, "", "Waves [2].")
    async with serve_router(router) as ask:
        receipt = (await ask(CHAT, turns("What about tides?"))).json["contextrouter"]
    assert {number: each["id"] for number, each in receipt["citations"].items()} == {"2": "people:pay"}
    assert "### [2] Pay" in said(router).seen[0][0]["content"]


@pytest.mark.case("C23")
@pytest.mark.without(chat__citation_prompt="")
async def test_the_prompt_is_system_context_citation_instructions_and_history(tmp_path: Path):
    router = await wiki(tmp_path)
    async with serve_router(router) as ask:
        await ask(CHAT, turns("About rain?", "It rains.", "What about tides?"))
    system_turn, *history = said(router).seen[0]
    text = system_turn["content"]
    order = [
        text.index(part) for part in ("You answer questions", "### [1] Deployment", "Cite every statement")
    ]
    assert order == sorted(order)
    assert [turn["content"] for turn in history] == ["About rain?", "It rains.", "What about tides?"]


@pytest.mark.case("C24")
@pytest.mark.without(chat__compartment_generators={"people": "said"})
async def test_the_writer_is_the_default_or_that_of_the_scope_or_of_the_user(tmp_path: Path):
    writers = {name: ScriptedGenerator(f"{name} [1].") for name in ("inhouse", "own")}
    toml = '[chat.compartment_generators]\npeople = "inhouse"\n'
    keyed = {
        "said": key("anna", compartments='["engineering"]'),
        "inhouse": key("anna", compartments='["people"]', ceiling="confidential"),
        "own": key("anna", compartments='["engineering"]', more='generator = "own"'),
    }
    for name, keys in keyed.items():
        router = await wiki(tmp_path / name, toml + keys, generators=dict(writers))
        async with serve_router(router, token=KEY) as ask:
            told = (await ask(CHAT, turns("What about tides and waves?"))).json
        assert told["contextrouter"]["generator"] == name


@pytest.mark.case("C25")
@pytest.mark.without(
    "contextrouter/server/chat.py", 'await events.send("[DONE]")', 'await events.send("DONE")'
)
async def test_a_stream_is_of_openai_s_chunks_and_ends_with_done(tmp_path: Path):
    router = await wiki(tmp_path, "", "At ", "ten ", "[1].")
    async with serve_router(router) as ask:
        events = [data for _, data in (await ask(CHAT, turns("What about tides?", stream=True))).events]
    assert events[-1] == "[DONE]"
    chunks = [event for event in events[:-1] if event["choices"]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "At ten [1]."


@pytest.mark.case("C26")
@pytest.mark.without("contextrouter/answering/answers.py", "Markers(len(context.envelopes))", "Markers(99)")
async def test_a_number_that_no_block_has_is_never_linked(tmp_path: Path):
    router = await wiki(tmp_path, "", "At ten [1]. Or [7].")
    async with serve_router(router) as ask:
        told = (await ask(CHAT, turns("What about tides?"))).json
    assert told["choices"][0]["message"]["content"] == "At ten [1]. Or."
    assert list(told["contextrouter"]["citations"]) == ["1"]


async def explained(folder: Path, toml: str = "", **body: Any) -> Any:
    """The whole result over HTTP, with its trace."""
    router = await wiki(folder, toml, connectors=body.pop("connectors", {}))
    async with serve_router(router, token=KEY if "[keys." in toml else "") as ask:
        return (await ask("/v1/route", {"question": "What about tides?", "detail": "trace", **body})).json


@pytest.mark.case("C35")
@pytest.mark.without(rag__stages=["quality", "freshness"])
async def test_every_piece_has_its_vector_words_freshness_and_combined_score(tmp_path: Path):
    """Of two pieces: cosine 1 and 0.6, words and none, no dates: 0.6 + 0.3 + 0.05 and 0.36 + 0.05."""
    told = await explained(tmp_path)
    parts = ("vector", "text", "freshness", "blend")
    rows = [[round(e["signals"][name], 6) for name in parts] for e in told["envelopes"]]
    assert rows == [[1.0, 1.0, 0.5, 0.95], [0.6, 0.0, 0.5, 0.41]]
    assert [round(e["score"], 6) for e in told["envelopes"]] == [0.95, 0.41]


@pytest.mark.case("C36")
@pytest.mark.without(serve__explorer=False)
async def test_one_question_is_asked_by_vector_by_text_and_by_both_side_by_side(tmp_path: Path):
    by_mode = {
        mode: [e["document"]["id"] for e in (await explained(tmp_path / mode, legs=legs))["envelopes"]]
        for mode, legs in (("vector", ["vector"]), ("text", ["text"]), ("hybrid", None))
    }
    assert by_mode == {
        "vector": ["engineering:deploy", "people:pay"],
        "text": ["engineering:deploy"],
        "hybrid": ["engineering:deploy", "people:pay"],
    }
    async with serve_router(await wiki(tmp_path / "page")) as ask:
        assert "/explorer" in (await ask("/explorer")).text


@pytest.mark.case("C37")
@pytest.mark.without(ingest__people__compartment="engineering", ingest__people__sensitivity="internal")
async def test_connections_outside_the_scope_are_listed_although_they_share_a_store(tmp_path: Path):
    told = await explained(tmp_path, key("anna", compartments='["engineering"]'))
    excluded = told["trace"]["plan"]["excluded"]
    assert {name: why for name, why in excluded.items() if ":" in name} == {
        "wiki:people": "outside the caller's scope"
    }
    assert [e["document"]["id"] for e in told["envelopes"]] == ["engineering:deploy"]


@pytest.mark.case("C38")
@pytest.mark.without("contextrouter/pipeline/run.py", "note=describe_duplicates(candidates)", 'note=""')
async def test_the_trace_says_what_was_selected_filtered_merged_and_cut(tmp_path: Path):
    """A note is a copy of a page, a menu has no content, and one text is beyond the budget."""
    notes = Fixed(
        [
            hit("copy", content="tides " * 20, title="Deployment"),
            hit("menu", content="Home"),
            hit("long", content="tides rise " * 500),
        ]
    )
    told = await explained(tmp_path, "[rag]\ntoken_budget = 45\n", connectors={"notes": notes})
    steps = {step["name"]: step for step in told["trace"]["steps"]}
    assert steps["dedupe"]["note"] == "duplicates: notes:copy = wiki:engineering:deploy"
    dropped = [(step["name"], each["dropped"]) for step in told["trace"]["steps"] for each in step["lost"]]
    assert ("assemble", "token budget") in dropped
    assert any(name == "quality" for name, _ in dropped)
    assert steps["assemble"]["live"] == len(told["envelopes"])


@pytest.mark.case("C39")
@pytest.mark.without("contextrouter/pipeline/answerability.py", '"strong" if', '"weak" if')
async def test_every_result_says_how_well_it_can_be_answered(tmp_path: Path):
    told = await explained(tmp_path / "a")
    weak = await explained(tmp_path / "b", question="Which vaccine protects against measles?")
    assert [each["answerability"]["level"] for each in (told, weak)] == ["strong", "weak"]


@pytest.mark.case("C40")
@pytest.mark.without(rag__enable_fts=False)
async def test_a_request_chooses_its_search(tmp_path: Path):
    told = await explained(tmp_path, legs=["text"])
    assert {seal["leg"] for e in told["envelopes"] for seal in e["provenance"]} == {"text"}


@pytest.mark.case("C43")
@pytest.mark.without(stages__rerank__top_n=20, stages__rerank__keep=5)
def test_pool_and_result_of_the_reranker_are_settings(tmp_path: Path):
    keys = system(tmp_path, "evidence").settings.stages["rerank"].keys
    assert (keys.top_n, keys.keep) == (30, 10)
    changed = (
        system(tmp_path, "evidence", "[stages.rerank]\ntop_n = 50\nkeep = 7\n").settings.stages["rerank"].keys
    )
    assert (changed.top_n, changed.keep) == (50, 7)
