# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Which approximate index fits the present rows, and how to get from the one there is to it without a
pause.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.postgres.vector_leg import MOST_DIMENSIONS, Index, Precision, index_sql
from contextrouter.builtin.providers.postgres.write import LEGS
from contextrouter.errors import SourceError
from contextrouter.text.bm25 import K1, B

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection, Pool

FEW = 1_000
"""Rows below which clustering for ivfflat learns nothing."""
MOST_LISTS = 32_768
DRIFT = 2.0
"""How many times too many or too few an index's lists may be before it is built again."""
_RANKED = f"bm25 WITH (text_config = 'pg_catalog.simple', k1 = {K1}, b = {B})"
_OPTION = re.compile(r"(\w+)='?(\d+)'?")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings ask of the vectors' indexes. Raises ValueError for values out of range."""

    index: Index
    precision: Precision
    m: int
    ef_construction: int

    def __post_init__(self) -> None:
        check_range("m", self.m, 2, 100)
        check_range("ef_construction", self.ef_construction, 4, 1000)
        if self.ef_construction < 2 * self.m:
            raise ValueError(
                f"ef_construction {self.ef_construction!r} is less than twice m {self.m!r}; raise it, or"
                " lower m."
            )


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One index that should be another: why, and the definition of the new one ("": none)."""

    leg: str
    reason: str
    definition: str


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Raise ValueError where a value is out of range."""
    if not least <= value <= most:
        raise ValueError(f"{name} {value!r} is out of range; give {least} to {most}.")


def lists_for(rows: int) -> int:
    """Lists of an ivfflat index: the square root of the rows, rounded."""
    return max(1, min(MOST_LISTS, round(math.sqrt(rows))))


def change(leg: str, rows: int, size: int, found: str, valid: bool, wanted: Wanted) -> Change | None:
    """What to do about the index of a leg, from its definition as Postgres prints it ("": there is none);
    None: nothing.
    """
    definition = _definition(rows, wanted)
    if not size or not definition or size > MOST_DIMENSIONS[wanted.precision]:
        why = _why_none(rows, size, wanted)
        return Change(leg=leg, reason=f"{why}: the index goes", definition="") if found else None
    if not found:
        return Change(leg=leg, reason="there is no index", definition=definition)
    if not valid:
        return Change(leg=leg, reason="building the index broke off", definition=definition)
    if f"USING {wanted.index} " not in found or f"{wanted.precision}_cosine_ops" not in found:
        return Change(
            leg=leg,
            reason=f"the settings ask for {wanted.index} over {wanted.precision}",
            definition=definition,
        )
    if wanted.index == "ivfflat":
        lists, right = _options(found).get("lists", 100), lists_for(rows)
        if max(lists / right, right / lists) <= DRIFT:
            return None
        return Change(
            leg=leg, reason=f"{rows} rows want {right} lists, the index has {lists}", definition=definition
        )
    given = {"m": 16, "ef_construction": 64} | _options(found)
    if (given["m"], given["ef_construction"]) == (wanted.m, wanted.ef_construction):
        return None
    why = f"the settings ask for m = {wanted.m}, ef_construction = {wanted.ef_construction}"
    return Change(leg=leg, reason=why, definition=definition)


def _definition(rows: int, wanted: Wanted) -> str:
    if wanted.index == "hnsw":
        return f"hnsw WITH (m = {wanted.m}, ef_construction = {wanted.ef_construction})"
    return f"ivfflat WITH (lists = {lists_for(rows)})" if wanted.index == "ivfflat" and rows >= FEW else ""


def _why_none(rows: int, size: int, wanted: Wanted) -> str:
    if not size:
        return "there are no vectors"
    if wanted.index == "none":
        return "the settings ask for none"
    if size > MOST_DIMENSIONS[wanted.precision]:
        return f"{wanted.precision} with {size} dimensions cannot be indexed"
    return f"{rows} rows are too few for {wanted.index}"


def _options(definition: str) -> dict[str, int]:
    _, _, options = definition.rpartition(" WITH ")
    return {name: int(value) for name, value in _OPTION.findall(options)}


def first_indexes(size: int, wanted: Wanted) -> list[str]:
    """Statements for the indexes that an empty store begins with: HNSW needs no rows to learn from."""
    definition = _definition(0, wanted)
    indexable = bool(definition) and size <= MOST_DIMENSIONS[wanted.precision]
    return [index_sql(leg, size, definition, wanted.precision) for leg in LEGS if indexable]


async def changes(connection: Connection, wanted: Wanted, *, ranks: bool = False) -> list[Change]:
    """What should change for the present number of rows; `ranks`: pg_textsearch is there to be used."""
    size = int(await schema.note(connection, "dimensions") or 0)
    found = []
    for leg in LEGS:
        rows = await connection.fetchval(f"SELECT count(*) FROM chunks WHERE {leg} IS NOT NULL")
        row = await connection.fetchrow(
            "SELECT pg_get_indexdef(indexrelid) AS definition, indisvalid AS valid FROM pg_index"
            " WHERE indexrelid = to_regclass($1)",
            f"chunks_{leg}_near",
        )
        found.append(
            change(leg, rows, size, row["definition"] if row else "", row["valid"] if row else True, wanted)
        )
    valid = await connection.fetchval(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('chunks_words')"
    )
    if ranks and not valid:
        why = "pg_textsearch is there and not used" if valid is None else "building the index broke off"
        found.append(Change(leg="text", reason=why, definition=_RANKED))
    return [each for each in found if each is not None]


async def apply(pool: Pool, given: list[Change], wanted: Wanted) -> None:
    """Make the changes one after the other, each built beside the old index; searches and writes go on
    meanwhile.

    Raises SourceError when Postgres refuses; what it left half-built is taken for broken the next time.
    """
    async with pool.transaction() as connection:
        size = int(await schema.note(connection, "dimensions") or 0)
    async with pool.alone() as connection:
        for each in given:
            for statement in _statements(pool, each, size, wanted.precision):
                await connection.execute(statement)
        await connection.execute(f'ANALYZE "{pool.schema}".chunks')


def _statements(pool: Pool, given: Change, size: int, precision: str) -> list[Any]:
    place, name = f'"{pool.schema}"', f"chunks_{given.leg}_near"
    if given.leg == "text":
        _, _, options = given.definition.partition(" ")
        column = f"words text GENERATED ALWAYS AS ({place}.counted_words(terms)) STORED"
        return [
            f"DROP INDEX CONCURRENTLY IF EXISTS {place}.chunks_words",
            f"ALTER TABLE {place}.chunks ADD COLUMN IF NOT EXISTS {column}",
            f"CREATE INDEX CONCURRENTLY chunks_words ON {place}.chunks USING bm25 (words) {options}",
        ]
    if not given.definition:
        return [f"DROP INDEX CONCURRENTLY IF EXISTS {place}.{name}"]
    if size < 1:
        raise SourceError("Store has no vectors to index; ingest with an embedder first.")
    sql = index_sql(
        given.leg,
        size,
        given.definition,
        precision,
        f"{name}_new",
        at=(place, pool.extension),
        concurrently=True,
    )
    return [
        f"DROP INDEX CONCURRENTLY IF EXISTS {place}.{name}_new",
        sql,
        f"DROP INDEX CONCURRENTLY IF EXISTS {place}.{name}",
        f"ALTER INDEX {place}.{name}_new RENAME TO {name}",
    ]
