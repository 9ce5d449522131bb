"""Full-text search (the text leg): BM25 over the postings of FTS5, with our own weights per field, k1, b and
idf.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.builtin.providers.sqlite import packed_postings, schema
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition, visible
from contextrouter.builtin.providers.sqlite.rows import AdmittedChunks, by_field_letter, numpy, occurrences
from contextrouter.builtin.providers.sqlite.score_sums import (
    Contributions,
    Postings,
    WeightedWord,
    best_chunks,
)
from contextrouter.builtin.providers.sqlite.snapshot_cache import (
    ChunkLanguages,
    ChunkLengths,
    LabelCounts,
    Recent,
    RecentReads,
    VisibleChunks,
)
from contextrouter.contracts import TermStatistics
from contextrouter.scope import Scope
from contextrouter.text import bm25, query_syntax
from contextrouter.text.languages import Languages, Word, analyses

if TYPE_CHECKING:
    from contextrouter.builtin.providers.sqlite.rows import Numbers

POSTINGS, FOLD = 100_000, 2
"""Postings read for one question: the former, or FOLD times the chunks where that is more; then the commonest
terms are left out.

Measured on cranfield, nfcorpus, scifact and vaswani, nDCG@10 against reading everything: within .0001 at
twice the chunks, down by up to .010 at once the chunks and by .042 at half of them.
"""
FEW = 8
"""Terms that are read without counting first: stop words left out, so few hardly ever have twice the
chunks.
"""
_MOST_TERMS = 256
MOST_REMEMBERED = 1_000_000
"""Postings that are remembered between searches: 16 bytes each."""


class TextQuery(NamedTuple):
    """The words of a question, whose scope `condition` holds as well, and how many chunks are asked for."""

    words: Sequence[Word]
    scope: Scope | None
    condition: Condition
    limit: int


class _Reading(NamedTuple):
    """What a search reads with."""

    connection: sqlite3.Connection  # on one snapshot
    store: str  # its id
    packed: packed_postings.Packed
    recent: Recent[str, Postings]  # what was read before
    stop: Stop


class TextIndex:
    """Scores chunks by the terms of a question. Holds the chunks' lengths; the postings stay in the file.
    `weights` are those of title, heading path and body.

    What a scope hides is no part of any count, so that no score says anything of it.
    """

    def __init__(self, weights: Sequence[float], admitted: AdmittedChunks) -> None:
        self._weights = tuple(map(float, weights))
        self._removed, self._packed = packed_postings.RemovedChunks(), packed_postings.PackedTerms()
        self._admitted = admitted
        self._lengths, self._label_counts = ChunkLengths(), LabelCounts()
        self._languages = ChunkLanguages()
        self._recent = RecentReads[str, Postings](MOST_REMEMBERED, ("store", "generation"))

    def search(
        self, connection: sqlite3.Connection, query: TextQuery, contributions: Contributions, stop: Stop
    ) -> list[tuple[int, float]]:
        """The best admitted chunks (number, score) and those tied with the last, best first. `contributions`
        holds what terms contributed in other queries of the batch, which have the same scope.
        """
        words, scope, condition, limit = query
        with stop.finishing():
            shown = self._label_counts.visible(connection, scope)
            lengths = self._lengths.read_at(connection)
        reading = self._reading(connection, stop)
        weighted = [
            WeightedWord(word, bm25.weight(shown.chunks, sum([len(postings.chunks) for postings in word])))
            for word in self._read(reading, words, shown)
        ]

        def admit(chunks: Numbers) -> Numbers:
            with stop.finishing():
                return self._admitted.indexes(chunks, connection, reading.store, condition)

        narrows = condition.sql and condition != visible(scope, "c")
        average = shown.average_length or 1.0
        return best_chunks(weighted, (lengths, average), contributions, limit, admit if narrows else None)

    def statistics(
        self, connection: sqlite3.Connection, terms: Sequence[str], scope: Scope | None, stop: Stop
    ) -> TermStatistics:
        """Counts over the chunks that the scope shows, each in its language; a term that is several words has
        the frequency of the rarest of them.
        """
        with stop.finishing():
            shown = self._label_counts.visible(connection, scope)
        reading, languages = self._reading(connection, stop), schema.languages(connection)

        def count(term: str, languages: Languages) -> int:
            if not shown.condition.sql and languages is None:
                return frequencies(connection, [term]).get(term, 0)
            return len(self._shown(reading, term, languages, shown.condition).chunks)

        return TermStatistics(
            documents=shown.chunks,
            average_length=shown.average_length,
            frequencies={
                text: sum(
                    [
                        min(count(term, group) for term in terms_of_text)
                        for terms_of_text, group in analyses(text, languages).items()
                    ]
                )
                for text in terms
            },
        )

    def forget(self) -> None:
        """Let go of everything."""
        self._lengths.forget()
        self._label_counts.forget()
        self._languages.forget()
        self._recent.forget()
        self._removed.forget()
        self._packed.forget()

    def _reading(self, connection: sqlite3.Connection, stop: Stop) -> _Reading:
        with stop.finishing():
            packed = self._packed.read_at(connection)
        store, recent = schema.text(connection, "store"), self._recent.read_at(connection)
        return _Reading(connection, store, packed, recent, stop)

    def _read(
        self, reading: _Reading, words: Sequence[Word], shown: VisibleChunks
    ) -> Iterator[list[Postings]]:
        """The postings of each word that are worth reading, one for each of its terms, of the chunks that are
        shown; none is empty.
        """
        if shown.condition.sql:
            # To count what is shown is to read it; which terms are left out must not hang on what is hidden.
            read = self._find(reading, words[:_MOST_TERMS], None, shown)
            counts = [(key, len(postings.chunks)) for key, (_, postings) in read.items()]
            few = len(counts) <= FEW
            budget = sum([count for _, count in counts]) if few else max(POSTINGS, FOLD * shown.chunks)
            read = {key: read[key] for key in bm25.rarest(counts, budget)}
        else:
            every = list(dict.fromkeys(term for word in words for term in word))
            worth = dict.fromkeys(self._worth_reading(reading, every, shown.chunks))
            read = self._find(reading, words, worth, shown)
        together: dict[tuple[int, str], list[Postings]] = {}
        for word, postings in read.values():
            together.setdefault(word, []).append(postings)
        yield from together.values()

    def _find(
        self, reading: _Reading, words: Sequence[Word], worth: Collection[str] | None, shown: VisibleChunks
    ) -> dict[str, tuple[tuple[int, str], Postings]]:
        """The postings of the words' terms that are worth reading (None: of all), each under a name of its
        own, with the word that it is of. A beginning stands for a word for each term that it begins.
        """
        read: dict[str, tuple[tuple[int, str], Postings]] = {}
        for place, word in enumerate(words):
            for term, languages in word.items():
                begins = term.endswith(query_syntax.FURTHEST)
                every = (
                    (name, self._shown(reading, name, languages, shown.condition))
                    for name in _terms_of(reading.connection, term, worth)
                )
                filled = ((name, postings) for name, postings in every if len(postings.chunks))
                for name, postings in islice(filled, query_syntax.MOST_EXPANDED):
                    key = " ".join((name, *sorted(languages or ())))
                    read.setdefault(key, ((place, name if begins else ""), postings))
        return read

    def _shown(self, reading: _Reading, term: str, languages: Languages, condition: Condition) -> Postings:
        """The postings of a term in chunks in `languages` that meet a condition."""
        reading.stop.check()
        postings = self._postings(reading, term)
        if languages is not None:
            with reading.stop.finishing():
                kept = self._languages.read_at(reading.connection).among(postings.chunks, languages)
            postings = postings.at(kept)
        if condition.sql:
            with reading.stop.finishing():
                kept = self._admitted.indexes(postings.chunks, reading.connection, reading.store, condition)
            postings = postings.at(kept)
        return postings

    def _postings(self, reading: _Reading, term: str) -> Postings:
        """The postings of a term. The queries of a question share most of their terms, and questions many."""
        postings = reading.recent.get(term)
        if postings is None:
            if term in reading.packed.term_numbers:
                read = packed_postings.read_packed(reading.connection, reading.packed, term, self._weights)
                postings = Postings(*read).without(self._removed.read_at(reading.connection))
            else:
                postings = self._read_postings(reading.connection, term)
            reading.recent.add(term, postings, len(postings.chunks))
        return postings

    def _worth_reading(self, reading: _Reading, terms: Sequence[str], total: int) -> list[str]:
        """Terms whose postings are read. To count a term's chunks costs half as much as to read them, where
        they are not packed: few are just read.
        """
        connection, packed = reading.connection, reading.packed
        whole = [term for term in terms if not term.endswith(query_syntax.FURTHEST)]
        if len(whole) == len(terms) and (len(terms) <= FEW or len(terms) * total <= POSTINGS):
            return whole
        common = {term for term in terms if term in packed.term_numbers}
        ready = {term for term in terms if reading.recent.get(term) is not None}
        if common and len(terms) - len(common) <= FEW:  # the others are rare, and so read
            ready |= {*whole} - common
        exact = {term: len(self._postings(reading, term).chunks) for term in terms if term in ready}
        exact |= frequencies(connection, [term for term in terms if term not in common | ready])
        unread = common - ready
        most = exact | {term: packed_postings.count_packed(connection, packed, term) for term in unread}
        budget = max(POSTINGS, FOLD * total)
        chosen = bm25.rarest([*most.items()], budget)[:_MOST_TERMS]
        removed = len(self._removed.read_at(connection)) if unread else 0
        if removed and not _is_certain({*chosen}, most, dict.fromkeys(unread, removed), budget):
            exact |= {term: len(self._postings(reading, term).chunks) for term in unread}
            return bm25.rarest([*exact.items()], budget)[:_MOST_TERMS]
        return chosen

    def _read_postings(self, connection: sqlite3.Connection, term: str) -> Postings:
        """The postings of a term from FTS5."""
        np = numpy()
        chunks, letters = occurrences(connection, term)
        if not len(chunks):
            return Postings(chunks, np.zeros(0))
        starts = np.flatnonzero(np.diff(chunks, prepend=-1))
        weights = by_field_letter(self._weights)[letters]
        return Postings(chunks[starts], np.add.reduceat(weights, starts))


def _is_certain(
    chosen: Collection[str], most: Mapping[str, int], fewer: Mapping[str, int], budget: int
) -> bool:
    """Whether the rarest terms within a budget are those chosen, though a count may be lower than in `most`,
    by up to that in `fewer`.
    """
    least = {term: count - fewer.get(term, 0) for term, count in most.items()}
    following = min([count for term, count in least.items() if term not in chosen], default=None)
    if following is None:
        return True
    read = [least[term] for term in chosen]
    reaches = max([most[term] for term in chosen], default=0)
    return min(read, default=0) > 0 and following > reaches and sum(read) + following > budget


def frequencies(connection: sqlite3.Connection, terms: Sequence[str]) -> dict[str, int]:
    """In how many chunks each term occurs; a beginning stands for the terms it begins. Terms that do not
    occur are left out.
    """
    counts: dict[str, int] = {}
    for term in terms:
        if term.endswith(query_syntax.FURTHEST):
            counts.update(islice(_begun(connection, term), query_syntax.MOST_EXPANDED))
        else:
            counts.update(connection.execute("SELECT term, doc FROM vocabulary WHERE term = ?", (term,)))
    return counts


def _begun(connection: sqlite3.Connection, beginning: str) -> Iterator[tuple[str, int]]:
    """The terms that a beginning stands for, in their order, and in how many chunks each of them occurs."""
    sql = "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? ORDER BY term"
    return connection.execute(sql, (beginning[:-1], beginning))


def _terms_of(connection: sqlite3.Connection, term: str, worth: Collection[str] | None) -> Iterator[str]:
    """The term, or the terms that it begins, of those that are `worth` reading (None: all are)."""
    if not term.endswith(query_syntax.FURTHEST):
        return iter((term,) if worth is None or term in worth else ())
    if worth is None:
        return (name for name, _ in _begun(connection, term))
    return (name for name in worth if name.startswith(term[:-1]))
