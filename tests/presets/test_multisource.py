"""The preset `multisource`: several sources at once, ranks and scores worked out by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.presets import fill, ids, ingest, piece, system

from contextrouter import Connector, Context, Document, Fact, FactSource, Hit, Query
from contextrouter.contracts import Entry
from contextrouter.testing import Facts, Fixed

QUESTION = "What books talk about machine learning for beginners?"
ONE = "max_retrieval_queries = 1\n"


async def answer(
    folder: Path, entries: Sequence[Entry], rag: str = "", *, question: str = "tides", **by_hand: Any
) -> Context:
    """One answer over the store `library`, and the connectors made by hand in place of the feed."""
    toml = f"[rag]\n{rag}\n[connectors.news]\nenabled = false\n"
    router = system(folder, "multisource", toml, **by_hand)
    await fill(router, "library", *entries)
    async with router:
        return await router.route(question)


def scores(context: Context) -> list[tuple[str, float]]:
    return [(e.document.id, round(e.score, 6)) for e in context.envelopes]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example documents, ingested once."""
    folder = tmp_path_factory.mktemp("library")
    asyncio.run(ingest(folder, "multisource"))
    return folder


async def of_example(library: Path, question: str = QUESTION) -> Context:
    async with system(library, "multisource", embedders={}) as router:
        return await router.route(question)


@pytest.mark.case("R01")
@pytest.mark.without(rag__max_retrieval_queries=1)
async def test_the_question_and_two_more_queries_are_asked_without_a_model(library: Path):
    context = await of_example(library)
    assert (len(context.intent.queries), context.intent.queries[0]) == (3, QUESTION)
    assert context.usage.models == ()


@pytest.mark.case("R02")
@pytest.mark.without(interpreters__subjects__concepts={"Education": []})
async def test_the_question_about_books_has_the_concepts_of_the_taxonomy(library: Path):
    context = await of_example(library)
    assert context.intent.concepts == ("AI", "Machine Learning", "Education")
    assert context.envelopes[0].document.title == "First Steps in Machine Learning"


class Together(Connector):
    """Answers when three sources have been asked, itself among them."""

    def __init__(self, asked: list[str], everybody: asyncio.Event) -> None:
        self.asked, self.everybody = asked, everybody

    async def search(self, query: Query) -> Sequence[Hit]:
        await meet(self.asked, self.everybody)
        return [Hit(document=Document(id="c", content="c"))]


class FactsTogether(FactSource):
    """Facts that come when three sources have been asked."""

    def __init__(self, asked: list[str], everybody: asyncio.Event) -> None:
        self.asked, self.everybody = asked, everybody

    async def facts(self, query: Query) -> Sequence[Fact]:
        await meet(self.asked, self.everybody)
        return [Fact(subject="tides", predicate="p", object="o")]


async def meet(asked: list[str], everybody: asyncio.Event) -> None:
    asked.append("")
    if len(asked) == 3:
        everybody.set()
    await everybody.wait()


@pytest.mark.case("R03")
@pytest.mark.without(
    "contextrouter/pipeline/call_limits/slots.py",
    "if not waiting and self._may_run(source):",
    "if not waiting and not any(self._running.values()):",
)
async def test_connectors_and_facts_are_all_in_flight_before_one_is_answered(tmp_path: Path):
    together: Any = ([], asyncio.Event())
    context = await answer(
        tmp_path,
        [piece("a", "tides")],
        ONE + "timeout_seconds = 2",
        connectors={"web": Together(*together), "rss": Together(*together)},
        facts={"facts": FactsTogether(*together)},
    )
    statuses = {report.source: report.status for report in context.coverage}
    assert statuses == dict.fromkeys(["library", "web", "rss", "facts", "graph"], "ok")


@pytest.mark.case("R04")
@pytest.mark.without("contextrouter/pipeline/candidates.py", "leg=ranked.leg,", 'leg="",')
async def test_every_piece_says_its_source_leg_query_rank_score_and_time(library: Path):
    context = await of_example(library)
    seals = [seal for envelope in context.envelopes for seal in envelope.provenance]
    assert {(seal.source, seal.leg) for seal in seals} == {
        ("library", "vector"),
        ("library", "text"),
        ("library", "keywords"),
        ("news", "default"),
    }
    assert all(s.rank >= 1 and s.query in context.intent.queries and s.retrieved_at for s in seals)
    assert all(s.score is not None for s in seals if s.source == "library")


@pytest.mark.case("R05")
@pytest.mark.without(rag__identity="url")
async def test_equal_url_snippet_and_content_are_one_document(tmp_path: Path):
    def found(url: str, snippet: str, content: str) -> Hit:
        return Hit(document=Document(url=f"https://example.org/{url}", snippet=snippet, content=content))

    one = Fixed([found("u", "a|b", "c"), found("v", "s", "same")])
    two = Fixed([found("u", "a", "b|c"), found("v", "s", "same")])
    context = await answer(tmp_path, [], ONE, connectors={"one": one, "two": two})
    texts = sorted(envelope.document.content for envelope in context.envelopes)
    assert texts == ["b|c", "c", "same"]
    (same,) = [e for e in context.envelopes if e.document.content == "same"]
    assert {seal.source for seal in same.provenance} == {"one", "two"}


def kinds() -> list[Entry]:
    """Documents of five kinds, the books nearest."""
    counts = {"book": 7, "video": 5, "qa": 7, "web": 5, "note": 5}
    names = [(kind, n) for kind, count in counts.items() for n in range(count)]
    return [piece(f"{kind}{n}", cosine=0.9 - place / 100, kind=kind) for place, (kind, n) in enumerate(names)]


@pytest.mark.case("R06")
@pytest.mark.without(rag__general_retrieval_final_count=9)
async def test_the_ten_best_of_all_kinds_come_back(tmp_path: Path):
    context = await answer(tmp_path, kinds())
    assert ids(context) == [*(f"book{n}" for n in range(7)), "video0", "video1", "video2"]


@pytest.mark.case("R07")
@pytest.mark.without(rag__general_retrieval_enabled=True)
async def test_each_kind_has_its_quota_and_websites_stay(tmp_path: Path):
    context = await answer(tmp_path, kinds(), "general_retrieval_enabled = false")
    found = [envelope.document.kind for envelope in context.envelopes]
    counts = {kind: found.count(kind) for kind in dict.fromkeys(found)}
    assert counts == {"book": 5, "video": 3, "qa": 5, "web": 3, "note": 3}
    assert [id for id in ids(context) if id.startswith("book")] == [f"book{n}" for n in range(5)]


def three() -> list[Entry]:
    """By vectors a, b, c; by words c, a: c says it three times as often, and b never."""
    rest = " word" * 40
    return [
        piece("a", "tides" + rest, cosine=0.9),
        piece("b", "waves" + rest, cosine=0.8),
        piece("c", "tides tides tides" + rest, cosine=0.7),
    ]


@pytest.mark.case("R08")
@pytest.mark.without(rag__rrf_k=50)
async def test_ranks_add_one_over_sixty_and_the_rank(tmp_path: Path):
    """a: 1/61 + 1/62, c: 1/63 + 1/61, b: 1/62. Calibration changes nothing within one source."""
    expected = [("a", 0.032522), ("c", 0.032266), ("b", 0.016129)]
    assert scores(await answer(tmp_path, three(), ONE)) == expected
    assert scores(await answer(tmp_path, three(), ONE + "calibrate = true")) == expected


@pytest.mark.case("R09")
@pytest.mark.without(rag__hybrid_vector_weight=0.3)
async def test_weighted_adds_seven_tenths_of_vectors_and_three_of_words(tmp_path: Path):
    """Cosines keep the range of a cosine, -1 to 1: 0.9 is 0.95. Words go from the lowest, a, to the highest, c.
    c: 0.7 × 0.85 + 0.3 × 1, a: 0.7 × 0.95, b: 0.7 × 0.9.
    """
    context = await answer(tmp_path, three(), ONE + 'hybrid_fusion = "weighted"')
    assert scores(context) == [("c", 0.895), ("a", 0.665), ("b", 0.63)]


@pytest.mark.case("R10")
@pytest.mark.without(rag__enable_fts=False)
async def test_words_are_searched_and_without_the_key_they_are_not(tmp_path: Path):
    on = await answer(tmp_path, three(), ONE)
    assert {report.leg for report in on.coverage if report.status == "ok"} >= {"text", "vector"}
    off = await answer(tmp_path, three(), ONE + "enable_fts = false")
    assert [id for id, _ in scores(off)] == ["a", "b", "c"]
    skipped = {report.leg: report.error for report in off.coverage if report.status == "skipped"}
    assert skipped["text"] == "[rag] enable_fts is false"


@pytest.mark.case("R11")
@pytest.mark.without(rag__levels=1)
async def test_ranks_are_fused_within_a_source_and_then_between_sources(tmp_path: Path):
    """The library's own order is a, c, b. The site has b and d. Between them: a 1/61, b 1/63 + 1/61, c 1/62,
    d 1/62. Flat, a and c would have two lists of three.
    """
    site = Fixed([Hit(document=entry.document) for entry in (three()[1], piece("d"))])
    context = await answer(tmp_path, three(), ONE, connectors={"site": site})
    assert scores(context) == [("b", 0.032266), ("a", 0.016393), ("c", 0.016129), ("d", 0.016129)]
    flat = await answer(tmp_path, three(), ONE + "levels = 1", connectors={"site": site})
    assert scores(flat)[:3] == [("a", 0.032522), ("b", 0.032522), ("c", 0.032266)]


@pytest.mark.case("R12")
@pytest.mark.without(providers__library__legs=["vector", "text"])
async def test_key_phrases_are_a_leg_and_none_is_no_place_in_it(tmp_path: Path):
    entries = [piece("a", cosine=0.9), piece("b", cosine=0.2, keywords=("tide",))]
    context = await answer(tmp_path, entries, ONE)
    legs = {e.document.id: {seal.leg for seal in e.provenance} for e in context.envelopes}
    assert legs == {"a": {"vector"}, "b": {"vector", "keywords"}}
    assert all(e.score > 0 for e in context.envelopes)


@pytest.mark.case("R13")
@pytest.mark.without(rag__graph_facts_enabled=False)
async def test_facts_stand_apart_from_citations_and_come_without_documents(library: Path, tmp_path: Path):
    context = await of_example(library, "Who founded OpenAI?")
    triples = [(fact.subject, fact.predicate, fact.object) for fact in context.facts]
    assert ("OpenAI", "founded_by", "Sam Altman") in triples
    assert len(context.citations) == len(context.envelopes)
    many = Facts([Fact(subject=f"s{n}", predicate="p", object="o") for n in range(60)])
    alone = await answer(tmp_path, [], facts={"many": many})
    assert (alone.outcome, len(alone.facts), alone.citations) == ("facts_only", 50, ())


@pytest.mark.case("R14")
@pytest.mark.without(rag__provider="library")
async def test_the_provider_is_one_name_or_a_list(tmp_path: Path):
    text = (
        '[rag]\nprovider = {}\n[providers.postgres]\ndsn = "postgresql://127.0.0.1:1/none"\n[providers.vertex]\n'
        'project = "acme"\ncollection = "library"\nendpoint = "127.0.0.1:1"\n'
    )
    for provider, expected in (
        ('"postgres"', {"postgres"}),
        ('"vertex"', {"vertex"}),
        ('["postgres", "vertex"]', {"postgres", "vertex"}),
    ):
        router = system(tmp_path, "multisource", text.format(provider))
        plan = await router.plan("tides")
        assert {call.source for call in plan.calls} - {"news", "graph"} == expected
        assert plan.excluded["library"] == "not named in [rag] provider"
        await router.aclose()


@pytest.mark.case("R15")
@pytest.mark.without(rag__cache_enabled=False)
async def test_an_equal_question_comes_from_the_cache_until_its_time_is_over(tmp_path: Path):
    router = system(tmp_path, "multisource", "[connectors.news]\nenabled = false\n")
    assert router.settings.rag.cache_ttl_seconds == 3600
    await fill(router, "library", *three())
    async with router:
        assert [(await router.route("tides")).cached for _ in range(2)] == [False, True]
    short = system(
        tmp_path, "multisource", "[rag]\ncache_ttl_seconds = 0.05\n[connectors.news]\nenabled = false\n"
    )
    async with short:
        await short.route("tides")
        await asyncio.sleep(0.08)
        assert not (await short.route("tides")).cached
