"""Cost of the cache: a hit in memory with its key, a hit on disk beside plain diskcache, `route` cached
beside computed.

Measured is CPU time (user + system) of this process, in turn with the floor; printed are medians of the
rounds. Exits 1 above a limit.

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
from typing import Any

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
    """Thirty documents of a thousand characters, in memory."""

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
    """Return CPU microseconds of one call."""
    started = process_time()
    for _ in range(calls):
        function()
    return (process_time() - started) / calls * 1e6


async def per_await(function: Callable[[], Awaitable[object]], calls: int) -> float:
    """Return CPU microseconds of one awaited call."""
    started = process_time()
    for _ in range(calls):
        await function()
    return (process_time() - started) / calls * 1e6


async def per_route(router: ContextRouter, request: Callable[[int], Request], calls: int) -> float:
    """Return CPU microseconds of one `route`."""
    started = process_time()
    for index in range(calls):
        await router.route(request(index))
    return (process_time() - started) / calls * 1e6


def median(rows: Sequence[Sequence[float]], column: int) -> float:
    return statistics.median(row[column] for row in rows)


async def memory(rounds: int) -> tuple[float, float, float, Context]:
    """Return microseconds of a hit by key, of a cached `route`, and of a computed one; and an answer."""
    sources = {name: Library(name) for name in ("a", "b", "c", "d", "e")}
    async with ContextRouter(connectors=sources) as router:
        answer = await router.route(QUESTION)
        results, now = router._results, router.engine.now

        def hit() -> object:
            return results.tiers.memory.get(results.key(QUESTION, now().date(), versions) or b"")

        versions = await router._versions.now()
        assert hit() is not None
        rows = []
        for turn in range(rounds):
            fresh = await per_route(
                router, lambda index, turn=turn: QUESTION.replace(question=f"{turn} {index}?"), 20
            )
            await router.route(QUESTION)
            rows.append((per_call(hit), await per_route(router, lambda _: QUESTION, CALLS), fresh))
    return median(rows, 0), median(rows, 1), median(rows, 2), answer


Pair = tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]], int]
"""Our function, the one of plain diskcache, and how often each is called in a round."""


async def disk(rounds: int, answer: Context) -> list[tuple[str, float, float, float]]:
    """Return microseconds of our disk tier and of plain diskcache, and their ratio within a round.

    Both read the same bytes, and then an answer as an object.
    """
    body, key = codec.encode(answer), b"k" * 400
    entry = seal(key, body, expires=time() + 3600)
    with tempfile.TemporaryDirectory() as folder, diskcache.Cache(folder + "/plain") as plain:
        tier = DiskTier(folder, namespace="ours", max_bytes=10**9)
        await tier.open()
        pairs = await fill(tier, plain, key, entry)
        rows = [await measure_pairs(pairs, ours_first=turn % 2 == 1) for turn in range(rounds)]
        await tier.aclose()
    size = f"{len(entry):,} bytes, {len(pickle.dumps(codec.decode(body))):,} pickled"
    names = (
        "entry from disk / plain diskcache (4,000 bytes)",
        f"entry from disk / plain diskcache ({size})",
        "answer from disk, checked and decoded / plain diskcache, unpickled",
    )
    return [
        (name, median(rows, column), median(rows, column + 1), median(rows, column + 2))
        for name, column in zip(names, range(0, 9, 3), strict=True)
    ]


async def fill(tier: DiskTier, plain: diskcache.Cache, key: bytes, entry: bytes) -> list[Pair]:
    """Store the same in both caches, and return the functions that read it: few bytes, all bytes, an
    answer.
    """
    large, small = keys.address(key), keys.address(b"small")
    for address, data in ((small, entry[:4000]), (large, entry)):
        await tier.put(address, data, 3600)
        plain.set(address.hex(), data, expire=3600)

    async def read_answer() -> Context:
        unsealed = unseal(await tier.get(large) or b"", key)
        assert unsealed is not None
        return codec.decode(unsealed[0])

    async def read_plain(name: str) -> Any:
        return plain.get(name)

    answer = await read_answer()
    plain.set("object", answer, expire=3600)
    assert (await read_plain("object")).text == answer.text
    return [
        (lambda: tier.get(small), lambda: read_plain(small.hex()), CALLS),
        (lambda: tier.get(large), lambda: read_plain(large.hex()), CALLS),
        (read_answer, lambda: read_plain("object"), CALLS // 10),
    ]


async def measure_pairs(pairs: Sequence[Pair], *, ours_first: bool) -> list[float]:
    """Return for each pair our microseconds, those of plain diskcache, and their ratio.

    The order matters, because the second call finds the machine warm.
    """
    row: list[float] = []
    for ours, plain, calls in pairs:
        if ours_first:
            a, b = await per_await(ours, calls), await per_await(plain, calls)
        else:
            b, a = await per_await(plain, calls), await per_await(ours, calls)
        row += (a, b, a / b)
    return row


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
