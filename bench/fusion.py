"""What fusing by scores costs beside fusing by ranks: CPU time over the same lists, in one run.

    python bench/fusion.py [ROUNDS]

Lists as three queries of one question give them: three legs, thirty hits each, of which two thirds are in the
lists of the other queries too. Text hits bring their vectors along. The ten best are sealed. Calibrated values are
made beforehand. Exits 1 when a limit is missed.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Sequence
from time import process_time

import numpy as np

from contextrouter import Document, Hit, Rag, RankedList
from contextrouter.pipeline.candidates import Candidates
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion import fuse
from contextrouter.pipeline.fusion.leg_weights import Profile, Profiles
from contextrouter.pipeline.fusion.source_order import Queries

DIMENSIONS, HITS, TOP = 384, 30, 10
QUERIES = ("question", "a part", "words")
LIMITS = {1: 1.6, 6: 2.0}
"""Sources -> the most that fusing by scores may cost beside fusing by ranks."""


def lists(
    sources: int, chance: random.Random, vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]]
) -> list[RankedList]:
    """Fresh documents and lists of all sources."""
    made = []
    for s in range(sources):
        documents = [
            Document(id=f"{s}-{n}", url=f"https://example.org/{s}/{n}", content=f"text {s} {n}")
            for n in range(90)
        ]
        for leg, first in (("keywords", 20), ("text", 0), ("vector", 10)):
            for q, query in enumerate(QUERIES):
                picked = chance.sample(range(first + 10 * q, first + 10 * q + 40), HITS)
                hits = [
                    Hit(
                        document=documents[n],
                        score=1.0 - rank / 40,
                        vector=None if leg == "keywords" else vectors[n],
                    )
                    for rank, n in enumerate(picked)
                ]
                made.append(RankedList(source=f"s{s}", leg=leg, query=query, hits=hits, full=True))
    return made


def spent(candidates: Candidates, mode: str, sources: int, question: Sequence[float]) -> float:
    """CPU seconds of one fusion."""
    profiles = Profiles()
    for s in range(sources):
        profiles[f"s{s}"] = Profile(
            s, "e", frozenset({"vector", "keywords"}), {"vector": 0.3}, {"vector": 0.1}
        )
    queries = Queries(QUERIES[0], frozenset(QUERIES[1:]), {("e", QUERIES[0]): question})
    values = {n: 1.0 / (n + 1) for n in range(len(candidates))} if sources > 1 else None
    started = process_time()
    ranking = fuse(candidates, Rag(hybrid_fusion=mode), queries=queries, profiles=profiles, calibrated=values)  # type: ignore[arg-type]  # one of the modes
    list(ranking.live[:TOP])
    return process_time() - started


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    chance, generator = random.Random(3), np.random.default_rng(3)
    vectors = generator.standard_normal((90, DIMENSIONS)).astype(np.float32)
    held = True
    for sources, limit in LIMITS.items():
        pairs = []
        for _ in range(rounds // sources + 1):
            raw = lists(sources, chance, vectors)
            ranks, scores = (spent(dedupe(raw), mode, sources, vectors[0]) for mode in ("rrf", "scores"))
            pairs.append((ranks, scores))
        ratio = statistics.median([scores / ranks for ranks, scores in pairs[1:]])
        by_ranks, by_scores = (statistics.median(column) * 1000 for column in zip(*pairs[1:], strict=True))
        held = held and ratio <= limit
        print(
            f"{sources} x {len(QUERIES) * 3} lists of {HITS}: by scores {by_scores:.3f} ms, by ranks {by_ranks:.3f} ms,"
            f" ratio {ratio:.2f}, at most {limit:g}: {'holds' if ratio <= limit else 'MISSED'}"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
