"""The text leg: BM25 over the postings of FTS5, with weights per field and our own k1 and b, which FTS5 has fixed."""

# ruff: noqa: S608  (the statements are put together from fragments written here; every value is bound)

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from contextrouter.builtin.providers import sqlite_schema as schema
from contextrouter.builtin.providers import websearch
from contextrouter.builtin.providers.sqlite_filter import Condition
from contextrouter.contracts import TermStatistics

POSTINGS = 40_000
"""Postings read for one question: some 40 ms. Beyond that the most common terms are left out; 5,000 chunks never get there."""
_MOST_TERMS = 256
_ONE_TERM = (
    "SELECT doc, ? AS idf, sum(CASE col WHEN 'title' THEN :title WHEN 'path' THEN :path ELSE :body END) AS tf"
    " FROM postings WHERE term = ? GROUP BY doc"
)


def best(
    connection: sqlite3.Connection, terms: Sequence[str], weights: Mapping[str, float], condition: Condition, limit: int
) -> list[tuple[int, float]]:
    """The `limit` best admitted chunks (number, score), best first, ties by id. One statement, which a deadline interrupts."""
    total = schema.number(connection, "chunks")
    average = (schema.number(connection, "length") / total if total else 0.0) or 1.0
    counts = frequencies(connection, terms)
    chosen = websearch.rarest(list(counts.items()), POSTINGS)[:_MOST_TERMS]
    if not chosen:
        return []
    one = _ONE_TERM
    for field, weight in weights.items():
        one = one.replace(f":{field}", repr(float(weight)))
    k1, b = websearch.K1, websearch.B
    sql = (
        f"SELECT c.number, round(sum(x.idf * x.tf * {k1 + 1} / (x.tf + {k1 * (1 - b)} + {k1 * b} * c.length / ?)), 9) AS score"
        f" FROM ({' UNION ALL '.join([one] * len(chosen))}) x CROSS JOIN chunks c ON c.number = x.doc"
        f" WHERE x.tf > 0 AND {condition.where} GROUP BY c.number ORDER BY score DESC, c.id, c.tenant LIMIT ?"
    )
    values = [value for term in chosen for value in (websearch.weight(total, counts[term]), term)]
    return connection.execute(sql, (average, *values, *condition.values, limit)).fetchall()


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
