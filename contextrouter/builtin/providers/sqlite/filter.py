"""What a query lets through, as SQL over `chunks c`: the counterpart of `filtering.matches`, pushed down
before any limit.
"""

# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from contextrouter.builtin.providers.filtering import COLUMNS, microseconds, names
from contextrouter.builtin.providers.sqlite.schema import STEMS
from contextrouter.filters import forms
from contextrouter.model import Period, Query
from contextrouter.scope import SHARED, Scope
from contextrouter.text.analysis import Phrase
from contextrouter.text.languages import LanguageTerms, others
from contextrouter.text.query_syntax import FURTHEST, QueryTerms
from contextrouter.text.stemming import ENGLISH


class Condition(NamedTuple):
    """A conjunction: SQL that is true where a row passes, and its bound values. Empty SQL lets everything
    through.
    """

    sql: str = ""
    values: tuple[Any, ...] = ()

    def __and__(self, condition: Condition) -> Condition:
        if not (self.sql and condition.sql):
            return self if self.sql else condition
        return Condition(f"{self.sql} AND {condition.sql}", self.values + condition.values)

    @property
    def where(self) -> str:
        """The SQL, or something true."""
        return self.sql or "1"


EVERYTHING = Condition()


def admitted(query: Query, question: LanguageTerms) -> Condition:
    """Scope, period, labels, filters, phrases and exclusions of a query."""
    condition = visible(query.scope, "c") & period_condition(query.period)
    for languages, terms in question.phrases():
        condition &= _in_languages(languages, phrase_condition(terms))
    if query.labels:
        condition &= metadata_condition({"labels": query.labels})
    return condition & metadata_condition(query.filters)


def visible(scope: Scope | None, table: str) -> Condition:
    """Rows of `table` that the scope allows, by the rule of `Scope.allows`."""
    if scope is None:
        return EVERYTHING
    return Condition(
        f"{table}.tenant IN (?, ?)"
        f" AND ({table}.compartment = '' OR {table}.compartment IN (SELECT value FROM json_each(?)))"
        f" AND ({table}.sensitivity = '' OR {table}.sensitivity IN (SELECT value FROM json_each(?)))",
        (scope.tenant or "", SHARED, json.dumps(sorted(scope.compartments)), json.dumps(scope.levels())),
    )


def period_condition(period: Period | None) -> Condition:
    """Chunks whose document was updated in the period; undated ones are in none."""
    if period is None:
        return EVERYTHING
    condition = Condition("c.updated_at IS NOT NULL")
    start, end = map(microseconds, period.bounds())
    if start is not None:
        condition &= Condition("c.updated_at >= ?", (start,))
    if end is not None:
        condition &= Condition("c.updated_at < ?", (end,))
    return condition


def metadata_condition(filters: Mapping[str, Any]) -> Condition:
    """Chunks that have, under each key, one of the values asked for."""
    condition = EVERYTHING
    for key, value in filters.items():
        if key in COLUMNS:
            condition &= Condition(
                f"c.{key} IN (SELECT value FROM json_each(?))", (json.dumps(names(value)),)
            )
            continue
        condition &= Condition(
            f"c.number IN {_WITH_VALUE}",
            (str(key).encode("utf-8", "replace").decode(), json.dumps(forms(value))),
        )
    return condition


_WITH_VALUE = (
    "(SELECT f.chunk FROM filters f JOIN filter_values v ON v.number = f.value"
    " WHERE v.key = ? AND v.value IN (SELECT value FROM json_each(?)))"
)


def _in_languages(languages: frozenset[str] | None, condition: Condition) -> Condition:
    """A condition that holds for chunks in some languages, and leaves those in others alone."""
    if languages is None:
        return condition
    english = ENGLISH in languages
    values = others(languages) if english else sorted(languages)
    return Condition(
        f"(c.number {'IN' if english else 'NOT IN'} {_WITH_VALUE} OR ({condition.sql}))",
        (STEMS, json.dumps(values), *condition.values),
    )


def phrase_condition(web_query: QueryTerms) -> Condition:
    """Chunks with a phrase of each required group and with no excluded one."""
    condition = EVERYTHING
    if web_query.required:
        groups = " AND ".join(f"({_alternatives(group)})" for group in web_query.required)
        condition &= Condition("c.number IN (SELECT rowid FROM terms WHERE terms MATCH ?)", (groups,))
    if web_query.excluded:
        without = _alternatives(web_query.excluded)
        condition &= Condition("c.number NOT IN (SELECT rowid FROM terms WHERE terms MATCH ?)", (without,))
    return condition


def _alternatives(group: tuple[Phrase, ...]) -> str:
    """FTS5 syntax for any of the phrases. Terms hold letters, digits and marks only: nothing in them can end
    a quotation.
    """
    phrases = (" ".join(phrase) for phrase in group)
    return " OR ".join(f'"{p[:-1]}" *' if p.endswith(FURTHEST) else f'"{p}"' for p in phrases)
