"""Haystack: BM25 and embeddings of an in-memory document store for each source, fused by MultiRetriever."""

from __future__ import annotations

import asyncio
from typing import Any

from haystack import Document, component
from haystack.components.retrievers import (
    InMemoryBM25Retriever,
    InMemoryEmbeddingRetriever,
    MultiRetriever,
    TextEmbeddingRetriever,
)
from haystack.document_stores.in_memory import InMemoryDocumentStore
from task import DEPTH, HANGS, TOP, Ask, Embed, Sources


@component
class Static:
    """The embedder of all systems."""

    def __init__(self, embed: Embed) -> None:
        self.embed = embed

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": self.embed([text])[0]}


@component
class Faulty:
    """A source that raises, or that does not answer for a while."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        raise NotImplementedError

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        if self.fault == "raise":
            raise ConnectionError("no answer")
        await asyncio.sleep(HANGS)
        return {"documents": []}


# What a user writes: counted from here.
async def build(sources: Sources, embed: Embed, fault: str, option: str) -> Ask:
    """Fill the stores; return a function that asks."""
    retrievers: dict[str, Any] = {"faulty": Faulty(fault)} if fault else {}
    for name, rows in sources.items():
        texts = [f"{row.title}\n{row.text}" for row in rows]
        store = InMemoryDocumentStore(embedding_similarity_function="cosine")
        store.write_documents(
            [
                Document(id=row.id, content=text, embedding=vector)
                for row, text, vector in zip(rows, texts, embed(texts), strict=True)
            ]
        )
        retrievers[f"{name} words"] = InMemoryBM25Retriever(store, top_k=DEPTH)
        retrievers[f"{name} vectors"] = TextEmbeddingRetriever(
            retriever=InMemoryEmbeddingRetriever(store, top_k=DEPTH), text_embedder=Static(embed)
        )
    several = MultiRetriever(retrievers=retrievers, top_k=TOP, max_workers=len(retrievers))

    async def ask(question: str) -> list[str]:
        return [document.id for document in (await several.run_async(query=question))["documents"]]

    return ask
