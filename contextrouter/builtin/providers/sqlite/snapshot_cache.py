"""Caches of what searches read of a SQLite store again and again: brought up to date after writes, never read
anew.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.filter import EVERYTHING, Condition, visible
from contextrouter.builtin.providers.sqlite.rows import numbers, numpy, outermost
from contextrouter.model import Document
from contextrouter.runtime.lru import Lru
from contextrouter.scope import SHARED, Scope
from contextrouter.text.stemming import ENGLISH, STEMMED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contextrouter.builtin.providers.sqlite.rows import Numbers, Scores

S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


class SnapshotCache(ABC, Generic[S]):
    """One value, computed from a store and kept for all threads. `read_at()` brings it to a reader's
    snapshot.

    Chunk numbers grow and are never used again, so after a write only new chunks need a look. A value is
    never changed once it is handed out. `keys` are the entries of `meta` whose change makes it void.
    """

    keys: tuple[str, ...] = ("store",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._origin: tuple[str, ...] = ()
        self._value: S | None = None

    def read_at(self, connection: sqlite3.Connection) -> S:
        """The value for the snapshot of `connection`."""
        origin = tuple(schema.text(connection, key) for key in self.keys)
        with self._lock:
            if self._value is None or self._origin != origin:
                self._value, self._origin = self.first(connection), origin
            self._value = self.update(connection, self._value)
            return self._value

    def forget(self) -> None:
        """Let go of the value."""
        with self._lock:
            self._value = None

    @abstractmethod
    def first(self, connection: sqlite3.Connection) -> S:
        """The value before any chunk is read."""

    def update(self, connection: sqlite3.Connection, value: S) -> S:
        """The value with what is new in the snapshot of `connection`; by default, nothing is."""
        return value


class Recent(Generic[K, V]):
    """What was read of one state of a store, by key, for all threads. What was used last stays."""

    def __init__(self, most: int) -> None:
        self._values: Lru[K, V] = Lru(most)
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """The value of a key, where it was read."""
        with self._lock:
            return self._values.get(key)

    def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """The values of those keys that were read."""
        with self._lock:
            get = self._values.get
            return {key: value for key in keys if (value := get(key)) is not None}

    def add(self, key: K, value: V, size: int = 1) -> None:
        """Remember the value of a key. An empty one takes memory, too."""
        with self._lock:
            self._values.put(key, value, weight=max(size, 1))


class RecentReads(SnapshotCache[Recent[K, V]]):
    """What was read since one of the entries `keys` of `meta` changed."""

    def __init__(self, most: int, keys: tuple[str, ...] = ("store",)) -> None:
        super().__init__()
        self._most, self.keys = most, keys

    def first(self, connection: sqlite3.Connection) -> Recent[K, V]:
        """Nothing was read."""
        return Recent(self._most)


class Lengths(NamedTuple):
    """How many terms each chunk has: that of the chunk `base` first. 0 for a chunk that is gone."""

    base: int
    values: Scores

    def of(self, chunks: Numbers) -> Scores:
        """The lengths of these chunks."""
        lengths: Scores = self.values[chunks - self.base]
        return lengths


class ChunkLengths(SnapshotCache[Lengths]):
    """The lengths of all chunks."""

    def first(self, connection: sqlite3.Connection) -> Lengths:
        """No length yet."""
        return Lengths(0, numpy().zeros(0))

    def update(self, connection: sqlite3.Connection, value: Lengths) -> Lengths:
        """The lengths of chunks behind the last known are added."""
        base, values = value
        lowest = connection.execute("SELECT coalesce(min(number), 0) FROM chunks").fetchone()[0]
        if not len(values) or 0 < lowest < base:  # nothing is read, or only of a snapshot after this one
            base, values = lowest, values[:0]
        sql = "SELECT group_concat(number), group_concat(length) FROM chunks WHERE number >= ?"
        new, lengths = numbers(connection, sql, (base + len(values),))
        if not len(new):
            return value
        grown = numpy().zeros(int(new.max()) + 1 - base)
        grown[: len(values)] = values
        grown[new - base] = lengths
        return Lengths(base, grown)


class LanguageCodes(NamedTuple):
    """The language of the stems of each chunk, as its code in `CODES`: that of the chunk `base` first."""

    base: int
    codes: NDArray[np.int8]

    def among(self, chunks: Numbers, languages: frozenset[str]) -> Numbers:
        """Indexes into `chunks` of those in these languages."""
        np = numpy()
        among = np.zeros(len(CODES), bool)
        among[[CODES[language] for language in languages if language in CODES]] = True
        return np.flatnonzero(among[self.codes[chunks - self.base]])  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


CODES = {language: code for code, language in enumerate((ENGLISH, *sorted(STEMMED)))}
"""Language -> what stands for it in memory."""


class ChunkLanguages(SnapshotCache[LanguageCodes]):
    """The languages of all chunks."""

    def first(self, connection: sqlite3.Connection) -> LanguageCodes:
        """No language yet."""
        return LanguageCodes(0, numpy().zeros(0, numpy().int8))

    def update(self, connection: sqlite3.Connection, value: LanguageCodes) -> LanguageCodes:
        """The languages of chunks behind the last known are added."""
        base, codes = value
        lowest, highest = outermost(connection)
        if not len(codes) or 0 < lowest < base:  # nothing is read, or only of a snapshot after this one
            base, codes = lowest, codes[:0]
        if highest < base + len(codes):
            return LanguageCodes(base, codes)
        grown = numpy().zeros(highest + 1 - base, numpy().int8)
        grown[: len(codes)] = codes
        sql = "SELECT group_concat(chunk) FROM filters WHERE value = ? AND chunk >= ?"
        languages = "SELECT number, value FROM filter_values WHERE key = ?"
        for number, language in connection.execute(languages, (schema.STEMS,)).fetchall():
            (new,) = numbers(connection, sql, (number, base + len(codes)))
            grown[new - base] = CODES.get(language, CODES[ENGLISH])
        return LanguageCodes(base, grown)


class VisibleChunks(NamedTuple):
    """The chunks a scope shows: how many, how many terms they have on average, and by which condition, if not
    all.
    """

    chunks: int
    average_length: float
    condition: Condition


class _LabelCounts(NamedTuple):
    """By tenant, then by compartment and sensitivity: the labels, how many chunks have them, and their
    length together.
    """

    last: int  # the last chunk counted
    by_tenant: Mapping[str, Mapping[tuple[str, str], tuple[Document, int, int]]]


class LabelCounts(SnapshotCache[_LabelCounts]):
    """How many chunks have which labels. All are counted again when chunks are gone."""

    keys = ("store", "log", "removed")

    def visible(self, connection: sqlite3.Connection, scope: Scope | None) -> VisibleChunks:
        """What `scope` shows in the snapshot of `connection`."""
        total, length = schema.number(connection, "chunks"), schema.number(connection, "length")
        if scope is not None:
            by_tenant = self.read_at(connection).by_tenant
            counts = [
                (count, terms)
                for tenant in {scope.tenant or "", SHARED}
                for labels, count, terms in by_tenant.get(tenant, {}).values()
                if scope.allows(labels)
            ]
            chunks, terms = sum([count for count, _ in counts]), sum([terms for _, terms in counts])
            if chunks < total:
                return VisibleChunks(chunks, terms / chunks if chunks else 0.0, visible(scope, "c"))
        return VisibleChunks(total, length / total if total else 0.0, EVERYTHING)

    def first(self, connection: sqlite3.Connection) -> _LabelCounts:
        """Nothing counted."""
        return _LabelCounts(0, {})

    def update(self, connection: sqlite3.Connection, value: _LabelCounts) -> _LabelCounts:
        """The chunks behind the last one are counted, too."""
        highest = connection.execute("SELECT coalesce(max(number), 0) FROM chunks").fetchone()[0]
        if value.last > highest:  # the snapshot is older than the one that was counted
            value = self.first(connection)
        if value.last == highest:
            return value
        rows = connection.execute(
            "SELECT tenant, compartment, sensitivity, count(*), sum(length) FROM chunks WHERE number > ?"
            " GROUP BY tenant, compartment, sensitivity",
            (value.last,),
        ).fetchall()
        by_tenant = {tenant: dict(counts) for tenant, counts in value.by_tenant.items()}
        for tenant, compartment, sensitivity, count, length in rows:
            labels = Document(content="", tenant=tenant, compartment=compartment, sensitivity=sensitivity)
            counts = by_tenant.setdefault(tenant, {})
            _, count_before, length_before = counts.get((compartment, sensitivity), (labels, 0, 0))
            counts[compartment, sensitivity] = (labels, count_before + count, length_before + length)
        return _LabelCounts(highest, by_tenant)
