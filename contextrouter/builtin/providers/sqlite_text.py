"""The text leg: BM25 over the postings of FTS5, with weights per field and our own k1 and b, which FTS5 has fixed."""

# ruff: noqa: S608  (the statements are put together from fragments written here; every value is bound)

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nsmallest

from contextrouter.builtin.providers import sqlite_schema as schema
from contextrouter.builtin.providers import websearch
from contextrouter.builtin.providers.sqlite_file import Stop
from contextrouter.builtin.providers.sqlite_filter import Condition
from contextrouter.contracts import TermStatistics

POSTINGS = 40_000
"""Postings read for one question: some 40 ms. Beyond that the most common terms are left out; 5,000 chunks never get there."""


def best(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    weights: Mapping[str, float],
    condition: Condition,
    limit: int,
    stop: Stop,
) -> list[tuple[int, float]]:
    """The `limit` best chunks (number, score) and those tied with the last, best first."""
    total = schema.number(connection, "chunks")
    average = (schema.number(connection, "length") / total if total else 0.0) or 1.0
    counts = frequencies(connection, terms)
    scores: defaultdict[int, float] = defaultdict(float)
    for term in websearch.rarest(list(counts.items()), POSTINGS):
        stop.check()
        idf = websearch.weight(total, counts[term])
        found: dict[int, float] = {}
        lengths: dict[int, int] = {}
        rows = connection.execute(
            "SELECT p.doc, p.col, c.length FROM postings p CROSS JOIN chunks c ON c.number = p.doc"
            f" WHERE p.term = ? AND {condition.where}",
            (term, *condition.values),
        )
        for chunk, field, length in rows:
            found[chunk] = found.get(chunk, 0.0) + weights[field]
            lengths[chunk] = length
        for chunk, frequency in found.items():
            scores[chunk] += idf * websearch.saturation(frequency, lengths[chunk] / average)
    return cut([(chunk, round(score, 9)) for chunk, score in scores.items() if score > 0.0], limit)


def cut(scored: Sequence[tuple[int, float]], limit: int) -> list[tuple[int, float]]:
    """The `limit` best of (number, score), and all that are tied with the last of them."""
    top = nsmallest(limit, scored, key=lambda pair: (-pair[1], pair[0]))
    if len(top) < limit or not top:
        return top
    last, listed = top[-1][1], {number for number, _ in top}
    return top + sorted(pair for pair in scored if pair[1] == last and pair[0] not in listed)


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
