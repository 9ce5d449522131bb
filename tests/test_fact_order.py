"""Which facts come first, which are one, and which the question leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.postgres_server import open_store

from contextrouter import Context, ContextRouter, Fact
from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query
from contextrouter.pipeline.deduplication import distinct_facts
from contextrouter.testing import Facts, Fixed
from contextrouter.text.fact_words import QuestionWords

WHO = "Who founded OpenAI?"
FOUNDER = Fact(subject="OpenAI", predicate="was_founded_by", object="Sam Altman")
MENTIONS = [Fact(subject="OpenAI", predicate="mentions", object=f"company {n:02}") for n in range(60)]


def fact(text: str, source: str = "") -> Fact:
    """A fact of three words: a predicate keeps its underscores, names have spaces for theirs."""
    subject, predicate, end = text.split()
    names = (name.replace("_", " ") for name in (subject, end))
    return Fact(subject=next(names), predicate=predicate, object=next(names), source=source)


def triples(facts: Sequence[Fact]) -> list[tuple[str, str, str]]:
    return [(each.subject, each.predicate, each.object) for each in facts]


def entry(*facts: Fact) -> Entry:
    document = Document(id="d", content="a text of its own")
    return Entry(document=document, chunks=[document], facts=list(facts))


async def fill(folder: Path, *facts: Fact) -> str:
    """Write facts into a new store, and return its path."""
    store = Sqlite(path=str(folder / "store.db"), embedder=None)
    await store.open()
    await store.upsert([entry(*facts)])
    await store.aclose()
    return store.path


async def ask(question: str, rag: dict[str, Any], **sources: Any) -> Context:
    async with ContextRouter({"rag": rag}, connectors={"s": Fixed("x")}, facts=sources) as router:
        return await router.route(question)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("OpenAI was_founded_by Sam", 3),  # founded 2, openai 1
        ("OpenAI wasFoundedBy Sam", 3),
        ("Anthropic founders_are Dario", 0),  # another stem
        ("Anthropic founded_by Dario", 2),
        ("OpenAI mentions Ada", 1),
        ("Ada works_at OpenAI", 1),
        ("OpenAI owns OpenAI_Fund", 2),  # both ends
        ("Ada likes tea", 0),
        ("Founded_Facts founded_by OpenAI", 3),  # one word counts once, where it counts most
    ],
)
def test_points_of_a_fact(text: str, points: int) -> None:
    each = fact(text)
    assert QuestionWords(WHO).points(each.subject, each.predicate, each.object) == points


def test_more_words_of_a_name_count_only_where_the_predicate_fits() -> None:
    words = QuestionWords("Who founded the Open Data Institute?")
    assert words.points("Open Data Institute", "founded_by", "Tim") == 2 + 3
    assert words.points("Open Source Initiative", "founded_by", "Bruce") == 2 + 1
    assert words.points("Open Data Institute", "has_office_in", "London") == 1


def test_stop_words_and_exclusions_give_no_points() -> None:
    words = QuestionWords("What is the capital of France -Paris")
    assert words.points("France", "is_a", "country") == 1
    assert words.points("Paris", "is_in", "Texas") == 0
    assert words.points("France", "hasCapital", "Paris") == 3


@pytest.mark.parametrize(
    ("question", "language", "triple"),
    [
        ("Wer gründete Siemens?", "de", ("Siemens", "gegründet_von", "Werner")),
        ("谁创立了OpenAI?", None, ("OpenAI", "创立", "Sam")),
        ("Кто основал Яндекс?", "ru", ("Яндекс", "основали", "Волож")),
    ],
)
def test_other_languages_have_their_stems(question: str, language: str, triple: tuple[str, str, str]) -> None:
    words = QuestionWords(question, language)
    assert words.points(*triple) == (1 if language == "de" else 3)  # the German prefix ge- is no suffix
    assert words.points(triple[0], "zzz", "zzz") == 1


@pytest.mark.case("GRA-05")
def test_the_fact_asked_for_comes_first_and_ties_keep_the_turns_of_sources() -> None:
    a = [fact(f"OpenAI mentions a{n}", "a") for n in range(3)]
    b = [fact("OpenAI mentions b0", "b"), fact("OpenAI founded_by Sam", "b")]
    kept, beyond = distinct_facts([*a, *b], 3, WHO)
    assert [each.object for each in kept] == ["Sam", "a0", "b0"]
    assert [each.object for each in beyond] == ["a1", "a2"]
    assert [each.object for each in distinct_facts([*a, *b], 9)[0]] == ["a0", "b0", "a1", "Sam", "a2"]


@pytest.mark.case("M11")
def test_a_link_between_two_names_stays_where_its_source_put_it() -> None:
    way = ["Ada_King works_at Mill", "Mill belongs_to Firm", "Firm sits_in Rome"]
    facts = [fact(text) for text in (*way, "Ada_King likes tea", "Ada_King likes Byron")]
    assert distinct_facts(facts, 9, "How is Ada King connected with Rome?") == (facts, [])


def test_facts_without_a_word_of_the_question_come_last_where_nothing_led_to_them() -> None:
    facts = [fact("Moon orbits Earth"), fact("Ada likes tea"), fact("tea grows_in Assam")]
    kept, _ = distinct_facts(facts, 9, "Ada?")
    assert [each.subject for each in kept] == ["Ada", "tea", "Moon"]


def test_case_and_white_space_make_no_other_fact_and_validity_does() -> None:
    first = Fact(subject="Ada  Lovelace", predicate="Born_in", object="London ")
    again = Fact(subject="ada lovelace", predicate="born_in", object="LONDON", source="b")
    accent = Fact(subject="Ada Lovelace", predicate="born_in", object="Lóndon")
    dated = again.replace(valid_from="1815-12-10T00:00:00Z")
    assert distinct_facts([first, again, accent], 9)[0] == [first, accent]
    assert len(distinct_facts([first, dated], 9)[0]) == 2
    assert distinct_facts([again, first], 1) == ([again], [])


@pytest.mark.case("GRA-05")
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_sixty_other_facts_in_a_store_do_not_drown_the_one_asked_for(
    kind: str, hops: int, tmp_path: Path
) -> None:
    """What the limit cut is said."""
    async with AsyncExitStack() as stack:
        if kind == "sqlite":
            own: dict[str, Any] = {"path": await fill(tmp_path, *MENTIONS, FOUNDER)}
        else:
            store = await stack.enter_async_context(open_store(embedder=None))
            await store.upsert([entry(*MENTIONS, FOUNDER)])
            own = {"dsn": store.pool.dsn, "schema": store.pool.schema}
        settings = {"rag": {"max_graph_facts": 12}, "facts": {"g": {"use": kind, "hops": hops, **own}}}
        router = await stack.enter_async_context(ContextRouter(settings, connectors={"s": Fixed("x")}))
        for question in (WHO, "OpenAI founded by whom?", "who FOUNDED openai"):
            context = await router.route(question)
            assert len(context.facts) == 12
            assert triples(context.facts[:2]) == triples([FOUNDER, MENTIONS[0]])
            assert "g/facts: facts: the first 12, there may be more" in [s.note for s in context.trace.steps]


@pytest.mark.case("GRA-05")
async def test_neither_the_number_nor_the_token_budget_cuts_it_from_a_hand_made_source() -> None:
    graph = Facts([*MENTIONS, FOUNDER])
    context = await ask(WHO, {"max_graph_facts": 61, "token_budget": 160}, g=graph)
    assert triples(context.facts[:1]) == triples([FOUNDER])
    assert "Sam Altman" in context.text
    assert len(context.facts) < 12
    two = {"g": Facts(MENTIONS[:12]), "h": Facts([*MENTIONS[12:23], FOUNDER])}
    context = await ask(WHO, {"max_graph_facts": 12}, **two)
    assert triples(context.facts[:1]) == triples([FOUNDER])
    (step,) = [step for step in context.trace.steps if step.lost_facts]
    assert (step.name, step.note) == ("facts", "12 facts beyond max_graph_facts")
    assert len(step.lost_facts) == 12


@pytest.mark.case("GRA-05")
async def test_postgres_has_the_order_of_sqlite(tmp_path: Path) -> None:
    path = await fill(tmp_path, *MENTIONS, FOUNDER)
    file = SqliteFacts(path=path)
    await file.open()
    async with open_store(embedder=None) as store:
        await store.upsert([entry(*MENTIONS, FOUNDER)])
        server = PostgresFacts(store=store, hops=1)
        await server.open()
        for text, excluded in ((WHO, ()), ("OpenAI -company", ("company",)), (WHO, ("founded", "07"))):
            query = Query(text=text, excluded=excluded, limit=12)
            found = triples(await file.facts(query))
            assert found == triples(await server.facts(query))
            assert found
        await server.aclose()
    await file.aclose()


async def test_a_store_says_one_fact_once_whatever_its_case(tmp_path: Path) -> None:
    loud = [Fact(subject="OPENAI", predicate="Mentions", object=f" Company  {n:02}") for n in range(60)]
    path = await fill(tmp_path, *MENTIONS, *loud)
    context = await ask("OpenAI", {"max_graph_facts": 50}, g=SqliteFacts(path=path))
    assert len({each.object.split()[1] for each in context.facts}) == len(context.facts) == 50


async def test_what_the_question_excludes_is_in_no_fact_of_a_store(tmp_path: Path) -> None:
    path = await fill(
        tmp_path,
        *MENTIONS,
        FOUNDER,
        fact("OpenAI partnerOf Microsoft"),
        fact("Microsoft founded_by Bill_Gates"),
    )

    async def said(question: str) -> set[str]:
        context = await ask(question, {"max_graph_facts": 5}, g=SqliteFacts(path=path))
        (report,) = [report for report in context.coverage if report.source == "g"]
        assert report.status == "ok"
        return {each.object for each in context.facts}

    assert await said("OpenAI -mentions") == {"Sam Altman", "Microsoft"}  # the store narrows, then cuts
    assert await said("OpenAI -mentions -microsoft") == {"Sam Altman"}  # nor is it a name asked for
    assert await said('OpenAI -mention -"founded by"') == {"Microsoft"}
    assert await said("OpenAI -mentions -partner") == {"Sam Altman"}


async def test_what_the_question_excludes_is_withheld_from_a_hand_made_source() -> None:
    graph = Facts([FOUNDER, fact("OpenAI partnerOf Microsoft"), fact("Microsoft_Research studies OpenAI")])

    async def said(question: str) -> tuple[list[str], int]:
        context = await ask(question, {}, g=graph)
        (report,) = [report for report in context.coverage if report.source == "g"]
        assert report.count == len(context.facts)
        return [each.predicate for each in context.facts], report.withheld

    assert await said("OpenAI") == (["was_founded_by", "partnerOf", "studies"], 0)
    assert await said("OpenAI -Microsoft") == (["was_founded_by"], 2)
    assert await said("OpenAI -partners") == (["was_founded_by", "studies"], 1)
    assert await said('OpenAI -"Microsoft Research"') == (["was_founded_by", "partnerOf"], 1)
    assert await said('OpenAI -"sam altman" -study') == (["partnerOf"], 2)
