"""Full-text search (the text leg): BM25 over the postings of FTS5, with our own weights per field, k1, b and
idf.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition, visible
from contextrouter.builtin.providers.sqlite.rows import AdmittedChunks, best, numbers, numpy
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
    from contextrouter.builtin.providers.sqlite.rows import Numbers, Scores

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


class Postings(NamedTuple):
    """The chunks that have a term, each once, and how often: a count for each field, weighted."""

    chunks: Numbers
    frequencies: Scores


Contributions: TypeAlias = "dict[int, tuple[Postings, Scores]]"
"""What terms contribute to the scores of their chunks, before their weight; by `id()` of their postings."""


class TextQuery(NamedTuple):
    """The words of a question, whose scope `condition` holds as well, and how many chunks are asked for."""

    words: Sequence[Word]
    scope: Scope | None
    condition: Condition
    limit: int


class _Reading(NamedTuple):
    """A search while it reads: its snapshot, the store's id, postings that were read before, when to stop."""

    connection: sqlite3.Connection
    store: str
    recent: Recent[str, Postings]
    stop: Stop


class TextIndex:
    """Scores chunks by the terms of a question. Holds the chunks' lengths; the postings stay in the file.

    What a scope hides is no part of any count, so that no score says anything of it.
    """

    def __init__(self, weights: Mapping[str, float], admitted: AdmittedChunks) -> None:
        self._weights = {ord(field[0]): weight for field, weight in weights.items()}
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
        np = numpy()
        with stop.finishing():
            shown = self._label_counts.visible(connection, scope)
            lengths = self._lengths.read_at(connection)
        reading, average = self._reading(connection, stop), shown.average_length or 1.0
        # Each word has a chunk but once, so that sums can be kept by chunk: sorting the postings costs more.
        summed = np.zeros(len(lengths.values))
        for word in self._read(reading, words, shown):
            idf = bm25.weight(shown.chunks, sum([len(postings.chunks) for postings in word]))
            for postings in word:
                contribution = contributions.get(id(postings))
                if contribution is None:
                    relative = lengths.of(postings.chunks) / average
                    contribution = postings, bm25.saturation(postings.frequencies, relative)
                    contributions[id(postings)] = contribution  # it keeps them: no others get their id
                summed[postings.chunks - lengths.base] += idf * contribution[1]
        chosen = np.flatnonzero(summed > 0.0)
        summed, matches = summed[chosen], chosen + lengths.base
        if condition.sql and condition != visible(scope, "c"):
            with stop.finishing():
                admitted = self._admitted.indexes(matches, connection, reading.store, condition)
            summed, matches = summed[admitted], matches[admitted]
        return best(matches, summed, limit, 9)

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

    def _reading(self, connection: sqlite3.Connection, stop: Stop) -> _Reading:
        return _Reading(connection, schema.text(connection, "store"), self._recent.read_at(connection), stop)

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
            worth = dict.fromkeys(_worth_reading(reading.connection, every, shown.chunks))
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
            postings = Postings(postings.chunks[kept], postings.frequencies[kept])
        if condition.sql:
            with reading.stop.finishing():
                kept = self._admitted.indexes(postings.chunks, reading.connection, reading.store, condition)
            postings = Postings(postings.chunks[kept], postings.frequencies[kept])
        return postings

    def _postings(self, reading: _Reading, term: str) -> Postings:
        """The postings of a term. The queries of a question share most of their terms, and questions many."""
        postings = reading.recent.get(term)
        if postings is None:
            postings = self._read_postings(reading.connection, term)
            reading.recent.add(term, postings, len(postings.chunks))
        return postings

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
        found, starts = np.unique(coded >> 7, return_index=True)
        return Postings(found, np.add.reduceat(weights[coded & 127], starts))


def _worth_reading(connection: sqlite3.Connection, terms: Sequence[str], total: int) -> list[str]:
    """Terms whose postings are read. To count a term's chunks costs half as much as to read them: few are
    just read.
    """
    few = len(terms) <= FEW or len(terms) * total <= POSTINGS
    if few and not any(term.endswith(query_syntax.FURTHEST) for term in terms):
        return list(terms)
    budget = max(POSTINGS, FOLD * total)
    return bm25.rarest(list(frequencies(connection, terms).items()), budget)[:_MOST_TERMS]


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
