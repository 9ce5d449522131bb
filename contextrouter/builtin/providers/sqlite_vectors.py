# ruff: noqa: S608  (the statements are put together from fragments written here; every value is bound)
"""The vector legs: exact cosine over all vectors of a leg, held in memory as one float32 matrix of unit rows.

A matrix belongs to a generation of the store. When that moves on, only what is new is read; rows that are gone stay until
they are a tenth, and count for nothing. `Matrix.search` is the only place that scans rows, so a coarser first pass can be
put there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from contextrouter.builtin.providers import sqlite_schema as schema
from contextrouter.builtin.providers.sqlite_filter import Condition
from contextrouter.builtin.providers.sqlite_rows import Admissions, best, numbers, numpy
from contextrouter.errors import SourceError
from contextrouter.model import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]
    Rows: TypeAlias = NDArray[np.float32]

LEGS = ("vector", "keywords")
_BATCH = 2_000  # vectors read at a time


class Outrun(Exception):
    """The snapshot is older than the matrix: another reader has seen a later one. Take a new snapshot and ask again."""


class _State(NamedTuple):
    """All vectors of a leg at one generation. Arrays are never changed once they are in a state."""

    store: str
    generation: int
    numbers: Numbers  # chunk numbers, ascending
    rows: Rows
    dead: Numbers  # indexes of rows whose chunk is gone


def unit(vector: Sequence[float]) -> Rows | None:
    """The vector at length one, float32; None for the zero vector, which has no direction.

    Raises ValueError for values that are not finite and for what is no list of numbers.
    """
    np = numpy()
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"has a vector of shape {values.shape}; give a flat list of numbers")
    norm = float(np.sqrt(values @ values))
    if not np.isfinite(norm):
        raise ValueError("has a vector with values that are not finite; check the embedder")
    return None if norm == 0.0 else (values / norm).astype("<f4")


def stored(connection: sqlite3.Connection, leg: str, number: int) -> Vector:
    """One chunk's vector on a leg that has one."""
    row = connection.execute(f"SELECT {leg} FROM vectors WHERE chunk = ?", (number,)).fetchone()
    found: Vector = numpy().frombuffer(row[0], dtype="<f4")
    return found


class Matrix:
    """Finds the nearest vectors of one leg."""

    def __init__(self, leg: str, admissions: Admissions) -> None:
        self._leg = leg
        self._admissions = admissions
        self._lock = Lock()
        self._state: _State | None = None
        self._space: Rows | None = None  # rows, with room for more behind those of the state

    def search(
        self, connection: sqlite3.Connection, vector: Rows, condition: Condition, limit: int
    ) -> list[tuple[int, float]]:
        """The `limit` nearest admitted chunks (number, cosine) and those tied with the last, nearest first.

        Raises Outrun when the snapshot of `connection` is older than what is loaded.
        """
        np = numpy()
        state = self._at(connection)
        if len(state.numbers) == len(state.dead):
            return []
        if state.rows.shape[1] != len(vector):
            raise SourceError(
                f"Query vector has {len(vector)} dimensions, the store's have {state.rows.shape[1]}; "
                f"use the embedder the store was filled with, or build it again with {schema.REBUILD}."
            )
        if condition.sql:
            chosen = self._admissions.among(state.numbers, connection, f"{state.store}:{state.generation}", condition)
            few = len(chosen) * 4 < len(state.rows)
            scores = state.rows[chosen] @ vector if few else (state.rows @ vector)[chosen]
            return best(state.numbers[chosen], np.clip(scores, -1.0, 1.0), limit, 6)
        scores = np.clip(state.rows @ vector, -1.0, 1.0)
        if not len(state.dead):
            return best(state.numbers, scores, limit, 6)
        scores[state.dead] = -2.0
        return [pair for pair in best(state.numbers, scores, limit, 6) if pair[1] >= -1.0]

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._state = self._space = None

    def _at(self, connection: sqlite3.Connection) -> _State:
        store, generation = schema.text(connection, "store"), schema.number(connection, "generation")
        with self._lock:
            state = self._state
            if state is None or state.store != store:
                none = numpy().zeros(0, numpy().int64)
                dimensions = schema.number(connection, "dimensions")
                self._space = numpy().zeros((0, dimensions), "<f4")
                state = _State(store, -1, none, self._space, none)
            if generation < state.generation:
                raise Outrun
            if generation > state.generation:
                state = self._caught_up(connection, state, generation)
            self._state = state
            return state

    def _caught_up(self, connection: sqlite3.Connection, state: _State, generation: int) -> _State:
        """The state of the snapshot: what was known, less what is gone, and what is new."""
        np = numpy()
        last = int(state.numbers[-1]) if len(state.numbers) else 0
        live = np.sort(numbers(connection, "SELECT group_concat(number) FROM chunks WHERE number <= ?", (last,))[0])
        alive = np.isin(state.numbers, live, assume_unique=True)
        known, rows = state.numbers, state.rows
        if len(known) - int(alive.sum()) > len(known) // 10:
            known, rows = known[alive], rows[alive]
            alive, self._space = np.ones(len(known), bool), rows
        new, added = self._new(connection, last)
        if len(added):
            rows = self._appended(rows, added)
            known = np.concatenate((known, new))
        return _State(state.store, generation, known, rows, np.flatnonzero(~alive))

    def _new(self, connection: sqlite3.Connection, last: int) -> tuple[Numbers, Rows]:
        np = numpy()
        found: list[int] = []
        parts: list[Rows] = []
        cursor = connection.execute(
            f"SELECT chunk, {self._leg} FROM vectors WHERE chunk > ? AND {self._leg} IS NOT NULL ORDER BY chunk", (last,)
        )
        while batch := cursor.fetchmany(_BATCH):
            found.extend(number for number, _ in batch)
            parts.append(np.frombuffer(b"".join(blob for _, blob in batch), dtype="<f4").reshape(len(batch), -1))
        return np.array(found, dtype=np.int64), np.concatenate(parts) if parts else np.zeros((0, 0), "<f4")

    def _appended(self, rows: Rows, added: Rows) -> Rows:
        """The rows and those added behind them; what earlier states see of the space is not touched."""
        np = numpy()
        end = len(rows) + len(added)
        if not len(rows):
            self._space = added
        elif self._space is None or end > len(self._space):
            space = np.empty((end + end // 4, added.shape[1]), "<f4")
            space[: len(rows)] = rows
            space[len(rows) : end] = added
            self._space = space
        else:
            self._space[len(rows) : end] = added
        return self._space[:end]
