# ruff: noqa: S608  (the statements are put together from fragments written here; every value is bound)
"""The fact source `sqlite`: triples stored with the documents of a SQLite store, found by the names a question holds."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from contextrouter.builtin.facts import naming
from contextrouter.builtin.providers import sqlite_write
from contextrouter.builtin.providers.filtering import microseconds, moment
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.providers.sqlite_file import Stop, StoreFile, kind_of_file
from contextrouter.builtin.providers.sqlite_filter import EVERYTHING, Condition, visible
from contextrouter.contracts import Entry, FactSource, FilePath, Provider
from contextrouter.model import Document, Entity, Fact, Period, Query

_COLUMNS = (
    "f.subject, f.predicate, f.object, f.source, f.confidence, f.valid_from, f.valid_to, f.tenant, f.compartment,"
    " f.sensitivity, f.attributes, f.subject_key, f.object_key"
)


class SqliteFacts(FactSource):
    """Answers with the facts in a SQLite store: those whose subject or object is named by the question.

    `path` is the store's file; `store` the name of a `sqlite` provider whose file is taken instead (one of the two). `hops`
    (1 to 10) is how far facts are followed from the names: at 2, facts about the entities of the first facts come too.

    Names are matched whole, without regard to case and accents, longest first, in any script. Facts are those that hold now,
    or at some time in the query's period. Raises ValueError for values out of range.
    """

    example_questions: ClassVar[Sequence[str]] = ("Who founded OpenAI?",)

    def __init__(self, *, path: FilePath = "", store: Provider | None = None, hops: int = 1) -> None:
        if path and store is not None:
            raise ValueError(f"path {path!r} and a store are both given; give one of them.")
        if store is not None and not isinstance(store, Sqlite):
            raise ValueError(f"store is a {type(store).__name__}; name a provider that uses 'sqlite'.")
        if not 1 <= hops <= 10:
            raise ValueError(f"hops {hops!r} is out of range; give 1 to 10.")
        self.path = store.path if store is not None else kind_of_file(path) if path else ""
        self._hops = hops
        self._file: StoreFile | None = None

    @classmethod
    def example(cls) -> Self:
        """One document with one fact, in a temporary folder that goes with the instance."""
        folder = tempfile.mkdtemp(prefix="contextrouter-")
        source = cls(path=str(Path(folder) / "example.db"))
        weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)
        document = Document(id="openai", content="OpenAI was founded by Sam Altman and others.")
        fact = Fact(subject="OpenAI", predicate="founded_by", object="Sam Altman")
        rows = [sqlite_write.prepare(Entry(document=document, chunks=[document], facts=[fact]), ())]
        file = StoreFile(source.path, busy_timeout=5.0, threads=1)
        file.write_here(lambda connection: sqlite_write.upsert(connection, rows, "", 0))
        file.forget()
        return source

    async def open(self) -> None:
        """Check the file if it is there. Raises ValueError when neither `path` nor `store` led to one."""
        if not self.path:
            raise ValueError("Neither path nor store is given; give the store's file, or the name of a sqlite provider.")
        if self._file is None:
            self._file = StoreFile(self.path, busy_timeout=5.0, threads=2)
        await self._file.open()

    async def aclose(self) -> None:
        """Interrupt what runs and let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            await file.aclose()

    async def ping(self) -> None:
        """Raise SourceError when there is no store to ask."""
        await self._opened().read(lambda connection, stop: None, empty=None)

    async def version(self) -> str:
        """A string that changes with every write to the store, by whichever process."""
        sql = "SELECT group_concat(value, ':') FROM (SELECT value FROM meta WHERE key IN ('store', 'generation') ORDER BY key)"
        file = self._opened()
        return await file.read(lambda c, stop: str(c.execute(sql).fetchone()[0]), empty="") if file.exists() else ""

    async def facts(self, query: Query) -> Sequence[Fact]:
        """Return facts about the names in the query's text, entities and concepts.

        Order: names matched, hops, confidence, subject, predicate, object. One fact said by several documents comes once;
        said of two periods it comes twice.
        """
        if query.limit < 1:
            return []
        found: list[Fact] = await self._opened().read(
            lambda c, stop: self._facts(c, query, stop), deadline=query.deadline, empty=[]
        )
        return found

    async def entities(self, query: Query) -> Sequence[Entity]:
        """Return the entities the query names, with what the facts say of each: predicate -> object, or list of objects."""
        found: list[Fact] = await self._opened().read(lambda c, stop: _subjects(c, query), deadline=query.deadline, empty=[])
        return naming.subjects(found, query.limit)

    def _opened(self) -> StoreFile:
        if self._file is None:
            raise ValueError("Fact source is not open; call open() first.")
        return self._file

    def _facts(self, connection: sqlite3.Connection, query: Query, stop: Stop) -> list[Fact]:
        return naming.best(self._direct(connection, query, stop), query.limit)

    def _direct(self, connection: sqlite3.Connection, query: Query, stop: Stop) -> list[naming.Found]:
        """Facts of the names, then, hop by hop, of the entities those facts name; no name is followed twice."""
        names = _named(connection, query)
        allowed = visible(query.scope, "f") & _valid(query.period)
        found: dict[int, naming.Found] = {}
        frontier, visited = sorted(names), set(names)
        for hop in range(1, self._hops + 1):
            stop.check()
            reached: dict[str, None] = {}
            for number, fact, keys in _about(connection, frontier, allowed):
                if number not in found:
                    found[number] = naming.Found(fact, len(names & keys), hop)
                    reached.update(dict.fromkeys(sorted(keys - visited)))
            frontier = list(reached)[: naming.WIDEST]
            visited.update(frontier)
            if not frontier:
                break
        return list(found.values())


def _subjects(connection: sqlite3.Connection, query: Query) -> list[Fact]:
    """The facts whose subject the query names."""
    names = _named(connection, query)
    found = _about(connection, sorted(names), visible(query.scope, "f") & _valid(query.period))
    return [fact for _, fact, _ in found if sqlite_write.name_key(fact.subject) in names]


def _about(connection: sqlite3.Connection, names: Sequence[str], allowed: Condition) -> list[tuple[int, Fact, set[str]]]:
    """Facts that have one of `names` as subject or object, surest first."""
    rows = connection.execute(
        f"SELECT f.number, {_COLUMNS} FROM facts f WHERE f.number IN ("
        "SELECT number FROM facts WHERE subject_key IN (SELECT value FROM json_each(?1)) UNION "
        "SELECT number FROM facts WHERE object_key IN (SELECT value FROM json_each(?1)))"
        f" AND {allowed.where} ORDER BY f.confidence DESC, f.subject, f.predicate, f.object, f.number LIMIT {naming.MOST}",
        (json.dumps(list(names)), *allowed.values),
    )
    return [(row[0], _fact(row[1:]), {key for key in row[-2:] if key}) for row in rows]


def _fact(row: Sequence[Any]) -> Fact:
    return Fact(
        subject=row[0], predicate=row[1], object=row[2], source=row[3], confidence=row[4],
        valid_from=moment(row[5]), valid_to=moment(row[6]),
        tenant=row[7] or None, compartment=row[8] or None, sensitivity=row[9] or None,
        attributes=msgspec.json.decode(row[10]),
    )  # fmt: skip


def _valid(period: Period | None) -> Condition:
    """Facts that hold now, or at some time in the period. A fact's own period is [valid_from, valid_to)."""
    if period is None:
        now = microseconds(datetime.now(UTC))
        first, last = now, None if now is None else now + 1
    else:
        first, last = map(microseconds, period.bounds())
    condition = EVERYTHING
    if last is not None:
        condition &= Condition("(f.valid_from IS NULL OR f.valid_from < ?)", (last,))
    if first is not None:
        condition &= Condition("(f.valid_to IS NULL OR f.valid_to > ?)", (first,))
    return condition


def _named(connection: sqlite3.Connection, query: Query) -> set[str]:
    """The names that facts know among those asked."""
    asked = naming.asked(query)
    return asked.among(_known(connection, asked.keys))


def _known(connection: sqlite3.Connection, keys: Iterable[str]) -> set[str]:
    rows = connection.execute(
        "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM facts WHERE subject_key = value)"
        " OR EXISTS (SELECT 1 FROM facts WHERE object_key = value)",
        (json.dumps(sorted(keys)),),
    )
    return {value for (value,) in rows}
