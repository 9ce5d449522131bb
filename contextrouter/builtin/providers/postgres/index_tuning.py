# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Which approximate index fits the present rows, and how to get from the one there is to it without a
pause.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.postgres.nomination import SAMPLED
from contextrouter.builtin.providers.postgres.vector_leg import (
    LEGS,
    MOST_DIMENSIONS,
    Index,
    Precision,
    index_sql,
    near_index,
)
from contextrouter.builtin.providers.vector_slots import EMPTY, Slot
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
GIN = {
    "chunks_terms": "gin (terms)",
    "chunks_filters": "gin (filters)",
    "chunks_sample": f"gin (terms) WHERE {SAMPLED.format('')}",
    "chunks_frequent": "gin (frequent_terms(terms))",
}
"""Indexes of the text leg and of filters, which a bulk load may have left out."""
_MEMORY = re.compile(r"[1-9]\d{0,6}(kB|MB|GB)")
_MISSING, _BROKEN = "there is no index", "building the index broke off"
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
    """One index that should be another: why, the definition of the new one ("": none), and the length of its
    vectors. `leg` is the column, such as "vector_2" for those of a second model.
    """

    leg: str
    reason: str
    definition: str
    size: int = 0
    index: str = ""  # its name, where it is not that of a vector leg
    absent: bool = False  # there is none at all

    @property
    def name(self) -> str:
        """The name of the index."""
        return self.index or near_index(self.leg)


def check_memory(name: str, value: str) -> None:
    """Raise ValueError for what Postgres does not take as a size of memory."""
    if not _MEMORY.fullmatch(value):
        raise ValueError(f"{name} {value!r} is no size of memory; give one such as '256MB'.")


def check_range(name: str, value: int, minimum: int, maximum: int) -> None:
    """Raise ValueError where a value is out of range."""
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} {value!r} is out of range; give {minimum} to {maximum}.")


def lists_for(rows: int) -> int:
    """Lists of an ivfflat index: the square root of the rows, rounded."""
    return max(1, min(MOST_LISTS, round(math.sqrt(rows))))


def change(leg: str, rows: int, size: int, current: str, valid: bool, target: Wanted) -> Change | None:
    """What to do about the index of a leg, from its definition as Postgres prints it ("": there is none);
    None: nothing.
    """
    definition = _definition(rows, target)
    if not size or not definition or size > MOST_DIMENSIONS[target.precision]:
        reason = _reason_for_none(rows, size, target)
        return Change(leg=leg, reason=f"{reason}: the index goes", definition="") if current else None
    if not current:
        return Change(leg=leg, reason=_MISSING, definition=definition, absent=True)
    if not valid:
        return Change(leg=leg, reason=_BROKEN, definition=definition)
    if f"USING {target.index} " not in current or f"{target.precision}_cosine_ops" not in current:
        return Change(
            leg=leg,
            reason=f"the settings ask for {target.index} over {target.precision}",
            definition=definition,
        )
    if target.index == "ivfflat":
        lists, right = _options(current).get("lists", 100), lists_for(rows)
        if max(lists / right, right / lists) <= DRIFT:
            return None
        return Change(
            leg=leg, reason=f"{rows} rows want {right} lists, the index has {lists}", definition=definition
        )
    options = {"m": 16, "ef_construction": 64} | _options(current)
    if (options["m"], options["ef_construction"]) == (target.m, target.ef_construction):
        return None
    reason = f"the settings ask for m = {target.m}, ef_construction = {target.ef_construction}"
    return Change(leg=leg, reason=reason, definition=definition)


def _definition(rows: int, target: Wanted) -> str:
    if target.index == "hnsw":
        return f"hnsw WITH (m = {target.m}, ef_construction = {target.ef_construction})"
    return f"ivfflat WITH (lists = {lists_for(rows)})" if target.index == "ivfflat" and rows >= FEW else ""


def _reason_for_none(rows: int, size: int, target: Wanted) -> str:
    if not size:
        return "there are no vectors"
    if target.index == "none":
        return "the settings ask for none"
    if size > MOST_DIMENSIONS[target.precision]:
        return f"{target.precision} with {size} dimensions cannot be indexed"
    return f"{rows} rows are too few for {target.index}"


def _options(definition: str) -> dict[str, int]:
    _, _, options = definition.rpartition(" WITH ")
    return {name: int(value) for name, value in _OPTION.findall(options)}


def first_indexes(size: int, target: Wanted) -> list[str]:
    """Statements for the indexes that an empty store begins with: HNSW needs no rows to learn from."""
    definition = _definition(0, target)
    indexable = bool(definition) and size <= MOST_DIMENSIONS[target.precision]
    return [index_sql(leg, size, definition, target.precision) for leg in LEGS if indexable]


async def missing(connection: Connection, target: Wanted) -> list[Change]:
    """The indexes that the settings want and that are not there at all; those of pg_textsearch are left
    out.
    """
    return [item for item in await changes(connection, target) if item.absent]


def first_statement(pool: Pool, needed: Change, target: Wanted) -> str:
    """The statement that builds an index that is not there, inside a transaction."""
    at = (f'"{pool.schema}"', pool.extension)
    if needed.name in GIN:
        return f"CREATE INDEX {needed.name} ON {at[0]}.chunks USING {_gin(needed, at[0])}"
    return index_sql(needed.leg, needed.size, needed.definition, target.precision, at=at)


async def _state(connection: Connection, name: str) -> tuple[str, bool | None]:
    """Return the definition of an index, and whether it is whole; ("", None): there is none."""
    row = await connection.fetchrow(
        "SELECT pg_get_indexdef(indexrelid) AS definition, indisvalid AS valid FROM pg_index"
        " WHERE indexrelid = to_regclass($1)",
        name,
    )
    return (row["definition"], row["valid"]) if row else ("", None)


async def changes(connection: Connection, target: Wanted, *, ranks: bool = False) -> list[Change]:
    """What should change for the present number of rows; `ranks`: pg_textsearch is there to be used."""
    needed: list[Change | None] = []
    for slot in await schema.slots(connection) or [EMPTY]:
        if not slot.filling:  # its index is built when it is whole
            needed += await changes_at(connection, target, slot)
    functions = await connection.fetchval("SELECT to_regproc('frequent_terms') IS NOT NULL")
    for name, definition in GIN.items():
        if "frequent_terms" in definition and not functions:  # an older schema has no such index yet
            continue
        _, valid = await _state(connection, name)
        if not valid:
            reason = _MISSING if valid is None else _BROKEN
            needed.append(
                Change(leg="text", reason=reason, definition=definition, index=name, absent=valid is None)
            )
    _, valid = await _state(connection, "chunks_words")
    if ranks and not valid:
        reason = "pg_textsearch is there and not used" if valid is None else _BROKEN
        needed.append(Change(leg="text", reason=reason, definition=_RANKED, index="chunks_words"))
    return [item for item in needed if item is not None]


async def changes_at(connection: Connection, target: Wanted, slot: Slot) -> list[Change]:
    """What should change in the indexes of one place for vectors."""
    needed: list[Change] = []
    for leg in (leg + slot.suffix for leg in LEGS):
        rows = await connection.fetchval(f"SELECT count(*) FROM chunks WHERE {leg} IS NOT NULL")
        definition, valid = await _state(connection, near_index(leg))
        item = change(leg, rows, slot.dimensions, definition, valid is not False, target)
        if item is not None:
            needed.append(msgspec.structs.replace(item, size=slot.dimensions))
    return needed


async def apply(pool: Pool, needed: list[Change], target: Wanted) -> None:
    """Make the changes one after the other, each built beside the old index; searches and writes go on
    meanwhile.

    Raises SourceError when Postgres refuses; what it left half-built is taken for broken the next time.
    """
    async with pool.alone() as connection:
        for item in needed:
            for statement in _statements(pool, item, target.precision):
                await connection.execute(statement)
        await connection.execute(f'ANALYZE "{pool.schema}".chunks')


def _gin(needed: Change, schema_name: str) -> str:
    """The definition of a GIN index; the function in it is found without a search path."""
    return needed.definition.replace("frequent_terms", f"{schema_name}.frequent_terms")


def _statements(pool: Pool, needed: Change, precision: str) -> list[str]:
    schema_name, name = f'"{pool.schema}"', needed.name
    if name in GIN:
        return [
            f"DROP INDEX CONCURRENTLY IF EXISTS {schema_name}.{name}",
            f"CREATE INDEX CONCURRENTLY {name} ON {schema_name}.chunks USING {_gin(needed, schema_name)}",
        ]
    if needed.leg == "text":
        _, _, options = needed.definition.partition(" ")
        column = f"words text GENERATED ALWAYS AS ({schema_name}.counted_words(terms)) STORED"
        return [
            f"DROP INDEX CONCURRENTLY IF EXISTS {schema_name}.chunks_words",
            f"ALTER TABLE {schema_name}.chunks ADD COLUMN IF NOT EXISTS {column}",
            f"CREATE INDEX CONCURRENTLY chunks_words ON {schema_name}.chunks USING bm25 (words) {options}",
        ]
    if not needed.definition:
        return [f"DROP INDEX CONCURRENTLY IF EXISTS {schema_name}.{name}"]
    if needed.size < 1:
        raise SourceError("Store has no vectors to index; ingest with an embedder first.")
    sql = index_sql(
        needed.leg,
        needed.size,
        needed.definition,
        precision,
        f"{name}_new",
        at=(schema_name, pool.extension),
        concurrently=True,
    )
    return [
        f"DROP INDEX CONCURRENTLY IF EXISTS {schema_name}.{name}_new",
        sql,
        f"DROP INDEX CONCURRENTLY IF EXISTS {schema_name}.{name}",
        f"ALTER INDEX {schema_name}.{name}_new RENAME TO {name}",
    ]
