"""One SQLite file shared by threads and processes: readers that are never blocked, one writer at a time,
clear errors.

Connections belong to one call at a time and are kept between calls. Readers see one snapshot per call
(write-ahead log); writers take turns by `BEGIN IMMEDIATE` and are durable when they return (`synchronous =
FULL`).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.volume import describe_error, volume_problem
from contextrouter.errors import PluginError, SourceError, SourceTimeout
from contextrouter.runtime.threads import Threads, work_aside

T = TypeVar("T")
R = TypeVar("R")
_STEPS = 2_000  # of SQLite's virtual machine, between two looks at the clock: well below a millisecond
PAGE_BYTES = 16_384
"""Size of a new file's pages. Of a row of two vectors only one fits into SQLite's usual 4,096 bytes, and half
of each page is empty: scifact takes .79 of the disk, and a question no more time.
"""


class Stop:
    """Tells running work to end: at a deadline (on `time.monotonic()`), because nobody waits for it any more,
    or because the store is closed.
    """

    __slots__ = ("__weakref__", "_finishing", "abandoned", "closed", "deadline")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline, self.abandoned, self.closed, self._finishing = deadline, False, False, False

    def __call__(self) -> bool:
        """Whether to end now; SQLite's progress callback."""
        if self.closed:
            return True
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return (late or self.abandoned) and not self._finishing

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Let what is read for all later questions be read to its end, or short deadlines would have it begun
        for ever. Closing ends it all the same.
        """
        self._finishing = True
        try:
            yield
        finally:
            self._finishing = False
        self.check()

    def check(self) -> None:
        """Raise SourceTimeout when it is time to end, SourceError when the store is closed: for loops outside
        SQLite.
        """
        if self.closed:
            raise SourceError("Store was closed during the search; search again when it is open.")
        if self():
            raise SourceTimeout(
                "Search did not end by its deadline; raise the source's `timeout` or lower its `limit`."
            )


class StoreFile:
    """The file at `path`: `read` and `write` run a function with a connection, in threads, inside one
    transaction.
    """

    def __init__(self, path: str, *, busy_timeout: float, threads: int) -> None:
        self.path = path
        self._busy_timeout, self._size = busy_timeout, threads
        self._readers: Threads | None = None
        self._writer: Threads | None = None
        self._idle: list[sqlite3.Connection] = []  # to the file of `_identity`
        self._identity: tuple[int, int] | None = None
        self._turn = Lock()  # who changes these two
        self._running: WeakSet[Stop] = WeakSet()  # of all reads whose thread has not ended

    @property
    def location(self) -> Path:
        """Where the file is, absolute."""
        return Path(self.path).expanduser().absolute()

    def exists(self) -> bool:
        """Whether there is anything at the path, also what may not be looked at."""
        try:
            return self.location.stat().st_size > 0
        except PermissionError:
            return True  # who opens it is told so
        except OSError:
            return False

    async def open(self) -> None:
        """Start the threads, and check the file if there is one; raises SourceError for a file that is no
        store of ours.
        """
        if self._readers is None:
            self._readers = Threads(self._size, "sqlite-read")
            self._writer = Threads(1, "sqlite-write")
        await self.check(must_exist=False)

    async def aclose(self) -> None:
        """Interrupt reads, let a write end, close every connection. Reads and writes in line do not begin."""
        readers, writer, self._readers, self._writer = self._readers, self._writer, None, None
        for stop in list(self._running):
            stop.closed = True
        try:
            for threads in (readers, writer):
                if threads is not None:
                    await work_aside(partial(threads.close, wait=True))
        finally:
            self.forget()  # a connection in use is closed by its thread

    async def read(
        self,
        work: Callable[[sqlite3.Connection, Stop], T],
        *,
        missing: T,
        must_exist: bool = True,
        deadline: float | None = None,
    ) -> T:
        """Run `work` on a snapshot. `missing` is the answer of a file without tables, and, unless it
        `must_exist`, of one that is not there, which is a SourceError otherwise.
        """
        if not must_exist and not self.exists():
            return missing
        if self._readers is None:
            raise SourceError(f"Store {self.path!r} was closed or is not open; call open() first.")
        stop = Stop(deadline)
        self._running.add(stop)
        try:
            return await self._run_in(self._readers, self._read, work, stop, missing)
        except asyncio.CancelledError:
            stop.abandoned = True
            raise

    async def _run_in(self, threads: Threads, work: Callable[..., T], *args: object) -> T:
        """Run work in threads. Raises SourceError where they were closed before it began."""
        try:
            return await threads.run(work, *args)
        except PluginError as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"Store {self.path!r} was not asked: {error}") from error

    async def _run_in_writer(self, work: Callable[..., T], *args: object) -> T:
        if self._writer is None:
            raise SourceError(f"Store {self.path!r} is not open; call open() first.")
        return await self._run_in(self._writer, work, *args)

    async def check(self, *, must_exist: bool = True) -> None:
        """Raise SourceError for a file that is no store of ours, or that is not there."""
        await self.read(lambda connection, stop: None, missing=None, must_exist=must_exist)

    async def write(
        self, work: Callable[[sqlite3.Connection, R], T], prepare: Callable[[], R] | None = None
    ) -> T:
        """Run `work` in a transaction of its own, durable on return; makes folder, file and tables where they
        are missing.

        `prepare` runs before the transaction begins, outside the write lock; `work` is given what it returns.
        """

        def run() -> T:
            ready = prepare() if prepare else None
            return self.write_here(lambda connection: work(connection, ready))  # type: ignore[arg-type]  # work takes the state only where a state is handed over

        return await self._run_in_writer(run)

    async def alone(self, statement: str) -> None:
        """Run one statement outside a transaction, such as VACUUM."""
        await self._run_in_writer(self._alone, statement)

    async def replace_by(self, at: Path) -> None:
        """Put the database at `at` in the place of this one, in one transaction."""
        await self._run_in_writer(self._replace_by, at)

    def _replace_by(self, at: Path) -> None:
        with self._errors(None):
            self.location.parent.mkdir(parents=True, exist_ok=True)
            new = not self.exists()
            with self._connection(new=new) as connection:
                if not new:
                    self._log_ahead(connection)  # without it, readers would have to wait
                _copy_pages(at, connection)

    def _read(self, work: Callable[[sqlite3.Connection, Stop], T], stop: Stop, missing: T) -> T:
        stop.check()
        if not self.exists():
            raise SourceError(
                f"Store {str(self.location)!r} does not exist; fill it with `contextrouter ingest`."
            )
        with self._errors(stop):
            try:
                with self._connection() as connection:
                    return self._look(connection, work, stop, missing)
            except sqlite3.OperationalError as error:
                if "interrupt" in str(error) or not self._is_at_rest():
                    raise
                connection = sqlite3.connect(f"{self.location.as_uri()}?immutable=1", uri=True)
                with closing(connection):  # it would not see later writes
                    return self._look(connection, work, stop, missing)

    def _look(
        self,
        connection: sqlite3.Connection,
        work: Callable[[sqlite3.Connection, Stop], T],
        stop: Stop,
        missing: T,
    ) -> T:
        """Run `work` on a snapshot."""
        connection.set_progress_handler(stop, _STEPS)
        try:
            begin_snapshot(connection)
            return work(connection, stop) if schema.is_filled(connection, self.path) else missing
        finally:
            connection.set_progress_handler(None, 0)
            end_snapshot(connection)

    def _is_at_rest(self) -> bool:
        """Whether the file holds all that was written, and SQLite can make no file beside it.

        On a volume that is full or read-only, the file can then be read as one that nobody changes.
        """
        try:
            log = Path(f"{self.location}-wal")
            return (not log.exists() or log.stat().st_size == 0) and bool(volume_problem(self.location))
        except OSError:
            return False

    def write_here(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `write`, in the calling thread, open or not."""
        with self._errors(None):
            self.location.parent.mkdir(parents=True, exist_ok=True)
            with self._connection(new=not self.exists()) as connection:
                self._log_ahead(connection)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    if not schema.is_filled(connection, self.path):
                        schema.create(connection)
                    schema.upgrade(connection)
                    result = work(connection)
                    connection.execute("COMMIT")
                    return result
                finally:
                    if connection.in_transaction:
                        connection.rollback()

    def _alone(self, statement: str) -> None:
        with self._errors(None), self._connection() as connection:
            connection.execute(statement).fetchall()

    def _log_ahead(self, connection: sqlite3.Connection) -> None:
        """Switch the file to its write-ahead log; SQLite does not wait here while another process does the
        same.
        """
        end = time.monotonic() + self._busy_timeout
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _connection(self, *, new: bool = False) -> Iterator[sqlite3.Connection]:
        connection, identity = self._take(new)
        damaged = False
        try:
            yield connection
        except sqlite3.DatabaseError:
            damaged = not connection.in_transaction
            raise
        finally:
            with self._turn:
                is_same = not damaged and self._readers is not None and identity == self._identity
                if is_same:
                    self._idle.append(connection)
            if not is_same:  # the store was closed meanwhile, or another file is in the place of this one
                connection.close()

    def _take(self, new: bool) -> tuple[sqlite3.Connection, tuple[int, int] | None]:
        """A connection that nobody uses, and the file it is to; None: one that is just being made."""
        identity = None
        if not new:
            status = self.location.stat()
            identity = (status.st_dev, status.st_ino)
            with self._turn:
                if identity != self._identity:  # the file was put in the place of another
                    self._close_idle()
                    self._identity = identity
                if self._idle:
                    return self._idle.pop(), identity
        return self._connect(new), identity

    def _connect(self, new: bool) -> sqlite3.Connection:
        uri = f"{self.location.as_uri()}?mode={'rwc' if new else 'rw'}"
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=schema.StoreConnection,
        )
        if new:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")  # KiB
        return connection

    def forget(self) -> None:
        """Close the connections nobody uses."""
        with self._turn:
            self._close_idle()

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _errors(self, stop: Stop | None) -> Iterator[None]:
        """Say what SQLite's errors mean for this file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if stop is not None and "interrupt" in str(error):
                stop.check()
            raise SourceError(describe_error(error, self.location, self._busy_timeout)) from error


def begin_snapshot(connection: sqlite3.Connection) -> None:
    """Let a connection read one state of the file."""
    connection.execute("BEGIN")
    if isinstance(connection, schema.StoreConnection):
        connection.meta = {}


def end_snapshot(connection: sqlite3.Connection) -> None:
    """Let go of the state that a connection reads."""
    if isinstance(connection, schema.StoreConnection):
        connection.meta = None
    if connection.in_transaction:
        connection.rollback()


def _copy_pages(at: Path, target: sqlite3.Connection) -> None:
    """Copy a database over another one, in one transaction."""
    with closing(sqlite3.connect(at, isolation_level=None)) as source:
        size = target.execute("PRAGMA page_size").fetchone()[0]
        if size != source.execute("PRAGMA page_size").fetchone()[0]:  # a log ahead cannot change it
            source.execute("PRAGMA journal_mode = DELETE").fetchone()
            source.execute(f"PRAGMA page_size = {int(size)}")
            source.execute("VACUUM")
        source.backup(target)
    target.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchone()  # the whole store went through the log


def kind_of_file(path: str) -> str:
    """The path as it may stand in settings; raises ValueError for one that cannot be a file."""
    if not path or "\0" in path:
        raise ValueError(f"path {path!r} is no file name; give the path of the store's file.")
    if path.startswith(":memory:") or path.startswith("file:") or path.endswith(os.sep):
        raise ValueError(f"path {path!r} is no plain file; give a file's path, or use the provider 'memory'.")
    return path
