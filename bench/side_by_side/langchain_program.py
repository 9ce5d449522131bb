"""LangChain: BM25 and an in-memory vector store for each source, fused by EnsembleRetriever."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from task import DEPTH, HANGS, TOP, Ask, Embed, Sources


class Static(Embeddings):
    """The embedder of all systems."""

    def __init__(self, embed: Embed) -> None:
        self.embed = embed

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.embed([text])[0]


class Faulty(BaseRetriever):
    """A source that raises, or that does not answer for a while."""

    fault: str

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        raise NotImplementedError

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if self.fault == "raise":
            raise ConnectionError("no answer")
        await asyncio.sleep(HANGS)
        return []


# What a user writes: counted from here.
async def build(sources: Sources, embed: Embed, fault: str, option: str) -> Ask:
    """Fill the stores; return a function that asks."""
    retrievers: list[BaseRetriever] = [Faulty(fault=fault)] if fault else []
    for rows in sources.values():
        documents = [Document(f"{row.title}\n{row.text}", metadata={"id": row.id}) for row in rows]
        store = InMemoryVectorStore(Static(embed))
        store.add_documents(documents)
        retrievers.append(BM25Retriever.from_documents(documents, k=DEPTH))
        retrievers.append(store.as_retriever(search_kwargs={"k": DEPTH}))
    ensemble = EnsembleRetriever(retrievers=retrievers)

    async def ask(question: str) -> list[str]:
        documents = await ensemble.ainvoke(question)
        return [document.metadata["id"] for document in documents[:TOP]]

    return ask
