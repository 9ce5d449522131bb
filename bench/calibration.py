"""What it costs to put 300 candidates of six sources on one scale, with texts of some 200 words and vectors.

    python bench/calibration.py [rounds]

CPU time of `calibrate` with statistics known, medians over questions of six words, beside the least that
reading the candidates could cost: every text in lower case, split. Exits 1 above 15 ms.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
from collections.abc import Sequence
from time import process_time

import numpy as np
from corpora import generated

from contextrouter import Document, Hit, Provider, Query, Rag, RankedList
from contextrouter.contracts import TermStatistics
from contextrouter.pipeline.calibration.calibrated_values import calibrate
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.engine import Engine, OpenPlugins
from contextrouter.pipeline.fusion.source_order import Queries

SOURCES, EACH, LIMIT = 6, 50, 15.0
DIMENSIONS = 384
CHANCE = np.random.default_rng(5)


class Counted(Provider):
    """A store of two legs that knows how often its terms occur."""

    legs, vector_legs, embedder = ("text", "vector"), ("vector",), "default"

    async def search(self, query: Query) -> Sequence[Hit]:
        """Nothing: what it found is given."""
        return []

    async def statistics(self, terms: Sequence[str], scope: object = None) -> TermStatistics:
        """The same for all."""
        return TermStatistics(documents=10_000, average_length=200.0, frequencies=dict.fromkeys(terms, 50))


def candidates() -> list[list[Document]]:
    """For each source the documents that it found."""
    made = generated(SOURCES * EACH * 3)
    long = [
        Document(id=str(n), title=one.title, content=f"{one.content} {two.content} {three.content}")
        for n, (one, two, three) in enumerate(zip(made[::3], made[1::3], made[2::3], strict=True))
    ]
    return [long[n * EACH : (n + 1) * EACH] for n in range(SOURCES)]


def lists(found: Sequence[Sequence[Document]], question: str) -> list[RankedList]:
    """Both legs of every source, each in an order of its own."""
    made = []
    for n, documents in enumerate(found):
        vectors = CHANCE.normal(size=(EACH, DIMENSIONS)).astype("<f4")  # as stores give them
        near = [
            Hit(document=d, score=1 - i / EACH, vector=v)
            for i, (d, v) in enumerate(zip(documents, vectors, strict=True))
        ]
        words = [
            Hit(document=hit.document, score=30.0 - i, vector=hit.vector) for i, hit in enumerate(near[::-1])
        ]
        made += [
            RankedList(source=f"s{n}", leg="text", query=question, hits=words),
            RankedList(source=f"s{n}", leg="vector", query=question, hits=near, score_range=(-1.0, 1.0)),
        ]
    return made


async def measure(rounds: int) -> tuple[float, float]:
    """Median milliseconds of reading alone, and of calibrating."""
    found, chance = candidates(), random.Random(5)
    texts = [document.content for documents in found for document in documents]
    words = sorted({word for text in texts for word in text.split()})
    sources = {f"s{n}": Counted() for n in range(SOURCES)}
    engine, rows = Engine(plugins=OpenPlugins(sources)), []
    for turn in range(rounds + 1):
        question = " ".join(chance.choices(words, k=6))
        pool = dedupe(lists(found, question))
        await engine.statistics.statistics(list(sources), question.split(), None, Deadline())
        started = process_time()
        for text in texts:
            text.lower().split()
        read = process_time()
        queries = Queries(question, vectors={("default", question): [0.05] * DIMENSIONS})
        note, _ = await calibrate(pool, Rag(), engine, queries=queries)
        rows.append(((read - started) * 1000, (process_time() - read) * 1000))
        assert turn or note == "by text+vector", note
    return statistics.median([row[0] for row in rows[1:]]), statistics.median([row[1] for row in rows[1:]])


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    floor, ours = asyncio.run(measure(rounds))
    held = ours <= LIMIT
    print(
        f"calibration: {ours:.1f} ms of CPU for {SOURCES * EACH} candidates with vectors, at most {LIMIT:g}; "
        f"lower case and split alone {floor:.1f} ms: {'holds' if held else 'MISSED'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
