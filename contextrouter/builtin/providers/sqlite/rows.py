# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Chunk numbers as arrays: read in one string by SQLite, remembered between searches, cut to the best.

Reading numbers row by row into Python costs more than finding them; `group_concat` and numpy's parser are
four times as fast and leave the interpreter free meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.filter import EVERYTHING, Condition, visible
from contextrouter.errors import MissingDependency
from contextrouter.model import Document
from contextrouter.scope import SHARED, Scope

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
        import numpy
    except ImportError as error:
        raise MissingDependency("numpy", "sqlite", what="A SQLite store") from error
    return numpy


def numbers(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[Numbers]:
    """The columns of a statement's one row, each a `group_concat` of integers, in the order they came."""
    np = numpy()
    row = connection.execute(sql, values).fetchone()
    return [np.fromstring(text, dtype=np.int64, sep=",") if text else np.zeros(0, np.int64) for text in row]


def best(found: Numbers, scores: Scores, limit: int, decimals: int) -> list[tuple[int, float]]:
    """The `limit` best of (number, score, rounded), and those tied with the last of them, best first.

    Rounding makes equal what differs by the order of summation only.
    """
    np = numpy()
    if len(scores) > limit:
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = np.flatnonzero(scores >= least - 10.0**-decimals)
        found, scores = found[chosen], scores[chosen]
    scores = np.round(scores.astype(np.float64), decimals)
    order = np.argsort(-scores, kind="stable")[: limit + _TIED]
    ranked = list(zip(found[order].tolist(), scores[order].tolist(), strict=True))
    return ranked[:limit] + [pair for pair in ranked[limit:] if pair[1] == ranked[limit - 1][1]]


class Admissions:
    """Which chunks a condition admits, remembered for the conditions asked last.

    What a chunk's number stands for never changes, so an answer stays right, and after a write only new
    chunks are asked about. Numbers of chunks that are gone stay in it; nobody finds them any more.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[tuple[str, Condition], tuple[int, Numbers]] = {}

    def among(
        self, found: Numbers, connection: sqlite3.Connection, store: str, condition: Condition
    ) -> Numbers:
        """Indexes into `found` (each number at most once, all in the snapshot of `connection`) of the chunks
        admitted.
        """
        np = numpy()
        if not len(found):
            return np.zeros(0, np.int64)  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
        admitted = self._admitted(connection, store, condition)
        if not len(admitted):
            return np.zeros(0, np.int64)  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
        if len(found) * 8 > len(admitted):  # a table of all numbers is then cheaper than so many searches
            return np.flatnonzero(np.isin(found, admitted, assume_unique=True))  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
        at = np.minimum(np.searchsorted(admitted, found), len(admitted) - 1)
        return np.flatnonzero(admitted[at] == found)  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._known.clear()

    def _admitted(self, connection: sqlite3.Connection, store: str, condition: Condition) -> Numbers:
        """Numbers of the chunks admitted, ascending, at least of those in the snapshot."""
        np = numpy()
        key = (store, condition)
        with self._lock:
            asked, admitted = self._known.get(key, (0, np.zeros(0, np.int64)))
        last = connection.execute("SELECT coalesce(max(number), 0) FROM chunks").fetchone()[0]
        if asked < last:
            sql = f"SELECT group_concat(c.number) FROM chunks c WHERE c.number > ? AND {condition.where}"
            new = np.sort(numbers(connection, sql, (asked, *condition.values))[0])
            asked, admitted = last, np.concatenate((admitted, new))
        self._remember(key, asked, admitted)
        return admitted  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types

    def _remember(self, key: tuple[str, Condition], asked: int, admitted: Numbers) -> None:
        with self._lock:
            before = self._known.pop(key, (0, admitted))
            self._known[key] = (asked, admitted) if asked >= before[0] else before
            for other in [other for other in self._known if other[0] != key[0]]:
                del self._known[other]
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]


class Shown(NamedTuple):
    """What a scope shows of a store: how many chunks, how many terms they have on average, and by which
    condition, if not all.
    """

    chunks: int
    average: float
    condition: Condition


class Sizes:
    """How many chunks have which labels, and how long they are together.

    What was counted is counted again when chunks are gone; of new ones only these are.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._state = ""  # of the store, as far as chunks went
        self._last = 0  # the last chunk counted
        self._labelled: dict[
            str, dict[tuple[str, str], tuple[Document, int, int]]
        ] = {}  # by tenant, then by the other labels

    def of(self, connection: sqlite3.Connection, scope: Scope | None) -> Shown:
        """What `scope` shows in the snapshot of `connection`."""
        chunks, length = schema.number(connection, "chunks"), schema.number(connection, "length")
        if scope is not None:
            with self._lock:
                self._count(connection)
                found = [self._labelled.get(tenant, {}) for tenant in {scope.tenant or "", SHARED}]
                labelled = [each for by_labels in found for each in by_labels.values()]
            counts = [(count, words) for labels, count, words in labelled if scope.allows(labels)]
            shown, length = sum([count for count, _ in counts]), sum([words for _, words in counts])
            if shown < chunks:
                return Shown(shown, length / shown if shown else 0.0, visible(scope, "c"))
        return Shown(chunks, length / chunks if chunks else 0.0, EVERYTHING)

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._state, self._last, self._labelled = "", 0, {}

    def _count(self, connection: sqlite3.Connection) -> None:
        """Bring the counts to the snapshot of `connection`."""
        state = ":".join([schema.text(connection, key) for key in ("store", "log", "removed")])
        last = connection.execute("SELECT coalesce(max(number), 0) FROM chunks").fetchone()[0]
        if self._state != state or self._last > last:
            self._state, self._last, self._labelled = state, 0, {}
        rows = connection.execute(
            "SELECT tenant, compartment, sensitivity, count(*), sum(length) FROM chunks WHERE number > ?"
            " GROUP BY tenant, compartment, sensitivity",
            (self._last,),
        ).fetchall()
        for tenant, compartment, sensitivity, count, length in rows:
            labels = Document(content="", tenant=tenant, compartment=compartment, sensitivity=sensitivity)
            known = self._labelled.setdefault(tenant, {})
            _, before, long = known.get((compartment, sensitivity), (labels, 0, 0))
            known[compartment, sensitivity] = (labels, before + count, long + length)
        self._last = last


class Lengths:
    """How long each chunk is, by number. Numbers are never used again, so what is known stays right; new ones
    are read.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._store = ""
        self._base, self._next = 0, 0
        self._lengths: Scores | None = None

    def of(self, found: Numbers, connection: sqlite3.Connection, store: str) -> Scores:
        """Lengths of the chunks `found`, none of which is new to the snapshot of `connection`."""
        with self._lock:
            if self._lengths is None or self._store != store:
                self._store, self._lengths = store, numpy().zeros(0)
                self._base = self._next = connection.execute(
                    "SELECT coalesce(min(number), 0) FROM chunks"
                ).fetchone()[0]
            if len(found) and (int(found.max()) >= self._next or int(found.min()) < self._base):
                self._load(connection)
            lengths: Scores = self._lengths[found - self._base]
            return lengths

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._store, self._lengths = "", None

    def _load(self, connection: sqlite3.Connection) -> None:
        np = numpy()
        sql = "SELECT group_concat(number), group_concat(length) FROM chunks WHERE number >= ?"
        new, lengths = numbers(connection, sql, (self._next,))
        end = int(new.max()) + 1
        grown = np.zeros(end - self._base)
        grown[: self._next - self._base] = self._lengths
        grown[new - self._base] = lengths
        self._lengths, self._next = grown, end
