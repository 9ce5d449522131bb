# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Chunk numbers as numpy arrays, and which chunks a condition admits.

Reading numbers row by row into Python costs more than finding them. SQLite joins them to one text
(`group_concat`), which numpy parses: that is four times as fast, and leaves the interpreter free meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from contextrouter.builtin.providers.sqlite.filter import Condition
from contextrouter.errors import MissingDependency
from contextrouter.runtime.import_order import import_alone

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]
    Scores: TypeAlias = NDArray[np.float64]

_REMEMBERED = 32  # sets of admitted chunks
_TIED = 1_000  # chunks tied with the last that are looked at


def numpy() -> Any:
    """The package numpy, or MissingDependency that names the extra."""
    try:
        return import_alone("numpy")
    except ImportError as error:
        raise MissingDependency("numpy", "sqlite", what="A SQLite store") from error


def numbers(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[Numbers]:
    """The columns of a statement's one row, each a `group_concat` of integers, in the order they came."""
    np = numpy()
    row = connection.execute(sql, values).fetchone()
    return [np.fromstring(text, dtype=np.int64, sep=",") if text else np.zeros(0, np.int64) for text in row]


def occurrences(connection: sqlite3.Connection, term: str) -> tuple[Numbers, Numbers]:
    """The chunk and the field of each occurrence of a term, by chunk. FTS5 names a field; here it is the code
    of the first letter, see `by_field_letter`.
    """
    sql = "SELECT group_concat(doc * 128 + unicode(col)) FROM postings WHERE term = ?"
    (coded,) = numbers(connection, sql, (term,))
    return coded >> 7, coded & 127


def by_field_letter(values: Sequence[float]) -> Any:
    """An array that has one of three values at the first letter of `title`, `path` and `body`."""
    given = numpy().array(values)
    table = numpy().zeros(128, given.dtype)
    table[[*map(ord, "tpb")]] = given
    return table


def outermost(connection: sqlite3.Connection) -> tuple[int, int]:
    """The lowest and the highest number of a chunk; 0 and -1 where there is none."""
    # Both in one SELECT would have SQLite look at all chunks.
    sql = "SELECT (SELECT min(number) FROM chunks), (SELECT max(number) FROM chunks)"
    lowest, highest = connection.execute(sql).fetchone()
    return (0, -1) if lowest is None else (lowest, highest)


def best(chunks: Numbers, scores: Scores, limit: int, decimals: int) -> list[tuple[int, float]]:
    """The `limit` best of (number, score, rounded), and those tied with the last of them, best first.

    Rounding makes equal what differs by the order of summation only.
    """
    np = numpy()
    if len(scores) > limit:
        threshold = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = np.flatnonzero(scores >= threshold - 10.0**-decimals)
        chunks, scores = chunks[chosen], scores[chosen]
    scores = np.round(scores.astype(np.float64), decimals)
    order = np.argsort(-scores, kind="stable")[: limit + _TIED]
    ranked = list(zip(chunks[order].tolist(), scores[order].tolist(), strict=True))
    return ranked[:limit] + [pair for pair in ranked[limit:] if pair[1] == ranked[limit - 1][1]]


class _Admitted(NamedTuple):
    """Whether each chunk is admitted, from the one behind `base` on; `base` itself is not."""

    base: int
    flags: NDArray[np.bool_]


class AdmittedChunks:
    """Which chunks a condition admits, remembered for the latest conditions.

    What a chunk's number stands for never changes, so an answer stays right, and after a write only new
    chunks are asked about. Numbers of chunks that are gone stay in it; nobody finds them any more.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[tuple[str, Condition], _Admitted] = {}

    def indexes(
        self, chunks: Numbers, connection: sqlite3.Connection, store: str, condition: Condition
    ) -> Numbers:
        """Indexes into `chunks` (all in the snapshot of `connection`) of those admitted."""
        np = numpy()
        if not len(chunks):
            return np.zeros(0, np.int64)  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
        admitted = self._admitted(connection, store, condition)
        at = np.maximum(chunks - admitted.base, 0) if admitted.base else chunks
        return np.flatnonzero(admitted.flags.take(at))  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._known.clear()

    def _admitted(self, connection: sqlite3.Connection, store: str, condition: Condition) -> _Admitted:
        """The chunks admitted, at least of those in the snapshot."""
        np = numpy()
        key = (store, condition)
        with self._lock:
            known = self._known.get(key)
        lowest, highest = outermost(connection)
        unused = lowest - 1 if lowest > highest // 2 else 0  # few unused numbers cost less than to subtract
        base, flags = known or _Admitted(unused, np.zeros(1, bool))
        newest = base + len(flags) - 1
        if newest < highest:
            sql = f"SELECT group_concat(c.number) FROM chunks c WHERE c.number > ? AND {condition.where}"
            (new,) = numbers(connection, sql, (newest, *condition.values))
            grown = np.zeros(highest + 1 - base, bool)
            grown[: len(flags)] = flags
            grown[new - base] = True
            flags = grown
        admitted = _Admitted(base, flags)
        self._remember(key, admitted)
        return admitted

    def _remember(self, key: tuple[str, Condition], admitted: _Admitted) -> None:
        with self._lock:
            before = self._known.pop(key, admitted)
            newer = admitted.base + len(admitted.flags) >= before.base + len(before.flags)
            self._known[key] = admitted if newer else before
            for stale in [stale for stale in self._known if stale[0] != key[0]]:
                del self._known[stale]
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
