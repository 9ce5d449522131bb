"""What a query lets through, as SQL over `chunks c`: the counterpart of `filtering.matches`, pushed down
before any limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextrouter.builtin.providers.filtering import COLUMNS, microseconds, names
from contextrouter.builtin.providers.postgres.connection_pool import clean
from contextrouter.filters import forms
from contextrouter.model import Period, Query
from contextrouter.scope import SHARED, Scope
from contextrouter.text.analysis import Phrase
from contextrouter.text.languages import Languages, LanguageTerms, others
from contextrouter.text.query_syntax import FURTHEST, QueryTerms
from contextrouter.text.stemming import ENGLISH

EVERYTHING = "true"
"""SQL that lets every row through."""
_BETWEEN = "\x1d"
_MARK = "\x1f"  # begins the lexeme that names a chunk's language; no term has such a character
_LONGEST = 500  # characters of a term that are indexed; Postgres allows 2046 bytes


class Values(list[Any]):
    """The values bound to one statement; `bound()` puts one in and says how it is written."""

    def bound(self, value: Any, type: str) -> str:
        """Add a value; return its place, cast to a type of Postgres."""
        self.append(value)
        return f"${len(self)}::{type}"


def admitted(query: Query, question: LanguageTerms, values: Values) -> str:
    """Scope, period, labels, filters, phrases and exclusions of a query, as SQL; `EVERYTHING` where all is
    let through.
    """
    parts = [
        visible(query.scope, "c", values),
        _period_condition(query.period, values),
        *(_phrases(terms, languages, values) for languages, terms in question.phrases()),
    ]
    parts += [_among("labels", query.labels, values)] if query.labels else []
    parts += [_among(key, value, values) for key, value in query.filters.items()]
    return " AND ".join(part for part in parts if part != EVERYTHING) or EVERYTHING


def visible(scope: Scope | None, table: str, values: Values) -> str:
    """Rows of `table` that the scope allows, by the rule of `Scope.allows`."""
    if scope is None:
        return EVERYTHING
    tenants = values.bound([clean(scope.tenant or ""), SHARED], "text[]")
    rooms = values.bound([clean(room) for room in sorted(scope.compartments)], "text[]")
    levels = values.bound(list(scope.levels()), "text[]")
    return (
        f"{table}.tenant = ANY ({tenants}) AND ({table}.compartment = '' OR {table}.compartment = ANY"
        f" ({rooms})) AND ({table}.sensitivity = '' OR {table}.sensitivity = ANY ({levels}))"
    )


def _period_condition(period: Period | None, values: Values) -> str:
    if period is None:
        return EVERYTHING
    start, end = map(microseconds, period.bounds())
    parts = ["c.updated_at IS NOT NULL"]
    if start is not None:
        parts.append(f"c.updated_at >= {values.bound(start, 'bigint')}")
    if end is not None:
        parts.append(f"c.updated_at < {values.bound(end, 'bigint')}")
    return " AND ".join(parts)


def _among(key: str, value: Any, values: Values) -> str:
    if key in COLUMNS:
        return f"c.{key} = ANY ({values.bound([clean(name) for name in names(value)], 'text[]')})"
    return f"c.filters && {values.bound([entry(key, item) for item in forms(value)], 'text[]')}"


def entry(key: str, value: str) -> str:
    """A key and one of its values as they stand in `chunks.filters`."""
    return beginning(key) + clean(value)


def entries(attributes: Mapping[str, Iterable[str]]) -> list[str]:
    """All a chunk can be filtered by."""
    return sorted({entry(key, value) for key, values_of_key in attributes.items() for value in values_of_key})


def value_of(path: str, key: str) -> str:
    """The value in an entry of `key`."""
    return path.removeprefix(beginning(key))


def beginning(key: str) -> str:
    """What the entries of `key` begin with."""
    return clean(key) + _BETWEEN


def _phrases(question: QueryTerms, languages: Languages, values: Values) -> str:
    """What must and what must not occur, as SQL; true for chunks in other languages."""
    parts = []
    if question.required:
        groups = " & ".join(f"({any_of(group)})" for group in question.required)
        parts.append(f"c.terms @@ {values.bound(groups, 'text')}::tsquery")
    if question.excluded:
        parts.append(f"NOT c.terms @@ {values.bound(any_of(question.excluded), 'text')}::tsquery")
    condition = " AND ".join(parts)
    if languages is None:
        return condition
    return f"(NOT c.terms @@ {values.bound(in_languages(languages), 'text')}::tsquery OR ({condition}))"


def mark(language: str) -> str:
    """The lexeme of chunks that have the stems of this language; English ones have none."""
    return f"'{_MARK}{language}'"


def in_languages(languages: frozenset[str]) -> str:
    """A tsquery for chunks in these languages."""
    if ENGLISH in languages:
        return f"!({' | '.join(map(mark, others(languages)))})"
    return " | ".join(map(mark, sorted(languages)))


def term_query(term: str, languages: Languages) -> str:
    """A tsquery for chunks in these languages that have a term."""
    return lexeme(term) if languages is None else f"{lexeme(term)} & ({in_languages(languages)})"


def any_of(phrases: Sequence[Phrase]) -> str:
    """A tsquery for any of the phrases, written out: nothing in it is parsed as a text of a user again."""
    return " | ".join(f"({_side_by_side(phrase)})" for phrase in phrases)


def _side_by_side(phrase: Phrase) -> str:
    """The terms of a phrase at their distances: a stop word ("") is not looked for and keeps its place."""
    parts, apart = [lexeme(phrase[0])], 1
    for term in phrase[1:]:
        if term:
            parts.append(f"<{apart}> {lexeme(term)}")
        apart = 1 if term else apart + 1
    return " ".join(parts)


def lexeme(term: str) -> str:
    """A term as a quoted lexeme of a tsquery; one that ends in `FURTHEST` asks for all that begin with it."""
    begins = term.endswith(FURTHEST)
    word = term.removesuffix(FURTHEST)[:_LONGEST].replace("\\", "\\\\").replace("'", "''")
    return f"'{word}'" + (":*" if begins else "")
