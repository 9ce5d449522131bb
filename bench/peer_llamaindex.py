"""LlamaIndex's QueryFusionRetriever in its mode `reciprocal_rerank`; its queries are laid ready instead of
asked of a model.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from router import TOP, Cell, Contestant, Lists


class Laid(BaseRetriever):
    """Answers at once with what was laid ready."""

    def __init__(self) -> None:
        self.found: dict[str, list[Any]] = {}
        super().__init__()

    def _retrieve(self, query_bundle: Any) -> list[Any]:
        return self.found[query_bundle.query_str]

    async def _aretrieve(self, query_bundle: Any) -> list[Any]:
        return self.found[query_bundle.query_str]


class Fusion(QueryFusionRetriever):
    """Asks what it is told to instead of a model."""

    def _get_queries(self, original_query: str) -> list[Any]:
        return [QueryBundle(f"query {q}") for q in range(1, self.num_queries)]

    async def _aget_queries(self, original_query: str) -> list[Any]:
        return self._get_queries(original_query)


class Peer(Contestant):
    """LlamaIndex, as a contestant."""

    name = "llamaindex"

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.retrievers = [Laid() for _ in range(self.sources)]
        self.fusion = Fusion(
            self.retrievers,
            llm=MockLLM(),
            mode="reciprocal_rerank",
            similarity_top_k=TOP,
            num_queries=self.queries,
        )

    def ready(self, lists: Lists) -> None:
        for (q, s), hits in lists.items():
            self.retrievers[s].found[self.texts[q]] = [
                NodeWithScore(
                    node=TextNode(
                        text=d.content,
                        id_=d.id,
                        metadata={"url": d.url, "title": d.title, "snippet": d.snippet},
                    ),
                    score=hit.score,
                )
                for hit in hits
                for d in (hit.document,)
            ]

    async def answer(self) -> object:
        return await self.fusion.aretrieve("query 0")

    def urls(self, answer: object) -> list[str]:
        return [found.node.metadata["url"] for found in answer]  # type: ignore[attr-defined]  # each system has an answer of its own type
