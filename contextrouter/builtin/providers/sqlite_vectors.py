"""The vector legs: exact cosine over all vectors of a leg, held in memory as one float32 matrix of unit rows.

A matrix belongs to a generation of the store. When that moves on, only what is new is read, what is gone is taken out. Rows
are ordered by chunk number; `Matrix.search` is the only place that scans them, so a coarser first pass can be put there.
"""

# ruff: noqa: S608  (the statements are put together from fragments written here; every value is bound)

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from contextrouter.builtin.providers.sqlite_filter import Condition
from contextrouter.errors import MissingDependency, SourceError
from contextrouter.model import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]
    Rows: TypeAlias = NDArray[np.float32]

LEGS = ("vector", "keywords")
_REMEMBERED = 32  # sets of admitted rows
_TIED = 1_000  # rows tied with the last that are looked at


def _numpy() -> Any:
    """The package numpy, or MissingDependency that names the extra."""
    try:
        import numpy
    except ImportError as error:
        raise MissingDependency("numpy", "sqlite", what="Vector search in a SQLite store") from error
    return numpy


def unit(vector: Sequence[float]) -> Rows | None:
    """The vector at length one, float32; None for the zero vector, which has no direction.

    Raises ValueError for values that are not finite and for what is no list of numbers.
    """
    np = _numpy()
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"has a vector of shape {values.shape}; give a flat list of numbers")
    norm = float(np.sqrt(values @ values))
    if not np.isfinite(norm):
        raise ValueError("has a vector with values that are not finite; check the embedder")
    return None if norm == 0.0 else (values / norm).astype("<f4")


class Outrun(Exception):
    """The snapshot is older than the matrix: another reader has seen a later one. Take a new snapshot and ask again."""


class Matrix:
    """All vectors of one leg at one generation, and the rows that recent conditions admitted."""

    def __init__(self, leg: str) -> None:
        if leg not in LEGS:
            raise ValueError(f"Leg {leg!r} holds no vectors; legs that do: {', '.join(LEGS)}.")
        self._leg = leg
        self._lock = Lock()
        self._state: tuple[str, Numbers, Rows] | None = None
        self._admitted: dict[tuple[str, Condition], Numbers] = {}

    def search(
        self, connection: sqlite3.Connection, version: str, vector: Rows, condition: Condition, limit: int
    ) -> list[tuple[int, float]]:
        """The `limit` nearest admitted chunks (number, cosine) and those tied with the last, nearest first."""
        np = _numpy()
        numbers, rows = self._at(connection, version)
        if not len(numbers):
            return []
        if rows.shape[1] != len(vector):
            raise SourceError(
                f"Query vector has {len(vector)} dimensions, the store's have {rows.shape[1]}; "
                "use the embedder the store was filled with, or build it again with `contextrouter ingest --rebuild`."
            )
        chosen = self._rows(connection, version, numbers, condition) if condition.sql else None
        if chosen is None:
            scores = rows @ vector
        else:
            numbers = numbers[chosen]
            scores = rows[chosen] @ vector if len(chosen) * 4 < len(rows) else (rows @ vector)[chosen]
        scores = np.clip(np.round(scores.astype(np.float64), 6), -1.0, 1.0)
        return _nearest(numbers, scores, limit)

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._state = None
            self._admitted.clear()

    def _at(self, connection: sqlite3.Connection, version: str) -> tuple[Numbers, Rows]:
        with self._lock:
            if self._state is None or self._state[0] != version:
                known = self._state if self._state and _store(self._state[0]) == _store(version) else None
                if known and _generation(known[0]) > _generation(version):
                    raise Outrun
                self._state = (version, *self._loaded(connection, known))
                self._admitted = {}
            return self._state[1], self._state[2]

    def _loaded(
        self, connection: sqlite3.Connection, known: tuple[str, Numbers, Rows] | None
    ) -> tuple[Numbers, Rows]:
        """What was known and is still there, followed by what is new."""
        np = _numpy()
        last = int(known[1][-1]) if known and len(known[1]) else 0
        found = connection.execute(
            f"SELECT chunk, {self._leg} FROM vectors WHERE chunk > ? AND {self._leg} IS NOT NULL ORDER BY chunk",
            (last,),
        ).fetchall()
        numbers = np.fromiter((number for number, _ in found), dtype=np.int64, count=len(found))
        rows = np.frombuffer(b"".join(blob for _, blob in found), dtype="<f4")
        rows = rows.reshape(len(found), -1) if found else np.zeros((0, known[2].shape[1] if known else 0), np.float32)
        if not known or not last:
            return numbers, rows
        live = connection.execute("SELECT number FROM chunks WHERE number <= ?", (last,)).fetchall()
        kept = np.isin(known[1], np.array(live, dtype=np.int64).ravel(), assume_unique=True)
        if not found and kept.all():
            return known[1], known[2]
        return np.concatenate((known[1][kept], numbers)), np.concatenate((known[2][kept], rows))

    def _rows(
        self, connection: sqlite3.Connection, version: str, numbers: Numbers, condition: Condition
    ) -> Numbers:
        """Indexes of the admitted rows, remembered for the conditions asked last."""
        np = _numpy()
        key = (version, condition)
        with self._lock:
            if key in self._admitted:
                self._admitted[key] = self._admitted.pop(key)
                return self._admitted[key]
        sql = f"SELECT c.number FROM chunks c WHERE {condition.where}"
        found = np.array([number for (number,) in connection.execute(sql, condition.values)], dtype=np.int64)
        chosen: Numbers = np.flatnonzero(np.isin(numbers, found, assume_unique=True))
        with self._lock:
            self._admitted[key] = chosen
            while len(self._admitted) > _REMEMBERED:
                self._admitted.pop(next(iter(self._admitted)))
        return chosen


def _store(version: str) -> str:
    return version.partition(":")[0]


def _generation(version: str) -> int:
    return int(version.partition(":")[2])


def stored(connection: sqlite3.Connection, leg: str, number: int) -> Vector:
    """One chunk's vector on a leg that has one."""
    np = _numpy()
    row = connection.execute(f"SELECT {leg} FROM vectors WHERE chunk = ?", (number,)).fetchone()
    found: Vector = np.frombuffer(row[0], dtype="<f4")
    return found


def _nearest(numbers: Numbers, scores: NDArray[np.float64], limit: int) -> list[tuple[int, float]]:
    np = _numpy()
    if len(scores) > limit:
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above, tied = np.flatnonzero(scores > least), np.flatnonzero(scores == least)[:_TIED]
        chosen = np.concatenate((above, tied))
        numbers, scores = numbers[chosen], scores[chosen]
    order = np.argsort(-scores, kind="stable")
    return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))
