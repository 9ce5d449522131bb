# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""The fact source `sqlite`: triples in a SQLite store, found by the entity names in a question."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from contextrouter.builtin.facts import entity_names, statement_counts
from contextrouter.builtin.facts import graph_walk as walking
from contextrouter.builtin.providers import stored_attributes
from contextrouter.builtin.providers.entity_texts import check_threshold
from contextrouter.builtin.providers.filtering import microseconds, moment
from contextrouter.builtin.providers.name_candidates import name_candidates, name_key
from contextrouter.builtin.providers.sqlite import Sqlite, schema, write
from contextrouter.builtin.providers.sqlite.file import Stop, StoreFile, kind_of_file
from contextrouter.builtin.providers.sqlite.filter import EVERYTHING, Condition, visible
from contextrouter.contracts import EntityMatch, Entry, FactSource, FilePath, Provider
from contextrouter.errors import SourceError
from contextrouter.model import Document, Entity, Facet, Fact, Period, Query, Vector
from contextrouter.scope import Scope

T = TypeVar("T")
_COLUMNS = (
    "f.subject, f.predicate, f.object, f.source, f.confidence, f.valid_from, f.valid_to, f.tenant,"
    " f.compartment, f.sensitivity, f.attributes, f.subject_key, f.object_key"
)


class SqliteFacts(FactSource):
    """Answers with the facts in a SQLite store: those whose subject or object is named by the question.

    `path` is the store's file; `store` the name of a `sqlite` provider whose file is taken instead (one of
    the two). `hops` (1 to 10) is how far facts are followed from the names: at 2, facts about the entities of
    the first facts come too.

    With a `store`, the vectors it has of entities find those that a hint means; `entity_threshold` is the
    cosine that a match needs (None: that of the store, or of its embedder).

    Names are matched whole, without regard to case and accents, longest first, in any script. Facts are those
    that hold now, or at some time in the query's period. Raises ValueError for values out of range.
    """

    example_questions: ClassVar[Sequence[str]] = ("Who founded OpenAI?",)

    def __init__(
        self,
        *,
        path: FilePath = "",
        store: Provider | None = None,
        hops: int = 1,
        path_hops: int = 4,
        entity_threshold: float | None = None,
    ) -> None:
        if path and store is not None:
            raise ValueError(f"path {path!r} and a store are both given; give one of them.")
        if store is not None and not isinstance(store, Sqlite):
            raise ValueError(
                f"store is a {type(store).__name__}; name a provider that uses 'sqlite', or use facts of"
                " its own kind."
            )
        self._store = store
        self.embedder = store.embedder if store is not None else None
        threshold = check_threshold(entity_threshold)
        self.entity_threshold = (
            store.entity_threshold if store is not None and threshold is None else threshold
        )
        self._path = store.path if store is not None else kind_of_file(path) if path else ""
        self._hops = walking.check_hops(hops)
        self._path_hops = walking.check_hops(path_hops, "path_hops")
        self._file: StoreFile | None = None

    @classmethod
    def example(cls) -> Self:
        """One document with one fact, in a temporary folder that goes with the instance."""
        folder = tempfile.mkdtemp(prefix="contextrouter-")
        source = cls(path=str(Path(folder) / "example.db"))
        weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)
        document = Document(id="openai", content="OpenAI was founded by Sam Altman and others.")
        fact = Fact(subject="OpenAI", predicate="founded_by", object="Sam Altman")
        rows = [write.prepare(Entry(document=document, chunks=[document], facts=[fact]), ())]
        file = StoreFile(source._path, busy_timeout=5.0, threads=1)
        file.write_here(lambda connection: write.upsert(connection, rows, "", 0))
        file.forget()
        return source

    async def open(self) -> None:
        """Check the file if it is there. Raises ValueError when neither `path` nor `store` led to one."""
        if not self._path:
            raise ValueError(
                "Neither path nor store is given; give the store's file, or the name of a sqlite provider."
            )
        if self._file is None:
            self._file = StoreFile(self._path, busy_timeout=5.0, threads=2)
        await self._file.open()

    async def aclose(self) -> None:
        """Interrupt what runs and let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            await file.aclose()

    async def ping(self) -> None:
        """Raise SourceError when there is no store to ask."""
        await self._get_file().check()

    async def version(self) -> str:
        """A string that changes with every write to the store, by whichever process."""
        return await self._get_file().read(lambda c, _: schema.version(c), missing="", must_exist=False)

    async def facts(self, query: Query) -> Sequence[Fact]:
        """Return facts about the names in the query's text, entities and concepts.

        Order: names matched, and twice the words of the question in the predicate; then hops, confidence,
        subject, predicate, object. Facts on a shortest way between two of the names count for both. One fact
        said by several documents comes once; said of two periods it comes twice. What the query excludes does
        not come.
        """
        if query.limit < 1:
            return []
        return await self._get_file().read(
            lambda c, stop: self._facts(c, query, stop), missing=[], deadline=query.deadline
        )

    async def entities(self, query: Query) -> Sequence[Entity]:
        """Return the entities the query names, with what the facts say of each: predicate -> object, or list
        of objects. With `query.attribute`, those that have it, and it alone.
        """
        facts: list[Fact] = await self._get_file().read(
            lambda c, _: _find_subject_facts(c, query), missing=[], deadline=query.deadline
        )
        return entity_names.group_by_subject(facts, query)

    async def path(self, start: str, goal: str, query: Query, *, hops: int | None = None) -> Sequence[Fact]:
        """Return the facts of a shortest way between two names, in order, whichever way each fact points.

        Nothing when no way has at most `hops` (1 to 10; None: `path_hops`) facts. Scope, period and deadline
        are the query's. Raises ValueError for hops out of range.
        """
        walk = walking.path(
            name_key(start), name_key(goal), walking.check_hops(self._path_hops if hops is None else hops)
        )
        return await self._get_file().read(
            lambda c, stop: _run_walk(c, walk, query, stop), missing=[], deadline=query.deadline
        )

    async def related(self, name: str, query: Query) -> Sequence[Entity]:
        """Return the entities one fact away from a name, those of most facts first, then by name;
        `query.limit` at most.

        Attributes: `predicates` of the facts between, `facts`, how many, and `degree`, with how many entities
        it is linked in all.
        """
        key = name_key(name)
        return await self._get_file().read(
            lambda c, _: _find_related(c, key, query), missing=[], deadline=query.deadline
        )

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Count statements by subject, predicate, object or entity (subject or object), before any limit;
        then of each dimension the `query.limit` values of most statements.

        Scope and period narrow, and `query.entities`: then those about them count. Other dimensions are none
        of facts.
        """
        return await self._get_file().read(
            lambda c, _: _count_facets(c, query, dimensions), missing=[], deadline=query.deadline
        )

    async def exact_names(self, hints: Sequence[str], query: Query) -> Sequence[str]:
        """Return the hints that facts in scope have as names."""
        keys = {name_key(hint) for hint in hints}
        none: set[str] = set()
        names = await self._get_file().read(
            lambda c, _: _find_existing_names(c, keys, query.scope), missing=none, deadline=query.deadline
        )
        return [hint for hint in hints if name_key(hint) in names]

    async def nearest_entities(
        self, vector: Vector, query: Query, *, threshold: float
    ) -> Sequence[EntityMatch]:
        """Return the entities in scope with a cosine of at least `threshold`, nearest first. Raises
        SourceError where no `store` is named, or it has no vectors of entities.
        """
        store = self._store
        if store is None:
            raise SourceError("Entities have vectors in a store only; name the provider as `store`.")
        return await self._get_file().read(
            lambda c, _: store.near_entities(c, vector, query, threshold), missing=[], deadline=query.deadline
        )

    def _get_file(self) -> StoreFile:
        if self._file is None:
            raise ValueError("Fact source is not open; call open() first.")
        return self._file

    def _facts(self, connection: sqlite3.Connection, query: Query, stop: Stop) -> list[Fact]:
        walk = walking.spread(_find_names(connection, query), self._hops)
        return entity_names.rank_facts(_run_walk(connection, walk, query, stop), query)


def _run_walk(connection: sqlite3.Connection, walk: walking.Walk[T], query: Query, stop: Stop) -> T:
    """The end of a walk over what the scope shows."""
    access = _access_condition(query)

    def find_facts(names: Sequence[str]) -> list[tuple[int, Fact, set[str]]]:
        stop.check()
        return _find_facts(connection, names, access)

    return walking.run_walk(walk, find_facts)


def _access_condition(query: Query) -> Condition:
    return visible(query.scope, "f") & _validity_condition(query.period)


def _find_related(connection: sqlite3.Connection, key: str, query: Query) -> list[Entity]:
    access = _access_condition(query)
    sql = statement_counts.neighbour_query("?1", "?", access.where, "json_group_array(DISTINCT predicate)")
    neighbours = connection.execute(sql, (key, *access.values, max(query.limit, 0))).fetchall() if key else []
    rows = [
        (key, name, facts, json.loads(predicates), foreign)
        for key, name, facts, predicates, foreign in neighbours
    ]
    is_one_of = "{} IN (SELECT value FROM json_each(?1))"
    degrees = connection.execute(
        statement_counts.degree_query(is_one_of, access.where),
        (json.dumps([row[0] for row in rows]), *access.values),
    )
    return statement_counts.make_entities(rows, dict(degrees))


def _count_facets(connection: sqlite3.Connection, query: Query, dimensions: Sequence[str]) -> list[Facet]:
    condition = _access_condition(query)
    if query.entities:
        names = json.dumps([name_key(name) for name in query.entities])
        keys = "SELECT value FROM json_each(?)"
        condition &= Condition(f"(f.subject_key IN ({keys}) OR f.object_key IN ({keys}))", (names, names))
    facets: list[Facet] = []
    for dimension in dict.fromkeys(name for name in dimensions if name in statement_counts.DIMENSIONS):
        rows = connection.execute(statement_counts.count_query(dimension, condition.where), condition.values)
        facets.extend(statement_counts.make_facets(dimension, rows, query.limit))
    return facets


def _find_subject_facts(connection: sqlite3.Connection, query: Query) -> list[Fact]:
    """The facts whose subject the query names."""
    names = _find_names(connection, query)
    rows = _find_facts(connection, sorted(names), _access_condition(query))
    return [fact for _, fact, _ in rows if name_key(fact.subject) in names]


def _find_facts(
    connection: sqlite3.Connection, names: Sequence[str], access: Condition
) -> list[tuple[int, Fact, set[str]]]:
    """Facts that have one of `names` as subject or object, surest first."""
    rows = connection.execute(
        f"SELECT f.number, {_COLUMNS} FROM facts f WHERE f.number IN (SELECT number FROM facts WHERE"
        " subject_key IN (SELECT value FROM json_each(?1)) UNION SELECT number FROM facts WHERE object_key"
        f" IN (SELECT value FROM json_each(?1))) AND {access.where} ORDER BY f.confidence DESC, f.subject,"
        f" f.predicate, f.object, f.number LIMIT {entity_names.MAX_FACTS}",
        (json.dumps(list(names)), *access.values),
    )
    return [(row[0], _read_fact(row[1:]), {key for key in row[-2:] if key}) for row in rows]


def _read_fact(row: Sequence[Any]) -> Fact:
    return Fact(
        subject=row[0],
        predicate=row[1],
        object=row[2],
        source=row[3],
        confidence=row[4],
        valid_from=moment(row[5]),
        valid_to=moment(row[6]),
        tenant=row[7] or None,
        compartment=row[8] or None,
        sensitivity=row[9] or None,
        **stored_attributes.decode_attributes(row[10]),
    )


def _validity_condition(period: Period | None) -> Condition:
    """Facts that hold now, or at some time in the period. A fact's own period is [valid_from, valid_to)."""
    if period is None:
        now = microseconds(datetime.now(UTC))
        start, end = now, None if now is None else now + 1
    else:
        start, end = map(microseconds, period.bounds())
    condition = EVERYTHING
    if end is not None:
        condition &= Condition("(f.valid_from IS NULL OR f.valid_from < ?)", (end,))
    if start is not None:
        condition &= Condition("(f.valid_to IS NULL OR f.valid_to > ?)", (start,))
    return condition


def _find_names(connection: sqlite3.Connection, query: Query) -> set[str]:
    """The names that visible facts know among those asked."""
    candidates = name_candidates(query)
    return candidates.matching(_find_existing_names(connection, candidates.keys, query.scope))


def _find_existing_names(
    connection: sqlite3.Connection, keys: Iterable[str], scope: Scope | None
) -> set[str]:
    access = visible(scope, "f")
    rows = connection.execute(
        "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM facts f WHERE f.subject_key = value AND"
        f" {access.where}) OR EXISTS (SELECT 1 FROM facts f WHERE f.object_key = value AND {access.where})",
        (json.dumps(sorted(keys)), *access.values, *access.values),
    )
    return {value for (value,) in rows}
