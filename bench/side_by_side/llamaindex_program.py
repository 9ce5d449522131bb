"""LlamaIndex: BM25 and a vector index for each source, fused by QueryFusionRetriever in the mode `option`."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.retrievers.bm25 import BM25Retriever
from task import DEPTH, HANGS, TOP, Ask, Embed, Sources


class Static(BaseEmbedding):
    """The embedder of all systems."""

    embed: Any

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.embed([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.embed([query])[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self.embed([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self.embed(texts)


class Faulty(BaseRetriever):
    """A source that raises, or that does not answer for a while."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        super().__init__()

    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        raise NotImplementedError

    async def _aretrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        if self.fault == "raise":
            raise ConnectionError("no answer")
        await asyncio.sleep(HANGS)
        return []


# What a user writes: counted from here.
async def build(sources: Sources, embed: Embed, fault: str, option: str) -> Ask:
    """Fill the indexes; return a function that asks."""
    retrievers: list[BaseRetriever] = [Faulty(fault)] if fault else []
    for rows in sources.values():
        nodes = [TextNode(id_=row.id, text=f"{row.title}\n{row.text}") for row in rows]
        index = VectorStoreIndex(nodes, embed_model=Static(embed=embed, embed_batch_size=1000))
        retrievers.append(index.as_retriever(similarity_top_k=DEPTH))
        retrievers.append(BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=DEPTH))
    fusion = QueryFusionRetriever(
        retrievers, llm=MockLLM(), mode=option, num_queries=1, similarity_top_k=TOP, use_async=True
    )

    async def ask(question: str) -> list[str]:
        return [found.node_id for found in await fusion.aretrieve(question)]

    return ask
