"""What only the store in Postgres does: text search configurations, HNSW indexes, transactions, on a real
server.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.postgres_server import note_plans, open_store, run
from support.stores import entry, ids
from support.texts import HOSTILE

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres, entity_vectors, text_leg, write
from contextrouter.builtin.providers.postgres.text_configurations import CONFIGURATIONS
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError, SourceError, SourceTimeout
from contextrouter.model import Document, Fact, Query
from contextrouter.scope import Scope
from contextrouter.text import bm25


@pytest.fixture
async def store() -> AsyncIterator[Postgres]:
    async with open_store() as store:
        yield store


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


# Scores.


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
    async with open_store(text_search="german") as store:
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
    async with open_store(languages=["fr", "de"]) as store:
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
        async with open_store(schema=store.pool.schema, languages=["de"]) as other:
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
    async with open_store(text_search="french") as store, open_store(schema=store.pool.schema) as other:
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
    async with open_store(text_search="klingon", embedder=None) as none:
        with pytest.raises(
            SourceError, match='Postgres refused: text search configuration "klingon" does not exist'
        ):
            await none.upsert([entry("a", "x")])


# Words.


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


# Vectors.


@pytest.mark.case("ACL-02", "PG-13", "PG-14", "PG-25")
async def test_approximate_search_fills_the_limit_from_what_qualifies() -> None:
    """The index is read on until the limit is full, or all that qualify are
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
    async with open_store(exact_below=0, ef_search=10) as store:
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
        async with open_store(**keywords) as store:
            await store.upsert(rows)
            found[name] = [set(await ids(store, "", "vector", vector=vector, limit=10)) for vector in asked]
    for name in ("hnsw", "half"):
        shared = sum(len(a & b) for a, b in zip(found["exact"], found[name], strict=True))
        assert shared >= 0.95 * 200, name


@pytest.mark.case("PG-26")
async def test_the_vector_index_is_used_and_ordered_by_the_bare_operator(
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
    plans = note_plans(monkeypatch, "<=>")
    async with open_store(schema=store.pool.schema, exact_below=0) as fast:
        assert len(await ids(fast, "", "vector", vector=[1.0] * 8, limit=10)) == 10
        assert len(await ids(fast, "", "keywords", vector=[1.0] * 8, limit=10)) == 10
    assert len(plans) == 2
    for leg, plan in zip(("vector", "keywords"), plans, strict=True):
        assert f"Index Scan using chunks_{leg}_near" in plan


async def test_vectors_of_two_lengths_are_refused_and_nothing_is_stored(store: Postgres) -> None:
    with pytest.raises(IngestError, match="'b' has a vector of 3 dimensions, others have 2"):
        await store.upsert([entry("a", "x", vector=[1.0, 0.0]), entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert await store.fingerprints() == {}


# Documents in and out.


async def test_of_an_entry_that_fails_nothing_of_its_batch_is_stored(store: Postgres) -> None:
    await store.upsert([entry("a", "old")])
    with pytest.raises(IngestError, match="NUL"):
        await store.upsert([entry("a", "new"), entry("b\x00", "x")])
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


async def test_facts_that_change_while_their_entities_get_vectors_leave_no_old_ones(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change begins when the texts are known, and comes before the vectors or after them, never between."""

    def named(alias: str) -> Entry:
        document = Document(id="a", content="a")
        fact = Fact(subject="Ada", predicate="called", object=alias)
        return Entry(document=document, chunks=[document], vectors={"vector": [[1.0, 0.0]]}, facts=[fact])

    await store.embedded_by("one", 2)
    await store.upsert([named("countess")])
    look, writing = entity_vectors.without_vectors, asyncio.Event()
    waits = "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%:entities%'"

    async def change() -> None:
        await writing.wait()
        await store.upsert([named("baroness")])

    changing = asyncio.create_task(change())

    async def look_slowly(connection: Any, limit: int, suffix: str) -> Any:
        found = await look(connection, limit, suffix)
        if limit > 1:  # not the look at whether there is anything to do
            writing.set()
            while not changing.done() and not await run(waits):  # noqa: ASYNC110 - of the server
                await asyncio.sleep(0.01)
        return found

    texts = await store.entity_texts()
    assert texts == ["Ada", "countess"]
    monkeypatch.setattr(entity_vectors, "without_vectors", look_slowly)
    assert await store.embed_entities({text: [1.0, 0.0] for text in texts}) == 2
    await changing
    monkeypatch.undo()
    assert await store.entity_texts() == ["Ada", "baroness"]


async def test_the_next_entities_without_vectors_are_the_same_ones_by_every_plan(store: Postgres) -> None:
    """Or the texts of some are embedded, and the vectors of others are waited for."""
    document = Document(id="a", content="a")
    facts = [Fact(subject=f"Ada {number}", predicate="is", object="here") for number in range(200)]
    await store.upsert([Entry(document=document, chunks=[document], facts=facts)])
    pages = []
    for plan in ("enable_sort", "enable_hashagg"):
        async with store.pool.transaction() as connection:
            await connection.execute(f"SET LOCAL {plan} = off")
            pages.append({entity.key for entity in await entity_vectors.without_vectors(connection, 20, "")})
    assert pages[0] == pages[1]
    assert len(pages[0]) == 21
