"""The way in: a retriever or a vector store of LangChain as a source of a router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from contextrouter import Hit
from contextrouter.adapting import RetrieverSource

Scored = tuple[Document, float | None]


class FromLangChain(RetrieverSource):
    """Asks a retriever or a vector store of LangChain.

    A vector store is asked for as many documents as the router wants, and gives its relevance scores, from 0
    to 1, where it has them. A retriever gives as many as it was made for, and no scores.
    """

    deviations: ClassVar[dict[str, str]] = {
        "module_imports_nothing_heavy": "its distribution is for programs that have LangChain imported"
    }

    @classmethod
    def example(cls) -> Self:
        return cls(_Notes())

    def check(self, retriever: Any) -> None:
        if not isinstance(retriever, BaseRetriever | VectorStore):
            raise TypeError(
                f"{type(self).__name__} asks a retriever or a vector store of LangChain, not a"
                f" {type(retriever).__name__}."
            )

    def prepare(self) -> None:
        super().prepare()
        if isinstance(self.retriever, VectorStore) and self.score_range is None:
            self.score_range = (0.0, 1.0)

    def retrieve(self, text: str, limit: int) -> Sequence[Scored]:
        if isinstance(self.retriever, VectorStore):
            try:
                return self.retriever.similarity_search_with_relevance_scores(text, k=limit)
            except NotImplementedError:  # it has no scores that could be compared
                return _unscored(self.retriever.similarity_search(text, k=limit))
        return _unscored(self.retriever.invoke(text))

    async def aretrieve(self, text: str, limit: int) -> Sequence[Scored]:
        if isinstance(self.retriever, VectorStore):
            try:
                return await self.retriever.asimilarity_search_with_relevance_scores(text, k=limit)
            except NotImplementedError:
                return _unscored(await self.retriever.asimilarity_search(text, k=limit))
        return _unscored(await self.retriever.ainvoke(text))

    def to_hit(self, item: Any) -> Hit:
        document, score = item
        metadata = dict(document.metadata)
        address = metadata.get("source")
        if "url" not in metadata and isinstance(address, str) and address.startswith(("http://", "https://")):
            metadata["url"] = address
        if isinstance(page := metadata.get("page"), int):
            metadata["page"] = page + 1  # its loaders count from 0, citations from 1
        return self.make_hit(document.page_content, metadata, id=document.id, score=score)


def _unscored(documents: Sequence[Document]) -> list[Scored]:
    return [(document, None) for document in documents]


class _Notes(BaseRetriever):
    """Two notes, for the conformance kit."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            Document(id="tides", page_content="The tide turns twice a day.", metadata={"title": "Tides"}),
            Document(id="moon", page_content="The moon pulls the water.", metadata={"title": "The moon"}),
        ]
