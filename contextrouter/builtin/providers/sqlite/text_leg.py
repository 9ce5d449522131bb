"""Full-text search (the text leg): BM25 over the postings of FTS5, with our own weights per field, k1, b and
idf.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition, visible
from contextrouter.builtin.providers.sqlite.rows import AdmittedChunks, best, numbers, numpy
from contextrouter.builtin.providers.sqlite.snapshot_cache import (
    ChunkLanguages,
    ChunkLengths,
    LabelCounts,
    VisibleChunks,
)
from contextrouter.contracts import TermStatistics
from contextrouter.scope import Scope
from contextrouter.text import bm25, query_syntax
from contextrouter.text.languages import Languages, analyses

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


class Postings(NamedTuple):
    """The chunks that have a term, each once, and how often: a count for each field, weighted."""

    chunks: Numbers
    frequencies: Scores


class TextIndex:
    """Scores chunks by the terms of a question. Holds the chunks' lengths; the postings stay in the file.

    What a scope hides is no part of any count, so that no score says anything of it.
    """

    def __init__(self, weights: Mapping[str, float], admitted: AdmittedChunks) -> None:
        self._weights = {ord(field[0]): weight for field, weight in weights.items()}
        self._admitted = admitted
        self._lengths, self._label_counts = ChunkLengths(), LabelCounts()
        self._languages = ChunkLanguages()

    def search(
        self,
        connection: sqlite3.Connection,
        terms: Mapping[str, Languages],
        scope: Scope | None,
        condition: Condition,
        limit: int,
        stop: Stop,
    ) -> list[tuple[int, float]]:
        """The `limit` best admitted chunks (number, score) and those tied with the last, best first.

        Each term is looked for in chunks in its languages. `condition` holds what `scope` asks as well.
        """
        np = numpy()
        with stop.finishing():
            shown = self._label_counts.visible(connection, scope)
            lengths = self._lengths.read_at(connection)
        store, average = schema.text(connection, "store"), shown.average_length or 1.0
        chunks, scores = [np.zeros(0, np.int64)], [np.zeros(0)]
        for found, frequencies in self._read(connection, store, terms, shown, stop):
            chunks.append(found)
            saturated = bm25.saturation(frequencies, lengths.of(found) / average)
            scores.append(bm25.weight(shown.chunks, len(found)) * saturated)
        found, places = np.unique(np.concatenate(chunks), return_inverse=True)
        summed = np.bincount(places, weights=np.concatenate(scores), minlength=len(found))
        chosen = np.flatnonzero(summed > 0.0)
        if condition.sql and condition != visible(scope, "c"):
            with stop.finishing():
                chosen = chosen[self._admitted.indexes(found[chosen], connection, store, condition)]
        return best(found[chosen], summed[chosen], limit, 9)

    def statistics(
        self, connection: sqlite3.Connection, terms: Sequence[str], scope: Scope | None, stop: Stop
    ) -> TermStatistics:
        """Counts over the chunks that the scope shows, each in its language; a term that is several words has
        the frequency of the rarest of them.
        """
        with stop.finishing():
            shown = self._label_counts.visible(connection, scope)
        store, held = schema.text(connection, "store"), schema.languages(connection)
        analysed = {term: analyses(term, held) for term in terms}
        counts: dict[tuple[str, Languages], int] = {}
        for found in analysed.values():
            for word, languages in (
                (word, languages) for words, languages in found.items() for word in words
            ):
                if (word, languages) in counts:
                    continue
                if shown.condition.sql or languages is not None:
                    postings = self._shown(connection, store, word, languages, shown.condition, stop)
                    counts[word, languages] = len(postings.chunks)
                else:
                    counts[word, languages] = frequencies(connection, [word]).get(word, 0)
        return TermStatistics(
            documents=shown.chunks,
            average_length=shown.average_length,
            frequencies={
                term: sum([min(counts[word, given] for word in words) for words, given in found.items()])
                for term, found in analysed.items()
            },
        )

    def forget(self) -> None:
        """Let go of everything."""
        self._lengths.forget()
        self._label_counts.forget()
        self._languages.forget()

    def _read(
        self,
        connection: sqlite3.Connection,
        store: str,
        terms: Mapping[str, Languages],
        shown: VisibleChunks,
        stop: Stop,
    ) -> Iterator[Postings]:
        """The postings of the terms that are worth reading, of the chunks that are shown; none is empty."""
        if not shown.condition.sql:
            for term in _worth_reading(connection, list(terms), shown.chunks):
                postings = self._shown(connection, store, term, terms.get(term), shown.condition, stop)
                if len(postings.chunks):
                    yield postings
            return
        # To count what is shown is to read it; which terms are left out must not hang on what is hidden.
        read: dict[str, Postings] = {}
        for term, languages in islice(terms.items(), _MOST_TERMS):
            found = self._expanded(connection, store, term, languages, shown.condition, stop)
            read |= islice(found, query_syntax.MOST_EXPANDED)
        counts = [(word, len(postings.chunks)) for word, postings in read.items()]
        budget = (
            sum([count for _, count in counts]) if len(counts) <= FEW else max(POSTINGS, FOLD * shown.chunks)
        )
        for word in bm25.rarest(counts, budget):
            yield read[word]

    def _expanded(
        self,
        connection: sqlite3.Connection,
        store: str,
        term: str,
        languages: Languages,
        condition: Condition,
        stop: Stop,
    ) -> Iterator[tuple[str, Postings]]:
        """The postings of a term, or of the terms that it begins, that are shown; none is empty."""
        for word in _begun(connection, term) if term.endswith(query_syntax.FURTHEST) else (term,):
            postings = self._shown(connection, store, word, languages, condition, stop)
            if len(postings.chunks):
                yield word, postings

    def _shown(
        self,
        connection: sqlite3.Connection,
        store: str,
        word: str,
        languages: Languages,
        condition: Condition,
        stop: Stop,
    ) -> Postings:
        """The postings of a term in chunks in `languages` that meet a condition."""
        stop.check()
        postings = self._postings(connection, word)
        if languages is not None:
            with stop.finishing():
                kept = self._languages.read_at(connection).among(postings.chunks, languages)
            postings = Postings(postings.chunks[kept], postings.frequencies[kept])
        if condition.sql:
            with stop.finishing():
                kept = self._admitted.indexes(postings.chunks, connection, store, condition)
            postings = Postings(postings.chunks[kept], postings.frequencies[kept])
        return postings

    def _postings(self, connection: sqlite3.Connection, term: str) -> Postings:
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
