# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""The vector legs: a scan over int8 codes held in memory nominates, the float32 vectors in the file decide.

A code is a unit vector at eight bits a dimension, written in the transaction that writes the vector, so no
crash can part them. Codes cost a quarter of the memory and of the scan; what they could have misplaced is
scored again from the table, so that every score handed out is exact. Chunk numbers grow and what they stand
for never changes: after a write only new codes are read, and the log of removed chunks.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition
from contextrouter.builtin.providers.sqlite.rows import Admissions, best, numbers, numpy
from contextrouter.errors import MissingDependency, SourceError
from contextrouter.model import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]
    Rows: TypeAlias = NDArray[np.float32]
    Codes: TypeAlias = NDArray[np.int8]

LEGS = ("vector", "keywords")
DEVIATIONS = 10.0
"""How far apart rounding to eight bits may put two scores that are equal, in standard deviations; 6.0 was the
most seen.
"""
_MOST = 4_000  # nominated beyond the limit; only vectors that are nearly all alike come near
_BATCH = 5_000  # codes read at a time
_SCALE = 4  # bytes before the values of a code


class Outrun(Exception):
    """The snapshot is older than the codes: another reader has seen a later one. Take a new snapshot and ask
    again.
    """


class Nearest(NamedTuple):
    """Chunks near a query: (number, cosine), nearest first, and the vector of each."""

    ranked: list[tuple[int, float]]
    vectors: dict[int, Vector]


class _State(NamedTuple):
    """All codes of a leg at one generation. Arrays are never changed once they are in a state."""

    store: str
    generation: int
    numbers: Numbers  # chunk numbers, ascending
    codes: Codes
    scales: Rows  # code times scale is the unit vector, nearly
    dead: Numbers  # indexes of rows whose chunk is gone


def unit(vector: Sequence[float]) -> Rows | None:
    """The vector at length one, float32; None for the zero vector, which has no direction.

    Raises ValueError for values that are not finite and for what is no list of numbers.
    """
    np = numpy()
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"has a vector of shape {values.shape}; give a flat list of numbers")
    peak = float(np.abs(values).max())
    if not np.isfinite(peak):
        raise ValueError("has a vector with values that are not finite; check the embedder")
    if peak == 0.0:
        return None
    values = values / peak  # squares of very large or small values would leave what a float can hold
    return (values / np.sqrt(values @ values)).astype("<f4")  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


def code(vector: Rows) -> bytes:
    """A unit vector at eight bits: the scale, float32 little-endian, and one int8 per dimension."""
    levels, scale = _quantised(vector)
    return numpy().array(scale, "<f4").tobytes() + levels.tobytes()  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


class CodeIndex:
    """Finds the nearest vectors of one leg."""

    def __init__(self, leg: str, admissions: Admissions) -> None:
        self._leg = leg
        self._admissions = admissions
        self._lock = Lock()
        self._state: _State | None = None
        self._columns = (_Column(), _Column(), _Column())

    def search(
        self, connection: sqlite3.Connection, vector: Rows, condition: Condition, limit: int, stop: Stop
    ) -> Nearest:
        """The `limit` nearest admitted chunks and those tied with the last, nearest first; scores are of
        float32 vectors.

        Raises Outrun when the snapshot of `connection` is older than what is loaded.
        """
        np = numpy()
        with stop.finishing():
            state = self._at(connection)
        if len(state.numbers) == len(state.dead):
            return Nearest([], {})
        if state.codes.shape[1] != len(vector):
            raise SourceError(
                f"Query vector has {len(vector)} dimensions, the store's have {state.codes.shape[1]}; "
                f"use the embedder the store was filled with, or build it again with {schema.REBUILD}."
            )
        rough, step = _scan(state, vector)
        rough[state.dead] = -np.inf
        places = None
        if condition.sql:
            with stop.finishing():
                places = self._admissions.among(state.numbers, connection, state.store, condition)
            rough = rough[places]
        chosen = _nominated(rough, limit, step)
        found = state.numbers[chosen if places is None else places[chosen]]
        rows = self._exact(connection, found, len(vector))
        scores = np.clip(rows.astype(np.float64) @ vector.astype(np.float64), -1.0, 1.0)
        vectors: dict[int, Vector] = dict(zip(found.tolist(), rows, strict=True))
        return Nearest(best(found, scores, limit, 6), vectors)

    def vectors_of(self, connection: sqlite3.Connection, chunks: Sequence[int]) -> dict[int, Vector]:
        """The vectors of these chunks, where they have one."""
        np = numpy()
        sql = (
            f"SELECT chunk, {self._leg} FROM vectors WHERE chunk IN (SELECT value FROM json_each(?)) AND"
            f" {self._leg} IS NOT NULL"
        )
        return {
            chunk: np.frombuffer(blob, "<f4")
            for chunk, blob in connection.execute(sql, (json.dumps(list(chunks)),))
        }

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._state = None
            self._columns = (_Column(), _Column(), _Column())

    def _exact(self, connection: sqlite3.Connection, found: Numbers, dimensions: int) -> Any:
        """The vectors of chunks, from the table, one row each; `found` ascends."""
        sql = (
            f"SELECT {self._leg} FROM vectors WHERE chunk IN (SELECT value FROM json_each(?)) ORDER BY chunk"
        )
        blobs = connection.execute(sql, (json.dumps(found.tolist()),)).fetchall()
        return _rows(b"".join(blob for (blob,) in blobs), len(found), dimensions * 4, dimensions).view("<f4")

    def _at(self, connection: sqlite3.Connection) -> _State:
        store, generation = schema.text(connection, "store"), schema.number(connection, "generation")
        with self._lock:
            state = self._state
            if state is None or state.store != store:
                np = numpy()
                none = np.zeros(0, np.int64)
                codes = np.zeros((0, schema.number(connection, "dimensions")), np.int8)
                state = _State(store, -1, none, codes, np.zeros(0, "<f4"), none)
                self._columns = (_Column(), _Column(), _Column())
            if generation < state.generation:
                raise Outrun
            if generation > state.generation:
                state = self._caught_up(connection, state, generation)
            self._state = state
            return state

    def _caught_up(self, connection: sqlite3.Connection, state: _State, generation: int) -> _State:
        """The state of the snapshot: what was known, less what is gone, and what is new."""
        np = numpy()
        known, codes, scales, dead = state.numbers, state.codes, state.scales, state.dead
        if len(known):
            gone = _removed(connection, state.generation, known)
            dead = np.union1d(dead, gone)
        if len(dead) > len(known) // 10:
            alive = np.ones(len(known), bool)
            alive[dead] = False
            known, codes, scales, dead = known[alive], codes[alive], scales[alive], dead[:0]
            self._columns = (_Column(), _Column(), _Column())
        last = int(state.numbers[-1]) if len(state.numbers) else 0
        added = self._new(connection, last, state.codes.shape[1])
        if len(added[0]):
            pairs = zip(self._columns, (known, codes, scales), added, strict=True)
            known, codes, scales = (column.appended(old, new) for column, old, new in pairs)
        return _State(state.store, generation, known, codes, scales, dead)

    def _new(self, connection: sqlite3.Connection, last: int, dimensions: int) -> tuple[Numbers, Codes, Rows]:
        """Numbers, codes and scales of the chunks behind `last`."""
        np = numpy()
        found: list[int] = []
        parts: list[bytes] = []
        cursor = connection.execute(
            f"SELECT chunk, code FROM {self._leg}_codes WHERE chunk > ? ORDER BY chunk", (last,)
        )
        while batch := cursor.fetchmany(_BATCH):
            found.extend(number for number, _ in batch)
            parts.append(b"".join(code for _, code in batch))
        rows = _rows(b"".join(parts), len(found), dimensions + _SCALE, dimensions)
        scales = np.ascontiguousarray(rows[:, :_SCALE]).view("<f4")[:, 0]
        return np.array(found, dtype=np.int64), rows[:, _SCALE:].view(np.int8), scales


class _Column:
    """An array that grows: rows are put behind those that earlier states see, into space kept for them."""

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


def _quantised(vector: Rows) -> tuple[Codes, float]:
    """A unit vector as int8 levels, and the scale at which they come nearest to it."""
    np = numpy()
    levels = np.rint(vector * (127.0 / np.abs(vector).max()))
    return levels.astype(np.int8), float(vector @ levels / (levels @ levels))


def _scan(state: _State, vector: Rows) -> tuple[Rows, float]:
    """Cosines of all rows, nearly; and how far apart the codes may put two that are equal."""
    np = numpy()
    levels, scale = _quantised(vector)
    # Not with `out`: up to simsimd 6.5 that takes a reference from None each time, and in the end the
    # interpreter dies of it.
    rough = np.asarray(simsimd().cdist(levels[None], state.codes, "dot", out_dtype="float32"))[0]
    rough *= state.scales
    rough *= scale
    # A value is off by up to half a level, evenly: scale / sqrt(12) in the mean square, and so is a product
    # with a unit vector.
    widest = float(state.scales.max())
    return rough, DEVIATIONS * ((widest**2 + scale**2) / 12.0) ** 0.5


def _nominated(rough: Rows, limit: int, step: float) -> Numbers:
    """Places of the `limit` best and of all that could be among them, ascending; none that is gone (minus
    infinity).
    """
    np = numpy()
    if len(rough) > limit:
        last = np.partition(rough, len(rough) - limit)[len(rough) - limit]
        chosen = np.flatnonzero((rough >= last - step) & (rough > -np.inf))
    else:
        chosen = np.flatnonzero(rough > -np.inf)
    if len(chosen) > limit + _MOST:
        chosen = np.sort(chosen[np.argsort(-rough[chosen], kind="stable")[: limit + _MOST]])
    return chosen  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


def _removed(connection: sqlite3.Connection, generation: int, known: Numbers) -> Numbers:
    """Places in `known` of the chunks removed since a generation: from the log, or, where that was cut, by
    looking at all.
    """
    np = numpy()
    if generation >= schema.number(connection, "log"):
        gone = numbers(
            connection, "SELECT group_concat(chunk) FROM removed WHERE generation > ?", (generation,)
        )[0]
        places = np.searchsorted(known, gone)
        places = places[places < len(known)]
        return places[np.isin(known[places], gone)]  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
    live = numbers(
        connection, "SELECT group_concat(number) FROM chunks WHERE number <= ?", (int(known[-1]),)
    )[0]
    return np.flatnonzero(~np.isin(known, live, assume_unique=True))  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


def _rows(data: bytes, count: int, width: int, dimensions: int) -> Any:
    """Bytes as `count` rows of `width`. Raises SourceError for data of another length."""
    if len(data) != count * width:
        raise SourceError(
            f"Store holds vectors of other lengths than the {dimensions} it notes; run {schema.REBUILD}."
        )
    return numpy().frombuffer(data, dtype="u1").reshape(count, width)


def simsimd() -> Any:
    """The package simsimd, or MissingDependency that names the extra."""
    try:
        import simsimd as found
    except ImportError as error:
        raise MissingDependency("simsimd", "sqlite", what="A SQLite store with vectors") from error
    return found
