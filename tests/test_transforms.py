"""Key phrases and facts: what is given stays, what is wrong is named, what is foreign passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.builtin.transforms.keywords import Keywords, key_phrases
from contextrouter.builtin.transforms.triples import Triples
from contextrouter.model import Document, Fact

JSONL = "application/jsonl"


async def keywords(
    text: str, *, title: str = "", given: tuple[str, ...] = (), limit: int = 12
) -> tuple[str, ...]:
    """The keywords of one document."""
    (document,) = await Keywords(limit=limit).transform(Document(content=text, title=title, keywords=given))
    return document.keywords


async def test_phrases_lie_between_stop_words_and_punctuation() -> None:
    found = await keywords("The fusion of ranked lists, and the machine learning.")
    assert set(found) == {"fusion", "ranked lists", "machine learning"}
    assert found[-1] == "fusion"  # a word that stands alone scores least


async def test_names_and_the_title_come_first() -> None:
    found = await keywords("It was built by Ada Lovelace with some brass gears.", title="")
    assert found[0] == "Ada Lovelace"
    found = await keywords("It has some brass gears and some iron rods.", title="Iron rods")
    assert found[0] == "Iron rods"


async def test_frequent_phrases_come_before_rare_ones() -> None:
    found = await keywords("We have red apples. You have red apples. They have green pears.")
    assert found.index("red apples") < found.index("green pears")


async def test_given_keywords_stay_first_and_are_not_repeated() -> None:
    assert await keywords("the ranked lists", given=("zeta", "Ranked Lists")) == ("zeta", "Ranked Lists")
    assert await keywords("the ranked lists", given=("zeta",)) == ("zeta", "ranked lists")
    assert await keywords("the ranked lists", given=("a", "b", "c"), limit=2) == ("a", "b", "c")


async def test_no_more_than_limit() -> None:
    text = ". ".join(f"word{n}" for n in range(50))
    assert len(await keywords(text)) == 12
    assert len(await keywords(text, limit=3)) == 3
    with pytest.raises(ValueError, match=r"limit 0 is not a positive number\. Give 1 or more"):
        Keywords(limit=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Машинное обучение — нейронные сети.", {"Машинное обучение", "нейронные сети"}),
        ("机器学习是人工智能的分支。", {"机器学习", "人工智能", "分支"}),
        ("機械学習はデータから", {"機械学習", "データ"}),
        ("ภาษาไทย ไม่มี", {"ภาษาไทย ไม่มี"}),
        ("C++ and the F# of AT&T", {"C++", "F#", "AT&T"}),
    ],
)
async def test_any_script_has_key_phrases(text: str, expected: set[str]) -> None:
    assert set(await keywords(text)) == expected


async def test_blank_text_has_none_and_the_rest_of_the_document_is_unchanged() -> None:
    document = Document(id="d", content=" \n", url="u", metadata={"x": 1})
    assert await Keywords().transform(document) == [document]
    document = Document(id="d", content="brass gears", url="u", metadata={"x": 1})
    assert await Keywords().transform(document) == [document.replace(keywords=("brass gears",))]


@given(st.text(max_size=300), st.text(max_size=30))
def test_key_phrases_are_distinct_and_the_same_every_time(text: str, title: str) -> None:
    found = key_phrases(text, title)
    assert len(set(found)) == len(found)
    assert found == key_phrases(text, title)
    assert all(phrase.strip() for phrase in found)


async def test_triples_become_facts_and_the_content_goes() -> None:
    text = (
        '{"subject": "OpenAI", "predicate": "founded_by", "object": "Sam Altman"}\n\n{"subject": "A",'
        ' "predicate": "worth", "object": 3, "confidence": 0.5, "valid_from": "2020-01-31", "valid_to":'
        ' "2021-12-31", "tenant": "t", "compartment": "c", "sensitivity": "internal", "unit": "EUR"}\r\n'
    )
    (document,) = await Triples().transform(
        Document(id="d", content=text, media_type=JSONL, metadata={"x": 1})
    )
    assert document.content == ""
    assert document.metadata == {
        "x": 1,
        "facts": (
            Fact(subject="OpenAI", predicate="founded_by", object="Sam Altman"),
            Fact(
                subject="A",
                predicate="worth",
                object="3",
                confidence=0.5,
                tenant="t",
                compartment="c",
                sensitivity="internal",
                valid_from=datetime(2020, 1, 31, tzinfo=UTC),
                valid_to=datetime(2021, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
                attributes={"unit": "EUR"},
            ),
        ),
    }


async def test_the_keys_of_the_triple_can_be_set() -> None:
    triples = Triples(subject="from", predicate="type", object="to")
    facts, problems = triples.read('{"from": "a", "type": "b", "to": "c", "subject": "kept"}')
    assert facts == [Fact(subject="a", predicate="b", object="c", attributes={"subject": "kept"})]
    assert problems == []


@pytest.mark.case("GRA-01")
def test_every_instant_is_aware() -> None:
    times = '"valid_from":"2020-01-01T10:00:00","valid_to":"2020-01-01T12:00:00+02:00"'
    (fact,), _ = Triples().read('{"subject":"a","predicate":"b","object":"c",' + times + "}")
    assert fact.valid_from == fact.valid_to == datetime(2020, 1, 1, 10, tzinfo=UTC)
    assert fact.valid_to is not None
    assert fact.valid_to.tzinfo == timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "The line is not JSON"),
        ("[1]", "The record is a list, not an object."),
        ("[" * 100_000, "The "),
        ('{"predicate":"b","object":"c"}', "Key 'subject' is missing. Give a text."),
        ('{"subject":" ","predicate":"b","object":"c"}', "Key 'subject' is ' '. Give a text."),
        ('{"subject":"a","predicate":"b","object":{"x":1}}', "Key 'object' is {'x': 1}. Give a text."),
        ('{"subject":"a","predicate":"b","object":true}', "Key 'object' is True."),
        (
            '{"subject":"a","predicate":"b","object":"c","confidence":2}',
            "Key 'confidence' is 2. Give a number from 0 to 1.",
        ),
        ('{"subject":"a","predicate":"b","object":"c","confidence":NaN}', "The record holds NaN"),
        (
            '{"subject":"a","predicate":"b","object":"c","valid_from":"soon"}',
            "Key 'valid_from' is 'soon'. Give an ISO 8601 date",
        ),
        (
            '{"subject":"a","predicate":"b","object":"c","valid_from":"2021","valid_to":"x"}',
            "Key 'valid_from' is '2021'.",
        ),
        (
            '{"subject":"a","predicate":"b","object":"c","valid_from":"2021-01-02","valid_to":"2021-01-01"}',
            "is after valid_to",
        ),
        ('{"subject":"a","predicate":"b","object":"c","tenant":5}', "Key 'tenant' is 5. Give a name."),
    ],
)
async def test_a_bad_record_is_named_by_its_line_and_left_out(line: str, said: str) -> None:
    good = '{"subject":"a","predicate":"b","object":"c"}'
    (document,) = await Triples().transform(Document(content=f"{good}\n{line}\n{good}", media_type=JSONL))
    assert len(document.metadata["facts"]) == 2
    (problem,) = document.metadata["problems"]
    assert problem.startswith("line 2: ")
    assert said in problem


async def test_problems_are_listed_up_to_a_number() -> None:
    (document,) = await Triples().transform(Document(content="x\n" * 1000, media_type=JSONL))
    assert len(document.metadata["problems"]) == 201
    assert document.metadata["problems"][-1] == "800 more lines"


async def test_other_media_types_pass_unchanged() -> None:
    document = Document(content='{"subject":"a"}', media_type="application/json")
    assert await Triples().transform(document) == [document]
    (read,) = await Triples().transform(document.replace(media_type="application/x-ndjson; charset=utf-8"))
    assert read.metadata["facts"] == ()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"subject": ""}, "subject '' cannot be"),
        ({"object": "tenant"}, "object 'tenant' cannot be"),
        ({"object": "subject"}, "not distinct"),
    ],
)
def test_keys_of_a_triple_are_three_names_of_their_own(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Triples(**wrong)
