"""LangChain's EnsembleRetriever, its weighted reciprocal rank fusion, over one retriever per query and
source.
"""

from __future__ import annotations

from typing import Any

from langchain_classic.retrievers import EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from router import TOP, Cell, Contestant, Lists


class Laid(BaseRetriever):
    """Answers at once with what was laid ready."""

    found: Any = ()

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
        return self.found

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
        return self.found


class Peer(Contestant):
    """LangChain, as a contestant."""

    name = "langchain"

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.retrievers = {(q, s): Laid() for q in range(self.queries) for s in range(self.sources)}
        self.ensemble = EnsembleRetriever(retrievers=list(self.retrievers.values()))

    def ready(self, lists: Lists) -> None:
        for key, hits in lists.items():
            self.retrievers[key].found = [
                Document(
                    page_content=d.content,
                    metadata={"url": d.url, "title": d.title, "snippet": d.snippet, "score": hit.score},
                )
                for hit in hits
                for d in (hit.document,)
            ]

    async def answer(self) -> object:
        return (await self.ensemble.ainvoke("query 0"))[:TOP]

    def urls(self, answer: object) -> list[str]:
        return [document.metadata["url"] for document in answer]  # type: ignore[attr-defined]  # each system has an answer of its own type
