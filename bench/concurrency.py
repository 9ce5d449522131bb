"""200 requests in flight in one process, five sources that take 20 ms and return 50 documents each.

    python bench/concurrency.py [rounds]

Each of the 200 asks again as soon as it has its answer. Prints requests per second, how long they took, and
the CPU of one beside `gather` and a dictionary under the same load. Exits 1 on an error, or when the 99th
percentile is above RATIO times the median.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter, process_time

from router import fuse_by_hand

from contextrouter import Connector, ContextRouter, Document, Hit, Query

FLIGHT, EACH, SOURCES, DELAY, DOCUMENTS, RATIO = 200, 10, 5, 0.02, 50, 2.0


class Remote(Connector):
    """Answers after DELAY seconds."""

    def __init__(self, name: str) -> None:
        self.hits = [
            Hit(
                document=Document(
                    id=f"{name}{i}", url=f"https://example.org/{name}/{i}", content=f"{name} {i} " * 80
                )
            )
            for i in range(DOCUMENTS)
        ]

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.sleep(DELAY)
        return self.hits[: query.limit]


class Load:
    """What one way of answering did under the load."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        self.errors = 0
        self.wall = self.cpu = 0.0

    async def run(self, ask: Callable[[str], Awaitable[object]]) -> None:
        async def caller(number: int) -> None:
            for turn in range(EACH):
                started = perf_counter()
                try:
                    await ask(f"question {number} {turn}")
                except Exception as error:
                    self.errors += 1
                    print(f"{error!r}")
                self.spent.append(perf_counter() - started)

        wall, cpu = perf_counter(), process_time()
        async with asyncio.TaskGroup() as group:
            for number in range(FLIGHT):
                group.create_task(caller(number))
        self.wall, self.cpu = perf_counter() - wall, process_time() - cpu

    def percentile(self, share: float) -> float:
        return sorted(self.spent)[int(share * (len(self.spent) - 1))] * 1000

    def describe(self, name: str) -> str:
        return (
            f"{name:<8}{len(self.spent) / self.wall:8.0f} req/s   p50 {self.percentile(0.5):6.1f} ms   p99"
            f" {self.percentile(0.99):6.1f} ms   {self.cpu / len(self.spent) * 1000:.3f} CPU-ms each  "
            f" {self.errors} errors"
        )


async def measure(rounds: int) -> list[tuple[Load, Load]]:
    """Gather and the router, in turns."""
    sources = {f"s{i}": Remote(f"s{i}") for i in range(SOURCES)}
    rag = {"cache_enabled": False, "calibrate": False, "token_budget": 0}
    rag |= {"max_concurrency": FLIGHT * SOURCES, "candidates": DOCUMENTS}

    async def gather(question: str) -> object:
        query = Query(text=question, limit=DOCUMENTS)
        return fuse_by_hand(await asyncio.gather(*[source.search(query) for source in sources.values()]))

    found = []
    async with ContextRouter({"rag": rag}, connectors=sources) as router:
        for _ in range(rounds + 1):
            pair = (Load(), Load())
            await pair[0].run(gather)
            await pair[1].run(router.route)
            found.append(pair)
    return found[1:]


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found = asyncio.run(measure(rounds))
    for gather, ours in found:
        print(gather.describe("gather"))
        print(ours.describe("router"))
    errors = sum(ours.errors for _, ours in found)
    spread = statistics.median([ours.percentile(0.99) / ours.percentile(0.5) for _, ours in found])
    cpu = statistics.median([ours.cpu / gather.cpu for gather, ours in found])
    print(
        f"{FLIGHT} in flight: {errors} errors, p99 {spread:.2f} x p50 (at most {RATIO}); "
        f"{cpu:.2f} x the CPU of gather and a dictionary"
    )
    return 1 if errors or spread > RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
