"""The store in Postgres: the answers of the store in memory, given by a real server, and what only a server
can do.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_server import entry, ids, opened, run

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres, text_leg, write
from contextrouter.builtin.providers.postgres.text_configurations import CONFIGURATIONS
from contextrouter.contracts import (
    Entry,
    SupportsFacets,
    SupportsFetch,
    SupportsNeighbours,
    SupportsStatistics,
    SupportsUpsert,
    SupportsVersion,
)
from contextrouter.errors import IngestError, SourceError, SourceTimeout
from contextrouter.model import Document, Fact, Hit, Period, Query
from contextrouter.scope import SHARED, Scope
from contextrouter.text import bm25


@pytest.fixture
async def store() -> AsyncIterator[Postgres]:
    async with opened() as store:
        yield store


def test_it_has_the_abilities_it_claims() -> None:
    abilities = (
        SupportsUpsert,
        SupportsFetch,
        SupportsVersion,
        SupportsStatistics,
        SupportsNeighbours,
        SupportsFacets,
    )
    assert [ability for ability in abilities if not isinstance(Postgres(), ability)] == []


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("schema", "x'); DROP"),
        ("schema", "pg_mine"),
        ("schema", ""),
        ("m", 1),
        ("ef_construction", 3),
        ("ef_construction", 31),
        ("ef_search", 0),
        ("exact_below", -1),
        ("pool_size", 0),
        ("pool_timeout", 0.0),
        ("statement_timeout", float("nan")),
        ("text_search", "german; --"),
        ("statement_cache_size", -1),
        ("title_weight", -1.0),
        ("body_weight", float("inf")),
    ],
)
def test_values_out_of_range_are_refused_by_name(keyword: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{keyword} {re.escape(repr(value))} is "):
        Postgres(**{keyword: value})


# The same answers as in memory.

_WORDS = ["sun", "suns", "moon", "the", "東京都", "京都", "Café", "cafe", "O'Brien", "tide"]
_DOCUMENTS = st.builds(
    Document,
    content=st.lists(st.sampled_from(_WORDS), max_size=6).map(" ".join),
    title=st.lists(st.sampled_from(_WORDS), max_size=2).map(" ".join),
    path=st.lists(st.sampled_from(_WORDS), max_size=2).map(tuple),
    kind=st.sampled_from(["book", "web"]),
    tenant=st.sampled_from([None, "a", "b", SHARED, ""]),
    compartment=st.sampled_from([None, "hr", ""]),
    sensitivity=st.sampled_from([None, "public", "confidential", "secret"]),
    updated_at=st.sampled_from([None, datetime(2024, 3, 31, 23), datetime(2024, 4, 1, tzinfo=UTC)]),
    labels=st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True).map(tuple),
    metadata=st.sampled_from(
        [{}, {"year": 2024}, {"year": 2024.0, "tags": ["p", "q"]}, {"kind": "note", "done": True}]
    ),
)
_SCOPES = st.none() | st.builds(
    Scope,
    tenant=st.sampled_from([None, "a", ""]),
    compartments=st.sampled_from([frozenset(), frozenset({"hr"})]),
    ceiling=st.sampled_from(["public", "restricted"]),
)
_QUERIES = st.builds(
    Query,
    text=st.sampled_from(
        [
            *_WORDS,
            "the",
            "sun moon",
            '"sun moon"',
            "moon -sun",
            '"東京" OR tide',
            "京",
            '-"京"',
            "sun -京",
            "",
        ]
    ),
    leg=st.sampled_from(["text", "vector", "keywords"]),
    limit=st.sampled_from([0, 50]),
    vector=st.sampled_from([[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]]),
    labels=st.sampled_from([(), ("x",), ("x", "y")]),
    period=st.sampled_from(
        [None, Period(), Period(end=date(2024, 3, 31)), Period(start=date(2024, 4, 1), zone="Europe/Berlin")]
    ),
    scope=_SCOPES,
    filters=st.sampled_from(
        [{}, {"year": 2024}, {"tags": ["q", "z"]}, {"kind": "book"}, {"kind": ["note", "web"]}, {"no": 1}]
    ),
)
_VECTORS = st.sampled_from([None, [1.0, 0.0], [3.0, 3.0], [-1.0, 0.5], [0.0, 0.0]])


_STORED = st.lists(st.tuples(_DOCUMENTS, _VECTORS), min_size=1, max_size=8)


async def _compare(
    store: Postgres,
    documents: list[tuple[Document, list[float] | None]],
    removed: set[int],
    queries: list[Query],
) -> None:
    entries = []
    for number, (document, vector) in enumerate(documents):
        document = document.replace(id=f"d{number}")
        entries.append(
            Entry(document=document, chunks=[document], vectors={"vector": [vector], "keywords": [vector]})
        )
    memory = Memory(embedder="default")
    await store.clear()
    for one in (store, memory):
        await one.upsert(entries)
    for stage in (set[int](), removed):
        for each in entries:
            if int(each.document.id[1:]) in stage:
                counts = [
                    await one.delete([each.document.id], each.document.tenant) for one in (store, memory)
                ]
                assert counts[0] == counts[1]
        for query in queries:
            got, right = await store.search(query), await memory.search(query)
            if query.leg == "text":
                assert sorted(repr(h.document) for h in got) == sorted(repr(h.document) for h in right)
            else:
                assert [h.document for h in got] == [h.document for h in right]
                assert [h.score for h in got] == pytest.approx([h.score for h in right], abs=2e-6)
        for scope in (None, Scope(tenant="a", compartments=frozenset({"hr"}))):
            assert await store.statistics(_WORDS, scope) == await memory.statistics(_WORDS, scope)


def test_it_finds_what_the_store_in_memory_finds() -> None:
    """The same documents on every leg, on the vector legs in the same order with the same cosines."""

    with asyncio.Runner() as runner:
        context = opened()
        store = runner.run(context.__aenter__())

        @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(
            documents=_STORED,
            removed=st.sets(st.integers(0, 7)),
            queries=st.lists(_QUERIES, min_size=1, max_size=8),
        )
        def all_are_alike(**drawn: Any) -> None:
            runner.run(_compare(store, **drawn))

        all_are_alike()
        runner.run(context.__aexit__(None, None, None))


async def test_text_scores_are_near_bm25(store: Postgres) -> None:
    """Within 3 % of the exact score, for terms once or often, in short and long chunks, in any field."""
    chance, memory = random.Random(5), Memory(embedder="default")
    words = [f"word{n}" for n in range(40)]
    documents = [
        Document(
            id=f"d{n:02}",
            title=chance.choice(words),
            content=" ".join(chance.choices(words, k=chance.randint(3, 60))),
        )
        for n in range(80)
    ]
    await store.upsert([Entry(document=each, chunks=[each]) for each in documents])
    await memory.upsert([Entry(document=each, chunks=[each]) for each in documents])
    for text in ("word1 word2", "word7", "word3 word4 word5 word6"):
        query = Query(text=text, leg="text", limit=100)
        got = {hit.document.id: hit.score for hit in await store.search(query)}
        right = {hit.document.id: hit.score for hit in await memory.search(query)}
        assert got.keys() == right.keys()
        apart = [abs(got[id] / right[id] - 1) for id in got]
        assert sum(apart) / len(apart) < 0.1
        assert (
            len({*sorted(got, key=got.__getitem__)[-10:]} & {*sorted(right, key=right.__getitem__)[-10:]})
            >= 8
        )


async def test_c09_field_weights_are_settings() -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["title", "body"]),
        ({"title_weight": 1.0, "body_weight": 3.0}, ["body", "title"]),
        ({"title_weight": 0.0}, ["body"]),
    ]
    for weights, expected in cases:
        async with opened(**weights) as store:
            await store.upsert([entry("title", "x", title="comet"), entry("body", "comet", title="x")])
            assert await ids(store, "comet") == expected


async def test_no_phrase_reaches_from_one_field_into_the_next(store: Postgres) -> None:
    await store.upsert(
        [entry("a", "moon rises", title="full sun", path=("red",)), entry("b", "sun red moon")]
    )
    assert await ids(store, '"sun red"') == ["b"]
    assert await ids(store, '"red moon"') == ["b"]
    assert await ids(store, '"full sun"') == ["a"]


# Words of other languages.


async def test_words_are_those_of_the_configuration_the_settings_name() -> None:
    """German stems and stop words, in titles, in phrases on the leg `text`, in negations on every leg; a stop
    word keeps its place in a phrase.
    """
    near: dict[str, Any] = {"vector": [1.0, 0.0]}
    async with opened(text_search="german") as store:
        await store.upsert(
            [
                entry("houses", "die alten Häuser am Fluss", vector=[1.0, 0.0]),
                entry("tree", "ein Baum", vector=[1.0, 0.1]),
                entry("book", "nichts", title="Bücher", vector=[1.0, 0.2]),
                entry("tokyo", "東京都 Buch", vector=[1.0, 0.3]),
            ]
        )
        assert await ids(store, "Haus") == ["houses"]
        assert await ids(store, "buch") == ["book", "tokyo"]  # the title counts more
        assert await ids(store, "京都") == ["tokyo"]
        assert await ids(store, "die ein") == []
        assert await ids(store, "") == []
        assert await ids(store, '"Haus am Fluß"') == ["houses"]
        assert await ids(store, '"Haus Fluss"') == []
        for leg in store.legs:
            assert (await ids(store, 'Baum Haus -"ein baum"', leg, **near))[:1] == ["houses"]
            assert "tree" not in await ids(store, "baum bücher -bäume", leg, **near)
        assert [
            (f.value, f.count) for f in await store.facets(Query(text='"Häuser"', leg="text"), ["kind"])
        ] == [("document", 1)]
        told = await store.statistics(["Häusern", "die"])
        assert (told.documents, told.frequencies) == (4, {"Häusern": 1, "die": 0})
        for text in HOSTILE[:40]:
            await ids(store, text)


async def test_each_chunk_has_the_words_of_its_language() -> None:
    """Found by its own stems alone, in phrases and negations, too; what another language makes of a word
    finds nothing in it.
    """
    near: dict[str, Any] = {"vector": [1.0, 0.0]}
    async with opened(languages=["fr", "de"]) as store:
        await store.upsert(
            [
                entry("de", "die alten Häuser am Fluss", language="de-AT", vector=[1.0, 0.0]),
                entry("fr", "les vieux journaux", language="FR", vector=[1.0, 0.1]),
                entry("en", "old houses, die, haus, journal", language="en", vector=[1.0, 0.2]),
                entry("none", "houses of the hill, Häuser", vector=[1.0, 0.3]),
            ]
        )
        for text, found in [
            ("Haus", ["de", "en"]),
            ("Häusern", ["de"]),
            ("journal", ["en", "fr"]),
            ("house", ["en", "none"]),
            ("die", ["en"]),
            ("alte", ["de"]),
            ("the of", ["none"]),
            ("vieille vieux", ["fr"]),
        ]:
            assert sorted(await ids(store, text)) == found, text
        assert await ids(store, '"Haus am Fluss"') == ["de"]
        assert await ids(store, '"houses of the hill"') == ["none"]
        for leg in store.legs:
            assert sorted(await ids(store, 'houses haus journal -"häuser am"', leg, **near)) == [
                "en",
                "fr",
                "none",
            ]
        told = await store.statistics(["journal", "Häuser"])
        assert (told.documents, told.frequencies) == (4, {"journal": 2, "Häuser": 2})
        assert [
            (f.value, f.count) for f in await store.facets(Query(text='"journal"', leg="text"), ["kind"])
        ] == [("document", 2)]
        for text in HOSTILE[:40]:
            await ids(store, text)
        said = (
            r"filled with languages = \['de', 'fr'\], the settings have languages = \['de'\]; name the"
            r" former, or run"
        )
        async with opened(schema=store.pool.schema, languages=["de"]) as other:
            with pytest.raises(SourceError, match=said):
                await ids(other, "haus")


def test_languages_and_a_configuration_are_not_given_together_and_are_known() -> None:
    with pytest.raises(
        ValueError, match=r"languages 'tlh' is none that Postgres has words of\. It has: ar, ca, "
    ):
        Postgres(languages=["de", "tlh"])
    with pytest.raises(ValueError, match=r"text_search 'german' and languages \['de'\] are both given"):
        Postgres(text_search="german", languages=["de"])


async def test_every_language_has_its_configuration(store: Postgres) -> None:
    found = {
        row[0]
        for row in await run(
            "SELECT cfgname FROM pg_ts_config WHERE cfgnamespace = 'pg_catalog'::regnamespace"
        )
    }
    assert set(CONFIGURATIONS.values()) <= found


async def test_a_store_has_the_words_of_one_configuration() -> None:
    """Whoever asks it by other words is refused, where words count, until it is filled anew."""
    near: dict[str, Any] = {"vector": [1.0, 0.0]}
    async with opened(text_search="french") as store, opened(schema=store.pool.schema) as other:
        await store.upsert([entry("a", "les journaux", vector=[1.0, 0.0])])
        said = (
            "filled with text_search = 'french', the settings have text_search = ''; name the former, or run"
        )
        for refused in (
            ids(other, "journal"),
            ids(other, '-"les journaux"', "vector", **near),
            other.upsert([entry("b", "x")]),
            other.facets(Query(text="", leg="text"), ["kind"]),
        ):
            with pytest.raises(SourceError, match=said):
                await refused
        assert await ids(other, "journal", "vector", **near) == ["a"]
        assert await ids(store, "journal") == ["a"]
        await other.clear()
        await other.upsert([entry("a", "les journaux")])
        assert await ids(other, "journal") == []
        with pytest.raises(SourceError, match="text_search = '', the settings have text_search = 'french'"):
            await store.upsert([entry("b", "x")])
    async with opened(text_search="klingon", embedder=None) as none:
        with pytest.raises(
            SourceError, match='Postgres refused: text search configuration "klingon" does not exist'
        ):
            await none.upsert([entry("a", "x")])


# Any text may be asked.

HOSTILE = [
    "What's your password policies?",
    "R&D | budget",
    "'",
    '"',
    '""',
    '"unbalanced',
    "a AND",
    "OR OR",
    "NOT x",
    "-",
    "--",
    "- x",
    "NEAR(sun moon)",
    "sun*",
    "sun:*",
    "!sun",
    "sun <-> moon",
    "(sun",
    "sun)",
    "example.com/a:b?x=1",
    "???",
    "👍",
    "the of",
    "sun\x00moon",
    "\ud800",
    "OʼBrien ＇",
    '-"',
    '-"a',
    '"a" OR',
    'OR "a"',
    "\\",
    "\\'",
    "'\\''",
    "%_\\",
    "'; DROP TABLE documents; --",
    "sun " * 2_500,
    " ".join(f"w{n}" for n in range(1_500)),
    " ".join(f"-w{n}" for n in range(1_500)),
    '"sun moon" ' * 900,
    " ".join(f'"a{n} b"' for n in range(900)),
    '"x" OR ' * 1_400,
    "東" * 3_000,
    '"' + "sun " * 2_000 + '"',
    "a" * 10_000,
]


async def test_pg_01_02_05_08_11_no_text_is_a_syntax_error(store: Postgres) -> None:
    await store.upsert(
        [entry("d", "sun with moon", vector=[1.0, 0.0]), entry("e", "other", vector=[0.0, 1.0])]
    )
    for text in HOSTILE:
        found = await ids(store, text)
        assert found in ([], ["d"]), text
        if "-" not in text and '"' not in text and "!" not in text:
            assert found == (["d"] if "sun" in text.lower() else []), text
        assert set(await ids(store, text, "vector", vector=[1.0, 0.0])) <= {"d", "e"}
    assert await ids(store, "moon") == ["d"]


_TEXTS = st.text(max_size=60) | st.text(alphabet="ab \"-*:()^+OR'\\&|!<>", max_size=60)


def test_pg_02_arbitrary_text_is_asked_and_stored() -> None:
    async def ask(store: Postgres, texts: list[str]) -> None:
        for text in texts:
            await store.search(Query(text=text, leg="text"))
            await store.upsert([entry("x", text, title=text, labels=(text,), url=text)])
            assert [found.content for found in await store.fetch(["x"])] == [text]
        assert "sea" in await ids(store, "sea")

    with asyncio.Runner() as runner:
        context = opened(embedder=None)
        store = runner.run(context.__aenter__())
        runner.run(store.upsert([entry("sea", "the sea")]))

        @settings(max_examples=25, deadline=None)
        @given(texts=st.lists(_TEXTS, min_size=1, max_size=8))
        def any_text(texts: list[str]) -> None:
            runner.run(ask(store, texts))

        any_text()
        runner.run(context.__aexit__(None, None, None))


async def test_pg_03_the_same_words_however_parted_find_the_same(store: Postgres) -> None:
    await store.upsert([entry("dog", "dog"), entry("cat", "cat dog"), entry("bird", "bird")])
    found = [
        await store.search(Query(text=text, leg="text"))
        for text in ("dog cat", "dog,cat", "dog, cat", "dog;cat")
    ]
    assert [hit.document.id for hit in found[0]] == ["cat", "dog"]
    assert all(
        [(h.document.id, h.score) for h in each] == [(h.document.id, h.score) for h in found[0]]
        for each in found
    )


async def test_pg_07_stop_words_find_what_holds_them_and_never_everything(store: Postgres) -> None:
    await store.upsert(
        [entry("don", "Don will just sing", vector=[1.0, 0.0]), entry("x", "tides", vector=[1.0, 0.0])]
    )
    for text in ("don", "will", "just", "Don will"):
        assert await ids(store, text) == ["don"]
    for text in ("", "   ", "the", "???", "-don"):
        assert await ids(store, text) == []


async def test_r24_whole_questions_find_what_no_chunk_holds_all_words_of(store: Postgres) -> None:
    await store.upsert(
        [entry("a", "comets have tails of ice"), entry("b", "tides of the sea"), entry("c", "salt pans")]
    )
    assert await ids(store, "Why do comets near the sun, unlike planets, grow long tails?") == ["a"]


async def test_c08_negated_terms_hold_on_every_leg_and_phrases_on_text(store: Postgres) -> None:
    near = {"vector": [1.0, 0.0]}
    await store.upsert(
        [entry("a", "red sun", vector=[1.0, 0.0]), entry("b", "sun of red", vector=[1.0, 0.1])]
    )
    assert await ids(store, 'sun "red sun"') == ["a"]
    for leg in store.legs:
        assert await ids(store, 'sun -"red sun"', leg, **near) == ["b"]
        assert await ids(store, "sun -red", leg, **near) == []


async def test_rare_terms_nominate_and_all_terms_score(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the budget the commonest words find nothing by themselves, and still count for what the rarer
    ones find.
    """
    await store.upsert(
        [entry(f"d{n:02}", "alpha filler" + " rare" * (n in (3, 7)) + " alpha" * (n == 7)) for n in range(20)]
    )
    monkeypatch.setattr(text_leg, "BUDGET", 5)
    assert await ids(store, "alpha rare", limit=20) == ["d07", "d03"]
    assert len(await ids(store, "alpha", limit=20)) == 20


def test_index_terms_are_positions_by_field_and_never_more_than_postgres_takes() -> None:
    terms, length = write.index_terms(Document(title="Sun", path=("the moon",), content="sun suns"))
    assert terms == "'sun':1A,36C,37C 'the':18B 'moon':19B"
    assert length == 4
    many, _ = write.index_terms(Document(content=" ".join(f"w{n}x" for n in range(200_000))))
    assert len(many.encode()) < 2**21
    often, _ = write.index_terms(Document(content="sun " * 1_000))
    assert often.count("C") == 255


async def test_very_long_chunks_are_stored_and_found(store: Postgres) -> None:
    long = " ".join(f"w{n}x" for n in range(150_000))
    await store.upsert(
        [entry("long", f"start {long}"), entry("same", "moon " * 40_000), entry("word", "z" * 100_000)]
    )
    assert await ids(store, "start") == ["long"]
    assert await ids(store, "moon") == ["same"]
    assert await ids(store, "z" * 100_000) == ["word"]


# Scope, period, filters before the limit; vectors.


async def test_acl_02_pg_13_pg_14_pg_25_the_limit_is_filled_from_what_qualifies() -> None:
    """With the approximate index in use, too: it is read on until the limit is full, or all that qualify are
    measured.
    """
    chance = random.Random(3)
    hidden = [
        entry(f"h{n:04}", "plan", vector=[1.0, chance.random() / 9, 0.0], tenant="b") for n in range(500)
    ]
    seen = [
        entry(f"s{n}", "plan and more", vector=[0.0, 0.5, 1.0], tenant="a", compartment="hr")
        for n in range(30)
    ]
    async with opened(exact_below=0, ef_search=10) as store:
        await store.upsert([*hidden, *seen])
        scope = Scope(tenant="a", compartments=frozenset({"hr"}))
        for leg in store.legs:
            query: dict[str, Any] = {"vector": [1.0, 0.0, 0.0], "limit": 20}
            assert len(await ids(store, "plan", leg, scope=scope, **query)) == 20
            assert len(await ids(store, "plan", leg, filters={"kind": "document"}, **query)) == 20
            assert await ids(store, "plan", leg, scope=Scope(tenant="a"), **query) == []
            assert await ids(store, "plan", leg, scope=Scope(), **query) == []


async def test_approximate_search_finds_nearly_what_the_exact_one_finds() -> None:
    chance = random.Random(7)
    rows = [entry(f"d{n:03}", "x", vector=[chance.gauss(0, 1) for _ in range(8)]) for n in range(400)]
    asked = [[chance.gauss(0, 1) for _ in range(8)] for _ in range(20)]
    found: dict[str, list[set[str]]] = {}
    forms: dict[str, dict[str, Any]] = {
        "exact": {},
        "hnsw": {"exact_below": 0},
        "half": {"exact_below": 0, "precision": "halfvec"},
    }
    for name, keywords in forms.items():
        async with opened(**keywords) as store:
            await store.upsert(rows)
            found[name] = [set(await ids(store, "", "vector", vector=vector, limit=10)) for vector in asked]
    for name in ("hnsw", "half"):
        shared = sum(len(a & b) for a, b in zip(found["exact"], found[name], strict=True))
        assert shared >= 0.95 * 200, name


async def test_pg_26_the_vector_index_is_used_and_ordered_by_the_bare_operator(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of the very statement that the store sends reads the HNSW index, also where sorting all would
    seem as cheap.
    """
    chance = random.Random(1)
    await store.upsert(
        [entry(f"d{n:04}", "x", vector=[chance.gauss(0, 1) for _ in range(8)]) for n in range(300)]
    )
    await run(f'ANALYZE "{store.pool.schema}".chunks')
    plans: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def explained(connection: Any, sql: str, *values: Any) -> Any:
        if "<=>" in sql:
            plans.append("\n".join(row[0] for row in await fetch(connection, f"EXPLAIN {sql}", *values)))
        return await fetch(connection, sql, *values)

    monkeypatch.setattr(asyncpg.Connection, "fetch", explained)
    async with opened(schema=store.pool.schema, exact_below=0) as fast:
        assert len(await ids(fast, "", "vector", vector=[1.0] * 8, limit=10)) == 10
        assert len(await ids(fast, "", "keywords", vector=[1.0] * 8, limit=10)) == 10
    assert len(plans) == 2
    for leg, plan in zip(("vector", "keywords"), plans, strict=True):
        assert f"Index Scan using chunks_{leg}_near" in plan


async def test_vector_hits_carry_their_unit_vector_and_cosine(store: Postgres) -> None:
    await store.upsert(
        [entry("a", "x", vector=[3.0, 4.0]), entry("b", "y", vector=[0.0, 2.0]), entry("c", "z")]
    )
    first, second = await store.search(Query(text="", leg="vector", vector=[0.0, 1.0]))
    assert (first.document.id, first.score, second.document.id, second.score) == ("b", 1.0, "a", 0.8)
    assert second.vector is not None
    assert [round(float(v), 6) for v in second.vector] == [0.6, 0.8]
    (by_word,) = await store.search(Query(text="x", leg="text"))
    assert by_word.vector is not None
    assert [round(float(v), 6) for v in by_word.vector] == [0.6, 0.8]
    assert [hit.vector for hit in await store.search(Query(text="z", leg="text"))] == [None]


async def test_r12_chunks_without_keywords_are_absent_from_that_leg_alone(store: Postgres) -> None:
    whole = Document(id="d", content="x")
    await store.upsert(
        [Entry(document=whole, chunks=[whole], vectors={"vector": [[1.0, 0.0]], "keywords": [None]})]
    )
    assert await ids(store, "", "vector", vector=[1.0, 0.0]) == ["d"]
    assert await ids(store, "", "keywords", vector=[1.0, 0.0]) == []


async def test_ties_go_by_id_whatever_the_order_of_writing(store: Postgres) -> None:
    for id in ("c", "e", "a", "d", "b"):
        await store.upsert([entry(id, "x", vector=[1.0, 1.0])])
    assert await ids(store, "", "vector", vector=[1.0, 0.0], limit=3) == ["a", "b", "c"]
    assert await ids(store, "x", limit=3) == ["a", "b", "c"]


async def test_pg_21_a_query_vector_of_another_length_is_refused_with_both_numbers(store: Postgres) -> None:
    await store.upsert([entry("a", "x", vector=[1.0, 0.0])])
    with pytest.raises(SourceError, match="3 dimensions, the store's have 2; use the embedder"):
        await store.search(Query(text="x", leg="vector", vector=[1.0, 0.0, 0.0]))
    with pytest.raises(SourceError, match="needs a query vector"):
        await store.search(Query(text="x", leg="keywords"))
    with pytest.raises(SourceError, match="not finite"):
        await store.search(Query(text="x", leg="vector", vector=[float("nan"), 0.0]))


async def test_pg_19_pg_20_another_model_is_refused_by_name_with_the_remedy(store: Postgres) -> None:
    await store.embedded_by("static-1", 2)
    await store.upsert([entry("a", "x", vector=[1.0, 0.0])])
    other = Postgres(dsn=store.pool.dsn, schema=store.pool.schema)
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


async def test_vectors_of_two_lengths_are_refused_and_nothing_is_stored(store: Postgres) -> None:
    with pytest.raises(IngestError, match="'b' has a vector of 3 dimensions, others have 2"):
        await store.upsert([entry("a", "x", vector=[1.0, 0.0]), entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert await store.fingerprints() == {}


# Documents in and out.


async def test_everything_of_a_document_comes_back(store: Postgres) -> None:
    moment = datetime(2024, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
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
        updated_at=moment,
        synced_at=datetime(2024, 1, 1),
        keywords=("k",),
        labels=("l",),
        links=("e",),
        metadata={"a": [1, {"b": None}]},
    )
    await store.upsert([Entry(document=document, chunks=[document])])
    assert await store.fetch(["d"]) == [document]
    assert [h.document for h in await store.search(Query(text="quotes", leg="text"))] == [document]


async def test_a_whole_document_and_its_chunks_are_fetched_by_their_ids_in_the_order_asked(
    store: Postgres,
) -> None:
    whole = Document(id="w", content="one two", tenant="a")
    parts = [Document(id="w#0", content="one"), Document(id="w#1", content="two")]
    await store.upsert([Entry(document=whole, chunks=parts), entry("x", "other", tenant="b")])
    scope = Scope(tenant="a")
    assert [d.content for d in await store.fetch(["w#1", "x", "w", "none", "w#0"], scope)] == [
        "two",
        "one two",
        "one",
    ]
    assert [d.content for d in await store.fetch(["x", "w"])] == ["other", "one two"]


async def test_neighbours_are_counted_both_ways_by_id_and_by_url(store: Postgres) -> None:
    await store.upsert(
        [
            entry("hub", "hub", url="http://h", links=("a", "http://b")),
            entry("a", "a", links=("hub",)),
            entry("b", "b", url="http://b"),
            entry("c", "c", links=("http://h",)),
            entry("far", "far", tenant="other", links=("hub",)),
        ]
    )
    found: list[Hit] = list(await store.neighbours(["hub"], 10))
    assert [(hit.document.id, hit.score) for hit in found] == [("a", 2.0), ("b", 1.0), ("c", 1.0)]
    assert [hit.document.id for hit in await store.neighbours(["hub"], 1)] == ["a"]


async def test_facets_count_documents_before_any_limit(store: Postgres) -> None:
    parts = [Document(id=f"w#{n}", content="sun", kind="book") for n in range(3)]
    await store.upsert([Entry(document=Document(id="w", content="sun"), chunks=parts)])
    await store.upsert(
        [
            entry(f"d{n}", "sun moon", kind="web", labels=("x",), metadata={"year": 2020 + n % 2})
            for n in range(5)
        ]
    )
    facets = await store.facets(Query(text="sun", leg="text", limit=1), ["kind", "year", "labels"])
    assert [(f.dimension, f.value, f.count) for f in facets] == [
        ("kind", "web", 5),
        ("kind", "book", 1),
        ("year", "2020", 3),
        ("year", "2021", 2),
        ("labels", "x", 5),
    ]
    assert [f.count for f in await store.facets(Query(text="sun -moon", leg="text"), ["kind"])] == [1]


async def test_of_an_entry_that_fails_nothing_of_its_batch_is_stored(store: Postgres) -> None:
    await store.upsert([entry("a", "old")])
    with pytest.raises(IngestError, match="NUL"):
        await store.upsert([entry("a", "new"), entry("b\x00", "x")])
    with pytest.raises(IngestError, match="without an id"):
        await store.upsert([entry("", "x")])
    assert [d.content for d in await store.fetch(["a"])] == ["old"]


async def test_writers_of_the_same_documents_end_with_one_of_each(store: Postgres) -> None:
    """Eight at once, each in another order: no deadlock, no duplicate, and counts that are those of the
    rows.
    """

    async def write(number: int) -> None:
        order = random.Random(number).sample(range(20), 20)
        await store.upsert(
            [entry(f"d{n:02}", f"word{number} all", vector=[1.0, float(number)]) for n in order]
        )

    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(write(number))
    assert sorted(await ids(store, "all", limit=100)) == [f"d{n:02}" for n in range(20)]
    (row,) = await run(f'SELECT chunks, length FROM "{store.pool.schema}".counts WHERE chunks > 0')
    assert tuple(row) == (20, 40)


async def test_sec_a_deadline_that_passed_is_a_timeout(store: Postgres) -> None:
    await store.upsert([entry("a", "x")])
    with pytest.raises(SourceTimeout):
        await store.search(Query(text="x", leg="text", deadline=0.0))


async def test_facts_go_with_their_document_in_one_transaction(store: Postgres) -> None:
    fact = Fact(subject="A", predicate="is", object="B")
    document = Document(id="d", content="x", tenant="t", compartment="hr")
    await store.upsert([Entry(document=document, chunks=[document], facts=[fact])])
    (row,) = await run(f'SELECT tenant, compartment FROM "{store.pool.schema}".facts')
    assert tuple(row) == ("t", "hr")
    await store.delete(["d"], "t")
    assert await run(f'SELECT * FROM "{store.pool.schema}".facts') == []


def test_saturation_is_that_of_bm25_for_a_term_that_occurs_once() -> None:
    weights, factor = text_leg.rank_weights(3.0, 2.0, 1.0)
    once = [weight * factor * text_leg._FIRST for weight in weights]
    assert once == pytest.approx([0.0, *(bm25.saturation(weight, 1.0) for weight in (1.0, 2.0, 3.0))])


async def test_it_gives_back_the_vectors_it_holds_unless_another_model_is_asked_for(store: Postgres) -> None:
    document = Document(id="d", content="text")
    vectors = {"vector": [[0.6, 0.8]], "keywords": [None]}
    await store.embedded_by("model-1", 2)
    await store.upsert(
        [
            Entry(
                document=document,
                chunks=[document.replace(id="c", parent="d")],
                vectors=vectors,
                fingerprint="f",
            )
        ]
    )
    ((chunk, held),) = await store.embedded(["d"], None, "model-1")
    assert (chunk.id, {leg: list(vector) for leg, vector in held.items()}) == (
        "c",
        {"vector": pytest.approx([0.6, 0.8])},
    )
    assert await store.embedded(["d"], None, "model-2") == []
    assert await store.embedded(["d"], "other", "model-1") == []
