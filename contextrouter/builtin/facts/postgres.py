# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""The fact source `postgres`: triples in a Postgres store, found by the entity names in a question."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from contextrouter.builtin.facts import entity_names, statement_counts
from contextrouter.builtin.facts import graph_walk as walking
from contextrouter.builtin.providers import stored_attributes
from contextrouter.builtin.providers.entity_texts import check_threshold
from contextrouter.builtin.providers.filtering import microseconds, moment
from contextrouter.builtin.providers.name_candidates import name_candidates, name_key
from contextrouter.builtin.providers.postgres import Postgres, schema
from contextrouter.builtin.providers.postgres.connection_pool import Pool, Session
from contextrouter.builtin.providers.postgres.embedded import PREFIX, example_folder
from contextrouter.builtin.providers.postgres.filter import Values, visible
from contextrouter.contracts import EntityMatch, Entry, FactSource, Provider
from contextrouter.errors import SourceError
from contextrouter.model import Document, Entity, Facet, Fact, Period, Query, Vector
from contextrouter.scope import Scope

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

T = TypeVar("T")
_COLLATE = ' COLLATE "C"'
_COLUMNS = (
    "f.owner, f.document, f.place, f.subject, f.predicate, f.object, f.source, f.confidence, f.valid_from,"
    " f.valid_to, f.tenant, f.compartment, f.sensitivity, f.attributes, f.subject_key, f.object_key"
)


class PostgresFacts(FactSource):
    """Answers with the facts in a Postgres store: those whose subject or object is named by the question.

    `store` is the name of a `postgres` provider whose pool is shared; without it `dsn`, `schema`,
    `pool_size`, `pool_timeout`, `statement_timeout`, `statement_cache_size` and `target_session_attrs` say as
    they do there where the facts are. `hops` (1 to 10) is how far facts are followed from the names: at 2,
    facts about the entities of the first facts come too. `path_hops` (1 to 10) is how long a way between
    two entities may be.

    With a `store`, the vectors it has of entities find those that a hint means; `entity_threshold` is the
    cosine that a match needs (None: that of the store, or of its embedder).

    Names are matched whole, without regard to case and accents, longest first, in any script. Facts are those
    that hold now, or at some time in the query's period. Raises ValueError for values out of range.
    """

    example_questions: ClassVar[Sequence[str]] = ("Who founded OpenAI?",)

    def __init__(
        self,
        *,
        store: Provider | None = None,
        dsn: str = "",
        schema: str = "contextrouter",
        hops: int = 2,
        path_hops: int = 4,
        entity_threshold: float | None = None,
        pool_size: int = 4,
        pool_timeout: float = 5.0,
        statement_timeout: float = 30.0,
        statement_cache_size: int = 100,
        target_session_attrs: Session = "any",
    ) -> None:
        if dsn and store is not None:
            raise ValueError("dsn and a store are both given; give one of them.")
        if store is not None and not isinstance(store, Postgres):
            raise ValueError(
                f"store is a {type(store).__name__}; name a provider that uses 'postgres', or use facts of"
                " its own kind."
            )
        self._store = store
        self.embedder = store.embedder if store is not None else None
        self.entity_threshold = check_threshold(entity_threshold)
        if entity_threshold is None and store is not None:
            self.entity_threshold = store.entity_threshold
        self._hops = walking.check_hops(hops)
        self._path_hops = walking.check_hops(path_hops, "path_hops")
        self.pool = (
            store.pool
            if store is not None
            else Pool(
                dsn=dsn,
                schema=schema,
                pool_size=pool_size,
                pool_timeout=pool_timeout,
                statement_timeout=statement_timeout,
                statement_cache_size=statement_cache_size,
                target_session_attrs=target_session_attrs,
            )
        )
        self._example: Postgres | None = None

    @classmethod
    def example(cls) -> Self:
        """One document with one fact, in a schema of its own, on a server in a temporary folder."""
        dsn, schema = PREFIX + example_folder(), f"example_{uuid.uuid4().hex[:24]}"
        source = cls(dsn=dsn, schema=schema)
        source._example = Postgres(dsn=dsn, schema=schema, embedder=None, pool_size=1)
        return source

    async def open(self) -> None:
        """Connect, or join the store's connections. Raises SourceError when there is no server."""
        await self.pool.open(self)
        if self._example is not None:
            await _fill(self._example)
            self._example = None

    async def aclose(self) -> None:
        """Let go of the pool; its connections end with the last plugin that shares it."""
        await self.pool.aclose(self)

    async def ping(self) -> None:
        """Raise SourceError when there is no store to ask."""
        async with self.pool.transaction() as connection:
            await schema.read_meta(connection, "store")

    async def version(self) -> str:
        """A string that changes with every write to the store, by whichever process; "" while there is
        none.
        """
        return await self.pool.answer(schema.content_version, missing="")

    async def facts(self, query: Query) -> Sequence[Fact]:
        """Return facts about the names in the query's text, entities and concepts.

        Order: names matched, and twice the words of the question in the predicate; then hops, confidence,
        subject, predicate, object. Facts on a shortest way between two of the names count for both. One fact
        said by several documents comes once; said of two periods it comes twice. What the query excludes does
        not come.
        """
        if query.limit < 1:
            return []
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            matches = await self._match(connection, query)
        return entity_names.rank_facts(matches, query)

    async def entities(self, query: Query) -> Sequence[Entity]:
        """Return the entities the query names, with what the facts say of each: predicate -> object, or list
        of objects. With `query.attribute`, those that have it, and it alone.
        """
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            names = await _find_names(connection, query)
            rows = await _find_facts(connection, sorted(names), query.scope, query.period)
        return entity_names.group_by_subject(
            (fact for _, fact, _ in rows if name_key(fact.subject) in names), query
        )

    async def path(self, start: str, goal: str, query: Query, *, hops: int | None = None) -> Sequence[Fact]:
        """Return the facts of a shortest way between two names, in order, whichever way each fact points.

        Nothing when no way has at most `hops` (1 to 10; None: `path_hops`) facts. Scope, period and deadline
        are the query's. Raises ValueError for hops out of range.
        """
        walk = walking.path(
            name_key(start), name_key(goal), walking.check_hops(self._path_hops if hops is None else hops)
        )
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            return await _run_walk(connection, walk, query)

    async def related(self, name: str, query: Query) -> Sequence[Entity]:
        """Return the entities one fact away from a name, those of most facts first, then by name;
        `query.limit` at most.

        Attributes: `predicates` of the facts between, `facts`, how many, and `degree`, with how many entities
        it is linked in all.
        """
        values = Values()
        key = values.bound(name_key(name), "text")
        limit = values.bound(max(query.limit, 0), "bigint")
        sql = statement_counts.neighbour_query(
            key, limit, _access_condition(query, values), "array_agg(DISTINCT predicate)", _COLLATE
        )
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            rows = [tuple(row) for row in await connection.fetch(sql, *values)] if name_key(name) else []
            values = Values()
            is_one_of = f"{{}} = ANY ({values.bound([row[0] for row in rows], 'text[]')})"
            degrees = (
                await connection.fetch(
                    statement_counts.degree_query(is_one_of, _access_condition(query, values)), *values
                )
                if rows
                else []
            )
        return statement_counts.make_entities(rows, dict(degrees))

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Count statements by subject, predicate, object or entity (subject or object), before any limit;
        then of each dimension the `query.limit` values of most statements.

        Scope and period narrow, and `query.entities`: then those about them count. Other dimensions are none
        of facts.
        """
        counts: list[Facet] = []
        names = dict.fromkeys(name for name in dimensions if name in statement_counts.DIMENSIONS)
        if not names:
            return counts
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            for dimension in names:
                values = Values()
                sql = statement_counts.count_query(dimension, _facet_condition(query, values), _COLLATE)
                rows = await connection.fetch(sql, *values)
                counts.extend(statement_counts.make_facets(dimension, rows, query.limit))
        return counts

    async def exact_names(self, hints: Sequence[str], query: Query) -> Sequence[str]:
        """Return the hints that facts in scope have as names."""
        keys = {name_key(hint) for hint in hints}
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            names = await _find_existing_names(connection, keys, query.scope)
        return [hint for hint in hints if name_key(hint) in names]

    async def nearest_entities(
        self, vector: Vector, query: Query, *, threshold: float
    ) -> Sequence[EntityMatch]:
        """Return the entities in scope with a cosine of at least `threshold`, nearest first. Raises
        SourceError where no `store` is named, or it has no vectors of entities.
        """
        if self._store is None:
            raise SourceError("Entities have vectors in a store only; name the provider as `store`.")
        return await self._store.nearest_entities(vector, query, threshold=threshold)

    async def _match(self, connection: Connection, query: Query) -> list[entity_names.FactMatch]:
        return await _run_walk(
            connection, walking.spread(await _find_names(connection, query), self._hops), query
        )


async def _run_walk(connection: Connection, walk: walking.Walk[T], query: Query) -> T:
    """The end of a walk over what the scope shows."""
    try:
        names = next(walk)
        while True:
            names = walk.send(await _find_facts(connection, names, query.scope, query.period))
    except StopIteration as end:
        result: T = end.value
        return result


def _access_condition(query: Query, values: Values) -> str:
    return " AND ".join(
        part
        for part in (visible(query.scope, "f", values), _validity_condition(query.period, values))
        if part
    )


def _facet_condition(query: Query, values: Values) -> str:
    """What is allowed and, when entities are given, about one of them."""
    access = _access_condition(query, values)
    if not query.entities:
        return access
    names = values.bound([name_key(name) for name in query.entities], "text[]")
    return f"(f.subject_key = ANY ({names}) OR f.object_key = ANY ({names})) AND {access}"


async def _find_facts(
    connection: Connection, names: Sequence[str], scope: Scope | None, period: Period | None
) -> list[tuple[tuple[Any, ...], Fact, set[str]]]:
    """Facts that have one of `names` as subject or object, surest first."""
    if not names:
        return []
    values = Values()
    keys = values.bound(list(names), "text[]")
    condition = " AND ".join(
        part for part in (visible(scope, "f", values), _validity_condition(period, values)) if part
    )
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM facts f WHERE (f.subject_key = ANY ({keys}) OR f.object_key = ANY"
        f' ({keys})) AND {condition} ORDER BY f.confidence DESC, f.subject COLLATE "C", f.predicate COLLATE'
        f' "C", f.object COLLATE "C", f.owner, f.document, f.place LIMIT {entity_names.MAX_FACTS}',
        *values,
    )
    return [(tuple(row)[:3], _read_fact(row), {key for key in tuple(row)[-2:] if key}) for row in rows]


def _read_fact(row: Any) -> Fact:
    return Fact(
        subject=row["subject"],
        predicate=row["predicate"],
        object=row["object"],
        source=row["source"],
        confidence=row["confidence"],
        valid_from=moment(row["valid_from"]),
        valid_to=moment(row["valid_to"]),
        tenant=row["tenant"] or None,
        compartment=row["compartment"] or None,
        sensitivity=row["sensitivity"] or None,
        **stored_attributes.decode_attributes(row["attributes"]),
    )


def _validity_condition(period: Period | None, values: Values) -> str:
    """Facts that hold now, or at some time in the period. A fact's own period is [valid_from, valid_to)."""
    if period is None:
        now = microseconds(datetime.now(UTC))
        start, end = now, None if now is None else now + 1
    else:
        start, end = map(microseconds, period.bounds())
    parts = []
    if end is not None:
        parts.append(f"(f.valid_from IS NULL OR f.valid_from < {values.bound(end, 'bigint')})")
    if start is not None:
        parts.append(f"(f.valid_to IS NULL OR f.valid_to > {values.bound(start, 'bigint')})")
    return " AND ".join(parts) or "true"


async def _find_names(connection: Connection, query: Query) -> set[str]:
    """The names that visible facts know among those asked."""
    candidates = name_candidates(query)
    return candidates.matching(await _find_existing_names(connection, candidates.keys, query.scope))


async def _find_existing_names(connection: Connection, keys: Iterable[str], scope: Scope | None) -> set[str]:
    values = Values()
    parameter = values.bound(sorted(keys), "text[]")
    access = visible(scope, "f", values)
    rows = await connection.fetch(
        f"SELECT subject_key AS key FROM facts f WHERE subject_key = ANY ({parameter}) AND {access}"
        f" UNION SELECT object_key FROM facts f WHERE object_key = ANY ({parameter}) AND {access}",
        *values,
    )
    return {row["key"] for row in rows if row["key"]}


async def _fill(store: Postgres) -> None:
    document = Document(id="openai", content="OpenAI was founded by Sam Altman and others.")
    fact = Fact(subject="OpenAI", predicate="founded_by", object="Sam Altman")
    try:
        await store.open()
        await store.upsert([Entry(document=document, chunks=[document], facts=[fact])])
    finally:
        await store.aclose()
