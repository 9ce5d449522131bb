"""Whether the knobs of fusion act: how many of the ten best documents change with each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from judged import Collection, read
from measures import at_least
from systems import EMBEDDERS, Routed

LEAST, EVERY, TEN = 0.1, 3, 10
Rag = dict[str, Any]


async def knobs(data: Path, build: Path, *, minilm: bool) -> bool:
    """Turn each knob over federated-6 with lists of the default length; whether all limits hold."""
    collection = read(data / "federated-6")
    collection = collection.asked(collection.questions[::EVERY])
    embedder = "minilm" if minilm else "static"
    rrf = {"hybrid_fusion": "rrf"}
    turned: list[tuple[str, Rag, Rag]] = [
        ("rrf -> weighted", rrf, {"hybrid_fusion": "weighted"}),
        ("rrf_k 60 -> 1, in mode rrf", {**rrf, "rrf_k": 60}, {**rrf, "rrf_k": 1}),
        ("vector weight x 4", {}, {"leg_weights": {"vector": 4 * vector_weight(embedder)}}),
        ("enable_fts = false", {}, {"enable_fts": False}),
    ]
    print(
        f"\nknobs over {collection.name}, {len(collection.judged)} questions, {embedder}: share of the ten"
        " best that change\n"
    )
    best: dict[str, list[set[str]]] = {}
    good = True
    for what, before, after in turned:
        for rag in (before, after):
            if str(rag) not in best:
                best[str(rag)] = await ten_best(collection, build, embedder, rag)
        pairs = zip(best[str(before)], best[str(after)], strict=True)
        changed = [1 - len(one & other) / max(len(one), len(other), 1) for one, other in pairs]
        good &= at_least(f"{what:<28}", float(np.mean(changed)), LEAST)
    return good


async def ten_best(collection: Collection, build: Path, embedder: str, rag: Rag) -> list[set[str]]:
    """The ids of the ten best documents of each question."""
    found = []
    async with Routed("knobs", collection, build, embedder, **rag) as system:
        for question in collection.judged:
            ranked, _ = await system.answer(question)
            found.append({document for document, _ in ranked[:TEN]})
    return found


def vector_weight(embedder: str) -> float:
    """What the leg `vector` weighs when nothing is set: with scores, or else by rank."""
    kind = EMBEDDERS[embedder]
    return float((getattr(kind, "score_weights", None) or kind.leg_weights)["vector"])
