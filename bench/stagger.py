"""Ten sources that answer one after the other, from 2 to 20 ms: the time from the last answer to the result.

    python bench/stagger.py [rounds]

What is done after the last answer is what a caller waits for beyond his slowest source. Beside the router
stands `gather` and a dictionary, in turns; times are of the clock, medians of the rounds. Never fails: no
limit is set.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from router import fuse_by_hand, make_lists

from contextrouter import Connector, ContextRouter, Hit, Query

SOURCES, SIZES = 10, (10, 100, 1000)


class Late(Connector):
    """Answers after its delay, and notes when."""

    def __init__(self, delay: float) -> None:
        self.delay, self.hits, self.answered = delay, list[Hit](), 0.0

    async def search(self, query: Query) -> Sequence[Hit]:
        await asyncio.sleep(self.delay)
        self.answered = perf_counter()
        return self.hits


async def measure(documents: int, rounds: int) -> tuple[float, float]:
    """Median milliseconds after the last answer, of gather and of the router."""
    sources = {f"s{i:02}": Late(0.002 * (i + 1)) for i in range(SOURCES)}
    rag = {"cache_enabled": False, "calibrate": False, "token_budget": 0, "candidates": 1000}

    async def gather(question: str) -> object:
        return fuse_by_hand(
            await asyncio.gather(*[source.search(Query(text=question)) for source in sources.values()])
        )

    async def after(ask: Callable[[str], Awaitable[object]], turn: int) -> float:
        for (_, s), hits in make_lists(1, SOURCES, documents, turn).items():
            sources[f"s{s:02}"].hits = hits
        await ask(f"question {turn}")
        return (perf_counter() - max(source.answered for source in sources.values())) * 1000

    rows = []
    async with ContextRouter({"rag": rag}, connectors=sources) as router:
        for turn in range(rounds + 1):
            rows.append((await after(gather, 2 * turn), await after(router.route, 2 * turn + 1)))
    return statistics.median([row[0] for row in rows[1:]]), statistics.median([row[1] for row in rows[1:]])


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    said = []
    print("documents    gather ms    router ms    after the last answer")
    for documents in SIZES:
        by_hand, ours = asyncio.run(measure(documents, rounds))
        print(f"{SOURCES} x {documents:<7}{by_hand:10.2f}{ours:13.2f}")
        said.append(f"{ours:.2f} ({by_hand:.2f})")
    print(
        f"staggered sources: {', '.join(said)} ms after the last answer for {SIZES} documents each; in"
        " brackets gather"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
