"""contextrouter in LlamaIndex: a retriever that asks a router, and a source that asks a retriever."""

from llama_index.retrievers.contextrouter.filters import filters_of
from llama_index.retrievers.contextrouter.retriever import ContextRouterRetriever, CoverageEvent
from llama_index.retrievers.contextrouter.source import FromLlamaIndex

__all__ = ["ContextRouterRetriever", "CoverageEvent", "FromLlamaIndex", "filters_of"]
