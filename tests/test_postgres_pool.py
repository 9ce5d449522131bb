"""Connections to Postgres: few, given back whatever happens, made again after a restart, behind a pooler, to
the right host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import asyncpg
import pytest
from support.closing import give_up_closing
from support.postgres_server import Server, open_store, run, schema
from support.stores import entry, ids

from contextrouter import ContextRouter
from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.contracts import Entry
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Context, Document, Fact, Query
from contextrouter.scope import Scope
from contextrouter.testing.fakes import Fixed, Hashing


def vector(number: int) -> list[float]:
    return [1.0, float(number)] + [1.0] * 14


def everything() -> list[Entry]:
    made = []
    for number in range(300):
        document = Document(id=f"d{number}", content=f"tides of the sea, note {number}", tenant="a")
        facts = [Fact(subject="sea", predicate="has", object=f"tide {number}")]
        vectors = {leg: [vector(number)] for leg in ("vector", "keywords")}
        made.append(Entry(document=document, chunks=[document], vectors=vectors, facts=facts))
    return made


# The server goes away.


@pytest.fixture(scope="module")
def server() -> Any:
    server = Server()
    yield server
    server.close()


def figures(store: Postgres) -> dict[str, int]:
    """How many connections a store has, and how many of them are idle."""
    pool = store.pool._pool
    return {"size": pool.get_size(), "idle": pool.get_idle_size()} if pool else {"size": 0, "idle": 0}


def full(context: Context) -> bool:
    return not context.degraded and len(context.envelopes) == 10 and len(context.facts) == 50


async def test_a_server_killed_amid_questions_costs_only_those_under_way(server: Server) -> None:
    """Nobody hangs; each answer is whole, or says what is missing; whole answers and the same connections
    soon after.
    """
    docs = Postgres(dsn=server.dsn, schema=schema(), pool_size=8, pool_timeout=30.0)
    router = ContextRouter(
        settings={"rag": {"timeout_seconds": 60.0, "cache_enabled": False, "max_retrieval_queries": 1}},
        providers={"docs": docs},
        facts={"graph": PostgresFacts(store=docs)},
        connectors={"other": Fixed("x y z")},
        embedders={"default": Hashing(dimensions=16)},
    )
    async with router:
        await docs.upsert(everything())

        async def asked(many: int) -> list[Context]:
            async with asyncio.TaskGroup() as tasks:
                made = [
                    tasks.create_task(router.route(f"tides of the sea {n}", scope=Scope(tenant="a")))
                    for n in range(many)
                ]
            return [each.result() for each in made]

        assert all(map(full, await asked(30)))
        before = figures(docs)
        assert before == {"size": 8, "idle": 8}
        started = monotonic()
        under_way = asyncio.create_task(asked(200))
        await asyncio.sleep(0.3)
        assert figures(docs)["idle"] < 8
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        answers = await under_way
        assert monotonic() - started < 70
        for context in answers:
            failed = [report for report in context.coverage if report.status != "ok"]
            assert full(context) or (context.degraded and failed and all(report.error for report in failed))
            assert all(report.source != "other" for report in failed)
        assert sum(map(full, answers)) >= 180
        assert all(map(full, await asked(30)))
        assert figures(docs) == before


async def test_a_server_that_is_away_for_good_is_said_in_time(server: Server) -> None:
    store = Postgres(dsn=server.dsn, schema=schema(), embedder=None, pool_timeout=0.5)
    await store.open()
    await store.upsert([entry("a", "sea")])
    await asyncio.to_thread(server.kill)
    with pytest.raises(
        SourceError, match=r"Connection to Postgres failed: .*; it is made again at the next question"
    ):
        await store.search(Query(text="sea", leg="text"))
    with pytest.raises(SourceTimeout):
        await store.search(Query(text="sea", leg="text", deadline=monotonic() + 0.1))
    with pytest.raises(SourceError, match="Postgres cannot be reached"):
        await Postgres(dsn=server.dsn, pool_timeout=0.5).open()
    await asyncio.to_thread(server.start)
    assert await ids(store, "sea") == ["a"]
    await store.upsert([entry("b", "sea")])
    assert await ids(store, "sea") == ["a", "b"]
    await store.aclose()


# Connections come back.


@pytest.mark.case("PG-15")
async def test_reads_that_find_nothing_give_their_connection_back() -> None:
    async with open_store(pool_size=2) as store:
        await store.upsert([entry(f"d{n}", "sea", vector=[1.0, float(n)]) for n in range(5)])
        for _ in range(12):
            assert await ids(store, "nothing") == []
            assert await ids(store, "sea", scope=Scope(tenant="nobody")) == []
            assert await store.fetch(["none"]) == []
            assert await store.neighbours(["none"], 5) == []
            assert await store.facets(Query(text="-sea", leg="text"), ["kind"]) == []
            assert await ids(store, "sea", limit=0) == []
            with pytest.raises(SourceError):
                await store.search(Query(text="", leg="vector", vector=[1.0, 2.0, 3.0]))
        counts = figures(store)
        assert counts["size"] == counts["idle"] <= 2
        assert await ids(store, "", "vector", vector=[1.0, 0.0], limit=5) == ["d0", "d1", "d2", "d3", "d4"]


async def test_opening_that_is_given_up_leaves_no_connection_open(server: Server) -> None:
    """While the server does not say which extensions it has."""
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'contextrouter'"
    locking, watching = await asyncpg.connect(server.dsn), await asyncpg.connect(server.dsn)

    async def wait_for(many: int, condition: str) -> None:
        for _ in range(500):
            if await watching.fetchval(counted + condition) == many:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"never {many} connections{condition}")

    async with locking.transaction():
        await locking.execute("LOCK TABLE pg_extension IN ACCESS EXCLUSIVE MODE")
        opening = asyncio.create_task(Postgres(dsn=server.dsn, schema=schema(), embedder=None).open())
        await wait_for(1, " AND wait_event_type = 'Lock'")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await opening
    await wait_for(0, "")
    await locking.close()
    await watching.close()
    del caught  # which held what was open


async def test_closing_that_is_given_up_closes_the_pool_all_the_same(server: Server) -> None:
    """Amid a run, whose turn is given back first."""
    store = Postgres(dsn=server.dsn, schema=schema(), embedder=None)
    await store.open()
    assert await store.take_turn() == ""
    await give_up_closing(store)
    assert figures(store) == {"size": 0, "idle": 0}


@pytest.fixture
async def locked() -> AsyncIterator[Postgres]:
    """A store whose chunks another session keeps locked: a search waits."""
    async with open_store(pool_size=2, pool_timeout=0.3) as store:
        await store.upsert([entry("a", "sea")])
        connection = await asyncpg.connect(store.pool.dsn)
        async with connection.transaction():
            await connection.execute(f'LOCK TABLE "{store.pool.schema}".chunks IN ACCESS EXCLUSIVE MODE')
            yield store
        await connection.close()
        assert await ids(store, "sea") == ["a"]


BUSY = (
    "SELECT count(*) AS n FROM pg_stat_activity WHERE state <> 'idle' AND query LIKE '%chunks%' AND"
    " wait_event_type = 'Lock'"
)


async def waiting(many: int) -> None:
    """Return when so many statements wait at the server for a lock."""
    for _ in range(500):
        (row,) = await run(BUSY)
        if row["n"] == many:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {many} statements waiting")


async def given_back(store: Postgres) -> None:
    """Return when every connection is idle."""
    for _ in range(500):
        counts = figures(store)
        if counts["size"] == counts["idle"]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(figures(store))


async def test_a_question_given_up_frees_its_connection_and_stops_its_statement(locked: Postgres) -> None:
    asked = asyncio.create_task(ids(locked, "sea"))
    await waiting(1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await given_back(locked)
    await waiting(0)


async def test_a_deadline_is_kept_at_the_server_too(locked: Postgres) -> None:
    with pytest.raises(SourceTimeout, match=r"before the deadline|took too long"):
        await locked.search(Query(text="sea", leg="text", deadline=monotonic() + 0.3))
    await given_back(locked)
    await waiting(0)


async def test_without_a_deadline_the_statement_timeout_holds(locked: Postgres) -> None:
    other = Postgres(dsn=locked.pool.dsn, schema=locked.pool.schema, statement_timeout=0.2, pool_size=1)
    await other.open()
    with pytest.raises(SourceTimeout):
        await other.search(Query(text="sea", leg="text"))
    await given_back(other)
    await other.aclose()


@pytest.mark.case("PG-23")
async def test_more_questions_than_connections_wait_a_little_and_are_then_refused(locked: Postgres) -> None:
    """Never more connections than the pool may have; who gets none is told so soon, not at the end of
    time.
    """
    held = [asyncio.create_task(ids(locked, "sea")) for _ in range(2)]
    await waiting(2)
    started = monotonic()
    with pytest.raises(
        SourceError, match=r"No connection to Postgres was free within 0\.3 s; raise pool_size"
    ):
        await locked.search(Query(text="sea", leg="text"))
    assert monotonic() - started < 30
    assert figures(locked) == {"size": 2, "idle": 0}
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await given_back(locked)


@pytest.mark.case("PG-23")
async def test_a_server_that_takes_no_more_clients_is_said() -> None:
    async with open_store(embedder=None) as store:
        await store.upsert([entry("a", "sea")])
        role = schema()
        await run(f'CREATE ROLE "{role}" LOGIN CONNECTION LIMIT 1')
        address = store.pool.dsn.replace("//postgres:", f"//{role}:")
        first = await asyncpg.connect(address)
        with pytest.raises(SourceError, match="Postgres cannot be reached: too many connections for role"):
            await Postgres(dsn=address, schema=store.pool.schema).open()
        await first.close()
        await run(f'DROP ROLE "{role}"')


# Who owns a pool.


@pytest.mark.case("PG-24")
async def test_a_pool_ends_with_the_last_that_shares_it() -> None:
    async with open_store(embedder=None) as store:
        await store.upsert([entry("a", "sea")])
        first, second = PostgresFacts(store=store), PostgresFacts(store=store)
        for each in (first, second):
            await each.open()
        await first.aclose()
        await first.aclose()
        assert await ids(store, "sea") == ["a"]
        await second.facts(Query(text="sea"))
        await store.aclose()
        await second.facts(Query(text="sea"))
        await second.aclose()
        assert figures(store) == {"size": 0, "idle": 0}
        with pytest.raises(SourceError, match=r"not open; call open\(\) first"):
            await second.facts(Query(text="sea"))
        await store.open()
        assert await ids(store, "sea") == ["a"]


def test_one_event_loop_owns_a_pool() -> None:
    with asyncio.Runner() as runner:
        context = open_store(embedder=None)
        store = runner.run(context.__aenter__())
        runner.run(store.upsert([entry("a", "sea")]))

        async def elsewhere() -> None:
            with pytest.raises(SourceError, match="open in another event loop; make an instance per loop"):
                await ids(store, "sea")
            with pytest.raises(SourceError, match="open in another event loop; close it there"):
                await store.open()

        with asyncio.Runner() as other:
            runner_loop = other.get_loop()
            assert runner_loop is not runner.get_loop()
            asyncio.set_event_loop(None)
            other.run(elsewhere())
        assert runner.run(ids(store, "sea")) == ["a"]
        runner.run(context.__aexit__(None, None, None))


# Poolers and replicas.


@pytest.mark.case("PG-17", "PG-18")
async def test_nothing_of_a_transaction_outlives_it() -> None:
    """No named statement, cursor, setting, lock or listener is left: what a pooler in transaction mode asks
    for.
    """
    async with open_store(statement_cache_size=0, pool_size=1, exact_below=0) as store:
        await store.upsert([entry(f"d{n}", "sea", vector=[1.0, float(n)]) for n in range(30)])
        await store.delete(["d3"])
        for leg in store.legs:
            assert len(await ids(store, "sea", leg, vector=[1.0, 0.0], scope=Scope())) == 29
        await store.facets(Query(text="sea", leg="text"), ["kind"])
        async with store.pool._pool.acquire() as connection:
            for view in ("pg_prepared_statements", "pg_cursors"):
                assert await connection.fetchval(f"SELECT count(*) FROM {view} WHERE name <> ''") == 0
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert await connection.fetchval(locks) == 0
            for setting in ("contextrouter.scope", "contextrouter.unrestricted"):
                assert not await connection.fetchval("SELECT current_setting($1, true)", setting)
            assert "test_" not in await connection.fetchval("SELECT current_setting('search_path')")
            assert await connection.fetchval("SELECT current_setting('statement_timeout')") == "0"


async def test_target_session_attrs_chooses_the_host() -> None:
    """Of two names of one server, which is a primary: `primary` finds it, `standby` finds none and says
    so.
    """
    async with open_store(embedder=None) as store:
        await store.upsert([entry("a", "sea")])
        for wanted in ("any", "primary", "read-write", "prefer-standby"):
            other = Postgres(
                dsn=store.pool.dsn, schema=store.pool.schema, embedder=None, target_session_attrs=wanted
            )
            await other.open()
            assert await ids(other, "sea") == ["a"]
            await other.aclose()
        for wanted in ("standby", "read-only"):
            with pytest.raises(SourceError, match="Postgres cannot be reached"):
                await Postgres(dsn=store.pool.dsn, target_session_attrs=wanted).open()  # type: ignore[arg-type]  # one of the texts it takes
