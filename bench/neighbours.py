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
from typing import Any

import numpy as np
from ingestion import BUDGET, DEPTH, Listing, join_sources, score_ranking
from judged import Collection, read

from contextrouter import Context, ContextRouter
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.ingest import ingest
from contextrouter.model import Document
from contextrouter.text import tokens

LEAST = 0.993
RAG: dict[str, dict[str, Any]] = {
    "kgpacks-faq": {"candidates": DEPTH, "general_retrieval_final_count": DEPTH, "token_budget": BUDGET},
    "multihop-rag-500": {"candidates": DEPTH, "general_retrieval_final_count": DEPTH, "token_budget": 0},
}
"""The settings of `[rag]`: so many chunks that the budget is full; and so many that ten documents are among them."""
Contexts = dict[str, Context]
"""Question -> its context."""


async def contexts(collection: Collection, documents: Sequence[Document], path: Path, **rag: Any) -> Contexts:
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
        return {
            question.id: await router.route(question.text, legs=["text", "vector"])
            for question in collection.judged
        }


def answered(answers: Contexts, collection: Collection) -> float:
    """The share of questions whose first 2,000 tokens of text contain the text of a relevant document."""
    texts = {document.id: document.content for document in collection.documents}
    values = []
    for question, context in answers.items():
        beginning = tokens.truncate(context.text, BUDGET)
        relevant = [texts[id] for id, grade in collection.grades[question].items() if grade > 0]
        values.append(any(text in beginning for text in relevant))
    return float(np.mean(values))


def length(answers: Contexts) -> float:
    """The mean number of tokens of the text."""
    return float(np.mean([tokens.count(context.text) for context in answers.values()]))


def blocks(answers: Contexts) -> float:
    """The mean number of blocks."""
    return float(np.mean([len(context.envelopes) for context in answers.values()]))


def ndcg(answers: Contexts, collection: Collection) -> float:
    """The mean nDCG@10 over documents."""
    ranked = {q: [envelope.document for envelope in c.envelopes] for q, c in answers.items()}
    return float(np.mean(list(score_ranking(ranked, collection).values())))


async def main() -> int:
    parser = argparse.ArgumentParser(description="Merging of neighbours")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    if not os.environ.get("BENCH_DATA"):
        print("Name the folder of the collections: BENCH_DATA=FOLDER.")
        return 2
    data, faults = Path(os.environ["BENCH_DATA"]), []
    with tempfile.TemporaryDirectory() as name:
        for part in ("kgpacks-faq", "multihop-rag-500"):
            collection = read(data / part)
            if quick:
                collection.questions = collection.questions[::10]
            documents = join_sources(collection) if part == "kgpacks-faq" else collection.documents
            path = Path(name) / f"{part}.db"
            apart, merged = [
                await contexts(collection, documents, path, merge_neighbours=merge, **RAG[part])
                for merge in (False, True)
            ]
            score = answered if part == "kgpacks-faq" else ndcg
            what = f"answer in {BUDGET:,} tokens" if part == "kgpacks-faq" else "nDCG@10"
            before, after = score(apart, collection), score(merged, collection)
            print(
                f"{part:<18}{len(merged):>6} questions   {what} {before:.4f} -> {after:.4f}   tokens"
                f" {length(apart):.0f} -> {length(merged):.0f}   blocks {blocks(apart):.2f} ->"
                f" {blocks(merged):.2f}"
            )
            if part == "kgpacks-faq" and after < LEAST:
                faults.append(f"the answer is there in {after:.4f} of the texts, not in {LEAST}")
            if length(merged) >= length(apart):
                faults.append(f"the texts of {part} did not become shorter")
            if part != "kgpacks-faq" and after < before:
                faults.append(f"nDCG@10 of {part} fell")
    print("; ".join(faults) or "the answer stays in the beginning of a shorter text")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
