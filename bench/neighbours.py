"""Merging of neighbours: the assembled text with `[rag] merge_neighbours`, beside the text without it.

    BENCH_DATA=folder python bench/neighbours.py [--quick]

The sources of the collection kgpacks-faq are joined, each to one Markdown file, and cut by `chunk`. Measured
is how often the first 2,000 tokens of the assembled text contain the answer, and how many tokens the text has.
On multihop-rag-500 it is nDCG@10 over documents; a document has the rank of its best block.

Exits 1 if the answer is there less often than .993, if the text does not become shorter, or if nDCG@10 falls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ingestion import BUDGET, DEPTH, Listing, join_sources, score_ranking
from judged import Collection, read

from contextrouter import ContextRouter
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.ingest import ingest
from contextrouter.model import Document
from contextrouter.text import tokens

LEAST = 0.993
FULL = {"candidates": DEPTH, "general_retrieval_final_count": DEPTH}
MEASURED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("kgpacks-faq", "as it comes", {}),
    ("kgpacks-faq", f"{BUDGET:,} tokens full of chunks", {**FULL, "token_budget": BUDGET}),
    ("multihop-rag-500", "a hundred chunks", {**FULL, "token_budget": 0}),
)
"""Collection, what is set, and the keys of `[rag]`."""


class Answer(NamedTuple):
    """The text of a context, the documents of its blocks, and its length in tokens."""

    text: str
    blocks: list[Document]
    tokens: int


Answers = dict[str, Answer]
"""Question -> its answer."""


async def answers_of(
    collection: Collection, documents: Sequence[Document], path: Path, **rag: Any
) -> Answers:
    """Answer each judged question from a store of these documents."""
    store, embedder = Sqlite(path=str(path)), Static()
    await store.open()
    await embedder.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    await ingest(Listing(documents), store, [Chunk()], embedder, origin="c")
    rag = {"cache_enabled": False, "timeout_seconds": 60.0, **rag}
    async with ContextRouter(
        {"rag": rag}, providers={"store": store}, embedders={"default": embedder}
    ) as router:
        found = {}
        for question in collection.judged:
            context = await router.route(question.text, legs=["text", "vector"])
            documents = [envelope.document for envelope in context.envelopes]
            found[question.id] = Answer(context.text, documents, tokens.count(context.text))
        return found


def reach(answers: Answers, collection: Collection) -> dict[str, float]:
    """Question -> the tokens of the text up to the end of the text of a relevant document; none: infinite."""
    texts = {document.id: document.content for document in collection.documents}
    reached = {}
    for question, answer in answers.items():
        relevant = [texts[id] for id, grade in collection.grades[question].items() if grade > 0]
        ends = [answer.text.index(text) + len(text) for text in relevant if text in answer.text]
        reached[question] = float(tokens.count(answer.text[: min(ends)])) if ends else float("inf")
    return reached


def ndcg(answers: Answers, collection: Collection) -> float:
    """The mean nDCG@10 over documents."""
    ranked = {question: answer.blocks for question, answer in answers.items()}
    return float(np.mean(list(score_ranking(ranked, collection).values())))


def show(name: str, before: float, after: float) -> None:
    print(f"  {name:<40}{before:>12.4f} -> {after:.4f}")


def mean(answers: Answers, name: str) -> float:
    return float(
        np.mean([answer.tokens if name == "tokens" else len(answer.blocks) for answer in answers.values()])
    )


def compare(part: str, collection: Collection, apart: Answers, merged: Answers, *, full: bool) -> list[str]:
    """Print the figures, apart and merged; return what does not hold."""
    faults = []
    for name in ("tokens", "blocks"):
        show(f"{name} of the text", mean(apart, name), mean(merged, name))
    if not full and mean(merged, "tokens") >= mean(apart, "tokens"):
        faults.append(f"the texts of {part} did not become shorter")
    if part != "kgpacks-faq":
        before, after = ndcg(apart, collection), ndcg(merged, collection)
        show("nDCG@10", before, after)
        return [*faults, f"nDCG@10 of {part} fell"] if after < before else faults
    ends = [np.array(list(reach(answers, collection).values())) for answers in (apart, merged)]
    shares = [float((side <= BUDGET).mean()) for side in ends]
    both = np.isfinite(ends[0]) & np.isfinite(ends[1])
    show(f"answer in the first {BUDGET:,} tokens", *shares)
    show("tokens up to its end", *(float(side[both].mean()) for side in ends))
    if full and shares[1] < LEAST:
        faults.append(f"the answer is there in {shares[1]:.4f} of the texts, not in {LEAST}")
    return faults


async def main() -> int:
    parser = argparse.ArgumentParser(description="Merging of neighbours")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    if not os.environ.get("BENCH_DATA"):
        print("Name the folder of the collections: BENCH_DATA=FOLDER.")
        return 2
    data, faults = Path(os.environ["BENCH_DATA"]), []
    with tempfile.TemporaryDirectory() as name:
        for part, how, rag in MEASURED:
            collection = read(data / part)
            if quick:
                collection.questions = collection.questions[::10]
            documents = join_sources(collection) if part == "kgpacks-faq" else collection.documents
            path = Path(name) / f"{part}.db"
            sides = [
                await answers_of(collection, documents, path, merge_neighbours=merge, **rag)
                for merge in (False, True)
            ]
            print(f"{part}, {how}, {len(sides[0])} questions")
            faults += compare(part, collection, *sides, full="token_budget" in rag)
    print("; ".join(faults) or "the answer stays in the beginning of a shorter text")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
