"""contextrouter in LangChain: a retriever that asks a router, and a source that asks a retriever."""

from langchain_contextrouter.retriever import COVERAGE_EVENT, ContextRouterRetriever
from langchain_contextrouter.source import FromLangChain

__all__ = ["COVERAGE_EVENT", "ContextRouterRetriever", "FromLangChain"]
