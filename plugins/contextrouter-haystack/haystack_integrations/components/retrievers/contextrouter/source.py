"""The way in: a retriever of Haystack as a source of a router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from haystack import Document, component
from haystack.core.component import Component

from contextrouter import Hit
from contextrouter.adapting import RetrieverSource


class FromHaystack(RetrieverSource):
    """Asks a retriever of Haystack: a component with the input `query` and the output `documents`.

    It is asked for as many documents as the router wants, where it has an input `top_k`. For vectors, wrap an
    embedding retriever and its embedder in a TextEmbeddingRetriever. Scores count where `score_range` says
    between what they are.
    """

    deviations: ClassVar[dict[str, str]] = {
        "module_imports_nothing_heavy": "its distribution is for programs that have Haystack imported"
    }

    @classmethod
    def example(cls) -> Self:
        return cls(_Notes())

    def check(self, retriever: Any) -> None:
        if not isinstance(retriever, Component) or not _has_input(retriever, "query"):
            raise TypeError(
                f"{type(self).__name__} asks a component of Haystack with the input 'query', not a"
                f" {type(retriever).__name__}."
            )
        if self.asynchronous and not hasattr(retriever, "run_async"):
            raise TypeError(f"{type(retriever).__name__} has no run_async. Leave asynchronous out.")

    def prepare(self) -> None:
        super().prepare()
        if hasattr(self.retriever, "warm_up"):
            self.retriever.warm_up()

    def retrieve(self, text: str, limit: int) -> Sequence[Document]:
        documents: Sequence[Document] = self.retriever.run(**self._arguments(text, limit))["documents"]
        return documents

    async def aretrieve(self, text: str, limit: int) -> Sequence[Document]:
        answer = await self.retriever.run_async(**self._arguments(text, limit))
        documents: Sequence[Document] = answer["documents"]
        return documents

    def to_hit(self, item: Any) -> Hit:
        return self.make_hit(item.content or "", item.meta, id=item.id, score=item.score)

    def _arguments(self, text: str, limit: int) -> dict[str, Any]:
        return {"query": text, "top_k": limit} if _has_input(self.retriever, "top_k") else {"query": text}


def _has_input(retriever: Any, name: str) -> bool:
    # The keywords of `run` do not say it: a SuperComponent takes all, and has the inputs of its pipeline.
    return name in retriever.__haystack_input__


@component
class _Notes:
    """Two notes, for the conformance kit."""

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        notes = {"Tides": "The tide turns twice a day.", "The moon": "The moon pulls the water."}
        return {
            "documents": [
                Document(id=title, content=text, meta={"title": title}) for title, text in notes.items()
            ]
        }
