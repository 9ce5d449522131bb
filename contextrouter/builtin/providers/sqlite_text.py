"""The text leg: BM25 over the postings of FTS5, with weights per field and our own k1, b and idf, which FTS5 has fixed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from contextrouter import websearch
from contextrouter.builtin.providers import sqlite_schema as schema
from contextrouter.builtin.providers.sqlite_file import Stop
from contextrouter.builtin.providers.sqlite_filter import Condition
from contextrouter.builtin.providers.sqlite_rows import Admissions, Lengths, best, numbers, numpy
from contextrouter.contracts import TermStatistics

POSTINGS, FOLD = 100_000, 2
"""Postings read for one question: the former, or FOLD times the chunks where that is more; then the commonest terms are left out.

Measured on cranfield, nfcorpus, scifact and vaswani, nDCG@10 against reading everything: within .0001 at twice the chunks, down
by up to .010 at once the chunks and by .042 at half of them.
"""
FEW = 8
"""Terms that are read without counting first: stop words left out, so few hardly ever have twice the chunks."""
_MOST_TERMS = 256


class TextIndex:
    """Scores chunks by the terms of a question. Holds the chunks' lengths; the postings stay in the file."""

    def __init__(self, weights: Mapping[str, float], admissions: Admissions) -> None:
        self._weights = {ord(field[0]): weight for field, weight in weights.items()}
        self._admissions = admissions
        self._lengths = Lengths()

    def search(
        self, connection: sqlite3.Connection, terms: Sequence[str], condition: Condition, limit: int, stop: Stop
    ) -> list[tuple[int, float]]:
        """The `limit` best admitted chunks (number, score) and those tied with the last, best first."""
        np = numpy()
        total, average = size(connection)
        weights = np.zeros(128)
        weights[list(self._weights)] = list(self._weights.values())
        store = schema.text(connection, "store")
        chunks, scores = [np.zeros(0, np.int64)], [np.zeros(0)]
        for term in _worth_reading(connection, terms, total):
            stop.check()
            # Postings of one term come by chunk; a field is known by its first letter.
            (coded,) = numbers(connection, "SELECT group_concat(doc * 128 + unicode(col)) FROM postings WHERE term = ?", (term,))
            if not len(coded):
                continue
            found, starts = np.unique(coded >> 7, return_index=True)
            frequency = np.add.reduceat(weights[coded & 127], starts)
            with stop.finishing():
                length = self._lengths.of(found, connection, store) / average
            chunks.append(found)
            scores.append(websearch.weight(total, len(found)) * websearch.saturation(frequency, length))
        found, places = np.unique(np.concatenate(chunks), return_inverse=True)
        summed = np.bincount(places, weights=np.concatenate(scores), minlength=len(found))
        chosen = np.flatnonzero(summed > 0.0)
        if condition.sql:
            with stop.finishing():
                chosen = chosen[self._admissions.among(found[chosen], connection, store, condition)]
        return best(found[chosen], summed[chosen], limit, 9)

    def forget(self) -> None:
        """Let go of everything."""
        self._lengths.forget()


def size(connection: sqlite3.Connection) -> tuple[int, float]:
    """How many chunks there are, and how many terms they have on average (1 where there is none)."""
    total = schema.number(connection, "chunks")
    return total, (schema.number(connection, "length") / total if total else 0.0) or 1.0


def _worth_reading(connection: sqlite3.Connection, terms: Sequence[str], total: int) -> list[str]:
    """Terms whose postings are read. To count a term's chunks costs half as much as to read them: few are just read."""
    few = len(terms) <= FEW or len(terms) * total <= POSTINGS
    if few and not any(term.endswith(websearch.FURTHEST) for term in terms):
        return list(terms)
    budget = max(POSTINGS, FOLD * total)
    return websearch.rarest(list(frequencies(connection, terms).items()), budget)[:_MOST_TERMS]


def frequencies(connection: sqlite3.Connection, terms: Sequence[str]) -> dict[str, int]:
    """In how many chunks each term occurs; a beginning stands for the terms it begins. Terms that do not occur are left out."""
    counts: dict[str, int] = {}
    for term in terms:
        if term.endswith(websearch.FURTHEST):
            rows = connection.execute(
                "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? ORDER BY term LIMIT ?",
                (term[:-1], term, websearch.MOST_BEGUN),
            )
        else:
            rows = connection.execute("SELECT term, doc FROM vocabulary WHERE term = ?", (term,))
        counts.update(rows.fetchall())
    return counts


def statistics(connection: sqlite3.Connection, terms: Sequence[str]) -> TermStatistics:
    """Counts over chunks; a term that is several words has the frequency of the rarest of them."""
    total = schema.number(connection, "chunks")
    analysed = {term: websearch.analyse(term) for term in terms}
    counts = frequencies(connection, list(dict.fromkeys(word for found in analysed.values() for word in found)))
    return TermStatistics(
        documents=total,
        average_length=schema.number(connection, "length") / total if total else 0.0,
        frequencies={term: min((counts.get(word, 0) for word in found), default=0) for term, found in analysed.items()},
    )
