# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Vector search (the vector legs): a scan over int8 codes held in memory nominates, the float32 vectors in
the file decide.

A code is a unit vector at eight bits a dimension, written in the transaction that writes the vector, so no
crash can part them. Codes cost a quarter of the memory and of the scan; what they could have misplaced is
scored again from the table, so that every score handed out is exact. Chunk numbers grow and what they stand
for never changes: after a write only new codes are read, and the log of removed chunks.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition
from contextrouter.builtin.providers.sqlite.rows import AdmittedChunks, best, numbers, numpy
from contextrouter.builtin.providers.sqlite.snapshot_cache import RecentReads, SnapshotCache
from contextrouter.builtin.providers.vector_slots import FIRST, REBUILD, SECOND
from contextrouter.errors import MissingDependency, SourceError
from contextrouter.model import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contextrouter.builtin.providers.sqlite.rows import Numbers

    Rows: TypeAlias = NDArray[np.float32]
    Codes: TypeAlias = NDArray[np.int8]

LEGS = ("vector", "keywords")
DEVIATIONS = 10.0
"""How far apart rounding to eight bits may put two scores that are equal, in standard deviations; 6.0 was the
most seen.
"""
_MOST = 4_000  # nominated beyond the limit; only vectors that are nearly all alike come near
RECENT_VECTORS = 4_000
"""Vectors that are remembered between searches, of each leg."""
_BATCH = 5_000  # codes read at a time
_SCALE = 4  # bytes before the values of a code


class StaleSnapshot(Exception):
    """The snapshot is older than the codes: another reader has seen a later one. Take a new snapshot and ask
    again.
    """


class VectorQuery(NamedTuple):
    """What is near a unit vector, among the chunks that a condition admits, and how many of them."""

    vector: Rows
    condition: Condition
    limit: int


class _Codes(NamedTuple):
    """All codes of a leg at one generation."""

    generation: int
    numbers: Numbers  # chunk numbers, ascending
    values: Codes
    scales: Rows  # code times scale is the unit vector, nearly
    dead: Numbers  # indexes of rows whose chunk is gone
    columns: tuple[_Column, ...]  # where numbers, codes and scales grow


def code(vector: Rows) -> bytes:
    """A unit vector at eight bits: the scale, float32 little-endian, and one int8 per dimension."""
    levels, scale = _quantise(vector)
    return numpy().array(scale, "<f4").tobytes() + levels.tobytes()  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


class CodeIndex(SnapshotCache[_Codes]):
    """Finds the nearest vectors of one leg, in one of the two places that a store has for vectors."""

    def __init__(self, leg: str, admitted: AdmittedChunks, suffix: str = "") -> None:
        super().__init__()
        self._leg, self._suffix = leg, suffix
        self._admitted = admitted
        self.keys = ("store", f"filled{suffix}")  # the latter: vectors came to older chunks
        self._recent = RecentReads[int, Vector](RECENT_VECTORS, self.keys)

    def search(
        self, connection: sqlite3.Connection, query: VectorQuery, vectors: dict[int, Any], stop: Stop
    ) -> list[tuple[int, float]]:
        """The nearest admitted chunks (number, cosine) and those tied with the last, nearest first; cosines
        are of float32 vectors. `vectors` holds those that the batch has read, by chunk; more are added here.

        Raises StaleSnapshot when the snapshot of `connection` is older than what is loaded.
        """
        np = numpy()
        vector, condition, limit = query
        with stop.finishing():
            codes = self.read_at(connection)
        if len(codes.numbers) == len(codes.dead):
            return []
        if codes.values.shape[1] != len(vector):
            raise SourceError(
                f"Query vector has {len(vector)} dimensions, the store's have {codes.values.shape[1]}; "
                f"use the embedder the store was filled with, or build it again with {REBUILD}."
            )
        rough, step = _scan(codes, vector)
        rough[codes.dead] = -np.inf
        admitted = None
        if condition.sql:
            with stop.finishing():
                admitted = self._admitted.indexes(
                    codes.numbers, connection, schema.text(connection, "store"), condition
                )
            rough = rough[admitted]
        chosen = _nominate(rough, limit, step)
        chunks = codes.numbers[chosen if admitted is None else admitted[chosen]]
        self.read_vectors(connection, chunks.tolist(), vectors)
        exact = np.array([vectors[chunk] for chunk in chunks.tolist()], "<f4").reshape(-1, len(vector))
        scores = np.clip(exact.astype(np.float64) @ vector.astype(np.float64), -1.0, 1.0)
        return best(chunks, scores, limit, 6)

    def read_vectors(
        self, connection: sqlite3.Connection, chunks: Sequence[int], vectors: dict[int, Any]
    ) -> None:
        """Add to `vectors` those of chunks that have one, from memory or the table. The queries of a question
        find much the same chunks.
        """
        absent = [chunk for chunk in chunks if chunk not in vectors]
        if not absent:
            return
        recent = self._recent.read_at(connection)
        vectors.update(recent.get_all(absent))
        unread = [chunk for chunk in absent if chunk not in vectors]
        if not unread:
            return
        sql = (
            f"SELECT chunk, {self._leg} FROM vectors{self._suffix} WHERE chunk IN (SELECT value FROM"
            f" json_each(?)) AND {self._leg} IS NOT NULL"
        )
        read = numpy().frombuffer
        for chunk, blob in connection.execute(sql, (json.dumps(unread),)).fetchall():
            vectors[chunk] = read(blob, "<f4")
            recent.add(chunk, vectors[chunk])

    def first(self, connection: sqlite3.Connection) -> _Codes:
        """No code."""
        np = numpy()
        none = np.zeros(0, np.int64)
        codes = np.zeros((0, schema.number(connection, f"dimensions{self._suffix}")), np.int8)
        return _Codes(-1, none, codes, np.zeros(0, "<f4"), none, _columns())

    def update(self, connection: sqlite3.Connection, value: _Codes) -> _Codes:
        """The codes known, less those of chunks that are gone, and the new ones."""
        generation = schema.number(connection, "generation")
        if generation < value.generation:
            raise StaleSnapshot
        if generation == value.generation:
            return value
        if not len(value.numbers):
            value = self.first(connection)  # by now the store may note how long its vectors are
        np = numpy()
        _, chunks, codes, scales, dead, columns = value
        if len(chunks):
            dead = np.union1d(dead, _find_removed(connection, value.generation, chunks))
        if len(dead) > len(chunks) // 10:
            alive = np.ones(len(chunks), bool)
            alive[dead] = False
            chunks, codes, scales, dead = chunks[alive], codes[alive], scales[alive], dead[:0]
            columns = _columns()
        newest = int(value.numbers[-1]) if len(value.numbers) else 0
        added = self._new(connection, newest, codes.shape[1])
        if len(added[0]):
            pairs = zip(columns, (chunks, codes, scales), added, strict=True)
            chunks, codes, scales = (column.appended(old, new) for column, old, new in pairs)
        return _Codes(generation, chunks, codes, scales, dead, columns)

    def _new(
        self, connection: sqlite3.Connection, newest: int, dimensions: int
    ) -> tuple[Numbers, Codes, Rows]:
        """Numbers, codes and scales of the chunks behind `newest`."""
        np = numpy()
        numbers_read: list[int] = []
        parts: list[bytes] = []
        cursor = connection.execute(
            f"SELECT chunk, code FROM {self._leg}_codes{self._suffix} WHERE chunk > ? ORDER BY chunk",
            (newest,),
        )
        while batch := cursor.fetchmany(_BATCH):
            numbers_read.extend(number for number, _ in batch)
            parts.append(b"".join(code for _, code in batch))
        rows = _rows(b"".join(parts), len(numbers_read), dimensions + _SCALE, dimensions)
        scales = np.ascontiguousarray(rows[:, :_SCALE]).view("<f4")[:, 0]
        return np.array(numbers_read, dtype=np.int64), rows[:, _SCALE:].view(np.int8), scales


def code_indexes(legs: Sequence[str], admitted: AdmittedChunks) -> dict[tuple[str, str], CodeIndex]:
    """The indexes of the legs in both places that a store has for vectors, by place and leg."""
    return {(suffix, leg): CodeIndex(leg, admitted, suffix) for suffix in (FIRST, SECOND) for leg in legs}


def _columns() -> tuple[_Column, ...]:
    return _Column(), _Column(), _Column()


class _Column:
    """An array that grows: rows are put behind those that earlier values see, into space kept for them."""

    def __init__(self) -> None:
        self._space: Any = None

    def appended(self, rows: Any, added: Any) -> Any:
        """The rows and those added behind them; `rows` is what the last call returned, or begins a new
        array.
        """
        end = len(rows) + len(added)
        if self._space is None or end > len(self._space):
            room = end + end // 8 if len(rows) else end
            space = numpy().empty((room, *added.shape[1:]), added.dtype)
            space[: len(rows)] = rows
            self._space = space
        self._space[len(rows) : end] = added
        return self._space[:end]


def _quantise(vector: Rows) -> tuple[Codes, float]:
    """A unit vector as int8 levels, and the scale at which they come nearest to it."""
    np = numpy()
    levels = np.rint(vector * (127.0 / np.abs(vector).max()))
    return levels.astype(np.int8), float(vector @ levels / (levels @ levels))


def _scan(codes: _Codes, vector: Rows) -> tuple[Rows, float]:
    """Cosines of all rows, nearly; and how far apart the codes may put two that are equal."""
    np = numpy()
    levels, scale = _quantise(vector)
    # Not with `out`: up to simsimd 6.5 that takes a reference from None each time, and in the end the
    # interpreter dies of it.
    rough = np.asarray(simsimd().cdist(levels[None], codes.values, "dot", out_dtype="float32"))[0]
    rough *= codes.scales
    rough *= scale
    # A value is off by up to half a level, evenly: scale / sqrt(12) in the mean square, and so is a product
    # with a unit vector.
    widest = float(codes.scales.max())
    return rough, DEVIATIONS * ((widest**2 + scale**2) / 12.0) ** 0.5


def _nominate(rough: Rows, limit: int, step: float) -> Numbers:
    """Places of the `limit` best and of all that could be among them, ascending; none that is gone (minus
    infinity).
    """
    np = numpy()
    if len(rough) > limit:
        threshold = np.partition(rough, len(rough) - limit)[len(rough) - limit]
        chosen = np.flatnonzero((rough >= threshold - step) & (rough > -np.inf))
    else:
        chosen = np.flatnonzero(rough > -np.inf)
    if len(chosen) > limit + _MOST:
        chosen = np.sort(chosen[np.argsort(-rough[chosen], kind="stable")[: limit + _MOST]])
    return chosen  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


def _find_removed(connection: sqlite3.Connection, generation: int, chunks: Numbers) -> Numbers:
    """Positions in `chunks` of the chunks removed since a generation: from the log, or, where that was cut,
    by looking at all.
    """
    np = numpy()
    if generation >= schema.number(connection, "log"):
        gone = numbers(
            connection, "SELECT group_concat(chunk) FROM removed WHERE generation > ?", (generation,)
        )[0]
        places = np.searchsorted(chunks, gone)
        places = places[places < len(chunks)]
        return places[np.isin(chunks[places], gone)]  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
    live = numbers(
        connection, "SELECT group_concat(number) FROM chunks WHERE number <= ?", (int(chunks[-1]),)
    )[0]
    return np.flatnonzero(~np.isin(chunks, live, assume_unique=True))  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


def _rows(data: bytes, count: int, width: int, dimensions: int) -> Any:
    """Bytes as `count` rows of `width`. Raises SourceError for data of another length."""
    if len(data) != count * width:
        raise SourceError(
            f"Store holds vectors of other lengths than the {dimensions} it notes; run {REBUILD}."
        )
    return numpy().frombuffer(data, dtype="u1").reshape(count, width)


def simsimd() -> Any:
    """The package simsimd, or MissingDependency that names the extra."""
    try:
        import simsimd as found
    except ImportError as error:
        raise MissingDependency("simsimd", "sqlite", what="A SQLite store with vectors") from error
    return found
