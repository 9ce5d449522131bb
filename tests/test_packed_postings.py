"""Postings that the store in one SQLite file packs: they say what FTS5 says, and scores are those of plain BM25."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stores import entry, ids

from contextrouter.builtin.providers.sqlite import Sqlite, packed_bytes, packed_postings, score_sums, text_leg
from contextrouter.builtin.providers.sqlite.snapshot_cache import Lengths
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query
from contextrouter.scope import Scope
from contextrouter.text import bm25
from contextrouter.text.analysis import analyse, length
from contextrouter.text.bm25 import K1, B, saturation
from contextrouter.text.fields import fields
from contextrouter.text.languages import language_terms
from contextrouter.text.query_syntax import FURTHEST
from contextrouter.text.stemming import ENGLISH, stem_language, stemmer

WEIGHTS = (3.0, 2.0, 1.0)
SCOPE = Scope(tenant="a")
WORDS = ["sun", "moon", "tides", "comets", "Haus", "H\u00e4user", "\u4eac\u90fd", "\u4eac\u6c34"]
QUESTIONS = [
    "sun",
    "moon tide",
    "comet sun moon tide",
    "h\u00e4user sun",
    "\u4eac",
    "\u4eac sun",
    "the",
    "sun -moon",
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join) | st.just("sun " * 20)
DOCUMENTS = st.builds(
    Document,
    id=st.sampled_from([f"d{n}" for n in range(7)]),
    content=TEXTS,
    title=st.just("") | TEXTS,
    path=st.just(()) | st.tuples(TEXTS),
    language=st.sampled_from([None, "de", "en"]),
    kind=st.sampled_from(["note", "page"]),
)
STEPS = st.lists(
    st.lists(DOCUMENTS, min_size=1, max_size=4) | st.sampled_from(["d1", "d5", "first", "vacuum"]),
    min_size=1,
    max_size=8,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Sqlite]:
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture(autouse=True)
def pack_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of a handful of chunks pack, make blocks, join them, and look words up in few chunks."""
    for name, value in {
        "SMALLEST": 2,
        "COMMON_CHUNKS": 2,
        "COMMON_SHARE": 0.0,
        "BLOCK_CHUNKS": 3,
        "MERGED_BLOCKS": 2,
    }.items():
        monkeypatch.setattr(packed_postings, name, value)
    monkeypatch.setattr(score_sums, "_PRUNED_FROM", 2)
    monkeypatch.setattr(score_sums, "_PRUNED_SHARE", 1)


def reference(documents: Sequence[Document], question: str, scope: Scope | None) -> dict[str, float]:
    """Plain BM25 over the documents that a scope shows."""
    shown = [document for document in documents if scope is None or scope.allows(document)]
    analysed = {
        document.id: [analyse(text, stemmer(document.language)) for text in fields(document)]
        for document in shown
    }
    lengths = {id: length(terms) for id, terms in analysed.items()}
    average = sum(lengths.values()) / len(shown) if shown else 1.0
    spoken = {document.id: stem_language(document.language) for document in shown}
    languages = {stem_language(document.language) for document in documents}

    def frequencies(term: str, among: frozenset[str] | None) -> dict[str, float]:
        counts = {
            id: sum(weight * terms.count(term) for weight, terms in zip(WEIGHTS, each, strict=True))
            for id, each in analysed.items()
            if among is None or spoken[id] in among
        }
        return {id: count for id, count in counts.items() if count}

    scores: Counter[str] = Counter()
    every = sorted({term for each in analysed.values() for terms in each for term in terms})
    for word in language_terms(question, languages - {ENGLISH}).words:
        groups = [list(word.items())]
        if next(iter(word)).endswith(FURTHEST):
            begun = [
                (term, among)
                for beginning, among in word.items()
                for term in every
                if term.startswith(beginning[:-1])
            ]
            groups = [[pair] for pair in begun]
        for group in groups:
            found = [frequencies(term, among) for term, among in group]
            having = sum(map(len, found))
            idf = log(1.0 + (len(shown) - having + 0.5) / (having + 0.5))
            for id, frequency in (pair for each in found for pair in each.items()):
                damping = K1 * (1.0 - B + B * lengths[id] / (average or 1.0))
                scores[id] += idf * frequency * (K1 + 1.0) / (frequency + damping)
    excluded = {"moon"} if "-moon" in question else set()
    return {
        id: score
        for id, score in scores.items()
        if not excluded.intersection(term for terms in analysed[id] for term in terms)
    }


async def check(store: Sqlite, documents: Sequence[Document], question: str) -> None:
    for scope in (None, SCOPE):
        expected = reference(documents, question, scope)
        for kind, limit in ((None, 20), (None, 2), ("note", 2)):
            found = [(d.id, expected[d.id]) for d in documents if d.id in expected and kind in (None, d.kind)]
            best = sorted(found, key=lambda pair: (-round(pair[1], 9), pair[0]))[:limit]
            filters = {"kind": kind} if kind else {}
            query = Query(text=question, leg="text", scope=scope, limit=limit, filters=filters)
            hits = await store.search(query)
            assert [hit.document.id for hit in hits] == [id for id, _ in best]
            assert [hit.score for hit in hits] == pytest.approx([score for _, score in best])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, questions=st.permutations(QUESTIONS))
def test_scores_are_those_of_plain_bm25_whatever_is_packed(
    tmp_path: Path, steps: list[Any], questions: list[str]
) -> None:
    """Over upserts, replacements, deletions and vacuums, in every scope, with filters, languages and beginnings
    of terms.
    """

    async def run() -> None:
        store = Sqlite(path=str(tmp_path / f"{time.monotonic_ns()}.db"), embedder=None)
        await store.open()
        here = {id: Document(id=id, content="sun", tenant="a") for id in ("first", "second")}
        await store.upsert([Entry(document=each, chunks=[each]) for each in here.values()])
        for step, question in zip(steps, questions, strict=False):
            if step == "vacuum":
                await store.vacuum()
            elif isinstance(step, str):
                gone = here.pop(step, None)
                await store.delete([step], gone and gone.tenant)
            else:
                documents = [each.replace(tenant="a" if each.id < "d4" else "b") for each in step]
                await store.upsert([Entry(document=each, chunks=[each]) for each in documents])
                here.update((each.id, each) for each in documents)
            await check(store, list(here.values()), question)
            state = await state_of(store)
            assert state is not None or len(here) < 2
        await store.aclose()

    asyncio.run(run())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(DOCUMENTS, min_size=4, max_size=12), second=st.lists(DOCUMENTS, max_size=4))
def test_which_words_are_left_out_does_not_hang_on_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: list[Document], second: list[Document]
) -> None:
    """Of many words the commonest are left out. One store has only what another has after replacements."""
    for name in ("POSTINGS", "FEW", "FOLD"):
        monkeypatch.setattr(text_leg, name, int(name == "FOLD"))

    async def run() -> None:
        answers = []
        in_english = [[each.replace(language=None) for each in batch] for batch in (first, second)]
        every = {each.id: each for batch in in_english for each in batch}
        for batches in (in_english, [list(every.values())]):
            store = Sqlite(path=str(tmp_path / f"{time.monotonic_ns()}.db"), embedder=None)
            await store.open()
            for batch in batches:
                await store.upsert([Entry(document=each, chunks=[each]) for each in batch])
            queries = [
                Query(text=question, leg="text", limit=20) for question in (*QUESTIONS, " ".join(WORDS))
            ]
            hits = [await store.search(query) for query in queries]
            answers.append([[(hit.document.id, hit.score) for hit in found] for found in hits])
            await store.aclose()
        assert answers[0] == answers[1]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("most", "fewer", "is_certain"),
    [
        ({"a": 3, "b": 9}, {}, True),
        ({"a": 3, "b": 9}, {"b": 2}, False),  # 3 + 7 of 10
        ({"a": 3, "b": 9}, {"b": 1}, True),
        ({"a": 8, "b": 9}, {"b": 1}, False),  # b may be the rarer one
        ({"a": 4, "b": 5}, {"a": 1, "b": 1}, True),  # both are read
        ({"a": 1, "b": 10}, {"a": 1}, False),  # of a there may be none, and then b is read
    ],
)
def test_counts_with_what_is_gone_suffice_where_they_decide(
    most: dict[str, int], fewer: dict[str, int], is_certain: bool
) -> None:
    chosen = bm25.rarest(list(most.items()), 10)
    assert text_leg._is_certain(chosen, most, fewer, 10) is is_certain


async def state_of(store: Sqlite) -> packed_postings.PackingState | None:
    return await store._file.read(lambda connection, _: packed_postings.read_state(connection), missing=None)


OCCURRENCES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([11, 12, 13, 20, 264, 265, 800, 5000]) | st.integers(11, 40),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=200,
)


@settings(max_examples=100, deadline=None)
@given(occurrences=OCCURRENCES, often=st.integers(1, 40))
def test_packed_postings_come_back_as_they_were(occurrences: list[tuple[int, int, int]], often: int) -> None:
    """Chunks far apart and side by side, with few occurrences and with many."""
    every = sorted(occurrences * often)
    columns = np.array(every, np.int64).T
    packed = dict(packed_bytes.pack(packed_bytes.count_occurrences(*columns), 10))
    for term in {term for term, _, _ in every}:
        chunks, codes, listed = packed_bytes.unpack(packed[term], 10)
        counts = packed_bytes.counts_of(codes.astype(np.int64))
        counts[:, codes == 0] = listed.T
        expected = Counter((chunk, field) for at, chunk, field in every if at == term)
        found = {
            (chunk, field): count
            for chunk, each in zip(chunks.tolist(), counts.T.tolist(), strict=True)
            for field, count in enumerate(each)
            if count
        }
        assert found == expected
        assert (
            packed_bytes.count_chunks(packed[term][: packed_bytes.HEAD])
            == len(chunks)
            == len({*chunks.tolist()})
        )
    assert len(packed) == len({term for term, _, _ in every})


def test_a_word_of_most_chunks_takes_a_byte_or_less_for_each() -> None:
    chunks = np.arange(1, 10_001)
    zeros = np.zeros(10_000, np.int64)
    entries = packed_bytes.count_occurrences(zeros, chunks, zeros + 2)
    ((_, every),) = packed_bytes.pack(entries, 0)
    ((_, some),) = packed_bytes.pack(
        packed_bytes.Entries(zeros[::20], chunks[::20], entries.counts[:, ::20]), 0
    )
    assert len(every) < 10_000 / 8 + 100
    assert len(some) < 500


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_looking_up_the_commonest_words_in_few_chunks_changes_no_score(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    lengths = Lengths(
        1, np.array(data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)), float)
    )
    words, sums = [], np.zeros(size)
    for _ in range(data.draw(st.integers(1, 5))):
        chunks = np.array(sorted(data.draw(st.sets(st.integers(1, size), min_size=1))))
        frequencies = np.array(
            data.draw(
                st.lists(st.sampled_from([0.0, 1.0, 3.0, 20.0]), min_size=len(chunks), max_size=len(chunks))
            )
        )
        idf = data.draw(st.floats(0.01, 8.0))
        words.append(score_sums.WeightedWord([score_sums.Postings(chunks, frequencies)], idf))
        sums[chunks - 1] += idf * saturation(frequencies, lengths.of(chunks) / 4.0)
    hidden = np.array(sorted(data.draw(st.sets(st.integers(1, size)))), np.int64)
    limit = data.draw(st.integers(1, 5))
    for narrows in (False, True):
        admit = (lambda chunks: np.flatnonzero(~np.isin(chunks, hidden))) if narrows else None
        shown = [n for n in range(1, size + 1) if not narrows or n not in hidden]
        best = sorted((round(sums[n - 1], 9) for n in shown if sums[n - 1] > 0), reverse=True)
        found = score_sums.best_chunks(words, (lengths, 4.0), {}, limit, admit)
        assert [score for _, score in found[:limit]] == pytest.approx(best[:limit])
        assert all(score == pytest.approx(round(sums[chunk - 1], 9)) for chunk, score in found)
        at_least = best[limit - 1] if len(best) >= limit else 0.0
        assert len(found) == len([score for score in best if score >= at_least])


async def test_what_another_version_writes_is_found_though_it_packs_nothing(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", "sun") for n in range(3)])
    await store.aclose()
    with closing(sqlite3.connect(store.path)) as connection:  # a version that knows no packed postings
        connection.execute(
            "INSERT INTO chunks (id, tenant, compartment, sensitivity, length, document) SELECT 'late', '', '', '', 1, 1"
        )
        number = connection.execute("SELECT max(number) FROM chunks").fetchone()[0]
        payload = connection.execute("SELECT payload FROM texts").fetchone()[0]
        connection.execute("INSERT INTO texts VALUES (?, ?)", (number, payload))
        connection.execute("INSERT INTO terms (rowid, body) VALUES (?, 'sun')", (number,))
        connection.execute(
            "UPDATE meta SET value = value + 1 WHERE key IN ('chunks', 'length', 'generation')"
        )
        connection.commit()
    await store.open()
    assert await state_of(store) is None
    assert len(await ids(store, "sun")) == 4
    await store.upsert([entry("d9", "sun")])
    assert await state_of(store) is not None
    assert len(await ids(store, "sun")) == 5


async def test_a_store_without_the_table_is_read_and_gets_it_when_written(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", "sun") for n in range(3)])
    await store.aclose()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("DROP TABLE packed")
        connection.execute("DELETE FROM meta WHERE key = ?", (packed_postings.STATE_KEY,))
        connection.commit()
    await store.open()
    assert await ids(store, "sun") == ["d0", "d1", "d2"]
    await store.delete(["d0"])
    await store.upsert([entry("d9", "sun")])
    assert await ids(store, "sun") == ["d1", "d2", "d9"]
    assert await state_of(store) is not None


async def test_a_reader_of_an_older_state_reads_what_was_packed_then(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", "sun moon") for n in range(3)])
    terms, gone = packed_postings.PackedTerms(), packed_postings.RemovedChunks()

    def read(connection: sqlite3.Connection) -> tuple[list[int], int]:
        packed = terms.read_at(connection)
        found = packed_postings.read_packed(connection, packed, "sun", WEIGHTS)
        postings = score_sums.Postings(*found).without(gone.read_at(connection))
        return postings.chunks.tolist(), packed_postings.count_packed(connection, packed, "sun")

    with closing(sqlite3.connect(store.path)) as old, closing(sqlite3.connect(store.path)) as new:
        await store.upsert([entry("e", "sun")])
        old.execute("BEGIN")
        assert read(old) == ([1, 2, 3, 4], 4)
        await store.upsert([entry("f", "sun")])
        await store.delete(["d0"])
        for _ in range(2):
            assert read(new) == ([2, 3, 4, 5], 5)  # with the one that is gone
            assert read(old) == ([1, 2, 3, 4], 4)
        await store.upsert([entry(f"g{n}", "sun") for n in range(3)])  # what waited is a block now
        assert read(new)[0] == [2, 3, 4, 5, 6, 7, 8]
        assert read(old) == ([1, 2, 3, 4], 4)


async def test_blocks_are_joined_and_all_is_packed_again_when_the_store_has_grown(store: Sqlite) -> None:
    await store.upsert([entry(f"d{n}", "sun moon") for n in range(40)])
    for start in range(100, 190, 3):
        await store.upsert([entry(f"d{n}", "sun star") for n in range(start, start + 3)])
    state = await state_of(store)
    assert state is not None
    assert (state.chunks, len(state.blocks) < 10) == (40, True)  # 30 blocks of three
    assert len(await ids(store, "sun", limit=500)) == 130
    await store.upsert([entry(f"d{n}", "sun star") for n in range(200, 240)])
    state = await state_of(store)
    assert state is not None
    assert (state.chunks, len(state.blocks)) == (170, 1)
    assert len(await ids(store, "star", limit=500)) == 130


async def test_common_words_are_read_where_they_are_packed_and_rare_ones_from_the_index(
    store: Sqlite,
) -> None:
    await store.upsert([entry(f"d{n}", f"sun rare{n}") for n in range(4)])
    await store.upsert([entry("e", "sun")])
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
        connection.commit()
    assert await ids(store, "sun") == ["e", "d0", "d1", "d2", "d3"]
    assert await ids(store, "rare1") == []


async def test_a_store_without_common_words_is_searched_as_ever(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_postings, "COMMON_CHUNKS", 5)
    for start in range(0, 12, 3):
        await store.upsert([entry(f"d{n}", f"sun{n} moon{n % 4}") for n in range(start, start + 3)])
    assert await ids(store, "sun4 moon1", limit=2) == ["d4", "d1"]
    state = await state_of(store)
    assert state is not None
    assert (state.chunks, len(state.blocks)) == (3, 3)


async def test_a_small_store_packs_nothing(store: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_postings, "SMALLEST", 3)
    await store.upsert([entry("a", "sun"), entry("b", "sun")])
    assert await state_of(store) is None
    await store.upsert([entry("c", "sun"), entry("d", "moon")])
    assert await state_of(store) is not None
    await store.clear()
    assert await state_of(store) is None
    await store.upsert([entry("a", "tide")])
    assert await ids(store, "tide sun") == ["a"]


async def test_a_store_too_large_to_pack_again_keeps_what_is_packed(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.upsert([entry(f"d{n}", "sun moon") for n in range(4)])
    monkeypatch.setattr(packed_postings, "LARGEST", 10)
    await store.upsert([entry(f"e{n}", "sun star") for n in range(30)])
    state = await state_of(store)
    assert state is not None
    assert (state.chunks, len(await ids(store, "sun", limit=99))) == (4, 34)
    await store.vacuum()
    assert (await state_of(store), len(await ids(store, "sun", limit=99))) == (None, 34)
    await store.upsert([entry("f", "sun")])
    assert (await state_of(store), len(await ids(store, "sun", limit=99))) == (None, 35)


async def test_a_large_document_is_packed_in_parts(store: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.upsert([entry(f"d{n}", "sun moon") for n in range(40)])
    read: list[int] = []
    read_waiting = packed_postings._read_waiting

    def spy(connection: sqlite3.Connection, start: int) -> Any:
        occurrences = read_waiting(connection, start)
        read.append(len(occurrences))
        return occurrences

    monkeypatch.setattr(packed_postings, "_read_waiting", spy)
    await store.upsert([entry(f"e{n:02}", "sun") for n in range(30)])
    assert max(read) == packed_postings.BLOCK_CHUNKS
    assert len(await ids(store, "sun", limit=99)) == 70
