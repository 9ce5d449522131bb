# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Candidates of the text leg: which chunks are worth scoring. To score all that have a word takes long where
the word is common.

1. `read_totals` counts the chunks that the scope shows.
2. `read_sample` looks at one in 64 of them, and says which terms of the question each holds: its pattern.
3. `read_frequencies` estimates from the patterns how many chunks have each term. Rare terms are counted.
4. `nominate` gives each term a weight, a rare one a high weight, and chooses the highest sum of weights that
   enough chunks reach. These chunks are nominated, by a tsquery.

A chunk is in the sample by its id alone, so that nothing depends on what the scope hides.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.postgres.filter import EVERYTHING, Values, lexeme, visible
from contextrouter.builtin.providers.vector_slots import note_keys
from contextrouter.scope import Scope

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

SAMPLED = "left(md5({0}id), 2) = ANY ('{{00,01,02,03}}'::text[])"
"""Whether a chunk is in the sample, one in `ONE_IN`; the index `chunks_sample` has these chunks alone."""
ONE_IN = 64
WHOLE = 4_096
"""Chunks of a scope that need no sample: all are looked at."""
NARROW, NARROW_SHARE = 16_384, 1 / 8
"""A scope of so many chunks at most, and of so small a share of the store, is narrow. All its chunks are read
first, for the server would look for the terms in all of the store.
"""
SURE = 64
"""Chunks of the sample that have a term, from which on its frequency is estimated: within an eighth, mostly.
Others are counted.
"""
LEAST_SCORED, SCORED_PER_HIT = 2_000, 20
"""Chunks worth scoring: the first, or the second for each that is asked for, if that is more."""
TOO_MANY = 4
"""Where more than so many times that reach a sum, and more than `NARROW`, those that hold the terms often are
nominated.
"""
_MOST_COUNTED = 2 * SURE * ONE_IN
_MOST_NOMINATING = 8  # terms, the rarest: to look for more of them together takes longer than it saves
_HIGHEST = 10  # weight of the rarest term; the others have whole numbers below it
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
        return f"(SELECT * FROM chunks c WHERE {visible(scope, 'c', values)} OFFSET 0) c"


class Sample(NamedTuple):
    """How many chunks that the scope shows have each pattern, of those that have a term of the question.

    A pattern has a digit for each term: "0" where the chunk lacks it, "1" where it has it, "2" where it has
    it often, and "3" where it has it very often.
    """

    one_in: int  # how many chunks of the scope one of the sample stands for
    patterns: Counter[str]
    admitted: Counter[str]  # of those that filters, period and phrases let through as well
    whole: Counter[str]  # of all chunks of a narrow scope, not of the sample alone


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
    keys = values.bound([schema.TEXT_SEARCH, *note_keys()], "text[]")
    row = await connection.fetchrow(
        "SELECT coalesce(sum(c.chunks), 0)::bigint AS chunks, coalesce(sum(c.length), 0)::bigint AS length,"
        " (SELECT coalesce(sum(chunks), 0)::bigint FROM counts) AS store,"
        f" ({schema.NOTES.format(keys)}) AS notes,"
        # a role behind row-level security cannot use the index: the server would read every row
        " NOT row_security_active('chunks') AND EXISTS (SELECT FROM pg_index WHERE indexrelid ="
        " to_regclass('chunks_frequent') AND indisvalid) AS frequent,"
        # a plan for any terms suits rare ones alone; a second process takes longer to start than all of it
        " set_config('plan_cache_mode', 'force_custom_plan', true),"
        " set_config('max_parallel_workers_per_gather', '0', true),"
        # to look for many terms in a row costs more than the server thinks
        " set_config('enable_seqscan', 'off', true)"
        f" FROM counts c WHERE {visible(scope, 'c', values)}",
        *values,
    )
    assert row is not None
    average = row["length"] / row["chunks"] if row["chunks"] else 0.0
    narrow = row["chunks"] <= min(NARROW, row["store"] * NARROW_SHARE)
    notes = json.loads(row["notes"] or "{}")
    return Totals(row["chunks"], average, notes, row["frequent"] and row["chunks"] > NARROW, narrow)


async def read_sample(
    connection: Connection,
    terms: Sequence[Term],
    totals: Totals,
    scope: Scope | None,
    admitted: str = EVERYTHING,
    values: Sequence[object] = (),
) -> Sample:
    """Look at the sample, or at all chunks where there are few. `admitted` is SQL with `values` for what else
    the question demands. How large the store is changes how the chunks are read, and no count.
    """
    bound = Values(values)
    ranks = [term_rank(_WEIGHTS, term, bound) for term in terms]
    ranked = ", ".join(f"{sql} AS r{number}" for number, sql in enumerate(ranks))
    pattern = " || ".join(
        f"CASE WHEN r{n} > {_VERY_FREQUENT} THEN '3' WHEN r{n} > {_FREQUENT} THEN '2' WHEN r{n} > 0 THEN '1'"
        " ELSE '0' END"
        for n in range(len(ranks))
    )
    is_large = totals.chunks > WHOLE
    sampled = SAMPLED.format("c.") if is_large else EVERYTHING
    conditions = [
        EVERYTHING if totals.narrow else sampled,
        visible(scope, "c", bound),
        f"c.terms @@ {bound.bound(any_of_terms(term.tsquery for term in terms), 'text')}::tsquery",
    ]
    rows = await connection.fetch(
        f"SELECT {pattern} AS pattern, sampled, admitted, count(*) AS many FROM"
        f" (SELECT {ranked}, {sampled} AS sampled, {admitted} AS admitted"
        f" FROM {totals.source(scope, bound)} WHERE {' AND '.join(conditions)}"
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
    return Sample(ONE_IN if is_large else 1, patterns, let_through, whole)


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
        "SELECT (SELECT count(*) FROM (SELECT FROM chunks c WHERE c.terms @@ t.term::tsquery AND"
        f" {condition} LIMIT {_MOST_COUNTED}) s) AS many"
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
    columns = {term.tsquery: column for column, term in enumerate(terms)}  # of a pattern
    rarest = sorted(idf, key=lambda query: (-idf[query], columns[query]))
    weights = {
        query: max(1, round(_HIGHEST * idf[query] / idf[rarest[0]])) for query in rarest[:_MOST_NOMINATING]
    }
    weighted = [(columns[query], weight) for query, weight in weights.items()]
    wanted = max(LEAST_SCORED, SCORED_PER_HIT * limit) / sample.one_in
    needed, reaching = _highest_sum(sample.admitted, weighted, "123", wanted)
    if reaching < wanted:
        nominations = [Nomination(any_of_terms(_rarest_terms(rarest, columns, sample, TOO_MANY * wanted)))]
    elif not frequent or reaching < max(TOO_MANY * wanted, NARROW / sample.one_in):
        nominations = [Nomination(at_least([*weights.items()], needed))]
    else:
        often, mark = _highest_often(sample, weighted, wanted, SCORED_PER_HIT * limit)
        lexemes = [(lexeme(terms[column].term + mark), weight) for column, weight in weighted]
        above = at_least([*weights.items()], needed + 1)
        nominations = [Nomination(above)] if above else []
        nominations.append(Nomination(above, at_least(lexemes, often)))
    return list(dict.fromkeys((*nominations, Nomination(any_of_terms(rarest)))))


def _highest_often(
    sample: Sample, weighted: Sequence[tuple[int, int]], wanted: float, minimum: int
) -> tuple[int, str]:
    """The highest sum of the weights of frequent terms that enough chunks reach, and the mark of the terms:
    very frequent ones, where too many chunks reach it otherwise.
    """
    often, reaching = _highest_sum(sample.admitted, weighted, "23", wanted)
    if reaching >= TOO_MANY * wanted:
        very_often, fewer = _highest_sum(sample.admitted, weighted, "3", wanted)
        if fewer * sample.one_in >= minimum:
            return very_often, VERY
    return often, ""


def _rarest_terms(
    rarest: Sequence[str], columns: Mapping[str, int], sample: Sample, wanted: float
) -> list[str]:
    """The rarest terms of which enough chunks have one; at least as many as may nominate together."""
    without = sample.admitted  # patterns of chunks that have none of them
    reached = 0
    for number, query in enumerate(rarest, 1):
        column = columns[query]
        reached += sum(many for pattern, many in without.items() if pattern[column] != "0")
        without = Counter({pattern: many for pattern, many in without.items() if pattern[column] == "0"})
        if reached >= wanted and number >= _MOST_NOMINATING:
            return list(rarest[:number])
    return list(rarest)


def _highest_sum(
    patterns: Counter[str], weighted: Sequence[tuple[int, int]], digits: str, wanted: float
) -> tuple[int, int]:
    """The highest sum of weights that enough chunks reach, and how many do; 1 where there are fewer. A chunk
    has the weights of the terms with one of the `digits` in its pattern.
    """
    chunks = Counter[int]()  # by their sums
    for pattern, many in patterns.items():
        chunks[sum([weight for column, weight in weighted if pattern[column] in digits])] += many
    reaching = 0
    for total in sorted(filter(None, chunks), reverse=True):
        reaching += chunks[total]
        if reaching >= wanted:
            return total, reaching
    return 1, reaching


def at_least(weighted: Sequence[tuple[str, int]], needed: int) -> str:
    """A tsquery for chunks whose terms weigh so much together; "": none do. The heaviest come first."""
    if sum(weight for _, weight in weighted) < needed:
        return ""
    (query, weight), lighter = weighted[0], weighted[1:]
    without = at_least(lighter, needed) if lighter else ""
    with_it = f"({query})" if weight >= needed else f"({query}) & ({at_least(lighter, needed - weight)})"
    return f"{with_it} | {without}" if without else with_it
