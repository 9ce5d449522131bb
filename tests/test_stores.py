"""What every store answers alike: the stores in memory, in SQLite and in Postgres pass the same tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.postgres_server import open_store as open_postgres
from support.stores import OpenEmpty, entry, ids, open_memory, open_sqlite
from support.texts import HOSTILE

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import (
    Entry,
    LinkDegrees,
    SupportsDegrees,
    SupportsFacets,
    SupportsFetch,
    SupportsMentions,
    SupportsNeighbours,
    SupportsStatistics,
    SupportsUpsert,
    SupportsVersion,
)
from contextrouter.errors import IngestError, SourceError
from contextrouter.model import Document, Fact, Period, Query
from contextrouter.scope import SHARED, Scope

OPEN: dict[str, OpenEmpty] = {"memory": open_memory, "sqlite": open_sqlite, "postgres": open_postgres}
LASTING = [name for name in OPEN if name != "memory"]
NEAR: dict[str, Any] = {"vector": [1.0, 0.0]}
BLANK = Document(id="d", content="")


@pytest.fixture(params=list(OPEN))
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty store of each kind."""
    async with OPEN[request.param]() as store:
        yield store


@pytest.fixture(params=LASTING)
async def lasting(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty store of each kind that outlives its process."""
    async with OPEN[request.param]() as store:
        yield store


def open_second(store: Any) -> Any:
    """Another instance over the same file or schema."""
    if isinstance(store, Sqlite):
        return Sqlite(path=store.path)
    return Postgres(dsn=store.pool.dsn, schema=store.pool.schema)


def test_it_has_the_abilities_it_claims() -> None:
    searching = (SupportsMentions, SupportsFacets)
    abilities = (
        SupportsUpsert,
        SupportsFetch,
        SupportsVersion,
        SupportsStatistics,
        SupportsDegrees,
        *searching,
    )
    of_files = (*abilities, SupportsNeighbours)
    for store, claimed in ((Memory(), abilities), (Sqlite(path="x.db"), of_files), (Postgres(), of_files)):
        assert [ability for ability in claimed if not isinstance(store, ability)] == []


# The same answers as in memory.

WORDS = ["sun", "suns", "moon", "the", "東京都", "京都", "Café", "cafe", "O'Brien", "tide", "Häuser", "Haus"]
WORDS += ["news", "new"]
NAMES = ["Sun", "sun moon", "SUN  moon", "the", "東京", "café", "O'Brien", "Bob", "Bob Moon"]
QUESTIONS = ["sun moon", '"sun moon"', "moon -sun", '"東京" OR tide', "京", '-"京"', "sun -京", ""]
QUESTIONS += ["moon -news", "moon -Häusern", '"the Haus"', '"news sun" OR Häusern', "new sun Häusern"]
FILTERS: list[dict[str, Any]] = [
    {},
    {"year": 2024},
    {"tags": ["q", "z"]},
    {"kind": "book"},
    {"kind": ["note", "web"]},
    {"no": 1},
]
DOCUMENTS = st.builds(
    Document,
    content=st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    title=st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join),
    path=st.lists(st.sampled_from(WORDS), max_size=2).map(tuple),
    kind=st.sampled_from(["book", "web"]),
    language=st.sampled_from([None, "en", "de-AT", "fr", "tlh"]),
    tenant=st.sampled_from([None, "a", "b", SHARED, ""]),
    compartment=st.sampled_from([None, "hr", ""]),
    sensitivity=st.sampled_from([None, "public", "confidential", "secret"]),
    updated_at=st.sampled_from([None, datetime(2024, 3, 31, 23), datetime(2024, 4, 1, tzinfo=UTC)]),
    labels=st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True).map(tuple),
    keywords=st.lists(st.sampled_from([*NAMES, "\x1fphrases", ""]), max_size=3).map(tuple),
    metadata=st.sampled_from(
        [{}, {"year": 2024}, {"year": 2024.0, "tags": ["p", "q"]}, {"kind": "note", "done": True}]
    ),
)
FACTS = st.lists(
    st.builds(
        Fact,
        subject=st.sampled_from(NAMES),
        predicate=st.just("knows"),
        object=st.sampled_from(NAMES),
        tenant=st.sampled_from([None, "a"]),
        compartment=st.sampled_from([None, "hr"]),
    ),
    max_size=3,
)
VECTORS = st.sampled_from([None, [1.0, 0.0], [3.0, 3.0], [-1.0, 0.5], [0.0, 0.0]])
STORED = st.lists(st.tuples(DOCUMENTS, VECTORS, FACTS), min_size=1, max_size=8)


def queries(limits: st.SearchStrategy[int], filters: list[dict[str, Any]]) -> st.SearchStrategy[list[Query]]:
    """Queries on every leg with words, scopes, periods and labels that the documents have."""
    query = st.builds(
        Query,
        text=st.sampled_from([*WORDS, *QUESTIONS, "did Bob Moon see the sun?"]),
        entities=st.sampled_from([(), ("bob",), ("sun", "CAFÉ"), ("nobody",)]),
        leg=st.sampled_from(["text", "vector", "keywords"]),
        limit=limits,
        vector=st.sampled_from([[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]]),
        labels=st.sampled_from([(), ("x",), ("x", "y")]),
        period=st.sampled_from(
            [
                None,
                Period(),
                Period(end=date(2024, 3, 31)),
                Period(start=date(2024, 4, 1), zone="Europe/Berlin"),
            ]
        ),
        scope=st.none()
        | st.builds(
            Scope,
            tenant=st.sampled_from([None, "a", ""]),
            compartments=st.sampled_from([frozenset(), frozenset({"hr"})]),
            ceiling=st.sampled_from(["public", "restricted"]),
        ),
        filters=st.sampled_from(filters),
    )
    return st.lists(query, min_size=1, max_size=8)


async def compare_hits(store: Any, memory: Memory, query: Query, *, exact: bool) -> None:
    """Postgres scores texts nearly as BM25 does, so the same documents come in about the same order."""
    got, right = await store.search(query), await memory.search(query)
    if exact:
        assert [(h.document, h.score) for h in got] == [(h.document, h.score) for h in right]
    elif query.leg == "text":
        assert sorted(repr(h.document) for h in got) == sorted(repr(h.document) for h in right)
    else:
        assert [h.document for h in got] == [h.document for h in right]
        assert [h.score for h in got] == pytest.approx([h.score for h in right], abs=2e-6)


async def compare_mentions_and_counts(store: Any, memory: Memory, query: Query) -> None:
    got, right = await store.mentions(query), await memory.mentions(query)
    assert [(h.document, h.score) for h in got] == [(h.document, h.score) for h in right]
    dimensions = ["kind", "labels", "keywords", "tags", "tenant"]
    assert list(await store.facets(query, dimensions)) == list(await memory.facets(query, dimensions))


async def compare(
    store: Any,
    documents: list[tuple[Document, list[float] | None, list[Fact]]],
    removed: set[int],
    queries: list[Query],
    *,
    exact: bool,
) -> None:
    """Fill this store and one in memory, remove some documents from both, and ask both after each step."""
    memory = Memory(embedder="default")
    await store.clear()
    rows = [(document.replace(id=f"d{n}"), v, facts) for n, (document, v, facts) in enumerate(documents)]
    entries = [
        Entry(document=d, chunks=[d], vectors={"vector": [v], "keywords": [v]}, facts=facts)
        for d, v, facts in rows
    ]
    for each in (store, memory):
        await each.upsert(entries)
    for stage in (set[int](), removed):
        for document, _, _ in rows:
            if int(document.id[1:]) in stage:
                counts = [await each.delete([document.id], document.tenant) for each in (store, memory)]
                assert counts[0] == counts[1]
        for query in queries:
            await compare_hits(store, memory, query, exact=exact)
            await compare_mentions_and_counts(store, memory, query)
        for scope in (None, *[query.scope for query in queries]):
            assert await store.statistics(WORDS, scope) == await memory.statistics(WORDS, scope)


@pytest.mark.parametrize("name", LASTING)
def test_it_finds_what_the_store_in_memory_finds(name: str) -> None:
    """The same documents on every leg; on the vector legs in the same order with the same cosines."""
    exact = name == "sqlite"
    limits, filters = (
        (st.integers(0, 4), [*FILTERS, {"done": 1}]) if exact else (st.sampled_from([0, 50]), FILTERS)
    )
    with asyncio.Runner() as runner:
        context = OPEN[name]()
        store = runner.run(context.__aenter__())

        @settings(max_examples=40 if exact else 25, suppress_health_check=[HealthCheck.too_slow])
        @given(documents=STORED, removed=st.sets(st.integers(0, 7)), queries=queries(limits, filters))
        def all_are_alike(**drawn: Any) -> None:
            runner.run(compare(store, **drawn, exact=exact))

        all_are_alike()
        runner.run(context.__aexit__(None, None, None))


# Words.


@pytest.mark.case("C09")
async def test_title_outweighs_path_outweighs_body(store: Any) -> None:
    await store.upsert(
        [
            entry("body", "comet", title="x", path=("y",)),
            entry("path", "y", title="x", path=("comet",)),
            entry("title", "x", title="comet", path=("y",)),
        ]
    )
    assert await ids(store, "comet") == ["title", "path", "body"]


@pytest.mark.case("C09")
@pytest.mark.parametrize("name", LASTING)
@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, ["title", "body"]),
        ({"title_weight": 1.0, "body_weight": 3.0}, ["body", "title"]),
        ({"title_weight": 0.0}, ["body"]),
    ],
)
async def test_field_weights_are_settings(name: str, weights: dict[str, float], expected: list[str]) -> None:
    """A field without weight finds nothing."""
    async with OPEN[name](**weights) as store:
        await store.upsert([entry("title", "x", title="comet"), entry("body", "comet", title="x")])
        assert await ids(store, "comet") == expected


@pytest.mark.case("R24")
async def test_whole_questions_find_what_no_chunk_holds_all_words_of(store: Any) -> None:
    await store.upsert(
        [entry("a", "comets have tails of ice"), entry("b", "tides of the sea"), entry("c", "salt pans")]
    )
    assert await ids(store, "Why do comets near the sun, unlike planets, grow long tails?") == ["a"]


@pytest.mark.case("C08")
async def test_negations_hold_on_every_leg_and_phrases_on_text(store: Any) -> None:
    texts = {"a": "annual report draft", "b": "annual report", "c": "report of annual"}
    await store.upsert([entry(id, text, vector=[1.0, 0.0]) for id, text in texts.items()])
    for leg in store.legs:
        same_words = ["a", "b"] if leg == "text" else ["a", "b", "c"]  # meaning needs no wording
        assert sorted(await ids(store, '"annual report"', leg, **NEAR)) == same_words
        assert sorted(await ids(store, "report -draft", leg, **NEAR)) == ["b", "c"]
        assert await ids(store, 'report -"annual report"', leg, **NEAR) == ["c"]
        assert await ids(store, "report -annual", leg, **NEAR) == []


async def test_scripts_without_spaces_are_found_to_the_character(store: Any) -> None:
    await store.upsert([entry("d0", "東京都は日本の首都です。"), entry("d1", "大阪の天気")])
    assert await ids(store, "東京") == ["d0"]
    assert await ids(store, "都") == ["d0"]
    assert await ids(store, "天気はどうですか") == ["d1", "d0"]  # です is common to both


@pytest.mark.case("PG-03")
async def test_the_same_words_however_parted_find_the_same(store: Any) -> None:
    await store.upsert([entry("dog", "dog"), entry("cat", "cat dog"), entry("bird", "bird")])
    answers = [
        await store.search(Query(text=text, leg="text"))
        for text in ("dog cat", "dog,cat", "dog, cat", "dog;cat")
    ]
    hits = [[(hit.document.id, hit.score) for hit in answer] for answer in answers]
    assert [id for id, _ in hits[0]] == ["cat", "dog"]
    assert hits == [hits[0]] * 4


@pytest.mark.case("PG-07")
async def test_stop_words_find_what_holds_them_and_never_everything(store: Any) -> None:
    await store.upsert(
        [entry("don", "Don will just sing", vector=[1.0, 0.0]), entry("x", "tides", vector=[1.0, 0.0])]
    )
    for text in ("don", "will", "just", "Don will"):
        assert await ids(store, text) == ["don"]
    for text in ("", "   ", "the", "???", "-don", "👍"):
        assert await ids(store, text) == []


@pytest.mark.case("PG-01", "PG-02", "PG-05", "PG-08", "PG-11", "ASY-11")
async def test_no_text_is_a_syntax_error(store: Any) -> None:
    await store.upsert(
        [entry("d", "sun with moon", vector=[1.0, 0.0]), entry("e", "other", vector=[0.0, 1.0])]
    )
    for text in HOSTILE:
        found = await ids(store, text)
        near = await ids(store, text, "vector", vector=[1.0, 0.0])
        assert found in ([], ["d"]), text
        assert set(near) <= {"d", "e"}, text
        if not {"-", '"', "!"} & {*text}:
            assert found == (["d"] if "sun" in text.lower() or text == "𝕊𝕦𝕟" else []), text
            assert near == ["d", "e"], text
    assert await ids(store, "moon") == ["d"]


TEXTS = st.text(max_size=60) | st.text(alphabet="ab \"-*:()^+OR'\\&|!<>", max_size=60)


@pytest.mark.case("PG-02")
@pytest.mark.parametrize("name", OPEN)
def test_arbitrary_text_is_asked_and_stored(name: str) -> None:
    async def ask(store: Any, texts: list[str]) -> None:
        for text in texts:
            await store.search(Query(text=text, leg="text"))
            await store.upsert([entry("x", text, title=text, labels=(text,), url=text)])
            assert [document.content for document in await store.fetch(["x"])] == [text]
        assert "sea" in await ids(store, "sea")

    with asyncio.Runner() as runner:
        context = OPEN[name](embedder=None)
        store = runner.run(context.__aenter__())
        runner.run(store.upsert([entry("sea", "the sea")]))

        @settings(max_examples=25)
        @given(texts=st.lists(TEXTS, min_size=1, max_size=8))
        def any_text(texts: list[str]) -> None:
            runner.run(ask(store, texts))

        any_text()
        runner.run(context.__aexit__(None, None, None))


async def test_statistics_count_chunks(store: Any) -> None:
    await store.upsert([entry("a", "the sun and the moon"), entry("b", "moons")])
    counts = await store.statistics(["moon", "Sun", "the moon", "rain", "??"])
    assert (counts.documents, counts.average_length) == (2, 1.5)
    assert counts.frequencies == {"moon": 2, "Sun": 1, "the moon": 1, "rain": 0, "??": 0}


# Languages.


async def test_a_text_has_the_stems_of_its_language(store: Any) -> None:
    await store.upsert(
        [
            entry("de", "Die alten Häuser in Berlin", language="de-AT"),
            entry("ru", "Старые дома", language="ru"),
            entry("en", "old houses in Berlin", language="en"),
            entry("none", "Häuser and houses"),
        ]
    )
    for language in ("de", "en", "tlh", None):
        for text, found in [
            ("Haus", ["de"]),
            ("hausern", ["de"]),
            ("Häuser", ["de", "none"]),
            ("house", ["en", "none"]),
            ("Berlin", ["de", "en"]),
            ("дом", ["ru"]),
            ('"alte Haus"', ["de"]),
            ('"Haus alte"', []),
            ("Berlin Häuser -Haus", ["en", "none"]),
            ("Berlin Häuser -Häusern", ["en", "none"]),
            ("Berlin Häuser -house", ["de"]),
        ]:
            assert sorted(await ids(store, text, language=language)) == found, text


async def test_the_stem_of_one_language_finds_nothing_in_another(store: Any) -> None:
    """The French stem of "news" is "new"."""
    await store.upsert(
        [
            entry("york", "New York", vector=[1.0, 0.0]),
            entry("news", "news", vector=[1.0, 0.0]),
            entry("fr", "news", language="fr", vector=[1.0, 0.0]),
        ]
    )
    assert sorted(await ids(store, "news")) == ["fr", "news"]
    assert sorted(await ids(store, '"news"')) == ["fr", "news"]
    for leg in store.legs:
        assert await ids(store, "York news -news", leg, **NEAR) == ["york"]


async def test_statistics_count_each_text_in_its_language(store: Any) -> None:
    """Of three chunks one has "haus", the German one as its stem; "hauser" is a term of the last."""
    await store.upsert(
        [
            entry("de", "alte Häuser", language="de", tenant="a"),
            entry("en", "new house", tenant="a"),
            entry("none", "Häuser news", tenant="b"),
            entry("fr", "news", language="fr", tenant="b"),
        ]
    )
    words = ["Haus", "Häuser", "house", "news", "new", "alten Haus"]
    counts = await store.statistics(words)
    assert (counts.documents, counts.average_length) == (4, 1.75)
    assert counts.frequencies == {"Haus": 1, "Häuser": 2, "house": 1, "news": 2, "new": 2, "alten Haus": 1}
    counts = await store.statistics(words, Scope(tenant="a"))
    assert counts.frequencies == {"Haus": 1, "Häuser": 1, "house": 1, "news": 0, "new": 1, "alten Haus": 1}


async def test_a_word_is_as_rare_as_all_its_stems_together(store: Any) -> None:
    """The French stem of "states" is "stat", the English one "state": one French text makes none rare."""
    await store.upsert([entry(f"en{n}", "states") for n in range(3)])
    await store.upsert([entry("fr", "states", language="fr"), entry("sun", "sun")])
    hits = await store.search(Query(text="states", leg="text"))
    assert [hit.document.id for hit in hits] == ["en0", "en1", "en2", "fr"]
    assert len({hit.score for hit in hits}) == 1


async def test_no_score_tells_of_the_languages_that_a_scope_hides(store: Any) -> None:
    await store.upsert([entry(f"a{n}", text, tenant="a") for n, text in enumerate(["news", "new", "sun"])])
    asked = Query(text="news Haus sun", leg="text", scope=Scope(tenant="a"))
    before = [(hit.document.id, hit.score) for hit in await store.search(asked)]
    await store.upsert([entry("b", "news des Hauses", tenant="b", language=code) for code in ("fr", "de")])
    assert [(hit.document.id, hit.score) for hit in await store.search(asked)] == before


async def test_a_text_whose_language_changes_has_other_stems(store: Any) -> None:
    for language, found in (("de", ["d"]), (None, []), ("de", ["d"])):
        await store.upsert([entry("d", "Häuser", language=language)])
        assert await ids(store, "Haus") == found
    await store.delete(["d"])
    assert await ids(store, "Haus") == []
    assert (await store.statistics(["Haus"])).frequencies == {"Haus": 0}


async def test_a_chunk_without_a_language_has_that_of_its_document(store: Any) -> None:
    document = Document(id="d", content="", language="de")
    chunks = [Document(content="alte Häuser"), Document(content="les nouvelles", language="fr")]
    await store.upsert([Entry(document=document, chunks=chunks)])
    assert await ids(store, "Haus") == ["d#0"]
    assert await ids(store, "nouvelle") == ["d#1"]
    assert await ids(store, "alte nouvelle", filters={"language": "de"}) == ["d#0"]


# Scope, period and filters come before the limit.


@pytest.mark.case("C16")
async def test_scope_is_applied_before_the_limit(store: Any) -> None:
    rows: list[dict[str, Any]] = [{"id": f"h{n}", "tenant": "b"} for n in range(5)]
    rows += [{"id": "none"}, {"id": "own", "tenant": "a"}, {"id": "shared", "tenant": SHARED}]
    rows += [
        {"id": "hr", "tenant": "a", "compartment": "hr"},
        {"id": "top", "tenant": "a", "sensitivity": "restricted"},
    ]
    await store.upsert([entry(content="budget", **row) for row in rows])
    wide = Scope(tenant="a", compartments=frozenset({"hr"}), ceiling="restricted")
    assert await ids(store, "budget", scope=Scope(tenant="a"), limit=2) == ["own", "shared"]
    assert await ids(store, "budget", scope=wide) == ["hr", "own", "shared", "top"]
    assert await ids(store, "budget", scope=Scope()) == ["none", "shared"]
    assert len(await ids(store, "budget")) == 10


@pytest.mark.case("ACL-02", "PG-13", "PG-25")
async def test_the_limit_is_filled_from_what_qualifies(store: Any) -> None:
    hidden = [entry(f"h{n:03}", "plan plan plan", vector=[1.0, 0.0], tenant="b") for n in range(300)]
    visible = [
        entry(f"s{n}", "plan and more words", vector=[0.5, 0.5], tenant="a", compartment="hr")
        for n in range(5)
    ]
    await store.upsert([*hidden, *visible])
    scope = Scope(tenant="a", compartments=frozenset({"hr"}))
    for leg in store.legs:
        query = {**NEAR, "limit": 5}
        assert await ids(store, "plan", leg, scope=scope, **query) == ["s0", "s1", "s2", "s3", "s4"]
        assert await ids(store, "plan", leg, scope=Scope(tenant="a"), **query) == []
        assert await ids(store, "plan", leg, scope=Scope(), **query) == []
        assert len(await ids(store, "plan", leg, **query)) == 5


@pytest.mark.case("M08")
async def test_period_filters_and_labels_are_applied_before_the_limit(store: Any) -> None:
    march, april = datetime(2024, 3, 31, 23, 59), datetime(2024, 4, 1)
    await store.upsert(
        [
            entry("a", "note", updated_at=march, labels=("home",), metadata={"year": 2024}),
            entry("b", "note", updated_at=april, labels=("work",), kind="book"),
            entry("c", "note"),
        ]
    )
    assert await ids(store, "note", period=Period(end=date(2024, 3, 31)), limit=1) == ["a"]
    assert await ids(store, "note", period=Period(start=date(2024, 4, 1)), limit=1) == ["b"]
    assert await ids(store, "note", filters={"year": 2024}) == ["a"]
    assert await ids(store, "note", filters={"kind": ["book", "video"]}) == ["b"]
    assert await ids(store, "note", labels=("work", "play")) == ["b"]


@pytest.mark.case("GRA-01")
async def test_naive_datetimes_are_utc(store: Any) -> None:
    await store.upsert(
        [
            entry("a", "x", updated_at=datetime(2024, 3, 31, 23)),
            entry("b", "x", updated_at=datetime(2024, 4, 1)),
        ]
    )
    assert await ids(store, "x", period=Period(end=date(2024, 3, 31))) == ["a"]
    assert await ids(store, "x", period=Period(start=date(2024, 4, 1), zone="Europe/Berlin")) == ["a", "b"]


async def test_a_chunk_without_labels_has_those_of_its_document(store: Any) -> None:
    document = Document(id="d", content="secret plan", tenant="a", sensitivity="restricted")
    await store.upsert([Entry(document=document, chunks=[Document(content="secret plan")])])
    assert await ids(store, "plan", scope=Scope(tenant="a")) == []
    (hit,) = await store.search(Query(text="plan", leg="text", scope=Scope(tenant="a", ceiling="restricted")))
    assert (hit.document.id, hit.document.parent, hit.document.sensitivity) == ("d#0", "d", "restricted")


async def test_tenants_keep_documents_of_one_id_apart(store: Any) -> None:
    for tenant in ("a", "b"):
        document = Document(id="d", content=f"plan of {tenant}", tenant=tenant)
        await store.upsert([Entry(document=document, chunks=[document], fingerprint=tenant)])
    assert [await store.fingerprints(t) for t in ("a", "b", None)] == [{"d": "a"}, {"d": "b"}, {}]
    assert [d.content for d in await store.fetch(["d"], Scope(tenant="b"))] == ["plan of b"]
    assert (await store.delete(["d", "x"], "a"), await store.delete(["d"], "a")) == (1, 0)
    assert await ids(store, "plan") == ["d"]


# Vectors.


async def test_vector_hits_carry_their_unit_vector_and_cosine(store: Any) -> None:
    await store.upsert(
        [entry("a", "x", vector=[3.0, 4.0]), entry("b", "y", vector=[0.0, 2.0]), entry("c", "z")]
    )
    first, second = await store.search(Query(text="", leg="vector", vector=[0.0, 1.0]))
    assert (first.document.id, first.score, second.document.id, second.score) == ("b", 1.0, "a", 0.8)
    assert second.vector is not None
    assert [round(float(v), 6) for v in second.vector] == [0.6, 0.8]


async def test_text_hits_carry_their_unit_vector(lasting: Any) -> None:
    await lasting.upsert([entry("a", "x", vector=[3.0, 4.0]), entry("c", "z")])
    (by_word,) = await lasting.search(Query(text="x", leg="text"))
    assert [round(float(v), 6) for v in by_word.vector] == [0.6, 0.8]
    assert [hit.vector for hit in await lasting.search(Query(text="z", leg="text"))] == [None]


@pytest.mark.case("R12")
async def test_chunks_without_keywords_are_absent_from_that_leg_alone(store: Any) -> None:
    whole = Document(id="d", content="x")
    await store.upsert(
        [Entry(document=whole, chunks=[whole], vectors={"vector": [[1.0, 0.0]], "keywords": [None]})]
    )
    assert await ids(store, "", "vector", vector=[1.0, 0.0]) == ["d"]
    assert await ids(store, "", "keywords", vector=[1.0, 0.0]) == []


async def test_ties_go_by_id_whatever_the_order_of_writing(store: Any) -> None:
    for id in ("c", "e", "a", "d", "b"):
        await store.upsert([entry(id, "x", vector=[1.0, 1.0])])
    assert await ids(store, "", "vector", vector=[1.0, 0.0], limit=3) == ["a", "b", "c"]
    assert await ids(store, "x", limit=3) == ["a", "b", "c"]
    assert await ids(store, "x", limit=0) == []


@pytest.mark.case("PG-21")
async def test_a_query_that_cannot_be_searched_is_refused(store: Any) -> None:
    """A vector of another length is refused with both numbers."""
    await store.upsert([entry("a", "x", vector=[1.0, 0.0])])
    for query, message in (
        (Query(text="x", leg="vector", vector=[1.0, 0.0, 0.0]), "3 dimensions, the store's have 2; use "),
        (Query(text="x", leg="keywords"), "needs a query vector"),
        (Query(text="x", leg="vector", vector=[float("nan"), 0.0]), "not finite"),
        (Query(text="x", leg="other"), "'other' is not one of this store's legs"),
    ):
        with pytest.raises(SourceError, match=message):
            await store.search(query)


@pytest.mark.case("PG-19", "PG-20")
async def test_another_model_is_refused_by_name_with_the_remedy(lasting: Any) -> None:
    await lasting.embedded_by("static-1", 2)
    await lasting.upsert([entry("a", "x", vector=[1.0, 0.0])])
    other = open_second(lasting)
    await other.open()
    for model, size in (("static-2", 2), ("static-1", 3)):
        with pytest.raises(
            SourceError, match=f"model 'static-1' with 2 dimensions.*'{model}' with {size}.*ingest --rebuild"
        ):
            await other.embedded_by(model, size)
        assert model == "static-1" or [
            hit.vector for hit in await other.search(Query(text="x", leg="text"))
        ] == [None]
    with pytest.raises(SourceError, match="static-1"):
        await other.search(Query(text="x", leg="vector", vector=[1.0, 0.0, 0.0]))
    with pytest.raises(SourceError, match="static-1"):
        await other.upsert([entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert await ids(other, "x") == ["a"]  # texts do not depend on the model
    await other.clear()
    await other.upsert([entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert await ids(other, "x", "vector", vector=[1.0, 0.0, 0.0]) == ["b"]
    await other.aclose()


# Documents in and out.


async def test_everything_of_a_document_comes_back(store: Any) -> None:
    document = Document(
        id="d",
        content="text\x00 with a null, «quotes» and 👍",
        url="http://x/y",
        title="T",
        snippet="s",
        kind="book",
        path=("A", "B"),
        media_type="text/html",
        language="de",
        tenant="t",
        compartment="c",
        sensitivity="internal",
        trust="reference",
        updated_at=datetime(2024, 5, 1, 12, 30, 15, 123456, tzinfo=UTC),
        synced_at=datetime(2024, 1, 1),
        keywords=("k",),
        labels=("l",),
        links=("e",),
        metadata={"a": [1, {"b": None}]},
    )
    await store.upsert([Entry(document=document, chunks=[document])])
    assert await store.fetch(["d"]) == [document]
    assert [h.document for h in await store.search(Query(text="quotes", leg="text"))] == [document]


@pytest.mark.case("ING-04")
async def test_chunks_are_all_stored_and_replaced_whole(store: Any) -> None:
    document = Document(id="d", content="one two three")
    chunks = [Document(content=word) for word in ("one", "two", "three")]
    await store.upsert([Entry(document=document, chunks=chunks, fingerprint="1")])
    assert [await ids(store, word) for word in ("one", "two", "three")] == [["d#0"], ["d#1"], ["d#2"]]
    await store.upsert([Entry(document=document, chunks=chunks[:1], fingerprint="2")])
    assert [await ids(store, word) for word in ("one", "two", "three")] == [["d#0"], [], []]
    assert await store.fingerprints() == {"d": "2"}
    assert (await store.statistics(["one", "two"])).frequencies == {"one": 1, "two": 0}


async def test_documents_and_chunks_are_fetched_by_id_in_order(store: Any) -> None:
    """The order is that of the ids in the request, and each comes once."""
    document = Document(id="w", content="one two", tenant="a")
    parts = [Document(id="w#0", content="one"), Document(id="w#1", content="two")]
    await store.upsert([Entry(document=document, chunks=parts), entry("x", "other", tenant="b")])
    names = ["w#1", "x", "w", "none", "w#0", "w#1"]
    assert [d.content for d in await store.fetch(names, Scope(tenant="a"))] == ["two", "one two", "one"]
    assert [d.content for d in await store.fetch(["x", "w"])] == ["other", "one two"]


async def test_fetch_sees_only_what_the_scope_allows(store: Any) -> None:
    await store.upsert(
        [entry("d", "of a", tenant="a"), entry("d", "of b", tenant="b"), entry("e", "shared", tenant=SHARED)]
    )
    assert [d.content for d in await store.fetch(["d", "e"], Scope(tenant="a"))] == ["of a", "shared"]
    assert [d.content for d in await store.fetch(["d", "e"], Scope())] == ["shared"]
    assert [d.content for d in await store.fetch(["e", "d"])] == ["shared", "of a", "of b"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Entry(document=Document(content="x"), chunks=[]), "without an id"),
        (Entry(document=BLANK, chunks=[], vectors={"vector": [[1.0]]}), "'d' has 1 vectors for 0 chunks"),
        (Entry(document=BLANK, chunks=[BLANK], vectors={"image": [None]}), "leg 'image'"),
        (Entry(document=BLANK, chunks=[BLANK], vectors={"vector": [[float("nan")]]}), "not finite"),
        (entry("d", "x", vector=[float("inf")]), "not finite"),
    ],
)
async def test_one_bad_entry_is_named_and_its_batch_changes_nothing(
    store: Any, broken: Entry, message: str
) -> None:
    await store.upsert([entry("before", "sun")])
    version = await store.version()
    with pytest.raises(IngestError, match=message):
        await store.upsert([entry("fine", "sun"), broken])
    assert await store.version() == version
    assert await ids(store, "sun") == ["before"]


async def test_version_changes_with_every_change_and_only_then(store: Any) -> None:
    await store.upsert([entry("a", "x")])
    before = await store.version()
    await ids(store, "x")
    await store.delete(["nothing"])
    assert await store.version() == before
    await store.delete(["a"])
    assert await store.version() != before


@pytest.mark.case("K23")
async def test_neighbours_are_linked_by_id_or_url_either_way_strongest_first(lasting: Any) -> None:
    await lasting.upsert(
        [
            entry("hub", "hub", links=("one", "http://x/two", "both", "missing"), url="http://x/hub"),
            entry("one", "1"),
            entry("two", "2", url="http://x/two"),
            entry("both", "b", links=("http://x/hub",)),
            entry("back", "back", links=("hub",)),
            entry("far", "far", links=("one",)),
            entry("hid", "h", links=("hub",), tenant="t"),
        ]
    )
    hits = await lasting.neighbours(["hub"], 10)
    assert [(hit.document.id, hit.score) for hit in hits] == [
        ("both", 2.0),
        ("back", 1.0),
        ("one", 1.0),
        ("two", 1.0),
    ]
    assert [hit.document.id for hit in await lasting.neighbours(["hub"], 2)] == ["both", "back"]
    names = [hit.document.id for hit in await lasting.neighbours(["hub", "one"], 9)]
    assert names == ["both", "back", "far", "two"]
    assert await lasting.neighbours(["hub"], 10, Scope(tenant="t")) == []
    assert await lasting.neighbours(["unknown"], 10) == []


async def test_neighbours_of_a_chunk_are_those_of_its_document(lasting: Any) -> None:
    document = Document(id="d", content="a b", links=("e",))
    await lasting.upsert(
        [Entry(document=document, chunks=[Document(content="a"), Document(content="b")]), entry("e", "c")]
    )
    assert [hit.document.id for hit in await lasting.neighbours(["d#1"], 5)] == ["e"]
    assert [hit.document.id for hit in await lasting.neighbours(["e"], 5)] == ["d#0"]


GRAPH = [
    entry("hub", "hub", links=("one", "http://x/two", "two", "both", "missing", "hub"), url="http://x/hub"),
    entry("one", "1"),
    entry("two", "2", url="http://x/two"),
    entry("both", "b", links=("http://x/hub", "hub")),
    entry("back", "back", links=("hub",)),
    entry("alone", "a"),
]


@pytest.mark.case("K18")
async def test_degrees_count_links_from_and_to_a_document_once_each(store: Any) -> None:
    """From the hub to one, two, both; to it from both, back. 5 links, 6 documents."""
    await store.upsert(GRAPH)
    counted = await store.degrees(["hub", "one", "two", "both", "back", "alone", "missing"])
    degrees = {"hub": 5, "one": 1, "two": 1, "both": 2, "back": 1, "alone": 0}
    assert counted == LinkDegrees(degrees=degrees, mean=pytest.approx(5 / 6))
    assert (await store.degrees([])).mean == pytest.approx(5 / 6)
    await store.delete(["back"])
    assert await store.degrees(["hub"]) == LinkDegrees(degrees={"hub": 4}, mean=pytest.approx(4 / 5))


async def test_degrees_are_those_of_the_graph_that_a_scope_shows(store: Any) -> None:
    """A link needs both ends in one tenant, or one of them shared."""
    await store.upsert(
        [
            entry("a", "a", tenant="t", links=("b", "c", "s")),
            entry("b", "b", tenant="t", sensitivity="restricted", links=("a",)),
            entry("c", "c", tenant="u", links=("a", "s")),
            entry("s", "s", tenant=SHARED),
        ]
    )
    every = ["a", "b", "c", "s"]
    low, high = Scope(tenant="t"), Scope(tenant="t", ceiling="restricted")
    assert await store.degrees(every, low) == LinkDegrees(degrees={"a": 1, "s": 1}, mean=0.5)
    assert await store.degrees(every, high) == LinkDegrees(degrees={"a": 3, "b": 2, "s": 1}, mean=1.0)
    assert await store.degrees(every) == LinkDegrees(degrees={"a": 3, "b": 2, "c": 1, "s": 2}, mean=1.0)
    assert await store.degrees(every, Scope(tenant="nobody")) == LinkDegrees(degrees={"s": 0}, mean=0.0)


async def test_the_degree_of_a_chunk_is_that_of_its_document(store: Any) -> None:
    document = Document(id="d", content="a b", links=("e",))
    parts = [Document(content="a"), Document(content="b")]
    await store.upsert([Entry(document=document, chunks=parts), entry("e", "c")])
    assert (await store.degrees(["d#1", "d", "e"])).degrees == {"d#1": 1, "d": 1, "e": 1}
    assert (await store.degrees(["'; --", "\x00"])).degrees == {}


NAMES = st.sampled_from(["a", "b", "c", "d", "http://x/a", "http://x/b"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    graph=st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(
            st.lists(NAMES, max_size=5),
            st.sampled_from(["", "http://x/a", "http://x/b"]),
            st.sampled_from([None, "t", SHARED]),
        ),
        min_size=1,
        max_size=4,
    ),
    scope=st.sampled_from([None, Scope(), Scope(tenant="t")]),
)
async def test_every_store_counts_the_links_of_any_graph_as_memory_does(
    lasting: Any, graph: dict[str, Any], scope: Scope | None
) -> None:
    memory = Memory()
    entries = [
        entry(id, id, links=tuple(links), url=url, tenant=tenant)
        for id, (links, url, tenant) in graph.items()
    ]
    await memory.upsert(entries)
    await lasting.clear()
    await lasting.upsert(entries)
    assert await lasting.degrees(list("abcde"), scope) == await memory.degrees(list("abcde"), scope)


@pytest.mark.case("M09")
async def test_facets_count_documents_over_the_period_before_any_limit(store: Any) -> None:
    day = datetime(2024, 3, 1, tzinfo=UTC)
    labels = [("work",), ("work", "home")] * 20
    await store.upsert(
        [
            entry(f"d{n}", "note", labels=some, updated_at=day + timedelta(days=n), metadata={"year": 2024})
            for n, some in enumerate(labels)
        ]
    )
    period = Period(start=date(2024, 3, 1), end=date(2024, 3, 10))
    query = Query(text="what happened?", leg="text", limit=2, period=period)
    counts = await store.facets(query, ["labels", "year", "nothing"])
    assert [(f.dimension, f.value, f.count) for f in counts] == [
        ("labels", "work", 10),
        ("labels", "home", 5),
        ("year", "2024", 10),
    ]
    first = await store.facets(query.replace(limit=1), ["labels", "year"])
    assert [(f.value, f.count) for f in first] == [("work", 10), ("2024", 10)]  # one of each dimension


@pytest.mark.case("SEC-05")
async def test_facets_say_which_values_strangers_wrote(store: Any) -> None:
    await store.upsert(
        [
            entry("a", "sea", labels=("home", "shared"), kind="note"),
            entry("b", "sea", labels=("foreign", "shared"), kind="page", untrusted=True),
        ]
    )
    facets = await store.facets(Query(text="", leg="text"), ["labels", "kind"])
    assert {facet.value for facet in facets if facet.untrusted} == {"foreign", "shared", "page"}
    assert {facet.value for facet in facets if not facet.untrusted} == {"home", "note"}


@pytest.mark.case("M09")
async def test_facets_count_a_document_once_and_respect_negations(store: Any) -> None:
    parts = [Document(id=f"w#{n}", content="sun", kind="book") for n in range(3)]
    await store.upsert([Entry(document=Document(id="w", content="sun"), chunks=parts)])
    await store.upsert(
        [
            entry(f"d{n}", "sun moon", kind="web", labels=("x",), metadata={"year": 2020 + n % 2})
            for n in range(5)
        ]
    )
    facets = await store.facets(Query(text="sun", leg="text", limit=2), ["kind", "year", "labels"])
    assert [(f.dimension, f.value, f.count) for f in facets] == [
        ("kind", "web", 5),
        ("kind", "book", 1),
        ("year", "2020", 3),
        ("year", "2021", 2),
        ("labels", "x", 5),
    ]
    assert [f.count for f in await store.facets(Query(text="sun -moon", leg="text"), ["kind"])] == [1]
