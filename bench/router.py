"""What the router costs beside doing the work by hand: CPU per request, as ratios taken in one run. Plain
fusion: uncalibrated.

    python bench/router.py [--rounds 7] [--quick] [--json]

Every contestant fuses the same lists, made anew outside the timer, and hands back the best ten. `gather` is
asyncio.gather and a dictionary; `safe` adds what a router that may be trusted needs: a deadline, partial
results, a status for every call. A ratio is taken within each round, against the `safe` of that round; the
table shows medians over the rounds. Exits 1 when the geometric mean of the router's ratios is above LIMIT.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import nlargest
from time import process_time

from contextrouter import (
    Connector,
    ContextRouter,
    Document,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
)

LIMIT = 2.8
K, TOP = 60, 10
GRID = [(q, s, d) for q in (1, 3) for s in (1, 3, 10, 30) for d in (10, 100, 1000)]
QUICK = [(1, 1, 10), (1, 3, 100), (3, 10, 100)]

Cell = tuple[int, int, int]
"""Queries, sources, documents in each list."""
Lists = Mapping[tuple[int, int], list[Hit]]
"""By query and source."""


def make_lists(queries: int, sources: int, documents: int, turn: int) -> Lists:
    """Fresh documents, so that nobody profits from cached string hashes; a third is shared between
    neighbouring sources.
    """
    lists = {}
    for q in range(queries):
        for s in range(sources):
            lists[q, s] = [
                Hit(document=_document(turn, s if i % 3 else s // 2, i), score=1.0 - i / documents)
                for i in range(documents)
            ]
    return lists


def _document(turn: int, source: int, index: int) -> Document:
    name = f"{turn}-{source}-{index}"
    return Document(
        id=name,
        url=f"https://example.org/{name}",
        title=f"Title {name}",
        snippet=f"Snippet of {name}, a sentence or so.",
        content=(f"Content of {name}. " * 40)[:1000],
    )


class Contestant:
    """Somebody who answers the same requests. `ready` is not timed; `answer` is, and returns the urls'
    carriers, best first.
    """

    name = ""

    def __init__(self, cell: Cell) -> None:
        self.queries, self.sources, _ = cell
        self.texts = [f"query {q}" for q in range(self.queries)]

    async def open(self) -> None:
        """Make what outlives a request."""

    async def aclose(self) -> None:
        """Let go of it."""

    def ready(self, lists: Lists) -> None:
        """Lay the lists ready for the next request."""
        raise NotImplementedError

    async def answer(self) -> object:
        """Answer the request."""
        raise NotImplementedError

    def urls(self, answer: object) -> list[str]:
        """What was found, best first."""
        raise NotImplementedError


class Memory(Connector):
    """Answers at once with the list that was laid ready for this query."""

    def __init__(self) -> None:
        self.ready: dict[str, list[Hit]] = {}

    async def search(self, query: Query) -> Sequence[Hit]:
        return self.ready[query.text]


Best = list[tuple[str, float, Document]]


def fuse_by_hand(lists: Iterable[Sequence[Hit]]) -> Best:
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
    return [
        (sha256(f"{d.url}|{d.snippet}|{d.content}".encode()).hexdigest(), scores[i], d)
        for i in best
        for d in (documents[i],)
    ]


class Gather(Contestant):
    """The least anyone could do."""

    name = "gather"

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.connectors = [Memory() for _ in range(self.sources)]

    def ready(self, lists: Lists) -> None:
        for s, connector in enumerate(self.connectors):
            connector.ready = {text: lists[q, s] for q, text in enumerate(self.texts)}

    async def answer(self) -> object:
        lists = await asyncio.gather(
            *[source.search(Query(text=text)) for text in self.texts for source in self.connectors]
        )
        return fuse_by_hand(lists)

    def urls(self, answer: object) -> list[str]:
        return [document.url for _, _, document in answer]  # type: ignore[attr-defined]  # each system has an answer of its own type


class Safe(Gather):
    """With a deadline, partial results, a status for every call, nothing left running."""

    name = "safe"

    async def answer(self) -> object:
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(source.search(Query(text=text)))
            for text in self.texts
            for source in self.connectors
        ]
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

    def urls(self, answer: object) -> list[str]:
        return super().urls(answer[0])  # type: ignore[index]  # each system has an answer of its own type


class Fixed(Interpreter):
    """Asks what it is told to."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(queries=self.texts)


class Ours(Gather):
    """The router, with provenance and trace."""

    name = "router"

    async def open(self) -> None:
        rag = {
            "cache_enabled": False,
            "calibrate": False,
            "hybrid_fusion": "rrf",
            "token_budget": 0,
            "candidates": 1000,
            "max_retrieval_queries": self.queries,
            "interpreters": ["fixed"],
        }
        named = {f"s{i:02}": connector for i, connector in enumerate(self.connectors)}
        self.router = ContextRouter({"rag": rag}, connectors=named, interpreters={"fixed": Fixed(self.texts)})
        await self.router.open()

    async def aclose(self) -> None:
        await self.router.aclose()

    async def answer(self) -> object:
        return await self.router.route("query 0")

    def urls(self, answer: object) -> list[str]:
        return [envelope.document.url for envelope in answer.envelopes]  # type: ignore[attr-defined]  # each system has an answer of its own type


class Row:
    """One cell: seconds of `safe`, the ratio of every contestant to it, how many of its ten each returns."""

    def __init__(self, cell: Cell, base: float, ratios: dict[str, float], same: dict[str, int]) -> None:
        self.cell, self.base, self.ratios, self.same = cell, base, ratios, same


async def measure(grid: Sequence[Cell], rounds: int, kinds: Sequence[type[Contestant]]) -> list[Row]:
    """Interleave the contestants, round by round. One of them is `safe`."""
    rows = []
    for cell in grid:
        contestants = [kind(cell) for kind in kinds]
        for contestant in contestants:
            await contestant.open()
        same = await _same(contestants, cell)
        repeat = max(1, min(200, 6000 // (cell[0] * cell[1] * cell[2])))
        spent: list[dict[str, float]] = []
        for turn in range(rounds + 1):
            spent.append({each.name: await _spent(each, cell, turn, repeat) for each in contestants})
        for contestant in contestants:
            await contestant.aclose()
        spent = spent[1:]  # the first warms up
        ratios = {
            each.name: statistics.median([turn[each.name] / turn["safe"] for turn in spent])
            for each in contestants
        }
        rows.append(Row(cell, statistics.median([turn["safe"] for turn in spent]), ratios, same))
    return rows


async def _same(contestants: Sequence[Contestant], cell: Cell) -> dict[str, int]:
    found = {}
    for contestant in contestants:
        contestant.ready(make_lists(*cell, 0))
        found[contestant.name] = set(contestant.urls(await contestant.answer()))
    return {name: len(urls & found["safe"]) for name, urls in found.items()}


async def _spent(contestant: Contestant, cell: Cell, turn: int, repeat: int) -> float:
    """CPU seconds of one request."""
    total = 0.0
    for again in range(repeat):
        contestant.ready(make_lists(*cell, turn * 1000 + again))
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])  # lets the last request's results go
        gc.collect(0)
        started = process_time()
        result = await contestant.answer()
        total += process_time() - started
        del result
    return total / repeat


def table(rows: Sequence[Row]) -> str:
    """The table, with the geometric means below."""
    names = list(rows[0].ratios)
    lines = ["q x S x D      safe ms  " + "".join(f"{name:>12}" for name in names)]
    for row in rows:
        label = " x ".join(map(str, row.cell))
        lines.append(
            f"{label:<14}{row.base * 1000:8.3f}  " + "".join(f"{row.ratios[name]:12.2f}" for name in names)
        )
    means = [statistics.geometric_mean([row.ratios[name] for row in rows]) for name in names]
    return "\n".join([*lines, f"{'geometric mean':<24}" + "".join(f"{mean:12.2f}" for mean in means)])


def options(rounds: int) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    given = options(7)
    rows = asyncio.run(measure(QUICK if given.quick else GRID, given.rounds, [Gather, Safe, Ours]))
    if given.json:
        print(json.dumps([vars(row) for row in rows]))
        return 0
    print(table(rows))
    mean = statistics.geometric_mean([row.ratios["router"] for row in rows])
    short = {row.cell: row.same["router"] for row in rows if row.same["router"] < min(TOP, row.same["safe"])}
    print(f"other documents than by hand: {short or 'nowhere'}")
    print(f"router: {mean:.2f} x the CPU of doing it by hand with deadline and statuses (at most {LIMIT})")
    return 1 if mean > LIMIT or short else 0


if __name__ == "__main__":
    sys.exit(main())
