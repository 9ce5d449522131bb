"""One source: judged collections by words alone, and by all legs with each embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from judged import Collection, Question, read
from measures import FIRST, NDCG, at_least, made, table
from systems import MergedIndex, Routed, System

TEN = tuple(
    "scifact nfcorpus cranfield vaswani cacm cisi lihua-world multihop-rag-500 2wikimultihopqa"
    " kgpacks-faq".split()
)
TEXT, STATIC, MINILM = "text leg", "default, static", "default, minilm"
LEAST = {STATIC: 0.582, MINILM: 0.612}
"""Mean nDCG@10 over the ten collections."""


async def single(data: Path, build: Path, sets: Sequence[str], *, minilm: bool) -> bool:
    """Measure these collections, and the mean over the ten when all are there; whether the limits hold."""
    found = {name: await measured(data / name, build, minilm=minilm) for name in sets}
    if not set(TEN) <= set(found):
        return True
    systems = (TEXT, STATIC, MINILM) if minilm else (TEXT, STATIC)
    mean = {system: float(np.mean([found[name][system][NDCG] for name in TEN])) for system in systems}
    print("\nmean nDCG@10 over the ten collections: " + ", ".join(f"{s} {m:.4f}" for s, m in mean.items()))
    good = [
        at_least(f"{system}, mean", mean[system], least) for system, least in LEAST.items() if system in mean
    ]
    good.append(at_least(f"{STATIC}, mean", mean[STATIC], mean[TEXT], above=True))
    return all(good)


async def measured(folder: Path, build: Path, *, minilm: bool) -> dict[str, dict[Any, float]]:
    """Ask one collection, by lists of the default length; return the figures of each system."""
    collection = read(folder)
    systems: list[System] = []
    ask = None
    if len(collection.sources) == 1:
        systems.append(MergedIndex(collection))
    else:  # each question to the one source that is known to hold its answer
        collection, ask = collection.asked(collection.questions[::2]), own_source
    systems += [
        Routed(TEXT, collection, build, ask=ask),
        Routed(STATIC, collection, build, "static", ask=ask),
    ]
    if minilm:
        systems.append(Routed(MINILM, collection, build, "minilm", ask=ask))
    runs = [await made(system, collection, build / collection.name / "runs" / "single") for system in systems]
    means = table(runs, collection, (NDCG, FIRST), TEXT)
    if not all(question.answerable for question in collection.questions):
        await abstaining(Routed(TEXT, collection, build, ask=ask), collection)
    return means


def own_source(question: Question) -> Sequence[str]:
    """The source that holds the answer."""
    return (question.group,)


async def abstaining(system: Routed, collection: Collection) -> None:
    """Print how often answerability says that there is no answer: right where there is none, wrong where
    there is one.
    """
    levels: dict[bool, list[str]] = {True: [], False: []}
    async with system:
        for question in collection.questions:
            context, _ = await system.context(question)
            levels[question.answerable].append(context.answerability.level)
    for said, below in (("below strong", ("weak", "none")), ("none", ("none",))):
        right, wrong = (
            float(np.mean([level in below for level in levels[known]])) for known in (False, True)
        )
        print(
            f"  abstaining {said:<14} right {right:.2f} of {len(levels[False])}, wrong {wrong:.2f} of"
            f" {len(levels[True])}"
        )
