# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Full-text search (the text leg): candidates by the GIN index over weighted terms, scored by idf and
Postgres' own saturating rank.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from contextrouter.builtin.providers.postgres.filter import Values, admitted, lexeme, term_query, visible
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

BUDGET = 20_000
"""Chunks that one question may nominate: its rarest terms do, until their postings are so many; all its terms
score.
"""
_MOST_COUNTED, _MOST_SCORED = 128, 48  # terms of a question
_FILLED = "text_search"  # the note of the words that filled the store
_FIRST = 6 / 3.141592653589793**2
"""What ts_rank gives a term that occurs once with weight 1; its sum over 1/n² is within 1 % of tf / (tf +
0.645).
"""


_NOTES = "SELECT json_object_agg(key, value) FROM meta WHERE key = ANY ({})"
_RANKS = (
    "SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('chunks_words')), false)"
    " AND (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'chunks'::regclass)"
    " AND (SELECT value FROM meta WHERE key = 'text_search') = {0}"
    " AND (SELECT coalesce(sum(chunks) = sum(chunks) FILTER (WHERE {1}), false) FROM counts c)"
    " AND set_config('enable_sort', 'off', true) = 'off' AS usable,"
    f" ({_NOTES.format('{2}')}) AS notes"
)


class _Term(NamedTuple):
    """A term of a question."""

    tsquery: str  # finds the chunks in which it is looked for
    term: str
    word: int  # the word's place in the question


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
    schema: str,
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
    rule, keys = visible(query.scope, "c", values) or "true", values.bound(note_keys(), "text[]")
    row = await connection.fetchrow(_RANKS.format(filled, rule, keys), *values)
    if row is None or not row["usable"]:
        return []
    vector, sent = _vector_columns(model, json.loads(row["notes"] or "{}"))
    values = Values()
    condition = admitted(query, question, values)
    hexadecimal = ("x" + term.encode().hex() for term in islice(terms, _MOST_COUNTED))
    words_sql = values.bound(" ".join(hexadecimal), "text")
    limit = values.bound(query.limit, "bigint")
    distance = f"c.words <@> to_bm25query({words_sql}, '{schema}.chunks_words')"
    found: list[Any] = await connection.fetch(
        f"SELECT payload, score, {sent} AS sent FROM (SELECT c.id, c.tenant,"
        f" c.payload, {vector} AS vector, round((-({distance}))::numeric, 6)::float8 AS score FROM"
        f" chunks c{' WHERE ' + condition if condition else ''} ORDER BY {distance} LIMIT {limit}) s"
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
    terms = [
        _Term(term_query(term, languages), term, place)
        for place, word in enumerate(question.words)
        for term, languages in word.items()
    ][:_MOST_COUNTED]
    frequencies, total, average, notes = await counted(
        connection, [term.tsquery for term in terms], query.scope
    )
    words.refuse_others(notes.get(_FILLED))
    vector, sent = _vector_columns(model, notes)
    if not any(frequencies.values()):
        return []
    nominating = bm25.rarest(list(frequencies.items()), BUDGET)
    scored = bm25.rarest(list(frequencies.items()), sum(frequencies.values()))[:_MOST_SCORED]
    values = Values()
    condition = admitted(query, question, values)
    any_term = values.bound(" | ".join(f"({tsquery})" for tsquery in nominating[:_MOST_SCORED]), "text")
    ranked = values.bound(list(weights), "real[]")
    idf = _idf(terms, frequencies, total)
    parts = [
        f"{values.bound(idf[term.word], 'float8')} * {_rank(ranked, term, values)}"
        for term in terms
        if term.tsquery in scored
    ]
    length = f"c.length / {values.bound(average or 1.0, 'float8')}"
    score = f"({' + '.join(parts)}) * {values.bound(factor, 'float8')} * {_share(length)}"
    found: list[Any] = await connection.fetch(
        f"SELECT payload, score, {sent} AS sent FROM (SELECT c.id, c.tenant,"
        f" c.payload, {vector} AS vector, round({score} * 1e6) / 1e6 AS score FROM chunks c WHERE"
        f" c.terms @@ {any_term}::tsquery{' AND ' + condition if condition else ''}"
        # scored once, so not in a WHERE
        f" ORDER BY score DESC, id, tenant LIMIT {values.bound(query.limit, 'bigint')}) s"
        " WHERE score > 0 ORDER BY score DESC, id, tenant",
        *values,
    )
    return found


def _idf(terms: Sequence[_Term], frequencies: Mapping[str, int], total: int) -> dict[int, float]:
    """How rare each word is: its terms count together, each in its languages."""
    of_word: Counter[int] = Counter()
    for term in terms:
        of_word[term.word] += frequencies[term.tsquery]
    return {word: bm25.weight(total, frequency) for word, frequency in of_word.items()}


def _rank(weights: str, term: _Term, values: Values) -> str:
    """What a term gives to the score of a chunk that its tsquery finds, before idf."""
    rank = f"ts_rank({weights}, c.terms, {values.bound(lexeme(term.term), 'text')}::tsquery)"
    if term.tsquery == lexeme(term.term):
        return rank
    return f"CASE WHEN c.terms @@ {values.bound(term.tsquery, 'text')}::tsquery THEN {rank} ELSE 0 END"


def _share(length: str) -> str:
    """What a chunk's length leaves of a term that occurs once: 1 at the average length."""
    k1, b = bm25.K1, bm25.B
    return f"{1.0 + k1} / ({1.0 + k1 * (1.0 - b)} + {k1 * b} * {length})"


async def counted(
    connection: Connection, queries: Sequence[str], scope: Scope | None
) -> tuple[dict[str, int], int, float, Mapping[str, str]]:
    """How many chunks that the scope shows each tsquery finds, how many it shows, and how many terms they
    have on average.

    And what is noted of the words that filled the store, and of its vectors. Counted no further than
    `BUDGET`, within the scope: rarity is no hint at what others have.
    """
    values = Values()
    given = values.bound(list(queries), "text[]")
    shown = visible(scope, "c", values)
    keys = values.bound([_FILLED, *note_keys()], "text[]")
    row = await connection.fetchrow(
        "SELECT ARRAY(SELECT (SELECT count(*) FROM (SELECT FROM chunks c WHERE c.terms @@ t.term::tsquery"
        f"{' AND ' + shown if shown else ''} LIMIT {BUDGET}) s)"
        f" FROM unnest({given}) WITH ORDINALITY AS t (term, place) ORDER BY t.place) AS many,"
        " coalesce(sum(c.chunks), 0)::bigint AS chunks, coalesce(sum(c.length), 0)::bigint AS length"
        f", ({_NOTES.format(keys)}) AS notes"
        f" FROM counts c WHERE {shown or 'true'}",
        *values,
    )
    assert row is not None
    chunks = row["chunks"]
    average = row["length"] / chunks if chunks else 0.0
    return dict(zip(queries, row["many"], strict=True)), chunks, average, json.loads(row["notes"] or "{}")


async def statistics(
    connection: Connection, analysed: Mapping[str, Mapping[Phrase, Languages]], scope: Scope | None
) -> TermStatistics:
    """Counts over the chunks that the scope shows, each in its language; a term that is several words has the
    frequency of the rarest of them. `analysed` has the index terms of each term, and in which languages.
    """
    queries = {
        term: [[term_query(word, languages) for word in words] for words, languages in found.items()]
        for term, found in analysed.items()
    }
    words = dict.fromkeys(query for found in queries.values() for each in found for query in each)
    counts, total, average, _ = await counted(connection, list(words), scope)
    return TermStatistics(
        documents=total,
        average_length=average,
        frequencies={
            term: sum([min(counts[query] for query in each) for each in found])
            for term, found in queries.items()
        },
    )
