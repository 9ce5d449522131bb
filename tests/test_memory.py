"""What only the store in memory does: documents from settings, BM25 and cosines worked out by hand."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import pytest
from support.stores import ids

from contextrouter.builtin.providers.memory import Memory
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError
from contextrouter.model import Document, Hit, Query

_BLANK = Document(id="d", content="")


def _store(*texts: str, **common: Any) -> Memory:
    return Memory(documents=[{"id": f"d{n}", "content": text, **common} for n, text in enumerate(texts)])


async def _embedded(*vectors: list[float] | None, leg: str = "vector") -> Memory:
    store = Memory(embedder="default")
    documents = [Document(id=f"d{n}", content=f"text {n}") for n in range(len(vectors))]
    await store.upsert(
        [Entry(document=d, chunks=[d], vectors={leg: [v]}) for d, v in zip(documents, vectors, strict=True)]
    )
    return store


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
        (
            [{"id": "a", "content": "x"}, {"id": "b", "content": "x"}, {"id": "a", "content": "y"}],
            r"documents\[2\] has the id 'a' of documents\[0\]",
        ),
        ([{"content": "x"}, {"content": "x"}], r"documents\[1\] has the id '\w+' of documents\[0\]"),
    ],
)
def test_a_document_that_does_not_validate_is_named(documents: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Memory(documents=documents)


def test_documents_of_two_tenants_may_have_one_id() -> None:
    tenants = [{"id": "a", "content": "x", "tenant": tenant} for tenant in ("one", "two")]
    assert Memory(documents=tenants).legs == ("text",)


async def test_documents_without_an_id_get_one_that_lasts() -> None:
    first, second = (Memory(documents=[{"content": "sun"}]) for _ in range(2))
    assert await ids(first, "sun") == await ids(second, "sun") != [""]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
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
    assert await ids(store, "fine") == []


async def test_the_example_works() -> None:
    store = Memory.example()
    await store.open()
    hits = await store.search(Query(text="sea", leg="text"))
    assert [type(hit) for hit in hits] == [Hit]
    await store.aclose()
