"""Haystack's MultiRetriever with reciprocal rank fusion.

For several queries inside MultiQueryTextRetriever, which does not fuse them.
"""

from __future__ import annotations

from typing import Any

from haystack import Document, component
from haystack.components.retrievers import MultiQueryTextRetriever, MultiRetriever
from router import TOP, Cell, Contestant, Lists


@component
class Laid:
    """Answers at once with what was laid ready."""

    def __init__(self) -> None:
        self.found: dict[str, list[Any]] = {}

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, Any]:
        return {"documents": self.found[query]}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str) -> dict[str, Any]:
        return {"documents": self.found[query]}


class Peer(Contestant):
    """Haystack, as a contestant."""

    name = "haystack"

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.retrievers = [Laid() for _ in range(self.sources)]
        self.one = MultiRetriever(
            retrievers={f"s{s}": retriever for s, retriever in enumerate(self.retrievers)},
            top_k=TOP if self.queries == 1 else None,
            max_workers=self.sources,
            join_mode="reciprocal_rank_fusion",
        )
        self.many = (
            MultiQueryTextRetriever(retriever=self.one, max_workers=self.queries)
            if self.queries > 1
            else None
        )

    def ready(self, lists: Lists) -> None:
        for (q, s), hits in lists.items():
            self.retrievers[s].found[self.texts[q]] = [
                Document(
                    content=d.content,
                    meta={"url": d.url, "title": d.title, "snippet": d.snippet},
                    score=hit.score,
                )
                for hit in hits
                for d in (hit.document,)
            ]

    async def answer(self) -> object:
        if self.many is not None:
            return (await self.many.run_async(queries=self.texts))["documents"][:TOP]
        return (await self.one.run_async(query=self.texts[0]))["documents"]

    def urls(self, answer: object) -> list[str]:
        return [document.meta["url"] for document in answer]  # type: ignore[attr-defined]  # each system has an answer of its own type
