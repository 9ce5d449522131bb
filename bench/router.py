"""What the router costs beside doing the work by hand: CPU per request, as ratios taken in one run.

    python bench/router.py [--rounds 9] [--quick]

Every contestant fuses the same lists, made anew outside the timer. `gather` is asyncio.gather and a dictionary; `safe` adds what
a router that may be trusted needs: a deadline, partial results, a status for every source. A ratio is taken within each round,
against the `safe` of that round; the table shows medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from heapq import nlargest
from time import process_time

from contextrouter import Connector, ContextRouter, Document, Hit, Query

K, TOP = 60, 10
GRID = [(q, s, d) for q in (1, 3) for s in (1, 3, 10, 30) for d in (10, 100, 1000)]
QUICK = [(1, 1, 10), (1, 3, 100), (3, 10, 100)]


class Memory(Connector):
    """Answers at once with the list that was laid ready for this query."""

    def __init__(self) -> None:
        self.ready: dict[str, list[Hit]] = {}

    async def search(self, query: Query) -> Sequence[Hit]:
        return self.ready[query.text]


def make_lists(queries: int, sources: int, documents: int, turn: int) -> dict[tuple[int, int], list[Hit]]:
    """Fresh documents, so that nobody profits from cached string hashes; a third is shared between neighbouring sources."""
    lists = {}
    for q in range(queries):
        for s in range(sources):
            lists[q, s] = [
                Hit(document=_document(turn, s if i % 3 else s // 2, i), score=1.0 - i / documents) for i in range(documents)
            ]
    return lists


def _document(turn: int, source: int, index: int) -> Document:
    name = f"{turn}-{source}-{index}"
    return Document(
        id=name, url=f"https://example.org/{name}", title=f"Title {name}", snippet=f"Snippet of {name}, a sentence or so.",
        content=(f"Content of {name}. " * 40)[:1000],
    )  # fmt: skip


def fuse_by_hand(lists: Sequence[Sequence[Hit]]) -> list[tuple[str, float, Document]]:
    """RRF over (url, snippet, content) with a dictionary; SHA-256 of the ten returned."""
    index: dict[object, int] = {}
    documents: list[Document] = []
    scores: list[float] = []
    for hits in lists:
        for rank, hit in enumerate(hits, K + 1):
            document = hit.document
            key: object = document.url
            at = index.get(key)
            if at is not None:
                known = documents[at]
                if known.content == document.content and known.snippet == document.snippet:
                    scores[at] += 1.0 / rank
                    continue
                key = (document.url, document.snippet, document.content)
                at = index.get(key)
                if at is not None:
                    scores[at] += 1.0 / rank
                    continue
            index[key] = len(documents)
            documents.append(document)
            scores.append(1.0 / rank)
    best = nlargest(TOP, range(len(scores)), key=scores.__getitem__)
    return [(sha256(f"{d.url}|{d.snippet}|{d.content}".encode()).hexdigest(), scores[i], d) for i in best for d in (documents[i],)]


async def gather(sources: Sequence[Memory], texts: Sequence[str]) -> object:
    """The least anyone could do."""
    return fuse_by_hand(await asyncio.gather(*[source.search(Query(text=text)) for text in texts for source in sources]))


async def safe(sources: Sequence[Memory], texts: Sequence[str]) -> object:
    """With a deadline, partial results, a status for every call, nothing left running."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(source.search(Query(text=text))) for text in texts for source in sources]
    _, late = await asyncio.wait(tasks, timeout=5.0)
    for task in late:
        task.cancel()
    lists, statuses = [], []
    for task in tasks:
        if task in late:
            statuses.append("timeout")
        elif (error := task.exception()) is not None:
            statuses.append(f"error: {error!r}")
        else:
            lists.append(task.result())
            statuses.append("ok")
    return fuse_by_hand(lists), statuses


async def measure(grid: Sequence[tuple[int, int, int]], rounds: int) -> list[tuple[tuple[int, int, int], float, dict[str, float]]]:
    """For each cell: milliseconds of `safe`, and the ratio of every contestant to it."""
    results = []
    for cell in grid:
        queries, count, documents = cell
        sources = [Memory() for _ in range(count)]
        texts = [f"query {i}" for i in range(queries)]
        router = await _router(sources, texts)
        contestants: dict[str, Callable[[], Awaitable[object]]] = {
            "gather": lambda s=sources, t=texts: gather(s, t),
            "safe": lambda s=sources, t=texts: safe(s, t),
            "router": lambda r=router: r.route("query 0"),
        }
        repeat = max(1, min(200, 6000 // (queries * count * documents)))
        ratios: dict[str, list[float]] = {name: [] for name in contestants}
        base: list[float] = []
        for turn in range(rounds + 1):
            spent = {name: await _spent(run, sources, texts, documents, turn, repeat) for name, run in contestants.items()}
            if turn:  # the first warms up
                base.append(spent["safe"])
                for name, value in spent.items():
                    ratios[name].append(value / spent["safe"])
        await router.aclose()
        results.append((cell, statistics.median(base) * 1000, {name: statistics.median(values) for name, values in ratios.items()}))
    return results


async def _router(sources: Sequence[Memory], texts: Sequence[str]) -> ContextRouter:
    rag = {"cache_enabled": False, "token_budget": 0, "candidates": 1000, "interpreters": ["fixed"]}
    rag["max_retrieval_queries"] = len(texts)
    named = {f"s{i:02}": s for i, s in enumerate(sources)}
    router = ContextRouter({"rag": rag}, connectors=named, interpreters={"fixed": _Fixed(texts)})
    await router.open()
    return router


class _Fixed:
    """Stands in below; replaced by a real interpreter class."""


def _interpreter() -> type:
    from contextrouter import Intent, Interpreter

    class Fixed(Interpreter):
        def __init__(self, texts: Sequence[str]) -> None:
            self.texts = tuple(texts)

        async def interpret(self, intent: Intent) -> Intent:
            return intent.replace(queries=self.texts)

    return Fixed


_Fixed = _interpreter()  # type: ignore[misc]


async def _spent(
    run: Callable[[], Awaitable[object]], sources: Sequence[Memory], texts: Sequence[str], documents: int, turn: int, repeat: int
) -> float:  # fmt: skip
    total = 0.0
    for again in range(repeat):
        lists = make_lists(len(texts), len(sources), documents, turn * 1000 + again)
        for s, source in enumerate(sources):
            source.ready = {text: lists[q, s] for q, text in enumerate(texts)}
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])  # lets the last request's results go
        gc.collect(0)
        started = process_time()
        result = await run()
        total += process_time() - started
        del result
    return total / repeat


def geometric_mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    results = asyncio.run(measure(QUICK if options.quick else GRID, options.rounds))
    names = list(results[0][2])
    print("q x S x D      safe ms  " + "".join(f"{name:>9}" for name in names))
    for (q, s, d), base, ratios in results:
        print(f"{f'{q} x {s} x {d}':<14}{base:8.3f}  " + "".join(f"{ratios[name]:9.2f}" for name in names))
    print(f"{'geometric mean':<24}" + "".join(f"{geometric_mean([r[name] for _, _, r in results]):9.2f}" for name in names))


if __name__ == "__main__":
    main()
