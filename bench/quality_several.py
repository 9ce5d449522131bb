"""Several sources beside each other: all with the same legs, some without vectors, and a feed beside a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judged import Question, read
from measures import FIRST, NDCG, RECALL, at_least, made, table
from systems import MergedIndex, Routed, System

FEDERATED, PACKS = "federated-6", "kgpacks-faq"
TEXT, STATIC, MINILM = "text legs", "default, static", "default, minilm"
LEAST = {FEDERATED: {TEXT: 0.414, STATIC: 0.427, MINILM: 0.457}, PACKS: {TEXT: 0.84, MINILM: 0.885}}
"""nDCG@10 with lists of 100."""
HUNDRED = {"candidates": 100, "general_retrieval_final_count": 100}
PLAIN = {"hybrid_fusion": "rrf", "calibrate": False}
WITHOUT = {"mixed A": ("cisi", "vaswani", "nfcorpus"), "mixed B": ("cranfield", "cacm", "scifact")}
"""The sources of federated-6 that have no vectors."""
FEED = "cisi"
METRICS = (NDCG, RECALL, FIRST)


async def several(data: Path, build: Path, name: str, *, minilm: bool) -> bool:
    """Measure federated-6 or kgpacks-faq with all its sources; whether the limits hold."""
    collection = read(data / name)
    if name == PACKS:
        collection = collection.asked(collection.questions[::2])
    embedders = {TEXT: "", STATIC: "static", MINILM: "minilm"}
    systems: list[System] = [MergedIndex(collection)]
    if name == FEDERATED:
        systems.append(Routed("rank fusion of sources, text", collection, build, **HUNDRED, **PLAIN))
    systems += [
        Routed(system, collection, build, embedders[system], **HUNDRED)
        for system in LEAST[name]
        if minilm or system != MINILM
    ]
    runs = [await made(system, collection, build / name / "runs" / "several") for system in systems]
    means = table(runs, collection, METRICS, TEXT)
    return all(
        [
            at_least(f"{system}, nDCG@10", means[system][NDCG], least)
            for system, least in LEAST[name].items()
            if system in means
        ]
    )


async def mixed(data: Path, build: Path) -> bool:
    """Measure federated-6 with vectors of `minilm` in three of its stores, and with a feed beside the right
    one; no limits.
    """
    collection = read(data / FEDERATED)
    runs = [
        await made(
            Routed(name, collection, build, "minilm", without=without, **HUNDRED),
            collection,
            build / FEDERATED / "runs" / "mixed",
        )
        for name, without in WITHOUT.items()
    ]
    table(runs, collection, METRICS, "mixed A")
    fed = collection.asked([q for q in collection.questions if q.group != FEED])
    beside: dict[str, Any] = {"without": (FEED,), "ask": right_and_feed, **HUNDRED}
    known = Routed("the right store alone", fed, build, "minilm", ask=right, **HUNDRED)
    feed = Routed("feed beside the right store", fed, build, "minilm", **beside)
    runs = [await made(system, fed, build / FEDERATED / "runs" / "mixed") for system in (known, feed)]
    table(runs, fed, METRICS, known.name)
    return True


def right(question: Question) -> tuple[str, ...]:
    """The store that holds the answers."""
    return (question.group,)


def right_and_feed(question: Question) -> tuple[str, ...]:
    """The store that holds the answers, and the source of words alone."""
    return (question.group, FEED)
