# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Full-text search (the text leg): candidates by the GIN indexes over weighted terms, scored by idf and
Postgres' own saturating rank.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from contextrouter.builtin.providers.postgres import nomination, schema
from contextrouter.builtin.providers.postgres.filter import Values, admitted, term_query, visible
from contextrouter.builtin.providers.postgres.nomination import Term
from contextrouter.builtin.providers.postgres.text_configurations import Words
from contextrouter.builtin.providers.vector_slots import answering, note_keys, read_slots
from contextrouter.contracts import TermStatistics
from contextrouter.model import Query
from contextrouter.scope import Scope
from contextrouter.text import bm25, query_syntax
from contextrouter.text.analysis import Phrase
from contextrouter.text.languages import Languages, LanguageTerms

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

_MOST_COUNTED, _MOST_SCORED = 128, 48  # terms of a question
_FIRST = 6 / math.pi**2
"""What ts_rank gives a term that occurs once with weight 1; its sum over 1/n² is within 1 % of tf / (tf +
0.645).
"""

_RANKS = (
    "SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('chunks_words')), false)"
    " AND (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'chunks'::regclass)"
    " AND (SELECT value FROM meta WHERE key = 'text_search') = {0}"
    " AND (SELECT coalesce(sum(chunks) = sum(chunks) FILTER (WHERE {1}), false) FROM counts c)"
    " AND set_config('enable_sort', 'off', true) = 'off' AS usable,"
    f" ({schema.NOTES.format('{2}')}) AS notes"
)


def rank_weights(title: float, path: float, body: float) -> tuple[list[float], float]:
    """Weights of tsvector classes D, C, B, A whose ts_rank is, up to the factor returned, BM25's contribution
    per field.
    """
    once = [float(bm25.saturation(weight, 1.0)) for weight in (title, path, body)]
    most = max(once)
    title, path, body = (each / most for each in once)
    return [0.0, body, path, title], most / _FIRST


def _vector_columns(model: tuple[str, int] | None, notes: Mapping[str, str]) -> tuple[str, str]:
    """The column of the vectors that answer the questions of `model`, and what is sent of it; nothing where
    none do, or without a model. `notes` are those about the places.
    """
    slot = answering(read_slots(notes), *model) if model is not None else None
    return ("NULL", "NULL::bytea") if slot is None else (f"c.vector{slot.suffix}", "vector_send(vector)")


async def search_index(
    connection: Connection,
    query: Query,
    question: LanguageTerms,
    words: Words,
    model: tuple[str, int] | None,
    schema_name: str,
) -> list[Any]:
    """As `search()`, by the index of pg_textsearch; nothing where it cannot fill the limit.

    That index reads what scores best, whoever may see it and in whichever language, and weighs terms by all
    chunks there are. So it is asked only in a scope that shows them all, by a role that row-level security
    lets pass, for terms that are the same in all languages of the store.
    """
    terms = [term for word in question.words for term in word]
    if not terms or any(
        languages is not None or term.endswith(query_syntax.FURTHEST)
        for word in question.words
        for term, languages in word.items()
    ):
        return []
    values = Values()
    filled = values.bound(words.note, "text")
    rule, keys = visible(query.scope, "c", values), values.bound(note_keys(), "text[]")
    row = await connection.fetchrow(_RANKS.format(filled, rule, keys), *values)
    if row is None or not row["usable"]:
        return []
    vector, sent = _vector_columns(model, json.loads(row["notes"] or "{}"))
    values = Values()
    condition = admitted(query, question, values)
    hexadecimal = ("x" + term.encode().hex() for term in islice(terms, _MOST_COUNTED))
    words_sql = values.bound(" ".join(hexadecimal), "text")
    limit = values.bound(query.limit, "bigint")
    distance = f"c.words <@> to_bm25query({words_sql}, '{schema_name}.chunks_words')"
    found: list[Any] = await connection.fetch(
        f"SELECT payload, score, {sent} AS sent FROM (SELECT c.id, c.tenant,"
        f" c.payload, {vector} AS vector, round((-({distance}))::numeric, 6)::float8 AS score FROM"
        f" chunks c WHERE {condition} ORDER BY {distance} LIMIT {limit}) s"
        " WHERE score > 0 ORDER BY score DESC, id, tenant",
        *values,
    )
    return found if len(found) >= query.limit else []


async def search(
    connection: Connection,
    query: Query,
    question: LanguageTerms,
    words: Words,
    model: tuple[str, int] | None,
    weights: Sequence[float],
    factor: float,
) -> list[Any]:
    """The best admitted chunks (payload, score, vector as bytes or None), best first, ties by id and tenant.

    There are none without a term to look for. Raises SourceError when the store was filled with other words
    than those of `question`.
    """
    totals = await nomination.read_totals(connection, query.scope)
    words.refuse_others(totals.notes.get(schema.TEXT_SEARCH))
    vector, sent = _vector_columns(model, totals.notes)
    terms = [
        Term(term_query(term, languages), term, index)
        for index, word in enumerate(question.words)
        for term, languages in word.items()
    ][:_MOST_COUNTED]
    if not terms or not totals.chunks:
        return []
    values = Values()
    condition = admitted(query, question, values)
    sample = await nomination.read_sample(connection, terms, totals, query.scope, condition, values)
    frequencies = await nomination.read_frequencies(connection, terms, sample, totals, query.scope)
    idf = _idf(terms, frequencies, totals.chunks)
    if not idf:
        return []
    score = _score([term for term in terms if term.tsquery in idf], idf, weights, values)
    share = _share(f"c.length / {values.bound(totals.average_length or 1.0, 'float8')}")
    score = f"({score}) * {values.bound(factor, 'float8')} * {share}"
    limit = values.bound(query.limit, "bigint")
    source = totals.source(query.scope, values)
    rows: list[Any] = []
    for nominated in nomination.nominate(terms, idf, sample, query.limit, frequent=totals.frequent):
        bound = Values(values)
        conditions = f"{nominated.condition(bound)} AND {condition}"
        rows = await connection.fetch(
            f"SELECT payload, score, {sent} AS sent FROM (SELECT c.id, c.tenant, c.payload, {vector}"
            f" AS vector, round({score} * 1e6) / 1e6 AS score FROM {source} WHERE {conditions}"
            f" ORDER BY score DESC, id, tenant LIMIT {limit}) s"  # scored once, so not in a WHERE
            " WHERE score > 0 ORDER BY score DESC, id, tenant",
            *bound,
        )
        if len(rows) >= query.limit:
            break
    return rows


def _idf(terms: Sequence[Term], frequencies: Mapping[str, int], total: int) -> dict[str, float]:
    """How rare the word of each term is, by its tsquery; the rarest terms score. Terms of one word count
    together, each in its languages.
    """
    of_word: Counter[int] = Counter()
    for term in terms:
        of_word[term.word] += frequencies[term.tsquery]
    scored = bm25.rarest(list(frequencies.items()), sum(frequencies.values()))[:_MOST_SCORED]
    return {term.tsquery: bm25.weight(total, of_word[term.word]) for term in terms if term.tsquery in scored}


def _score(terms: Sequence[Term], idf: Mapping[str, float], weights: Sequence[float], values: Values) -> str:
    """What the terms give to the score of a chunk, as SQL."""
    ranked = values.bound(list(weights), "real[]")
    return " + ".join(
        f"{values.bound(idf[term.tsquery], 'float8')} * {nomination.term_rank(ranked, term, values)}"
        for term in terms
    )


def _share(length: str) -> str:
    """What a chunk's length leaves of a term that occurs once: 1 at the average length."""
    k1, b = bm25.K1, bm25.B
    return f"{1.0 + k1} / ({1.0 + k1 * (1.0 - b)} + {k1 * b} * {length})"


async def statistics(
    connection: Connection, analysed: Mapping[str, Mapping[Phrase, Languages]], scope: Scope | None
) -> TermStatistics:
    """Counts over the chunks that the scope shows, each in its language; a term that is several words has the
    frequency of the rarest of them. `analysed` has the index terms of each term, and in which languages.
    """
    queries = {
        text: [
            [Term(term_query(term, languages), term, 0) for term in phrase]
            for phrase, languages in found.items()
        ]
        for text, found in analysed.items()
    }
    terms = list(dict.fromkeys(term for found in queries.values() for each in found for term in each))
    totals = await nomination.read_totals(connection, scope)
    counts: dict[str, int] = {}
    if terms and totals.chunks:
        sample = await nomination.read_sample(connection, terms, totals, scope)
        counts = await nomination.read_frequencies(connection, terms, sample, totals, scope)
    return TermStatistics(
        documents=totals.chunks,
        average_length=totals.average_length,
        frequencies={
            text: sum([min(counts.get(term.tsquery, 0) for term in each) for each in found])
            for text, found in queries.items()
        },
    )
