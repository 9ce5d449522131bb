"""The shipped settings.toml answers from every source it defines, and understands the question it is made
for.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.example import QUESTION, ingest_example

from contextrouter import Context, ContextRouter
from contextrouter.ingest import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(ingest_example(tmp_path_factory.mktemp("example")))


@pytest.fixture(scope="module")
def answer(folder: Path) -> Context:
    async def ask() -> Context:
        async with ContextRouter.from_toml(folder / "settings.toml") as router:
            return await router.route(QUESTION)

    return asyncio.run(ask())


@pytest.mark.case("R01", "R02")
def test_the_question_gives_three_queries_and_the_taxonomy_s_concepts(answer: Context):
    """Three aspects, and concepts such as AI, Machine Learning, Education."""
    assert len(answer.intent.queries) == 3
    assert answer.intent.queries[0] == QUESTION
    assert answer.intent.concepts == ("AI", "Machine Learning", "Education")


@pytest.mark.case("R03")
def test_every_source_and_leg_answers(answer: Context):
    """The store in three ways, notes, news, glossary and facts, at the same time."""
    asked = {(report.source, report.leg): report.status for report in answer.coverage}
    legs = [
        ("library", "vector"),
        ("library", "text"),
        ("library", "keywords"),
        ("notes", "default"),
        ("news", "default"),
    ]
    assert asked == dict.fromkeys([*legs, ("glossary", "default"), ("graph", "facts")], "ok")
    assert not answer.degraded


@pytest.mark.case("R04")
def test_the_answer_holds_pieces_of_every_source_with_full_provenance(answer: Context):
    """Source, leg, query, rank and time of every list that returned a document."""
    seals = [seal for envelope in answer.envelopes for seal in envelope.provenance]
    found = {(seal.source, seal.leg) for seal in seals}
    assert {("library", leg) for leg in ("vector", "text", "keywords")} <= found
    assert {source for source, _ in found} == {"library", "notes", "news", "glossary"}
    assert all(
        seal.rank >= 1 and seal.query in answer.intent.queries and seal.retrieved_at is not None
        for seal in seals
    )
    assert all(seal.score is not None for seal in seals if seal.source != "glossary")


@pytest.mark.case("R07")
def test_no_kind_exceeds_its_quota(answer: Context):
    kinds = [envelope.document.kind for envelope in answer.envelopes]
    counted = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counted == {"book": 5, "video": 2, "qa": 2, "web": 3, "document": 4, "definition": 1}


@pytest.mark.case("R13")
def test_facts_stand_beside_the_documents(answer: Context):
    triples = {(fact.subject, fact.predicate, fact.object) for fact in answer.facts}
    assert ("Hands-On Machine Learning", "suited_for", "beginners") in triples
    assert "### Facts" in answer.text
    assert len(answer.citations) == len(answer.envelopes)


@pytest.mark.case("R13")
async def test_a_fact_is_found_by_the_name_in_the_question(folder: Path):
    async with ContextRouter.from_toml(folder / "settings.toml") as router:
        context = await router.route("Who founded OpenAI?")
    assert ("OpenAI", "founded_by", "Sam Altman") in {
        (f.subject, f.predicate, f.object) for f in context.facts
    }


async def test_route_quick_asks_its_own_sources_once(folder: Path):
    from contextrouter import Request

    async with ContextRouter.from_toml(folder / "settings.toml") as router:
        plan = await router.plan(Request(question=QUESTION, mode="quick"))
    assert [(call.source, call.query.leg) for call in plan.calls] == [("library", "text"), ("graph", "facts")]


async def test_ingesting_again_does_nothing(folder: Path):
    again = await run(folder / "settings.toml")
    assert {name: (report.documents, report.deleted) for name, report in again.items()} == {
        "documents": (0, 0),
        "facts": (0, 0),
    }
    assert again["documents"].unchanged == 15
