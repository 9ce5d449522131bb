"""contextrouter in Haystack: a retriever that asks a router, and a source that asks a Haystack retriever."""

from haystack_integrations.components.retrievers.contextrouter.filters import filters_of
from haystack_integrations.components.retrievers.contextrouter.retriever import ContextRouterRetriever
from haystack_integrations.components.retrievers.contextrouter.source import FromHaystack

__all__ = ["ContextRouterRetriever", "FromHaystack", "filters_of"]
