# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Which chunks the text leg scores: those whose terms of the question weigh most together.

A sample of the chunks that the scope shows says how common each term is, and how many chunks hold which of
them. A chunk is in the sample by its id alone, so that nothing hangs on what the scope hides.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.builtin.providers.postgres.filter import Values, lexeme, visible
from contextrouter.builtin.providers.vector_slots import note_keys
from contextrouter.scope import Scope

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

FILLED = "text_search"
"""The key in `meta` of the words that filled the store."""
NOTES = "SELECT json_object_agg(key, value) FROM meta WHERE key = ANY ({})"
"""Values of `meta`, by key, as JSON."""
SAMPLED = "left(md5({0}id), 2) = ANY ('{{00,01,02,03}}'::text[])"
"""Whether a chunk is in the sample, one in `ONE_IN`; the index `chunks_sample` has these chunks alone."""
ONE_IN = 64
WHOLE, NARROW, FEW_OF = 4_096, 16_384, 8
"""A scope of so many chunks needs no sample. Up to the second number, and less than one in `FEW_OF` of the
store, all its chunks are read first, for the server would look for the terms in all of the store.
"""
SURE = 64
"""Chunks of the sample that have a term, from which on its frequency is estimated: within an eighth, mostly.
Others are counted.
"""
LEAST_SCORED, SCORED_PER_HIT, TOO_MANY = 2_000, 20, 4
"""Chunks worth scoring: the first, or the second for each that is asked for. Of more than `TOO_MANY` times
that, and `NARROW`, whose terms weigh the same, those that hold them often.
"""
_MOST_COUNTED = 2 * SURE * ONE_IN
_MOST_NOMINATING = 8  # terms, the rarest: to look for more of them together takes longer than it saves
_FINEST = 10  # weight of the rarest term; the others have whole numbers below it
_FREQUENT, _VERY_FREQUENT, _WEIGHTS = 0.5776, 0.6468, "'{0,0.72,0.72,1}'::real[]"
"""`ts_rank` of a term with these weights is above the first number where it is in the title, or there three
times (.72 + .72/4 + .72/9, over pi²/6); above the second where it is in the title and elsewhere, or there six
times. So `frequent_terms` has it, and has it with `VERY`.
"""
VERY = "\x1e"


class Term(NamedTuple):
    """A term of a question."""

    tsquery: str  # finds the chunks in which it is looked for
    term: str
    word: int  # the word's place in the question


class Totals(NamedTuple):
    """What a scope shows: chunks, and how many terms they have on average."""

    chunks: int
    average_length: float
    notes: Mapping[str, str]  # of the words that filled the store, and of its vectors
    frequent: bool  # whether the index of frequent terms can be read
    narrow: bool  # whether the scope shows few chunks of many

    def source(self, scope: Scope | None, values: Values) -> str:
        """The chunks, as SQL; those of a narrow scope are read before anything else is asked of them."""
        if not self.narrow:
            return "chunks c"
        return f"(SELECT * FROM chunks c WHERE {visible(scope, 'c', values) or 'true'} OFFSET 0) c"


class Sample(NamedTuple):
    """Chunks that the scope shows and that have a term of the question."""

    one_in: int
    patterns: Counter[str]
    """What they hold, and how many do: for each term 0, 1, or 2 or 3 where it is frequent in the chunk."""
    admitted: Counter[str]
    """The same of those chunks that filters, period and phrases let through."""
    whole: Counter[str]
    """The same as `patterns` of all chunks that a narrow scope shows."""


class Nomination(NamedTuple):
    """Chunks to score, as tsqueries over their terms, and over their frequent terms ("": over neither)."""

    terms: str
    frequent: str = ""

    def condition(self, values: Values) -> str:
        """The same as SQL."""
        columns = (("c.terms", self.terms), ("frequent_terms(c.terms)", self.frequent))
        parts = [f"{column} @@ {values.bound(query, 'text')}::tsquery" for column, query in columns if query]
        return f"({' OR '.join(parts)})"


async def read_totals(connection: Connection, scope: Scope | None) -> Totals:
    """Count what the scope shows, by the labels alone."""
    values = Values()
    keys = values.bound([FILLED, *note_keys()], "text[]")
    row = await connection.fetchrow(
        "SELECT coalesce(sum(c.chunks), 0)::bigint AS chunks, coalesce(sum(c.length), 0)::bigint AS length,"
        " (SELECT coalesce(sum(chunks), 0)::bigint FROM counts) AS store,"
        f" ({NOTES.format(keys)}) AS notes,"
        # a role behind row-level security cannot use the index: the server would read every row
        " NOT row_security_active('chunks') AND EXISTS (SELECT FROM pg_index WHERE indexrelid ="
        " to_regclass('chunks_frequent') AND indisvalid) AS frequent,"
        # a plan for any terms suits rare ones alone; a second process takes longer to start than all of it
        " set_config('plan_cache_mode', 'force_custom_plan', true),"
        " set_config('max_parallel_workers_per_gather', '0', true),"
        # to look for many terms in a row costs more than the server thinks
        " set_config('enable_seqscan', 'off', true)"
        f" FROM counts c WHERE {visible(scope, 'c', values) or 'true'}",
        *values,
    )
    assert row is not None
    average = row["length"] / row["chunks"] if row["chunks"] else 0.0
    narrow = row["chunks"] <= min(NARROW, row["store"] / FEW_OF)
    notes = json.loads(row["notes"] or "{}")
    return Totals(row["chunks"], average, notes, row["frequent"] and row["chunks"] > NARROW, narrow)


async def read_sample(
    connection: Connection,
    terms: Sequence[Term],
    totals: Totals,
    scope: Scope | None,
    admitted: str = "",
    values: Sequence[object] = (),
) -> Sample:
    """Look at the sample, or at all chunks where there are few. `admitted` is SQL with `values` for what else
    the question demands. How large the store is changes how the chunks are read, and no count.
    """
    bound = Values(values)
    ranks = [term_rank(_WEIGHTS, term, bound) for term in terms]
    listed = ", ".join(f"{sql} AS r{number}" for number, sql in enumerate(ranks))
    digits = " || ".join(
        f"CASE WHEN r{n} > {_VERY_FREQUENT} THEN '3' WHEN r{n} > {_FREQUENT} THEN '2' WHEN r{n} > 0 THEN '1'"
        " ELSE '0' END"
        for n in range(len(ranks))
    )
    sampled = SAMPLED.format("c.") if totals.chunks > WHOLE else ""
    conditions = [
        "" if totals.narrow else sampled,
        visible(scope, "c", bound),
        f"c.terms @@ {bound.bound(any_of_terms(term.tsquery for term in terms), 'text')}::tsquery",
    ]
    rows = await connection.fetch(
        f"SELECT {digits} AS pattern, sampled, admitted, count(*) AS many FROM"
        f" (SELECT {listed}, {sampled or 'true'} AS sampled, {admitted or 'true'} AS admitted"
        f" FROM {totals.source(scope, bound)} WHERE {' AND '.join(filter(None, conditions))}"
        " OFFSET 0) s GROUP BY 1, 2, 3",  # OFFSET: ranked once
        *bound,
    )
    patterns, let_through, whole = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        whole[row["pattern"]] += row["many"]
        if row["sampled"]:
            patterns[row["pattern"]] += row["many"]
            if row["admitted"]:
                let_through[row["pattern"]] += row["many"]
    return Sample(ONE_IN if sampled else 1, patterns, let_through, whole)


async def read_frequencies(
    connection: Connection, terms: Sequence[Term], sample: Sample, totals: Totals, scope: Scope | None
) -> dict[str, int]:
    """How many chunks that the scope shows each tsquery finds: estimated where many of the sample do, else
    counted.
    """
    hits = _hits(terms, sample.patterns)
    estimates = {query: min(many * sample.one_in, totals.chunks) for query, many in hits.items()}
    rare = [query for query, many in hits.items() if many < SURE]
    if sample.one_in == 1 or not rare:
        return estimates
    if totals.narrow:
        hits = _hits(terms, sample.whole)
        return estimates | {query: min(hits[query], _MOST_COUNTED) for query in rare}
    values = Values()
    array, condition = values.bound(rare, "text[]"), visible(scope, "c", values)
    rows = await connection.fetch(
        "SELECT (SELECT count(*) FROM (SELECT FROM chunks c WHERE c.terms @@ t.term::tsquery"
        f"{' AND ' + condition if condition else ''} LIMIT {_MOST_COUNTED}) s) AS many"
        f" FROM unnest({array}) WITH ORDINALITY AS t (term, place) ORDER BY t.place",
        *values,
    )
    return estimates | dict(zip(rare, (row["many"] for row in rows), strict=True))


def _hits(terms: Sequence[Term], patterns: Counter[str]) -> dict[str, int]:
    """In how many chunks each tsquery finds its term."""
    return {
        term.tsquery: sum(many for pattern, many in patterns.items() if pattern[index] != "0")
        for index, term in enumerate(terms)
    }


def term_rank(weights: str, term: Term, values: Values) -> str:
    """What a term gives to the score of a chunk that its tsquery finds, before idf, as SQL."""
    sql = f"ts_rank({weights}, c.terms, {values.bound(lexeme(term.term), 'text')}::tsquery)"
    if term.tsquery == lexeme(term.term):
        return sql
    return f"CASE WHEN c.terms @@ {values.bound(term.tsquery, 'text')}::tsquery THEN {sql} ELSE 0 END"


def any_of_terms(queries: Iterable[str]) -> str:
    """A tsquery for chunks that have one of the terms."""
    return " | ".join(f"({query})" for query in dict.fromkeys(queries))


def nominate(
    terms: Sequence[Term], idf: Mapping[str, float], sample: Sample, limit: int, *, frequent: bool
) -> list[Nomination]:
    """The chunks worth scoring; then more, for where these do not fill the limit; last all that have a term.

    `idf` has the terms that score. `frequent`: where too many chunks hold the same terms, take those that
    hold them often.
    """
    columns = {term.tsquery: column for column, term in enumerate(terms)}
    scored = sorted(idf, key=lambda query: (-idf[query], columns[query]))
    every = Nomination(any_of_terms(scored))
    weights = {
        query: max(1, round(_FINEST * idf[query] / idf[scored[0]])) for query in scored[:_MOST_NOMINATING]
    }
    weighed = [(columns[query], weight) for query, weight in weights.items()]
    budget = max(LEAST_SCORED, SCORED_PER_HIT * limit) / sample.one_in
    needed, reached = _level(_sums(sample.admitted, weighed, "123"), budget)
    if reached < budget:
        nominations = [Nomination(any_of_terms(_until(scored, columns, sample, TOO_MANY * budget)))]
    elif not frequent or reached < max(TOO_MANY * budget, NARROW / sample.one_in):
        nominations = [Nomination(at_least([*weights.items()], needed))]
    else:
        often, mark = _often(sample, weighed, budget, SCORED_PER_HIT * limit)
        lexemes = [(lexeme(terms[column].term + mark), weight) for column, weight in weighed]
        above = at_least([*weights.items()], needed + 1)
        nominations = [Nomination(above)] if above else []
        nominations.append(Nomination(above, at_least(lexemes, often)))
    return list(dict.fromkeys((*nominations, every)))


def _often(
    sample: Sample, weighed: Sequence[tuple[int, int]], budget: float, minimum: int
) -> tuple[int, str]:
    """How much the terms that a chunk holds often must weigh together, and the mark of how often."""
    often, many = _level(_sums(sample.admitted, weighed, "23"), budget)
    if many >= TOO_MANY * budget:
        more_often, fewer = _level(_sums(sample.admitted, weighed, "3"), budget)
        if fewer * sample.one_in >= minimum:
            return more_often, VERY
    return often, ""


def _until(scored: Sequence[str], columns: Mapping[str, int], sample: Sample, budget: float) -> list[str]:
    """The rarest terms of which so many chunks have one, at least as many terms as may nominate together."""
    without = sample.admitted
    reached = 0
    for number, query in enumerate(scored, 1):
        column = columns[query]
        reached += sum(many for pattern, many in without.items() if pattern[column] != "0")
        without = Counter({pattern: many for pattern, many in without.items() if pattern[column] == "0"})
        if reached >= budget and number >= _MOST_NOMINATING:
            return list(scored[:number])
    return list(scored)


def _sums(patterns: Counter[str], weighed: Sequence[tuple[int, int]], digits: str) -> Counter[int]:
    """Of how many chunks the terms that they hold, as one of the digits says, weigh how much together."""
    sums = Counter[int]()
    for pattern, many in patterns.items():
        sums[sum([weight for column, weight in weighed if pattern[column] in digits])] += many
    return sums


def _level(sums: Counter[int], budget: float) -> tuple[int, int]:
    """The highest sum that so many chunks reach, and how many do; 1 where there are fewer."""
    reached = 0
    for total in sorted(sums, reverse=True):
        if total:
            reached += sums[total]
            if reached >= budget:
                return total, reached
    return 1, reached


def at_least(weighed: Sequence[tuple[str, int]], needed: int) -> str:
    """A tsquery for chunks whose terms weigh so much together; "": none do. The heaviest come first."""
    if sum(weight for _, weight in weighed) < needed:
        return ""
    (query, weight), lighter = weighed[0], weighed[1:]
    without = at_least(lighter, needed) if lighter else ""
    with_it = f"({query})" if weight >= needed else f"({query}) & ({at_least(lighter, needed - weight)})"
    return f"{with_it} | {without}" if without else with_it
