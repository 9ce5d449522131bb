"""What the cache costs: a hit in memory with its key, a hit on disk beside plain diskcache, `route` cached
beside computed.

CPU time (user + system) of this process, interleaved with the floor, medians of the rounds. Exits 1 above a
limit.

    python bench/cache.py [rounds]
"""

from __future__ import annotations

import asyncio
import pickle
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime
from time import process_time, time

import diskcache

from contextrouter import Connector, Context, ContextRouter, Document, Hit, Query, Request, Scope
from contextrouter.cache import codec, keys
from contextrouter.cache.disk import DiskTier
from contextrouter.cache.entry import seal, unseal

HIT_MICROSECONDS, DISK_RATIO, ROUTE_RATIO = 10.0, 1.0, 0.05
SCOPE = Scope(tenant="t", compartments=frozenset("ab"))
QUESTION = Request(question="What books talk about machine learning for beginners?", scope=SCOPE)
CALLS = 500


class Library(Connector):
    """Thirty documents of a thousand characters, at hand."""

    def __init__(self, name: str) -> None:
        text = "machine learning for beginners " * 33
        self.hits = [
            Hit(
                document=Document(id=f"{name}{i}", content=f"{name} {i} {text}", tenant="*"),
                score=1 / (i + 1),
            )
            for i in range(30)
        ]

    async def search(self, query: Query) -> Sequence[Hit]:
        return self.hits[: query.limit]


def per_call(function: Callable[[], object], calls: int = CALLS) -> float:
    """CPU microseconds of one call."""
    started = process_time()
    for _ in range(calls):
        function()
    return (process_time() - started) / calls * 1e6


async def per_await(function: Callable[[], Awaitable[object]], calls: int) -> float:
    """CPU microseconds of one awaited call."""
    started = process_time()
    for _ in range(calls):
        await function()
    return (process_time() - started) / calls * 1e6


async def awaited(router: ContextRouter, request: Callable[[int], Request], calls: int) -> float:
    started = process_time()
    for index in range(calls):
        await router.route(request(index))
    return (process_time() - started) / calls * 1e6


def median(rows: Sequence[Sequence[float]], column: int) -> float:
    return statistics.median(row[column] for row in rows)


async def memory(rounds: int) -> tuple[float, float, float, Context]:
    """Microseconds of a hit by key and `get`, of a cached `route`, of one that computes; and an answer."""
    sources = {name: Library(name) for name in ("a", "b", "c", "d", "e")}
    async with ContextRouter(connectors=sources) as router:
        answer = await router.route(QUESTION)
        results, zone = router._results, router._zone

        def hit() -> object:
            return results.tiers.memory.get(results.key(QUESTION, datetime.now(zone).date(), versions) or b"")

        versions = await router._versions.now()
        assert hit() is not None
        rows = []
        for turn in range(rounds):
            fresh = await awaited(
                router, lambda index, turn=turn: QUESTION.replace(question=f"{turn} {index}?"), 20
            )
            await router.route(QUESTION)
            rows.append((per_call(hit), await awaited(router, lambda _: QUESTION, CALLS), fresh))
    return median(rows, 0), median(rows, 1), median(rows, 2), answer


async def disk(rounds: int, answer: Context) -> list[tuple[str, float, float, float]]:
    """Microseconds of ours and of plain diskcache, and their ratio within a round: for the same bytes, and an
    answer as object.
    """
    body, key = codec.encode(answer), b"k" * 400
    entry, at = seal(key, body, expires=time() + 3600), keys.address(key)
    with tempfile.TemporaryDirectory() as folder, diskcache.Cache(folder + "/plain") as plain:
        tier = DiskTier(folder, namespace="ours", max_bytes=10**9)
        await tier.open()
        await tier.put(at, entry, 3600)
        small = keys.address(b"small")
        await tier.put(small, entry[:4000], 3600)
        plain.set(small.hex(), entry[:4000], expire=3600)
        plain.set(at.hex(), entry, expire=3600)
        plain.set("object", codec.decode(body), expire=3600)

        async def ours() -> Context:
            found = unseal(await tier.get(at) or b"", key)
            assert found is not None
            return codec.decode(found[0])

        async def theirs(name: str) -> object:
            return plain.get(name)

        assert (await ours()).text == answer.text
        pairs = [
            (lambda: tier.get(small), lambda: theirs(small.hex()), CALLS),
            (lambda: tier.get(at), lambda: theirs(at.hex()), CALLS),
            (ours, lambda: theirs("object"), CALLS // 10),
        ]
        rows: list[list[float]] = []
        for turn in range(rounds):
            row: list[float] = []
            for one, other, calls in pairs:
                first, second = (
                    (one, other) if turn % 2 else (other, one)
                )  # whoever is second finds the machine warm
                both = await per_await(first, calls), await per_await(second, calls)
                a, b = both if turn % 2 else both[::-1]
                row += (a, b, a / b)
            rows.append(row)
        await tier.aclose()
    size = f"{len(entry):,} bytes, {len(pickle.dumps(codec.decode(body))):,} pickled"
    return [
        (what, *[median(rows, column + at) for at in range(3)])
        for column, what in (
            (0, "entry from disk / plain diskcache (4,000 bytes)"),
            (3, f"entry from disk / plain diskcache ({size})"),
            (6, "answer from disk, checked and decoded / plain diskcache, unpickled"),
        )
    ]


def line(what: str, value: float, floor: float, ratio: float, limit: str) -> None:
    print(f"{what:<98} {value:>9.1f} {floor:>9.1f} {ratio:>7.3f}  {limit}")


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    hit, cached, fresh, answer = asyncio.run(memory(rounds))
    disks = asyncio.run(disk(rounds, answer))
    print(f"{date.today()} {datetime.now(UTC):%H:%M} UTC, CPU microseconds, medians of {rounds} rounds")
    print(f"{'':<98} {'ours':>9} {'floor':>9} {'ratio':>7}  at most")
    line(
        "hit in memory, key included",
        hit,
        HIT_MICROSECONDS,
        hit / HIT_MICROSECONDS,
        f"{HIT_MICROSECONDS:g} µs",
    )
    what = "route from memory / route computed (5 sources, 3 queries, 30 documents each)"
    line(what, cached, fresh, cached / fresh, f"{ROUTE_RATIO}")
    for what, ours, floor, ratio in disks:
        line(what, ours, floor, ratio, f"{DISK_RATIO:g}")
    worst = max(ratio for *_, ratio in disks)
    worse = worst > DISK_RATIO * 1.02  # what two runs differ by
    print(
        f"hit {hit:.1f} µs, route from memory {cached / fresh:.3f} of computed, disk at most {worst:.2f} x"
        " plain diskcache"
    )
    return 1 if hit > HIT_MICROSECONDS or cached / fresh > ROUTE_RATIO or worse else 0


if __name__ == "__main__":
    sys.exit(main())
