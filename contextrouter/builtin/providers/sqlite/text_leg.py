"""Full-text search (the text leg): BM25 over the postings of FTS5, with our own weights per field, k1, b and
idf.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.builtin.providers.sqlite import packed_postings, schema
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition, visible
from contextrouter.builtin.providers.sqlite.rows import AdmittedChunks, numbers, numpy
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
    """A search while it reads: its snapshot, the store's id, what is packed, what was read before, when to
    stop.
    """

    connection: sqlite3.Connection
    store: str
    packed: packed_postings.Packed
    recent: Recent[str, Postings]
    stop: Stop


class TextIndex:
    """Scores chunks by the terms of a question. Holds the chunks' lengths; the postings stay in the file.

    What a scope hides is no part of any count, so that no score says anything of it.
    """

    def __init__(self, weights: Mapping[str, float], admitted: AdmittedChunks) -> None:
        self._weights = {ord(field[0]): weight for field, weight in weights.items()}
        self._gone, self._packed = packed_postings.GoneChunks(), packed_postings.PackedTerms()
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
        self._gone.forget()
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
        own, with the word that it is of; a beginning stands for a word for each term that it begins.
        """
        read: dict[str, tuple[tuple[int, str], Postings]] = {}
        for place, term, languages in ((at, *each) for at, word in enumerate(words) for each in word.items()):
            begins = term.endswith(query_syntax.FURTHEST)
            names: Iterable[str] = (term,)
            if begins:
                names = (
                    _begun(reading.connection, term)
                    if worth is None
                    else [name for name in worth if name.startswith(term[:-1])]
                )
            every = (
                (name, self._shown(reading, name, languages, shown.condition))
                for name in names
                if worth is None or name in worth
            )
            filled = ((name, postings) for name, postings in every if len(postings.chunks))
            for name, postings in islice(filled, query_syntax.MOST_EXPANDED):
                key = " ".join((name, *sorted(languages or ())))
                read.setdefault(key, ((place, name if begins else ""), postings))
        return read

    def _shown(self, reading: _Reading, word: str, languages: Languages, condition: Condition) -> Postings:
        """The postings of a term in chunks in `languages` that meet a condition."""
        reading.stop.check()
        postings = self._postings(reading, word)
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
        postings = self._quick_postings(reading, term)
        if postings is None:
            postings = self._read_postings(reading.connection, term)
            reading.recent.add(term, postings, len(postings.chunks))
        return postings

    def _quick_postings(self, reading: _Reading, term: str) -> Postings | None:
        """The postings of a term that were read before, or are packed."""
        postings = reading.recent.get(term)
        if postings is None and term in reading.packed.numbers:
            weights = [*self._weights.values()]
            read = packed_postings.read_packed(reading.connection, reading.packed, term, weights)
            postings = Postings(*read).without(self._gone.read_at(reading.connection))
            reading.recent.add(term, postings, len(postings.chunks))
        return postings

    def _worth_reading(self, reading: _Reading, terms: Sequence[str], total: int) -> list[str]:
        """Terms whose postings are read. To count a term's chunks costs half as much as to read them, where
        they are not packed: few are just read.
        """
        few = len(terms) <= FEW or len(terms) * total <= POSTINGS
        if few and not any(term.endswith(query_syntax.FURTHEST) for term in terms):
            return list(terms)
        packed = {term for term in terms if term in reading.packed.numbers}
        ready = {term for term in terms if reading.recent.get(term) is not None}
        if packed and len(terms) - len(packed) <= FEW:  # the others are rare, and so read
            ready |= {term for term in terms if not term.endswith(query_syntax.FURTHEST)} - packed
        counts = {term: len(self._postings(reading, term).chunks) for term in terms if term in ready}
        counts |= frequencies(reading.connection, [term for term in terms if term not in packed | ready])
        unread = packed - ready
        most = {
            term: packed_postings.count_packed(reading.connection, reading.packed, term) for term in unread
        }
        budget = max(POSTINGS, FOLD * total)
        chosen = bm25.rarest([*counts.items(), *most.items()], budget)[:_MOST_TERMS]
        gone = len(self._gone.read_at(reading.connection)) if unread else 0
        if gone and not _is_certain({*chosen}, counts | most, {term: gone for term in unread}, budget):
            counts |= {term: len(self._postings(reading, term).chunks) for term in unread}
            return bm25.rarest(list(counts.items()), budget)[:_MOST_TERMS]
        return chosen

    def _read_postings(self, connection: sqlite3.Connection, term: str) -> Postings:
        np = numpy()
        # Postings of one term come by chunk; a field is known by its first letter.
        (coded,) = numbers(
            connection, "SELECT group_concat(doc * 128 + unicode(col)) FROM postings WHERE term = ?", (term,)
        )
        if not len(coded):
            return Postings(coded, np.zeros(0))
        weights = np.zeros(128)
        weights[list(self._weights)] = list(self._weights.values())
        chunks = coded >> 7
        starts = np.flatnonzero(np.diff(chunks, prepend=-1))
        return Postings(chunks[starts], np.add.reduceat(weights[coded & 127], starts))


def _is_certain(
    chosen: Collection[str], most: Mapping[str, int], fewer: Mapping[str, int], budget: int
) -> bool:
    """Whether the rarest terms within a budget are those chosen, though counts may be lower than `most`, by
    up to `fewer`.
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
            rows = connection.execute(
                "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? ORDER BY term LIMIT ?",
                (term[:-1], term, query_syntax.MOST_EXPANDED),
            )
        else:
            rows = connection.execute("SELECT term, doc FROM vocabulary WHERE term = ?", (term,))
        counts.update(rows.fetchall())
    return counts


def _begun(connection: sqlite3.Connection, term: str) -> Iterator[str]:
    """The terms that a beginning stands for, in their order."""
    rows = connection.execute(
        "SELECT term FROM vocabulary WHERE term >= ? AND term < ? ORDER BY term", (term[:-1], term)
    )
    return (row[0] for row in rows)
