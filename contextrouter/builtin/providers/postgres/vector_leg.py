# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Vector search (the vector legs): exact where few vectors are admitted, else by an approximate index that
goes on until the limit is full.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import TYPE_CHECKING, Any, Literal

from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.postgres.filter import EVERYTHING, Values, admitted
from contextrouter.builtin.providers.postgres.text_configurations import Words
from contextrouter.builtin.providers.queries import query_direction
from contextrouter.builtin.providers.vector_slots import REBUILD, SECOND, Slot, choose, note_keys, read_slots
from contextrouter.errors import SourceError
from contextrouter.model import Query
from contextrouter.text.languages import LanguageTerms
from contextrouter.vectors import unit

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

LEGS = ("vector", "keywords")
Index = Literal["hnsw", "ivfflat", "none"]
Precision = Literal["vector", "halfvec"]
MOST_DIMENSIONS = {"vector": 2_000, "halfvec": 4_000}
"""Dimensions that pgvector can index."""
_MOST_SEARCH = 1_000  # what hnsw.ef_search may be at most


async def search(
    connection: Connection,
    query: Query,
    question: LanguageTerms,
    words: Words,
    model: tuple[str, int],
    *,
    exact_below: int,
    ef_search: int,
) -> list[Any]:
    """The nearest admitted chunks (payload, score, vector as bytes), nearest first, ties by id and tenant.

    Raises SourceError for a query without a vector, or with one that is not like those stored.
    """
    vector = query_direction(query, unit)
    slots, definition, few, filled = await _prepare(
        connection, query, question, model[0], (exact_below, max(ef_search, query.limit))
    )
    slot = choose(slots, *model)
    assert query.leg in LEGS  # it stands in the statement as it is
    column, size = query.leg + slot.suffix, slot.dimensions
    if question.phrases():
        words.refuse_others(filled)
    if vector is None or not size:
        return []
    if len(vector) != size:
        raise SourceError(
            f"Query vector has {len(vector)} dimensions, the store's have {size}; "
            f"use the embedder the store was filled with, or build it again with {REBUILD}."
        )
    rows: list[Any] = []
    if not few:
        precision = "halfvec" if "halfvec_cosine_ops" in definition else "vector"
        rows = await _near(connection, query, question, (column, vector), precision, size)
    if few or len(rows) < query.limit:
        rows = await _exact(connection, query, question, (column, vector))
    return rows


def values_of(sent: bytes) -> Sequence[float]:
    """A vector as pgvector sends it: two counts of 16 bits, then float32, big-endian."""
    values = array("f", sent[4:])
    if byteorder == "little":
        values.byteswap()
    return values


def near_index(leg: str) -> str:
    """The name of the approximate index of a leg."""
    return f"chunks_{leg}_near"


def index_sql(
    leg: str,
    size: int,
    definition: str,
    precision: str,
    name: str = "",
    *,
    at: tuple[str, str] | None = None,
    concurrently: bool = False,
) -> str:
    """The statement that builds a leg's index over vectors of `size` dimensions; `definition` is its method
    and options.

    `at` are the schemas of the store and of pgvector, where they are not on the search path.
    """
    method, _, options = definition.partition(" ")
    how = "CONCURRENTLY " if concurrently else ""
    table, extension = (f"{at[0]}.", f"{at[1]}.") if at else ("", "")
    return (
        f"CREATE INDEX {how}{name or near_index(leg)} ON {table}chunks USING {method}"
        f" (({leg}::{extension}{precision}({size})) {extension}{precision}_cosine_ops) {options}"
    )


async def _prepare(
    connection: Connection, query: Query, question: LanguageTerms, model: str, limits: tuple[int, int]
) -> tuple[list[Slot], str, bool, str | None]:
    """Read what a search needs, in one round trip: the places of the vectors, the definition of the leg's
    index for `model` ("": there is none), whether all vectors are measured, and the words that filled the
    store.

    `limits`: all are measured where no more chunks than the first are admitted; the second is how many an
    index looks at. Postgres is told, for this transaction, how far to read an index; of ivfflat that is at
    first the square root of its lists.
    """
    exact_below, ef_search = limits
    values = Values()
    name = (
        "(SELECT CASE WHEN EXISTS (SELECT FROM meta WHERE key = 'model_2' AND value ="
        f" {values.bound(model, 'text')}) AND NOT EXISTS (SELECT FROM meta WHERE key = 'filling_2') THEN"
        f" {values.bound(near_index(query.leg + SECOND), 'text')} ELSE"
        f" {values.bound(near_index(query.leg), 'text')} END)"
    )
    condition = admitted(query, question, values)
    few = "(SELECT coalesce(sum(chunks), 0) <= {0} FROM counts)"
    if condition != EVERYTHING:
        few = f"(SELECT count(*) <= {{0}} FROM (SELECT FROM chunks c WHERE {condition} LIMIT {{0}} + 1) s)"
    few = few.format(values.bound(exact_below, "bigint"))
    searched = values.bound(str(min(_MOST_SEARCH, ef_search)), "text")
    # below some 10,000 rows, the server would sort all rather than read the index
    sort = "set_config('enable_sort', 'off', true)" if condition == EVERYTHING else "NULL"
    keys = values.bound([schema.TEXT_SEARCH, *note_keys()], "text[]")
    row = await connection.fetchrow(
        "WITH near AS MATERIALIZED (SELECT (SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE"
        f" indexrelid = to_regclass({name}) AND indisvalid) AS definition) SELECT"
        f" ({schema.NOTES.format(keys)}) AS notes, definition, CASE WHEN definition IS"
        f" NULL THEN true ELSE {few} END AS few, set_config('hnsw.ef_search', {searched}, true),"
        " set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('ivfflat.iterative_scan',"
        f" 'relaxed_order', true), set_config('ivfflat.probes', {_PROBES}, true), {sort} FROM near",
        *values,
    )
    assert row is not None
    notes = json.loads(row["notes"] or "{}")
    return read_slots(notes), row["definition"] or "", row["few"], notes.get(schema.TEXT_SEARCH)


async def _exact(
    connection: Connection, query: Query, question: LanguageTerms, target: tuple[str, Sequence[float]]
) -> list[Any]:
    column, vector = target
    values = Values()
    condition = admitted(query, question, values)
    rows: list[Any] = await connection.fetch(
        f"SELECT payload, {_SCORE}, vector_send({column}) AS sent FROM (SELECT c.id, c.tenant, c.payload,"
        f" {column}, round((c.{column} <=> {values.bound(vector, 'real[]')}::vector) * 1e6) / 1e6 AS distance"
        f" FROM chunks c WHERE c.{column} IS NOT NULL AND {condition} ORDER BY"
        f" distance, id, tenant LIMIT {values.bound(query.limit, 'bigint')}) s ORDER BY distance, id, tenant",
        *values,
    )
    return rows


async def _near(
    connection: Connection,
    query: Query,
    question: LanguageTerms,
    target: tuple[str, Sequence[float]],
    precision: str,
    size: int,
) -> list[Any]:
    """By the index: ordered by the bare operator, as it must be to be used; distances are taken of the
    vectors themselves.
    """
    column, vector = target
    values = Values()
    condition = admitted(query, question, values)
    near = values.bound(vector, "real[]")
    limit = values.bound(query.limit, "bigint")
    wider = f"{limit} * 2" if precision == "halfvec" else limit
    rows: list[Any] = await connection.fetch(
        f"SELECT payload, {_SCORE}, vector_send({column}) AS sent FROM (SELECT id, tenant, payload, {column},"
        f" round(({column} <=> {near}::vector) * 1e6) / 1e6 AS distance FROM (SELECT c.id, c.tenant,"
        f" c.payload, c.{column} FROM chunks c WHERE c.{column} IS NOT"
        f" NULL AND {condition} ORDER BY c.{column}::{precision}({size}) <=>"
        f" {near}::{precision}({size}) LIMIT {wider}) n) s ORDER BY distance, id, tenant LIMIT {limit}",
        *values,
    )
    return rows


_PROBES = (
    "greatest(1, round(sqrt(coalesce(substring(definition FROM 'lists=''?(\\d+)'), '1')::float8)))::int::text"
)
_SCORE = "greatest(-1.0, least(1.0, round((1.0 - distance) * 1e6) / 1e6)) AS score"
