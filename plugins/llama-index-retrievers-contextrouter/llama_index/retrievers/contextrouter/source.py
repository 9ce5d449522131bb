"""The way in: a retriever of LlamaIndex as a source of a router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from contextrouter import Hit
from contextrouter.adapting import RetrieverSource


class FromLlamaIndex(RetrieverSource):
    """Asks a retriever of LlamaIndex, in a thread: its default `aretrieve` blocks the event loop.

    It gives as many nodes as it was made for. Its scores count if `score_range` says between what they are.
    """

    deviations: ClassVar[dict[str, str]] = {
        "module_imports_nothing_heavy": "its distribution is for programs that have LlamaIndex imported"
    }

    @classmethod
    def example(cls) -> Self:
        return cls(_Notes())

    def check(self, retriever: Any) -> None:
        if not isinstance(retriever, BaseRetriever):
            raise TypeError(
                f"{type(self).__name__} asks a retriever of LlamaIndex, not a {type(retriever).__name__}. An"
                " index has one: index.as_retriever()."
            )

    def retrieve(self, text: str, limit: int) -> Sequence[NodeWithScore]:
        nodes: Sequence[NodeWithScore] = self.retriever.retrieve(text)
        return nodes

    async def aretrieve(self, text: str, limit: int) -> Sequence[NodeWithScore]:
        nodes: Sequence[NodeWithScore] = await self.retriever.aretrieve(text)
        return nodes

    def to_hit(self, item: Any) -> Hit:
        node = item.node
        hit = self.make_hit(
            node.get_content(metadata_mode=MetadataMode.NONE),
            node.metadata,
            id=node.node_id,
            score=item.score,
        )
        return hit.replace(document=hit.document.replace(parent=node.ref_doc_id))


class _Notes(BaseRetriever):
    """Two notes, for the conformance kit."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        notes = {"Tides": "The tide turns twice a day.", "The moon": "The moon pulls the water."}
        return [
            NodeWithScore(node=TextNode(id_=title, text=text, metadata={"title": title}))
            for title, text in notes.items()
        ]
