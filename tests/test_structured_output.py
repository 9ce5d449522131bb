"""The reader of structured output: whatever stands around an object, it is found; what is none has a reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.model_server import ModelServer

from contextrouter import Completion, ContextRouter, Generator, MissingDependency
from contextrouter.builtin.generators.anthropic import Anthropic
from contextrouter.builtin.generators.example_server import example_value
from contextrouter.builtin.generators.openai import OpenAI
from contextrouter.builtin.shared.json_in_text import json_texts, parse_json
from contextrouter.builtin.shared.structured_output import (
    AnswerError,
    ask,
    check_pydantic,
    read_answer,
    schema_of,
    whole_number,
)
from contextrouter.testing import Fixed


class Ranking(BaseModel):
    ranking: list[int]


class Fact(BaseModel):
    name: str
    year: int | None = None


class Facts(BaseModel):
    facts: list[Fact]
    sure: bool = True


def read(text: str, shape: type[Any] = Ranking, **fields: Any) -> Any:
    return read_answer(Completion(text=text, **fields), shape)


def reason(text: str, shape: type[Any] = Ranking, **fields: Any) -> str:
    with pytest.raises(AnswerError) as failed:
        read(text, shape, **fields)
    return failed.value.reason


BARE = '{"ranking": [2, 1]}'


@pytest.mark.parametrize(
    "text",
    [
        BARE,
        f"  \n{BARE}\n",
        f"\ufeff{BARE}",
        f"```json\n{BARE}\n```",
        f"Here:\n```\n{BARE}\n```\nDone.",
        f"~~~\n{BARE}\n~~~",
        f"The order is {BARE}, because of [1] and [3].",
        f"As [1] says and {{others}} do: {BARE}",
        f"See {{'not': json}} and {{\"order\": 3}} first. {BARE}",
        f'<think>Perhaps {{"ranking": [1, 2]}}?</think>{BARE}',
        f'so {{"ranking": [1]}} it is\n</think>\n\n```json\n{BARE}\n```',
        f'Such as {{"ranking": [9]}}:\n```json\n{BARE}\n```',
        '{"ranking": ["2", "1"]}',
        '{"ranking": [2.0, 1.0]}',
        "[2, 1]",
        "The order:\n[2, 1]\nas you see",
        "The order is: [2, 1].",
        '{"answer": {"ranking": [2, 1]}}',
        '{"answer": [2, 1]}',
        '{"result": {"answer": {"ranking": [2, 1]}}, "done": true}',
        '[{"ranking": [2, 1]}]',
        '{"ranking": [2, 1], "why": "the braces } and \\"quotes\\" of a text [ count for nothing"}',
        f'{{"ranking": [1], "ranking": [2]}} or rather {BARE}',
    ],
)
@pytest.mark.case("NEW-22")
def test_an_object_is_read_whatever_stands_around_it(text: str):
    assert read(text).ranking == [2, 1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n\ufeff", "empty"),
        ("I would put the second first.", "no JSON"),
        ("[2] is better than [1] here.", "no JSON"),
        ("{ranking: [2, 1]}", "no JSON"),
        ('{"ranking": [2, 1', "no JSON"),
        ('{"other": {"a": 1}, "ranking": [2, 1], "x": ', "no JSON"),
        ('<think>{"ranking": [2, 1]}', "no JSON"),
        ('{"ranking": "2, 1"}', "wrong shape"),
        ('{"ranking": [2.5]}', "wrong shape"),
        ('{"ranking": [2, NaN]}', "wrong shape"),
        ('{"ranking": [2], "score": 1e999}', "wrong shape"),
        ('{"ranking": [2], "ranking": [1]}', "wrong shape"),
        ('{"ranking": [2], "x": {"a": 1, "a": 2}}', "wrong shape"),
        ('{"order": [2, 1]}', "wrong shape"),
        ("{}", "wrong shape"),
        ("```x\n" * 100_000, "no JSON"),  # fences that open and never close
        ("[" * 100_000, "wrong shape"),
        ("[" * 50_000 + "]" * 50_000, "wrong shape"),
    ],
)
def test_what_is_no_object_of_the_shape_has_its_reason(text: str, why: str):
    assert reason(text) == why


@pytest.mark.parametrize(
    ("finish", "text", "why"),
    [
        ("refusal", "I cannot help with that.", "refusal"),
        ("refusal", BARE, "refusal"),
        ("filter", "", "filtered"),
        ("length", "", "cut off"),
        ("length", '{"ranking": [2, 1', "cut off"),
        ("length", '{"facts": 1, "more": [2', "cut off"),
        ("length", "<think>on and on", "cut off"),
    ],
)
def test_how_an_answer_ended_is_told_apart(finish: str, text: str, why: str):
    assert reason(text, finish=finish) == why


def test_a_whole_object_counts_although_the_text_behind_it_is_cut():
    assert read(f"{BARE} because", finish="length").ranking == [2, 1]
    assert reason("", finish="length", data={"ranking": [2]}) == "cut off"


def test_data_of_a_generator_comes_first_and_its_text_where_they_do_not_fit():
    assert read("none", data={"ranking": [3]}).ranking == [3]
    assert read(BARE, data={"other": 3}).ranking == [2, 1]


def test_a_note_says_which_key_is_wrong_and_is_short():
    with pytest.raises(AnswerError, match=r"facts\.0\.name: Field required"):
        read('{"facts": [{"year": 1}]}', Facts)
    with pytest.raises(AnswerError) as failed:
        read("x " * 5_000, finish="refusal")
    assert len(str(failed.value)) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FACTS = st.builds(
    Facts, facts=st.lists(st.builds(Fact, name=st.text(), year=st.none() | st.integers(0, 3000)))
)
PROSE = st.text(
    alphabet=st.characters(exclude_characters='{}[]"<>`~', exclude_categories=["Cs"]), max_size=60
)


@given(facts=FACTS, before=PROSE, after=PROSE, indent=st.sampled_from([None, 2]), ascii_only=st.booleans())
def test_any_object_is_found_in_any_prose(
    facts: Facts, before: str, after: str, indent: Any, ascii_only: bool
):
    text = json.dumps(facts.model_dump(), indent=indent, ensure_ascii=ascii_only)
    assert read(f"{before}{text}{after}", Facts) == facts
    assert read(f"{before}\n```json\n{text}\n```\n{after}", Facts) == facts
    assert read(f'<think>{{"facts": []}} {before}</think>{text}', Facts) == facts


@given(facts=FACTS.filter(lambda made: made.facts), share=st.floats(0, 1))
def test_no_beginning_of_an_object_is_read_as_one(facts: Facts, share: float):
    text = json.dumps(facts.model_dump())
    beginning = text[: int(share * (len(text) - 1))]
    assert reason(beginning, Facts, finish="length") == "cut off"
    assert reason(beginning, Facts) in ("no JSON", "empty")


@given(value=JSON)
def test_a_parsed_value_is_that_of_the_standard_parser(value: Any):
    assert parse_json(json.dumps(value)) == value


@given(text=st.text(alphabet='{}[]",:\\ \n`<>/thinkj1"', max_size=200))
def test_no_text_is_an_error_of_another_kind(text: str):
    for part in json_texts(text):
        assert part in text
    with contextlib.suppress(AnswerError):
        read(text, Facts)


def test_a_very_long_text_is_read_in_one_pass():
    """Each of these took minutes if every beginning were followed to the end."""
    for piece in ('{"a": ', '["', '"\\"', "```\n", "{}", "[9.5]\n", '{"facts": [', "</think>"):
        assert reason(piece * (500_000 // len(piece))) in ("no JSON", "wrong shape")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2, 2),
        (2.0, 2),
        ("2", 2),
        ("2.0", 2),
        (" 2 ", 2),
        (2.5, None),
        (True, None),
        ("two", None),
        (None, None),
        ([2], None),
    ],
)
def test_whole_numbers_may_be_floats_and_texts(value: Any, number: int | None):
    assert whole_number(value) == number


def test_a_schema_has_no_titles_and_an_example_fits_it():
    schema = schema_of(Facts)
    assert "title" not in json.dumps(schema)
    assert Facts.model_validate(example_value(schema)).facts[0].name == "example"


class Raises(Generator):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def complete(self, messages: Any, *, schema: Any = None) -> Completion:
        raise self.error


async def test_what_a_generator_raises_is_told_and_a_cancellation_goes_through():
    with pytest.raises(AnswerError, match=r"transport: no answer came \(OSError: gone\)\.") as failed:
        await ask(Raises(OSError("gone")), [], Ranking)
    assert (failed.value.reason, failed.value.__cause__) == ("transport", None)
    with pytest.raises(asyncio.CancelledError):
        await ask(Raises(asyncio.CancelledError()), [], Ranking)


def test_without_pydantic_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'contextrouter-rag\[openai\]'"):
        check_pydantic()


def test_pydantic_is_not_loaded_before_a_model_is_asked():
    code = (
        "import sys\nimport contextrouter\nfrom contextrouter.builtin.interpreters.understand import Understand\n"
        "from contextrouter.builtin.stages.llm import Llm\nfrom contextrouter.testing.fakes import Echo\n"
        "Understand(generator=Echo())\nassert 'pydantic' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("cls", [OpenAI, Anthropic])
async def test_both_wire_formats_answer_a_shape(cls: Any):
    generator = cls.example()
    await generator.open()
    assert (await ask(generator, [{"role": "user", "content": "q"}], Facts)).facts[0].name == "example"
    await generator.aclose()


@pytest.mark.parametrize(
    ("play", "order", "why"),
    [
        ("fenced", ["b", "a"], ""),
        ("prose", ["b", "a"], ""),
        ("list", ["b", "a"], ""),
        ("texts", ["b", "a"], ""),
        ("refusal", ["a", "b"], "refusal: "),
        ("cut", ["a", "b"], "cut off: "),
        ("empty", ["a", "b"], "empty: "),
        ("talk", ["a", "b"], "no JSON: "),
        ("limited", ["a", "b"], "It limits requests"),
    ],
)
@pytest.mark.case("NEW-22")
async def test_the_stage_llm_reads_every_form_and_its_note_says_what_failed(
    play: str, order: list[str], why: str
):
    settings = {
        "rag": {"interpreters": [], "stages": ["llm"], "cache_enabled": False},
        "stages": {"llm": {"generator": "model"}},
    }
    async with ModelServer({"ranking": [2, 1]}, play) as server:
        settings["generators"] = {"model": {"use": "openai", "model": "m", "base_url": server.url}}
        async with ContextRouter(settings, connectors={"docs": Fixed("a b")}) as router:
            context = await router.route("q")
    assert [envelope.document.id for envelope in context.envelopes] == order
    notes = " ".join(step.note for step in context.trace.steps if step.failed)
    assert (why in notes, bool(notes)) == (True, bool(why))
    assert "api_key" not in notes
