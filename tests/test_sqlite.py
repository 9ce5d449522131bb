"""The store in one SQLite file: the same answers as the store in memory, and what only a file can do."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite, text_leg
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


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Sqlite]:
    store = Sqlite(path=str(tmp_path / "store.db"))
    await store.open()
    yield store
    await store.aclose()


def _entry(id: str, content: str, *, vector: Sequence[float] | None = None, **fields: Any) -> Entry:
    document = Document(id=id, content=content, **fields)
    return Entry(
        document=document,
        chunks=[document],
        vectors={"vector": [vector], "keywords": [vector]} if vector else {},
    )


async def _ids(store: Sqlite | Memory, text: str, leg: str = "text", **query: Any) -> list[str]:
    return [hit.document.id for hit in await store.search(Query(text=text, leg=leg, **query))]


def test_it_has_the_abilities_it_claims(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "x.db"))
    abilities = (
        SupportsUpsert,
        SupportsFetch,
        SupportsVersion,
        SupportsStatistics,
        SupportsNeighbours,
        SupportsFacets,
    )
    assert [ability for ability in abilities if not isinstance(store, ability)] == []
    assert not list(tmp_path.iterdir())


# The same answers as in memory.

_WORDS = ["sun", "suns", "moon", "the", "東京都", "京都", "Café", "cafe", "O'Brien", "tide"]
_TENANTS = st.sampled_from([None, "a", "b", SHARED, ""])
_DOCUMENTS = st.builds(
    Document,
    content=st.lists(st.sampled_from(_WORDS), max_size=6).map(" ".join),
    title=st.lists(st.sampled_from(_WORDS), max_size=2).map(" ".join),
    path=st.lists(st.sampled_from(_WORDS), max_size=2).map(tuple),
    kind=st.sampled_from(["book", "web"]),
    tenant=_TENANTS,
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
_FILTERS = st.sampled_from(
    [
        {},
        {"year": 2024},
        {"tags": ["q", "z"]},
        {"kind": "book"},
        {"kind": ["note", "web"]},
        {"done": 1},
        {"no": 1},
    ]
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
    limit=st.integers(0, 4),
    vector=st.sampled_from([[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]]),
    labels=st.sampled_from([(), ("x",), ("x", "y")]),
    period=st.sampled_from(
        [None, Period(), Period(end=date(2024, 3, 31)), Period(start=date(2024, 4, 1), zone="Europe/Berlin")]
    ),
    scope=_SCOPES,
    filters=_FILTERS,
)
_VECTORS = st.sampled_from([None, [1.0, 0.0], [3.0, 3.0], [-1.0, 0.5], [0.0, 0.0]])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=st.lists(st.tuples(_DOCUMENTS, _VECTORS), min_size=1, max_size=8),
    removed=st.sets(st.integers(0, 7)),
    queries=st.lists(_QUERIES, min_size=1, max_size=8),
)
def test_it_answers_as_the_store_in_memory(
    tmp_path: Path,
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

    async def compare() -> None:
        file, memory = Sqlite(path=str(tmp_path / f"{time.monotonic_ns()}.db")), Memory(embedder="default")
        await file.open()
        for one in (file, memory):
            await one.upsert(entries)
        for stage in (set(), removed):
            for entry in entries:
                if int(entry.document.id[1:]) in stage:
                    for one in (file, memory):
                        await one.delete([entry.document.id], entry.document.tenant)
            for query in queries:
                got, right = await file.search(query), await memory.search(query)
                assert [(h.document, h.score) for h in got] == [(h.document, h.score) for h in right]
            for scope in (None, *[query.scope for query in queries]):
                assert await file.statistics(_WORDS, scope) == await memory.statistics(_WORDS, scope)
        await file.aclose()

    asyncio.run(compare())


async def test_c09_field_weights_are_settings(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "title"),
        ({"title_weight": 1.0, "body_weight": 3.0}, "body"),
        ({"title_weight": 0}, "body"),
    ]
    for weights, first in cases:
        store = Sqlite(path=str(tmp_path / "store.db"), **weights)
        await store.open()
        await store.upsert([_entry("title", "x", title="comet"), _entry("body", "comet", title="x")])
        assert (await _ids(store, "comet"))[0] == first
        await store.aclose()
    await store.open()
    assert await _ids(store, "comet") == ["body"]  # a field without weight finds nothing
    await store.aclose()


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
    "^sun",
    "title:sun",
    "body : sun",
    "{title body}:sun",
    "(sun",
    "sun)",
    "a:b?x=1",
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
    "+sun",
    "sun + moon",
    "𝕊𝕦𝕟",
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
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("leg", ["text", "vector"])
async def test_pg_01_02_05_08_11_asy_11_no_text_is_a_syntax_error(store: Sqlite, text: str, leg: str) -> None:
    await store.upsert([_entry("d", "sun with moon", vector=[1.0, 0.0])])
    found = await _ids(store, text, leg, vector=[1.0, 0.0])
    assert found in ([], ["d"])
    if "-" not in text and '"' not in text:
        assert found == (["d"] if leg == "vector" or "sun" in text.lower() or text == "𝕊𝕦𝕟" else [])
    assert await _ids(store, "moon") == ["d"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60) | st.text(alphabet="ab \"-*:()^+OR'", max_size=60))
def test_pg_02_arbitrary_text_is_asked_and_stored(text: str) -> None:
    async def ask(one: Sqlite) -> None:
        await one.open()
        await one.search(Query(text=text, leg="text"))
        if text.isprintable():
            await one.upsert([_entry("x", text)])
            await one.delete(["x"])
        assert await _ids(one, "sea") == ["tides"]
        await one.aclose()

    asyncio.run(ask(Sqlite.example()))


async def test_of_many_words_the_commonest_are_left_out_beyond_twice_the_chunks(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_leg, "POSTINGS", 0)
    await store.upsert([_entry(f"d{n:02}", "alpha beta gamma" + " rare" * (n == 7)) for n in range(20)])

    async def score(text: str) -> float | None:
        return (await store.search(Query(text=text, leg="text")))[0].score

    few, two = await score("alpha beta gamma rare"), await score("alpha rare")
    assert few is not None
    assert two is not None
    assert few > two  # 61 postings, but few words: all are read
    monkeypatch.setattr(text_leg, "FEW", 3)
    assert await score("alpha beta gamma rare") == two  # 1 + 20 of at most 40; 1 + 20 + 20 is more
    assert len(await _ids(store, "alpha beta gamma rare")) == 20
    assert len(await _ids(store, "alpha")) == 20


# Scope, period, filters before the limit.


async def test_acl_02_pg_13_pg_25_the_limit_is_filled_from_what_qualifies(store: Sqlite) -> None:
    hidden = [_entry(f"h{n:03}", "plan plan plan", vector=[1.0, 0.0], tenant="b") for n in range(300)]
    seen = [
        _entry(f"s{n}", "plan and more words", vector=[0.5, 0.5], tenant="a", compartment="hr")
        for n in range(5)
    ]
    await store.upsert([*hidden, *seen])
    for leg in store.legs:
        query = {"vector": [1.0, 0.0], "limit": 5}
        assert await _ids(
            store, "plan", leg, scope=Scope(tenant="a", compartments=frozenset({"hr"})), **query
        ) == ["s0", "s1", "s2", "s3", "s4"]
        assert await _ids(store, "plan", leg, scope=Scope(tenant="a"), **query) == []
        assert await _ids(store, "plan", leg, scope=Scope(), **query) == []
        assert len(await _ids(store, "plan", leg, **query)) == 5


async def test_labels_an_entry_lacks_on_its_chunks_come_from_its_document(store: Sqlite) -> None:
    document = Document(id="d", content="secret plan", tenant="a", sensitivity="restricted")
    await store.upsert([Entry(document=document, chunks=[Document(content="secret plan")])])
    assert await _ids(store, "plan", scope=Scope(tenant="a")) == []
    (hit,) = await store.search(Query(text="plan", leg="text", scope=Scope(tenant="a", ceiling="restricted")))
    assert (hit.document.id, hit.document.parent, hit.document.sensitivity) == ("d#0", "d", "restricted")


# Vectors.


async def test_vector_hits_carry_their_unit_vector_and_cosine(store: Sqlite) -> None:
    await store.upsert(
        [_entry("a", "x", vector=[3.0, 4.0]), _entry("b", "y", vector=[0.0, 2.0]), _entry("c", "z")]
    )
    first, second = await store.search(Query(text="", leg="vector", vector=[0.0, 1.0]))
    assert (first.document.id, first.score, second.document.id, second.score) == ("b", 1.0, "a", 0.8)
    assert second.vector is not None
    assert [round(float(v), 6) for v in second.vector] == [0.6, 0.8]
    (by_word,) = await store.search(Query(text="x", leg="text"))
    assert by_word.vector is not None
    assert [round(float(v), 6) for v in by_word.vector] == [0.6, 0.8]
    assert [hit.vector for hit in await store.search(Query(text="z", leg="text"))] == [None]


async def test_ties_in_vectors_go_by_id_whatever_the_order_of_writing(store: Sqlite) -> None:
    for id in ("c", "e", "a", "d", "b"):
        await store.upsert([_entry(id, "x", vector=[1.0, 1.0])])
    assert await _ids(store, "", "vector", vector=[1.0, 0.0], limit=3) == ["a", "b", "c"]
    assert await _ids(store, "x", limit=3) == ["a", "b", "c"]


async def test_the_matrix_follows_upserts_deletes_and_other_instances(store: Sqlite) -> None:
    other = Sqlite(path=store.path)
    await other.open()
    near: dict[str, Any] = {"leg": "vector", "vector": [1.0, 0.0]}
    await store.upsert([_entry("a", "x", vector=[1.0, 0.0])])
    assert await _ids(store, "", **near) == ["a"]
    await other.upsert([_entry("b", "x", vector=[0.9, 0.1])])
    assert await _ids(store, "", **near) == ["a", "b"]
    await other.upsert([_entry("a", "x", vector=[0.0, 1.0])])
    assert await _ids(store, "", **near) == ["b", "a"]
    await other.delete(["b"])
    assert await _ids(store, "", **near) == ["a"]
    await other.clear()
    await other.upsert([_entry("c", "x", vector=[1.0, 0.0, 0.0])])
    assert await _ids(store, "", leg="vector", vector=[1.0, 0.0, 0.0]) == ["c"]
    await other.aclose()


async def test_concurrent_searches_during_writes_see_whole_generations(store: Sqlite) -> None:
    await store.upsert([_entry(f"d{n}", "x", vector=[1.0, float(n)]) for n in range(20)])

    async def read() -> None:
        for _ in range(30):
            assert len(await _ids(store, "", "vector", vector=[1.0, 0.0], limit=50)) == 20
            assert len(await _ids(store, "x", limit=50)) == 20

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(read())
        for _ in range(30):
            await store.upsert([_entry(f"d{n}", "x", vector=[1.0, float(n)]) for n in range(20)])


async def test_pg_21_a_query_vector_of_another_length_is_refused_with_both_numbers(store: Sqlite) -> None:
    await store.upsert([_entry("a", "x", vector=[1.0, 0.0])])
    with pytest.raises(SourceError, match="3 dimensions, the store's have 2; use the embedder"):
        await store.search(Query(text="x", leg="vector", vector=[1.0, 0.0, 0.0]))
    with pytest.raises(SourceError, match="needs a query vector"):
        await store.search(Query(text="x", leg="keywords"))
    with pytest.raises(SourceError, match="not finite"):
        await store.search(Query(text="x", leg="vector", vector=[float("nan"), 0.0]))


async def test_pg_19_pg_20_another_model_is_refused_by_name_with_the_remedy(store: Sqlite) -> None:
    await store.embedded_by("static-1", 2)
    await store.upsert([_entry("a", "x", vector=[1.0, 0.0])])
    other = Sqlite(path=store.path)
    await other.open()
    for model, size in (("static-2", 2), ("static-1", 3)):
        with pytest.raises(
            SourceError, match=f"model 'static-1' with 2 dimensions.*'{model}' with {size}.*ingest --rebuild"
        ):
            await other.embedded_by(model, size)
    with pytest.raises(SourceError, match="static-1"):
        await other.search(Query(text="x", leg="vector", vector=[1.0, 0.0, 0.0]))
    with pytest.raises(SourceError, match="static-1"):
        await other.upsert([_entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert await _ids(other, "x") == ["a"]  # texts do not depend on the model
    await other.clear()
    await other.upsert([_entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert await _ids(other, "x", "vector", vector=[1.0, 0.0, 0.0]) == ["b"]
    await other.aclose()


async def test_vectors_of_two_lengths_are_refused(store: Sqlite) -> None:
    with pytest.raises(SourceError, match=r"with 2 dimensions.*with 3"):
        await store.upsert([_entry("a", "x", vector=[1.0, 0.0]), _entry("b", "x", vector=[1.0, 0.0, 0.0])])
    assert (await store.stats())["documents"] == 0


# Documents in and out.


async def test_everything_of_a_document_comes_back(store: Sqlite) -> None:
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


async def test_ing_04_chunks_are_all_stored_and_replaced_whole(store: Sqlite) -> None:
    document = Document(id="d", content="one two three four five")
    chunks = [Document(content=word) for word in document.content.split()]
    fact = Fact(subject="One", predicate="precedes", object="Two")
    await store.upsert([Entry(document=document, chunks=chunks, facts=[fact], fingerprint="1")])
    assert [await _ids(store, word) for word in ("one", "five")] == [["d#0"], ["d#4"]]
    before = await store.stats()
    await store.upsert([Entry(document=document, chunks=chunks, facts=[fact], fingerprint="1")])
    after = await store.stats()
    counts = ("documents", "chunks", "facts")
    assert [before[key] for key in counts] == [after[key] for key in counts] == [1, 5, 1]
    await store.upsert([Entry(document=document, chunks=chunks[:2], fingerprint="2")])
    assert await _ids(store, "five") == []
    assert [(await store.stats())[key] for key in counts] == [1, 2, 0]
    assert await store.fingerprints() == {"d": "2"}
    assert [d.content for d in await store.fetch(["d#1", "none", "d"])] == ["two", document.content]


async def test_gra_12_nothing_of_a_deleted_document_is_left(store: Sqlite) -> None:
    fact = Fact(subject="a", predicate="b", object="c")
    document = Document(id="d", content="sun", links=("e",), metadata={"k": "v"})
    await store.upsert(
        [Entry(document=document, chunks=[document], vectors={"vector": [[1.0]]}, facts=[fact])]
    )
    assert await store.delete(["d", "d", "unknown"]) == 1
    await store.vacuum()
    await store.aclose()
    connection = sqlite3.connect(store.path)
    tables = (
        "documents",
        "chunks",
        "texts",
        "vectors",
        "filters",
        "filter_values",
        "links",
        "facts",
        "vocabulary",
    )
    assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables] == [
        0
    ] * len(tables)
    assert connection.execute("SELECT value FROM meta WHERE key IN ('chunks', 'length')").fetchall() == [
        (0,),
        (0,),
    ]
    connection.close()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (Entry(document=Document(content="x"), chunks=[]), "without an id"),
        (_entry("d", "lone \ud800 surrogate"), "'d' holds a lone surrogate.*errors='replace'"),
        (
            Entry(document=Document(id="d", content="x"), chunks=[], vectors={"vector": [[1.0]]}),
            "'d' has 1 vectors for 0 chunks",
        ),
        (
            Entry(
                document=Document(id="d", content="x"),
                chunks=[Document(content="")],
                vectors={"image": [None]},
            ),
            "leg 'image'",
        ),
        (_entry("d", "x", vector=[float("inf")]), "'d' has a vector with values that are not finite"),
        (_entry("d", "x", vector=[[1.0], [2.0]]), r"'d' has a vector of shape \(2, 1\)"),  # type: ignore[list-item]  # a wrong type on purpose
    ],
)
async def test_one_bad_entry_is_named_and_its_batch_changes_nothing(
    store: Sqlite, entry: Entry, said: str
) -> None:
    await store.upsert([_entry("before", "sun")])
    version = await store.version()
    with pytest.raises(IngestError, match=said):
        await store.upsert([_entry("fine", "sun"), entry])
    assert await store.version() == version
    assert await _ids(store, "sun") == ["before"]


async def test_fetch_sees_only_what_the_scope_allows(store: Sqlite) -> None:
    await store.upsert(
        [
            _entry("d", "of a", tenant="a"),
            _entry("d", "of b", tenant="b"),
            _entry("e", "shared", tenant=SHARED),
        ]
    )
    assert [d.content for d in await store.fetch(["d", "e"], Scope(tenant="a"))] == ["of a", "shared"]
    assert [d.content for d in await store.fetch(["d", "e"], Scope())] == ["shared"]
    assert [d.content for d in await store.fetch(["e", "d"])] == ["shared", "of a", "of b"]


async def test_k23_neighbours_are_linked_by_id_or_url_either_way_strongest_first(store: Sqlite) -> None:
    entries = [
        _entry("hub", "hub", links=("one", "http://x/two", "both", "missing"), url="http://x/hub"),
        _entry("one", "1"),
        _entry("two", "2", url="http://x/two"),
        _entry("both", "b", links=("http://x/hub",)),
        _entry("back", "back", links=("hub",)),
        _entry("far", "far", links=("one",)),
        _entry("hid", "h", links=("hub",), tenant="t"),
    ]
    await store.upsert(entries)
    hits = await store.neighbours(["hub"], 10)
    assert [(hit.document.id, hit.score) for hit in hits] == [
        ("both", 2.0),
        ("back", 1.0),
        ("one", 1.0),
        ("two", 1.0),
    ]
    assert [hit.document.id for hit in await store.neighbours(["hub"], 2)] == ["both", "back"]
    assert [hit.document.id for hit in await store.neighbours(["hub", "one"], 9)] == [
        "both",
        "back",
        "far",
        "two",
    ]
    assert await store.neighbours(["hub"], 10, Scope(tenant="t")) == []
    assert await store.neighbours(["unknown"], 10) == []


async def test_neighbours_of_a_chunk_are_those_of_its_document(store: Sqlite) -> None:
    document = Document(id="d", content="a b", links=("e",))
    await store.upsert(
        [Entry(document=document, chunks=[Document(content="a"), Document(content="b")]), _entry("e", "c")]
    )
    assert [hit.document.id for hit in await store.neighbours(["d#1"], 5)] == ["e"]
    assert [hit.document.id for hit in await store.neighbours(["e"], 5)] == ["d#0"]


async def test_m09_facets_count_documents_over_the_period_before_any_limit(store: Sqlite) -> None:
    day = datetime(2024, 3, 1, tzinfo=UTC)
    await store.upsert(
        [
            _entry(
                f"d{n}", "note", labels=labels, updated_at=day + timedelta(days=n), metadata={"year": 2024}
            )
            for n, labels in enumerate([("work",), ("work", "home")] * 20)
        ]
    )
    query = Query(
        text="what happened?",
        leg="text",
        limit=1,
        period=Period(start=date(2024, 3, 1), end=date(2024, 3, 10)),
    )
    found = await store.facets(query, ["labels", "year", "nothing"])
    assert [(f.dimension, f.value, f.count) for f in found] == [
        ("labels", "work", 10),
        ("labels", "home", 5),
        ("year", "2024", 10),
    ]


async def test_gra_01_naive_datetimes_are_utc(store: Sqlite) -> None:
    await store.upsert(
        [
            _entry("a", "x", updated_at=datetime(2024, 3, 31, 23)),
            _entry("b", "x", updated_at=datetime(2024, 4, 1)),
        ]
    )
    assert await _ids(store, "x", period=Period(end=date(2024, 3, 31))) == ["a"]
    assert await _ids(store, "x", period=Period(start=date(2024, 4, 1), zone="Europe/Berlin")) == ["a", "b"]


# The file.


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"path": ""}, "path '' is no file name"),
        ({"path": ":memory:"}, "provider 'memory'"),
        ({"path": "a\0b"}, "no file name"),
        ({"path": "x", "title_weight": -1.0}, "title_weight -1.0"),
        ({"path": "x", "body_weight": float("nan")}, "body_weight nan"),
        ({"path": "x", "title_weight": 0, "path_weight": 0, "body_weight": 0}, "all 0"),
        ({"path": "x", "busy_timeout": -1}, "busy_timeout -1"),
        ({"path": "x", "threads": 0}, "threads 0.*1 to 64"),
    ],
)
def test_settings_out_of_range_are_refused(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sqlite(**keywords)


async def test_no_embedder_means_the_text_leg_alone(tmp_path: Path) -> None:
    for none in ("", None):
        store = Sqlite(path=str(tmp_path / "x.db"), embedder=none)
        assert (store.legs, store.vector_legs, store.embedder) == (("text",), (), None)
    await store.open()
    with pytest.raises(IngestError, match="leg 'vector', which this store does not have; name an `embedder`"):
        await store.upsert([_entry("a", "x", vector=[1.0])])
    with pytest.raises(SourceError, match="'vector' is not one of this store's legs: text"):
        await store.search(Query(text="x", leg="vector"))
    await store.aclose()


async def test_a_store_that_is_not_there_is_said_and_not_made_by_reading(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "deep" / "er" / "store.db"))
    await store.open()
    for call in (store.search(Query(text="x", leg="text")), store.ping(), store.fetch(["x"]), store.stats()):
        with pytest.raises(SourceError, match="does not exist; fill it with `contextrouter ingest`"):
            await call
    assert (await store.fingerprints(), await store.version(), await store.delete(["x"])) == ({}, "", 0)
    assert not os.listdir(tmp_path)
    await store.upsert([])
    assert await _ids(store, "x") == await _ids(store, "x", "vector", vector=[1.0]) == []
    await store.ping()
    await store.aclose()


async def test_closed_is_closed_and_opens_again_in_another_loop(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"))
    with pytest.raises(SourceError, match="not open"):
        await store.upsert([])

    async def use() -> list[str]:
        await store.open()
        await store.open()
        await store.upsert([_entry("a", "sun", vector=[1.0])])
        found = await _ids(store, "sun") + await _ids(store, "", "vector", vector=[1.0])
        await store.aclose()
        await store.aclose()
        return found

    for _ in range(2):
        assert await asyncio.to_thread(lambda: asyncio.run(use())) == ["a", "a"]
    with pytest.raises(SourceError, match="not open"):
        await store.search(Query(text="sun", leg="text"))


async def test_a_damaged_file_and_a_stranger_s_database_are_said(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(SourceError, match=r"damaged or no SQLite file.*ingest --rebuild"):
        await Sqlite(path=str(path)).open()
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE accounts (name)")
    connection.close()
    store = Sqlite(path=str(path))
    with pytest.raises(SourceError, match="no contextrouter store; choose another `path`"):
        await store.open()
    with pytest.raises(SourceError, match="no contextrouter store"):
        await store.upsert([_entry("a", "x")])
    blocked = Sqlite(path=str(path / "store.db"))
    await blocked.open()
    with pytest.raises(SourceError, match="cannot be used"):
        await blocked.upsert([])
    await store.aclose()
    await blocked.aclose()


def _overwrite(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


async def test_pages_damaged_later_are_said(store: Sqlite) -> None:
    await store.upsert([_entry(f"d{n}", "sun " * 200) for n in range(50)])
    await store.aclose()
    _overwrite(store.path, 4096, b"\xff" * 4096 * 30)
    await store.open()
    with pytest.raises(SourceError, match="damaged"):
        await store.search(Query(text="sun", leg="text"))


async def test_a_newer_schema_is_refused(store: Sqlite) -> None:
    await store.upsert([_entry("a", "x")])
    await store.aclose()
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(
        SourceError, match="schema version 99, this contextrouter reads 2; upgrade contextrouter"
    ):
        await store.open()


async def test_a_file_put_in_place_of_another_is_noticed(store: Sqlite, tmp_path: Path) -> None:
    await store.upsert([_entry("old", "sun", vector=[1.0])])
    assert await _ids(store, "", "vector", vector=[1.0]) == ["old"]
    other = Sqlite(path=str(tmp_path / "other.db"))
    await other.open()
    await other.upsert([_entry("new", "sun", vector=[1.0])])
    await other.aclose()
    for name in ("store.db-wal", "store.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "other.db").replace(store.path)
    assert await _ids(store, "sun") == ["new"]
    assert await _ids(store, "", "vector", vector=[1.0]) == ["new"]


async def test_an_index_made_by_other_analysis_is_made_again_before_it_is_changed(store: Sqlite) -> None:
    await store.upsert([_entry("a", "suns"), _entry("b", "moons")])
    await store.aclose()
    connection = sqlite3.connect(store.path)
    connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
    connection.execute("INSERT INTO terms (rowid, body) SELECT number, 'suns' FROM chunks")
    connection.execute("UPDATE meta SET value = 'other' WHERE key = 'analysis'")
    connection.commit()
    connection.close()
    await store.open()
    with pytest.raises(
        SourceError, match=r"version other of the text analysis.*`contextrouter ingest --rebuild`"
    ):
        await _ids(store, "sun")
    await store.delete(["a"])
    assert (await _ids(store, "suns"), await _ids(store, "moon")) == ([], ["b"])
    assert (await store.statistics(["suns", "moon"])).frequencies == {"suns": 0, "moon": 1}


async def test_version_changes_with_every_change_and_only_then(store: Sqlite) -> None:
    await store.upsert([_entry("a", "x")])
    first = await store.version()
    await _ids(store, "x")
    await store.delete(["nothing"])
    assert await store.version() == first
    await store.delete(["a"])
    assert await store.version() != first


async def test_vacuum_gives_space_back_and_changes_no_answer(store: Sqlite) -> None:
    await store.upsert([_entry(f"d{n}", f"sun {n} " * 300) for n in range(200)])
    await store.delete([f"d{n}" for n in range(199)])
    await store.aclose()
    before = os.stat(store.path).st_size
    await store.open()
    await _ids(store, "sun")  # a connection of a reader, too
    await store.vacuum()
    assert os.stat(store.path).st_size < before / 2
    assert os.stat(f"{store.path}-wal").st_size == 0
    assert await _ids(store, "sun 199") == ["d199"]


# Deadlines and cancellation.

_SLOW = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def test_a_deadline_interrupts_the_running_statement(store: Sqlite) -> None:
    await store.upsert([_entry("a", "x", vector=[1.0])])
    started = time.monotonic()
    with pytest.raises(SourceTimeout, match="deadline"):
        await store._file.read(
            lambda c, stop: c.execute(_SLOW).fetchone(), missing=None, deadline=started + 0.1
        )
    assert 0.1 <= time.monotonic() - started < 30
    for leg in store.legs:
        with pytest.raises(SourceTimeout):
            await store.search(Query(text="x", leg=leg, vector=[1.0], deadline=time.monotonic() - 1.0))
    assert await _ids(store, "x", deadline=time.monotonic() + 60.0) == ["a"]


async def test_cancellation_and_closing_interrupt_the_running_statement(store: Sqlite) -> None:
    await store.upsert([_entry("a", "x")])
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store._file.read(lambda c, stop: c.execute(_SLOW).fetchone(), missing=None)
    reading = asyncio.ensure_future(
        store._file.read(lambda c, stop: c.execute(_SLOW).fetchone(), missing=None)
    )
    await asyncio.sleep(0.1)
    await store.aclose()  # waits for both threads
    with pytest.raises(SourceError):
        await reading
    assert time.monotonic() - started < 60


async def test_searching_does_not_stall_the_event_loop(store: Sqlite) -> None:
    await store.upsert([_entry("a", "x")])
    reading = asyncio.ensure_future(
        store._file.read(
            lambda c, stop: c.execute(_SLOW).fetchone(), missing=None, deadline=time.monotonic() + 0.3
        )
    )
    ticks = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        ticks += 1
    with pytest.raises(SourceTimeout):
        await reading
    assert ticks > 5


async def test_the_example_works_and_takes_its_folder_with_it() -> None:
    store = Sqlite.example()
    folder, name = os.path.split(store.path)
    await store.open()
    assert [type(hit) for hit in await store.search(Query(text="sea", leg="text"))] == [Hit]
    await store.aclose()
    assert name in os.listdir(folder)
    del store
    with pytest.raises(FileNotFoundError):
        os.listdir(folder)


def test_importing_the_store_imports_no_numpy() -> None:
    modules = "contextrouter.builtin.providers.sqlite.provider, contextrouter.builtin.facts.sqlite"
    code = f"import sys, {modules}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
