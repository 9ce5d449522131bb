"""BM25 over the candidates of all sources, with the term statistics of all sources together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextrouter.contracts import TermStatistics
from contextrouter.model import Document
from contextrouter.pipeline.deadline import Deadline
from contextrouter.text import analysis, bm25, query_syntax
from contextrouter.text.term_counter import TermCounter

Counts = Mapping[int, tuple[Mapping[int, float], int]]
"""Document -> how often each term occurs in it, by the position of the term, and its length."""


def score_texts(
    documents: Sequence[Document],
    found_by: Mapping[int, frozenset[str]],
    queries: Sequence[str],
    statistics: Mapping[str, TermStatistics],
    deadline: Deadline,
) -> dict[int, float]:
    """Return the scores above 0 of the documents in `found_by` (number -> sources), each by the query that
    fits it best.

    A source without `statistics` is taken to hold what it returned. Raises TimeoutError when the deadline
    comes first.
    """
    terms = [
        [term for term in query_syntax.query_terms(query).terms if not term.endswith(query_syntax.FURTHEST)]
        for query in queries
    ]
    positions = {
        term: position
        for position, term in enumerate(dict.fromkeys(term for group in terms for term in group))
    }
    if not positions:
        return {}
    counter = TermCounter(positions)
    counts = {}
    for number in found_by:
        if deadline.left() <= 0:
            raise TimeoutError
        counts[number] = counter.count(documents[number])
    idf = _idf(positions, found_by, counts, statistics)
    average = sum([length for _, length in counts.values()]) / len(counts) or 1.0
    sets = [{positions[term] for term in group} for group in terms]
    groups = [
        sorted(group) for group in sets if not any(group < larger for larger in sets)
    ]  # a part never scores higher
    scores: dict[int, float] = {}
    for number, (times, length) in counts.items():
        parts = {
            position: idf[position] * bm25.saturation(count, length / average)
            for position, count in times.items()
        }
        score = max([sum([parts[position] for position in group if position in parts]) for group in groups])
        if score > 0:
            scores[number] = score
    return scores


def _idf(
    positions: Mapping[str, int],
    found_by: Mapping[int, frozenset[str]],
    counts: Counts,
    statistics: Mapping[str, TermStatistics],
) -> list[float]:
    """Return how rare each term is over all sources together."""
    total = sum([report.documents for report in statistics.values()])
    frequencies = [0] * len(positions)
    for report in statistics.values():
        counted: dict[int, int] = {}  # a term may come of several words: the commonest has most of it
        for word, frequency in report.frequencies.items():
            for term in analysis.analyse(word):
                if term in positions:
                    counted[positions[term]] = max(counted.get(positions[term], 0), frequency)
        for position, frequency in counted.items():
            frequencies[position] += frequency
    for number, (times, _) in counts.items():
        silent = len(found_by[number] - statistics.keys())
        total += silent
        for position in times if silent else ():
            frequencies[position] += silent
    return [bm25.weight(total, frequency) for frequency in frequencies]
