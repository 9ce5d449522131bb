"""Connection pool for Postgres: one pool per event loop, every statement in a transaction with its scope and
deadline.

All that is set is set for the transaction, so that a pooler in transaction mode may stand between.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec

from contextrouter.builtin.providers.postgres import embedded
from contextrouter.builtin.providers.postgres.error_messages import NoStore, describe, disconnections
from contextrouter.errors import MissingDependency, SourceError, SourceTimeout
from contextrouter.runtime.threads import Threads
from contextrouter.scope import SHARED, Scope

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.transaction import Transaction

    Connection: TypeAlias = PoolConnectionProxy

T = TypeVar("T")
log = logging.getLogger("contextrouter")
Session = Literal["any", "read-write", "read-only", "primary", "standby", "prefer-standby"]
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_EXTENSIONS = (
    "SELECT e.extname, quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid ="
    " e.extnamespace WHERE e.extname IN ('vector', 'pg_textsearch')"
)
_PAUSE = 0.1  # seconds between two attempts to reach a server that went away
_SETTINGS = (
    "SELECT set_config('search_path', $1, true), set_config('statement_timeout', $2, true),"
    " set_config('contextrouter.unrestricted', $3, true), set_config('contextrouter.scope', $4, true),"
    " set_config('jit', 'off', true)"
)


def clean(text: str) -> str:
    """Text as Postgres can hold it: no NUL, no lone surrogates."""
    return str(text).replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def schema_name(name: str) -> str:
    """The name of a schema, as given. Raises ValueError for what is no plain lower-case name, or reserved by
    Postgres.
    """
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ValueError(
            f"schema {name!r} is no plain name; use up to 40 of a-z, 0-9 and _, not beginning with a digit or"
            " pg_."
        )
    return name


class Pool:
    """Connections to one database, for the plugins that hold it: the first `open()` makes them, the last
    `aclose()` ends them.

    Times are in seconds. Raises ValueError for values out of range.
    """

    def __init__(
        self,
        *,
        dsn: str,
        schema: str,
        pool_size: int,
        pool_timeout: float,
        statement_timeout: float,
        statement_cache_size: int,
        target_session_attrs: Session,
    ) -> None:
        if not 1 <= pool_size <= 1000:
            raise ValueError(f"pool_size {pool_size!r} is out of range; give 1 to 1000.")
        for name, seconds in (("pool_timeout", pool_timeout), ("statement_timeout", statement_timeout)):
            if not 0 < seconds <= 86_400:
                raise ValueError(f"{name} {seconds!r} is out of range; give seconds above 0, at most 86400.")
        if not 0 <= statement_cache_size <= 10_000:
            raise ValueError(
                f"statement_cache_size {statement_cache_size!r} is out of range; give 0 (for a pooler) to"
                " 10000."
            )
        self.dsn, self.schema = dsn, schema_name(schema)
        self._size, self._wait, self._longest = pool_size, pool_timeout, statement_timeout
        self._cached, self._session = statement_cache_size, target_session_attrs
        self._pool: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None
        self._holders: tuple[int, ...] = ()
        self._path = self._address = ""
        self.extension = "public"  # the schema of pgvector, quoted
        self.ranks = False  # whether the database has pg_textsearch

    async def open(self, holder: object) -> None:
        """Connect, and say so to the pool's other holders. Raises MissingDependency, or SourceError when
        there is no server.
        """
        loop = asyncio.get_running_loop()
        if self._pool is not None and self._loop is not loop:
            raise SourceError(
                "Postgres pool is open in another event loop; close it there, or make an instance per loop."
            )
        if self._pool is None:
            if self._opening is None or self._loop is not loop:
                self._opening, self._loop = asyncio.Lock(), loop
            async with self._opening:  # of holders that open at once, one connects
                if self._pool is None:
                    self._pool = await self._connect()
        self._holders = tuple({*self._holders, id(holder)})

    async def aclose(self, holder: object) -> None:
        """Let go. The connections end when no other holder has them."""
        self._holders = tuple(item for item in self._holders if item != id(holder))
        if self._holders or self._pool is None:
            return
        pool, self._pool, self._opening = self._pool, None, None
        if self._loop is not asyncio.get_running_loop():
            pool.terminate()
            return
        try:
            async with asyncio.timeout(5.0):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    @asynccontextmanager
    async def transaction(
        self, scope: Scope | None = None, *, deadline: float | None = None, write: bool = False
    ) -> AsyncIterator[Connection]:
        """A transaction that sees what the scope allows, cancelled at the deadline (`time.monotonic()`).

        Raises SourceTimeout when that passes, SourceError for whatever else the database or the way to it
        refuses.
        """
        remaining = self._longest if deadline is None else min(self._longest, deadline - monotonic())
        if self._pool is None:
            raise SourceError("Postgres store is not open; call open() first.")
        if self._loop is not asyncio.get_running_loop():
            raise SourceError("Postgres pool is open in another event loop; make an instance per loop.")
        if remaining <= 0:
            raise SourceTimeout("Deadline had passed before Postgres was asked; allow the source more time.")
        in_transaction = not write or deadline is not None
        try:
            async with asyncio.timeout(remaining if in_transaction else None) as limit:
                async with self._connection(remaining if in_transaction else 0.0, scope, write) as connection:
                    yield connection
        except TimeoutError as error:
            if limit.expired():
                raise SourceTimeout(
                    "Postgres did not answer before the deadline; allow the source more time."
                ) from error
            raise SourceError(
                f"No connection to Postgres was free within {self._wait:g} s; raise pool_size, or ask less at"
                " once."
            ) from error

    async def answer(
        self, work: Callable[[Connection], Awaitable[T]], *, missing: T, write: bool = False
    ) -> T:
        """What `work` returns of a transaction; `missing` where the database has no store in the schema."""
        try:
            async with self.transaction(write=write) as connection:
                return await work(connection)
        except NoStore:
            return missing

    @asynccontextmanager
    async def _connection(
        self, remaining: float, scope: Scope | None, write: bool
    ) -> AsyncIterator[Connection]:
        import asyncpg

        pool = self._pool
        try:
            connection, started = await self._start(pool, remaining, scope, write)
            try:
                yield connection
                await started.commit()
            except BaseException:
                await _give_back(connection, started)
                raise
            finally:
                await pool.release(connection)
        except asyncpg.QueryCanceledError as error:
            raise SourceTimeout(
                "Postgres cancelled a statement that took too long; allow the source more time."
            ) from error
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError) as error:
            if not await self._may_use_schema():
                raise SourceError(
                    f"No right to use schema {self.schema!r} of the database; run there: GRANT USAGE ON"
                    f' SCHEMA "{self.schema}" TO the role of the dsn.'
                ) from error
            raise NoStore(
                f"No store is in schema {self.schema!r} of the database; ingest into it, or run"
                " `contextrouter db migrate`."
            ) from error
        except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError) as error:
            raise SourceError(
                f"Postgres refused: {describe(error)}; behind a pooler such as PgBouncer set"
                " `statement_cache_size = 0`."
            ) from error
        except TimeoutError:
            raise
        except (asyncpg.InternalClientError, *disconnections()) as error:
            raise SourceError(
                f"Connection to Postgres failed: {describe(error)}; it is made again at the next question."
            ) from error
        except asyncpg.PostgresError as error:
            raise SourceError(f"Postgres refused: {describe(error)}.") from error

    async def _start(
        self, pool: Any, remaining: float, scope: Scope | None, write: bool
    ) -> tuple[Connection, Transaction]:
        """A connection with a transaction begun. One that is gone is made again, for as long as one may be
        waited for.

        So a server that restarts costs the statements under way, and delays the rest. Raises whatever asyncpg
        does.
        """

        end = monotonic() + self._wait
        while True:
            connection = started = None
            try:
                connection = await pool.acquire(timeout=max(end - monotonic(), 0.001))
                started = connection.transaction(readonly=not write)
                await started.start()
                await connection.execute(_SETTINGS, self._path, f"{int(remaining * 1000)}ms", *_walls(scope))
                return connection, started
            except BaseException as error:
                if connection is not None:
                    await _give_back(connection, started)
                    await pool.release(connection)
                lost = isinstance(error, disconnections()) and not isinstance(error, TimeoutError)
                if not lost or pool is not self._pool or monotonic() + _PAUSE > end:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _may_use_schema(self) -> bool:
        """Whether the role may use the schema; a role that may not sees no table in it."""
        may_use = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1"
        try:
            async with self._pool.acquire(timeout=self._wait) as connection:
                return await connection.fetchval(may_use, self.schema) is not False
        except Exception as error:
            log.debug("rights cannot be asked for: %r", error)  # the first error is what is reported
            return True

    async def _connect(self) -> Any:
        try:
            import asyncpg
        except ImportError as error:
            raise MissingDependency("asyncpg", "postgres") from error
        dsn = self.dsn or os.environ.get("DATABASE_URL") or ""
        if dsn.startswith(embedded.PREFIX):
            dsn = await self._use_embedded(dsn.removeprefix(embedded.PREFIX))
        self._address = dsn
        refusals = (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
            ValueError,
        )
        pool = None
        try:
            pool = await asyncpg.create_pool(
                dsn or None,
                min_size=0,
                max_size=self._size,
                statement_cache_size=self._cached,
                timeout=self._wait,
                reset=_nothing,
                target_session_attrs=self._session,
                server_settings={"application_name": "contextrouter"},
            )
            async with pool.acquire(timeout=self._wait) as connection:
                await self._find_extension(connection)
        except BaseException as error:
            if pool is not None:
                pool.terminate()
            if not isinstance(error, refusals):
                raise
            raise SourceError(
                f"Postgres cannot be reached: {describe(error)}; check dsn, DATABASE_URL or PG*."
            ) from error
        return pool

    async def _use_embedded(self, folder: str) -> str:
        threads = Threads(1, "contextrouter-pg")
        try:
            return await threads.run(embedded.start, folder)
        finally:
            threads.close()

    async def refresh(self) -> None:
        """Find out anew where the extensions are, after one was created."""
        async with self._pool.acquire(timeout=self._wait) as connection:
            await self._find_extension(connection)

    async def _find_extension(self, connection: Connection) -> None:
        versions = dict(await connection.fetch(_EXTENSIONS))
        self.extension, self.ranks = versions.get("vector", "public"), "pg_textsearch" in versions
        self._path = ", ".join(dict.fromkeys([f'"{self.schema}"', self.extension, *versions.values()]))

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Connection]:
        """A connection of one's own outside any transaction, without limit of time: for what cannot run
        inside one.
        """
        import asyncpg

        try:
            connection = await asyncpg.connect(
                self._address or None,
                timeout=self._wait,
                statement_cache_size=0,
                target_session_attrs=self._session,
            )
            try:
                yield connection
            finally:
                await connection.close(timeout=self._wait)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise SourceError(f"Postgres refused: {describe(error)}.") from error


async def _give_back(connection: Connection, started: Transaction | None) -> None:
    """Roll back; a connection that cannot is closed, so that none with something open goes back to the
    pool.
    """
    import asyncpg

    if started is None:
        return
    undone = False
    try:
        await started.rollback()
        undone = True
    except Exception as error:
        log.debug("rolling back failed: %r", error)  # what led to it is what is told
    finally:
        if not undone:
            with suppress(asyncpg.InterfaceError):  # it went by itself
                connection.terminate()


async def _nothing(connection: Any) -> None:
    """Nothing outlives a transaction here, so a connection needs no reset, and no round trip for one."""


def _walls(scope: Scope | None) -> tuple[str, str]:
    """What row-level security reads of a scope: whether all is seen, and else the labels that are, as
    JSON.
    """
    if scope is None:
        return "on", "{}"
    visible_labels = {
        "tenants": [scope.tenant or "", SHARED],
        "compartments": sorted(scope.compartments),
        "levels": scope.levels(),
    }
    text = msgspec.json.encode(
        {key: [clean(item) for item in labels] for key, labels in visible_labels.items()}
    ).decode()
    return "off", text
