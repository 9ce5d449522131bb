"""The LlamaIndex retriever: asks a router, and returns nodes with their scores and citations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # it is public, and its package declares no exports
from llama_index.core.instrumentation.events.base import BaseEvent  # type: ignore[attr-defined]  # it is public, and its package declares no exports
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import MetadataFilters
from llama_index.retrievers.contextrouter.filters import filters_of

from contextrouter import Context, Portal, Scope
from contextrouter.adapting import RequestFields, RouterLike, coverage_of, metadata_of, portal_of, text_of

dispatcher = get_dispatcher(__name__)
FOR_MODELS = ("title", "url", "number")
"""The metadata that a language model reads beside the text; the rest is for programs."""


class CoverageEvent(BaseEvent):
    """How each source answered one question: `outcome`, `degraded`, and a report for each leg of a source."""

    outcome: str
    degraded: bool
    coverage: list[dict[str, Any]]

    @classmethod
    def class_name(cls) -> str:
        return "ContextRouterCoverageEvent"


class ContextRouterRetriever(BaseRetriever):
    """Retrieves from all sources of a router, within one deadline.

    `router` is a settings file, tables, Settings, a function that returns a router, or a Portal, which many
    retrievers can share: make one for each scope. `similarity_top_k` is the most nodes, 1 to 1000. `filters`
    have `==`, `in` and AND; another one raises ValueError. Raises AllSourcesFailed where no source answered;
    where some did not, `metadata["degraded"]` is true, and a CoverageEvent says which.
    """

    def __init__(
        self,
        router: RouterLike,
        *,
        similarity_top_k: int | None = None,
        scope: Scope | None = None,
        deadline: float | None = None,
        sources: Sequence[str] | None = None,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        if similarity_top_k is not None and not 1 <= similarity_top_k <= 1000:
            raise ValueError(f"similarity_top_k {similarity_top_k!r} is no number of nodes. Give 1 to 1000.")
        self._fields: RequestFields = {
            "limit": similarity_top_k,
            "scope": scope,
            "deadline": deadline,
            "sources": sources,
            "filters": filters_of(filters) or None,
        }
        self._portal = portal_of(router)
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    @property
    def portal(self) -> Portal:
        """The portal that is asked. `portal.route` returns the whole Context; `portal.close()` ends it."""
        return self._portal

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _report(self._portal.route(query_bundle.query_str, **self._fields))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _report(await self._portal.aroute(query_bundle.query_str, **self._fields))


def _report(context: Context) -> list[NodeWithScore]:
    dispatcher.event(CoverageEvent(**coverage_of(context)))
    return nodes_of(context)


def nodes_of(context: Context) -> list[NodeWithScore]:
    """Return the documents of a context, best first: node `n` is citation `[n]` of `context.text`."""
    nodes = []
    for index, envelope in enumerate(context.envelopes):
        metadata = metadata_of(context, index)
        node = TextNode(
            id_=envelope.id,
            text=text_of(envelope),
            metadata=metadata,
            excluded_llm_metadata_keys=[key for key in metadata if key not in FOR_MODELS],
            excluded_embed_metadata_keys=list(metadata),
        )
        if envelope.document.parent:
            node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=envelope.document.parent)
        nodes.append(NodeWithScore(node=node, score=envelope.normalized))
    return nodes
