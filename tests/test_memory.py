"""The store in memory, which the others are measured against."""

from __future__ import annotations

from datetime import date, datetime
from math import log, sqrt
from typing import Any

import pytest

from contextrouter.builtin.providers.memory import Memory
from contextrouter.contracts import Entry, SupportsFetch, SupportsStatistics, SupportsUpsert, SupportsVersion
from contextrouter.errors import IngestError, SourceError
from contextrouter.model import Document, Hit, Period, Query
from contextrouter.scope import SHARED, Scope

_BLANK = Document(id="d", content="")


def _store(*texts: str, **common: Any) -> Memory:
    return Memory(documents=[{"id": f"d{n}", "content": text, **common} for n, text in enumerate(texts)])


async def _ids(store: Memory, text: str, leg: str = "text", **query: Any) -> list[str]:
    return [hit.document.id for hit in await store.search(Query(text=text, leg=leg, **query))]


async def _embedded(*vectors: list[float] | None, leg: str = "vector") -> Memory:
    store = Memory(embedder="default")
    documents = [Document(id=f"d{n}", content=f"text {n}") for n in range(len(vectors))]
    await store.upsert(
        [Entry(document=d, chunks=[d], vectors={leg: [v]}) for d, v in zip(documents, vectors, strict=True)]
    )
    return store


def test_it_has_the_abilities_it_claims() -> None:
    for ability in (SupportsUpsert, SupportsFetch, SupportsVersion, SupportsStatistics):
        assert isinstance(Memory(), ability)


def test_legs_follow_the_embedder() -> None:
    assert (Memory().legs, Memory().vector_legs, Memory(embedder="").legs) == (("text",), (), ("text",))
    store = Memory(embedder="default")
    assert (store.legs, store.vector_legs) == (("vector", "text", "keywords"), ("vector", "keywords"))
    assert store.score_range == {"vector": (-1.0, 1.0), "keywords": (-1.0, 1.0)}


async def test_scores_are_bm25_by_hand() -> None:
    (hit,) = await _store("sun moon", "rain wind").search(Query(text="sun", leg="text"))
    # One of two chunks has the term, both have the average length of 2: idf ln(1 + 1.5 / 1.5), tf 1 * 1.9 /
    # (1 + 0.9).
    assert hit.score == pytest.approx(log(2.0))


async def test_c09_title_outweighs_path_outweighs_body() -> None:
    store = Memory(
        documents=[
            {"id": "body", "title": "x", "path": ["y"], "content": "comet"},
            {"id": "path", "title": "x", "path": ["comet"], "content": "y"},
            {"id": "title", "title": "comet", "path": ["y"], "content": "x"},
        ]
    )
    assert await _ids(store, "comet") == ["title", "path", "body"]


async def test_whole_questions_find_what_shares_a_telling_word() -> None:
    store = _store("The sea rises with the moon.", "What is it that they do?", "Comets have tails.")
    assert await _ids(store, "What is it that makes the sea rise?") == ["d0"]


async def test_ties_go_by_id_whatever_the_order_of_arrival() -> None:
    store = Memory(documents=[{"id": name, "content": "same words"} for name in ("c", "a", "b")])
    assert await _ids(store, "same") == ["a", "b", "c"]
    assert await _ids(store, "same", limit=2) == ["a", "b"]
    assert await _ids(store, "same", limit=0) == []


async def test_c08_negations_hold_on_every_leg_and_phrases_on_text() -> None:
    store = Memory(embedder="default")
    texts = {"a": "annual report draft", "b": "annual report", "c": "report annual"}
    documents = [Document(id=id, content=text) for id, text in texts.items()]
    vectors = {leg: [[1.0, 0.0]] for leg in store.vector_legs}
    await store.upsert([Entry(document=d, chunks=[d], vectors=vectors) for d in documents])
    for leg in store.legs:
        vector = None if leg == "text" else [1.0, 0.0]
        found = sorted(await _ids(store, '"annual report"', leg, vector=vector))
        assert found == (["a", "b"] if leg == "text" else ["a", "b", "c"])  # meaning needs no wording
        assert await _ids(store, "report -draft", leg, vector=vector) == ["b", "c"]


async def test_scripts_without_spaces_are_found_to_the_character() -> None:
    store = _store("東京都は日本の首都です。", "大阪の天気")
    assert await _ids(store, "東京") == ["d0"]
    assert await _ids(store, "都") == ["d0"]
    assert await _ids(store, "天気はどうですか") == ["d1", "d0"]  # です is common to both


async def test_vectors_are_compared_by_cosine() -> None:
    store = await _embedded([2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [-1.0, 0.0], None, [0.0, 0.0])
    hits = await store.search(Query(text="", leg="vector", vector=[5.0, 0.0]))
    assert [(h.document.id, h.score) for h in hits] == [
        ("d0", 1.0),
        ("d2", round(sqrt(0.5), 6)),
        ("d1", 0.0),
        ("d3", -1.0),
    ]
    assert hits[0].vector == (1.0, 0.0)


async def test_r12_missing_keywords_are_absent_not_last() -> None:
    store = await _embedded([1.0, 0.0], None, leg="keywords")
    assert await _ids(store, "", "keywords", vector=[-1.0, 0.0]) == ["d0"]
    assert await _ids(store, "", "vector", vector=[1.0, 0.0]) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(text="x", leg="vector"), "needs a query vector"),
        (Query(text="x", leg="vector", vector=[1.0]), "1 dimensions, the store's have 2"),
        (Query(text="x", leg="vector", vector=[float("inf"), 0.0]), "not finite"),
        (Query(text="x", leg="other"), "'other' is not one of this store's legs"),
    ],
)
async def test_what_cannot_be_searched_is_said(query: Query, said: str) -> None:
    store = await _embedded([1.0, 0.0])
    with pytest.raises(SourceError, match=said):
        await store.search(query)


async def test_c16_scope_is_applied_before_the_limit() -> None:
    rows: list[dict[str, Any]] = [{"id": f"h{n}", "tenant": "b"} for n in range(5)]
    rows += [{"id": "none"}, {"id": "own", "tenant": "a"}, {"id": "shared", "tenant": SHARED}]
    rows += [
        {"id": "hr", "tenant": "a", "compartment": "hr"},
        {"id": "top", "tenant": "a", "sensitivity": "restricted"},
    ]
    store = Memory(documents=[{"content": "budget", **row} for row in rows])
    assert await _ids(store, "budget", scope=Scope(tenant="a"), limit=2) == ["own", "shared"]
    assert await _ids(
        store, "budget", scope=Scope(tenant="a", compartments=frozenset({"hr"}), ceiling="restricted")
    ) == ["hr", "own", "shared", "top"]
    assert await _ids(store, "budget", scope=Scope()) == ["none", "shared"]
    assert len(await _ids(store, "budget")) == 10


async def test_m08_period_filters_and_labels_are_applied_before_the_limit() -> None:
    march, april = datetime(2024, 3, 31, 23, 59), datetime(2024, 4, 1)
    store = Memory(
        documents=[
            {
                "id": "a",
                "content": "note",
                "updated_at": march,
                "labels": ["home"],
                "metadata": {"year": 2024},
            },
            {"id": "b", "content": "note", "updated_at": april, "labels": ["work"], "kind": "book"},
            {"id": "c", "content": "note"},
        ]
    )
    assert await _ids(store, "note", period=Period(end=date(2024, 3, 31)), limit=1) == ["a"]
    assert await _ids(store, "note", period=Period(start=date(2024, 4, 1)), limit=1) == ["b"]
    assert await _ids(store, "note", filters={"year": 2024}) == ["a"]
    assert await _ids(store, "note", filters={"kind": ["book", "video"]}) == ["b"]
    assert await _ids(store, "note", labels=("work", "play")) == ["b"]


async def test_ing_04_all_chunks_of_a_document_are_stored_and_replaced_whole() -> None:
    store = Memory()
    document = Document(id="d", content="one two three")
    chunks = [Document(content=word) for word in ("one", "two", "three")]
    await store.upsert([Entry(document=document, chunks=chunks, fingerprint="1")])
    assert [await _ids(store, word) for word in ("one", "two", "three")] == [["d#0"], ["d#1"], ["d#2"]]
    await store.upsert([Entry(document=document, chunks=chunks[:1], fingerprint="2")])
    assert [await _ids(store, word) for word in ("one", "two", "three")] == [["d#0"], [], []]
    assert await store.fingerprints() == {"d": "2"}
    assert (await store.statistics(["one", "two"])).frequencies == {"one": 1, "two": 0}


async def test_tenants_keep_documents_of_one_id_apart() -> None:
    store = Memory()
    for tenant in ("a", "b"):
        document = Document(id="d", content=f"plan of {tenant}", tenant=tenant)
        await store.upsert([Entry(document=document, chunks=[document], fingerprint=tenant)])
    assert [await store.fingerprints(t) for t in ("a", "b", None)] == [{"d": "a"}, {"d": "b"}, {}]
    assert [d.content for d in await store.fetch(["d"], Scope(tenant="b"))] == ["plan of b"]
    assert (await store.delete(["d", "x"], "a"), await store.delete(["d"], "a")) == (1, 0)
    assert await _ids(store, "plan") == ["d"]


async def test_fetch_returns_whole_documents_and_chunks_in_the_order_asked() -> None:
    store = Memory()
    document = Document(id="d", content="one two")
    await store.upsert([Entry(document=document, chunks=[Document(content="one"), Document(content="two")])])
    assert [d.content for d in await store.fetch(["d#1", "missing", "d", "d#1"])] == ["two", "one two"]


async def test_statistics_count_chunks() -> None:
    found = await _store("the sun and the moon", "moons").statistics(
        ["moon", "Sun", "the moon", "rain", "??"]
    )
    assert (found.documents, found.average_length) == (2, 1.5)
    assert found.frequencies == {"moon": 2, "Sun": 1, "the moon": 1, "rain": 0, "??": 0}


async def test_version_changes_with_every_change_and_only_then() -> None:
    store = _store("sun")
    before = await store.version()
    await store.search(Query(text="sun", leg="text"))
    assert await store.version() == before
    await store.delete(["nothing"])
    assert await store.version() == before
    await store.delete(["d0"])
    assert await store.version() != before


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([{"content": "a"}, {"title": "b"}], r"documents\[1\] is not a document: .*content"),
        (
            [{"content": "a", "titel": "b"}],
            r"documents\[0\].*unknown keys \['titel'\].*known keys: content, id",
        ),
        ([{"content": 5}], r"documents\[0\].*Expected `str`"),
        (["text"], r"documents\[0\] is not a document"),
    ],
)
def test_a_document_that_does_not_validate_is_named(documents: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Memory(documents=documents)


async def test_documents_without_an_id_get_one_that_lasts() -> None:
    first, second = (Memory(documents=[{"content": "sun"}]) for _ in range(2))
    assert await _ids(first, "sun") == await _ids(second, "sun") != [""]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (Entry(document=Document(content="x"), chunks=[]), "without an id"),
        (Entry(document=_BLANK, chunks=[], vectors={"vector": [[1.0]]}), "'d' has 1 vectors for 0 chunks"),
        (Entry(document=_BLANK, chunks=[_BLANK], vectors={"other": [None]}), "leg 'other'"),
        (Entry(document=_BLANK, chunks=[_BLANK], vectors={"vector": [[float("nan")]]}), "not finite"),
        (Entry(document=_BLANK, chunks=[_BLANK], vectors={"vector": [[1.0]]}), "1 dimensions, others have 2"),
        (Entry(document=_BLANK, chunks=[_BLANK, _BLANK]), "two chunks with the id 'd'"),
    ],
)
async def test_an_entry_that_cannot_be_stored_is_named_and_nothing_is_changed(
    entry: Entry, said: str
) -> None:
    store = await _embedded([1.0, 0.0])
    before = await store.version()
    fine = Document(id="fine", content="fine")
    with pytest.raises(IngestError, match=said):
        await store.upsert([Entry(document=fine, chunks=[fine]), entry])
    assert await store.version() == before
    assert await _ids(store, "fine") == []


async def test_pg_07_a_question_without_words_finds_nothing_in_texts() -> None:
    store = _store("sun", "moon")
    assert [await _ids(store, text) for text in ("", "???", "-sun", "👍")] == [[], [], [], []]


async def test_the_example_works() -> None:
    store = Memory.example()
    await store.open()
    hits = await store.search(Query(text="sea", leg="text"))
    assert [type(hit) for hit in hits] == [Hit]
    await store.aclose()
