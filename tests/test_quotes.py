"""What `extractive` reads in a context, and what it quotes: the text that answers, and no mark of another's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.serving import document, router
from test_answers import quotes

from contextrouter import Entity, Fact
from contextrouter.builtin.generators.extractive import NOTHING, Extractive
from contextrouter.pipeline.assembly import Beside, assemble

OPENS = "When does the library open?"


@pytest.mark.case("USE-11")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Welcome!\n\n### Hours\n\nThe library opens at nine.", "The library opens at nine. [1]"),
        ("The library in the old town opens\nat nine.", "The library in the old town opens at nine. [1]"),
        ("Hours\nThe library opens at nine.", "The library opens at nine. [1]"),
        (
            "- The library opens at nine\n- The library cafe opens at ten",
            "The library opens at nine; The library cafe opens at ten [1]",
        ),
        (
            "````\n```\nThe library opens at six.\n```\nThe library opens at five.\n````\nThe library opens at nine.",
            "The library opens at nine. [1]",
        ),
        (
            "| house | opens at |\n|---|---|\n| library | nine \\| ten |\n| cafe | eight |",
            "library — opens at: nine | ten [1]",
        ),
    ],
)
async def test_headings_wrapped_lines_lists_code_and_cells_are_read_as_they_are(content: str, text: str):
    assert (await quotes(OPENS, document("one", content))).text == text


@pytest.mark.case("NEW-05", "USE-11")
@pytest.mark.parametrize("tag", ["<think>", "<think>aside</think>", "<Reasoning>"])
async def test_a_document_that_holds_a_tag_of_thinking_is_quoted_as_text(tag: str):
    """Read as thinking, it would leave no answer, and one document would silence every question."""
    async with router(answer=[document("one", f"{tag} The library opens at nine.")]) as made:
        answer = await made.answer(OPENS)
        pieces = [piece async for piece in made.answer_stream(OPENS)]
    shown = tag.replace("<", "&lt;")
    assert (answer.text, answer.thinking) == (f"{shown} The library opens at nine. [1]", "")
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == answer.text


@pytest.mark.case("CIT-02", "USE-11")
@pytest.mark.parametrize(
    "contents",
    [
        ("The `library opens at nine.", "The library` opens at ten."),
        ("The \\`library opens at nine.", "The library`` opens at ten``."),
        ("~~~ The library opens at nine.", "The library opens at ten."),
        ("The library opens at nine. ``` x", "The library opens at ten ```."),
        ("The library opens at nine [2](", "The library opens at ten [1][2]: x."),
    ],
)
async def test_open_code_and_brackets_of_documents_hide_no_citation(contents: Sequence[str]):
    docs = [document(f"d{number}", text) for number, text in enumerate(contents)]
    answer = await quotes(OPENS, *docs)
    assert [citation.number for citation in answer.citations] == [1, 2]
    assert [answer.text.count(f" [{number}]") for number in (1, 2)] == [1, 1]


FACTS = (
    Fact(subject="The Book of Owls", predicate="written_by", object="Ada Stone"),
    Fact(subject="The Book of Owls", predicate="published_by", object="North Press"),
    Fact(subject="Acme", predicate="founded_by", object="Ben Hill"),
)


@pytest.mark.case("USE-11")
@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who is the author of The Book of Owls?", "- The Book of Owls — written_by — Ada Stone"),
        ("Who wrote The Book of Owls?", "- The Book of Owls — written_by — Ada Stone"),
        ("Who is the publisher of The Book of Owls?", "- The Book of Owls — published_by — North Press"),
        ("Who is the founder of Acme?", "- Acme — founded_by — Ben Hill"),
    ],
)
async def test_a_fact_is_found_by_who_does_what_it_says(question: str, text: str):
    assert (await quotes(question, facts=FACTS)).text == text


@pytest.mark.case("USE-11")
async def test_a_dated_fact_that_a_cited_sentence_says_is_not_repeated():
    from datetime import UTC, datetime

    since = datetime(2001, 5, 1, tzinfo=UTC)
    fact = Fact(subject="Acme", predicate="founded_by", object="Ben Hill", valid_from=since)
    answer = await quotes("Who founded Acme?", document("one", "Acme was founded by Ben Hill."), facts=[fact])
    assert answer.text == "Acme was founded by Ben Hill. [1]"
    assert (await quotes("Who founded Acme?", facts=[fact])).text == (
        "- Acme — founded_by — Ben Hill (2001-05-01 to …)"
    )


@pytest.mark.case("USE-11")
async def test_an_attribute_is_read_from_an_entity_of_the_context():
    anna = Entity(id="anna", name="Anna", kind="person", attributes={"birthday": "5 May", "city": "Rome"})
    text = assemble([], beside=Beside(entities=[anna])).text
    messages = [{"role": "system", "content": text}, {"role": "user", "content": "In which city is Anna?"}]
    assert (await Extractive().complete(messages)).text == "- Anna — city — Rome"


@pytest.mark.case("USE-11")
async def test_a_question_for_a_time_is_answered_by_a_document_with_one():
    early = document("early", "Visitors of the library often open it too early.")
    assert (await quotes(OPENS, early)).text == NOTHING
    hours = document("hours", "The library opens at nine. It closes at six.")
    answer = await quotes(OPENS, early, hours)
    assert [citation.title for citation in answer.citations] == ["hours"]
    always = {"generators": {"extractive": {"coverage": 0}}}
    assert (await quotes(OPENS, early, settings=always)).text.endswith("too early. [1]")
    assert (await quotes("Why do visitors open the library?", early)).text != NOTHING


@pytest.mark.case("USE-11")
async def test_of_a_long_document_the_sentences_near_the_best_one_are_quoted():
    content = (
        "The tower stands on a hill. Ada Stone built the tower of the town in two years. Bread is sold below."
        " The hill is green."
    )
    answer = await quotes("Who built the tower of the town?", document("one", content))
    assert answer.text == "Ada Stone built the tower of the town in two years. [1]"


@pytest.mark.case("USE-11")
async def test_a_document_that_is_called_what_is_asked_for_comes_first():
    docs = [
        document("shelf", "A photon and another photon: what a photon is, we ask at the shelf."),
        document("photon", "A photon is a particle of light. It has no mass."),
    ]
    answer = await quotes("Tell me what a photon is.", *docs)
    assert answer.text == "A photon is a particle of light. It has no mass. [2]"
