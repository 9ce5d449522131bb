"""LangChain's own tests of retrievers, unchanged."""

from __future__ import annotations

from typing import Any

from langchain_contextrouter import ContextRouterRetriever
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

HARBOURS = [
    {
        "id": f"n{number}",
        "title": f"Note {number}",
        "content": f"The tide turns at {number} in harbour {number}.",
    }
    for number in range(1, 8)
]


class TestContextRouterRetriever(RetrieversIntegrationTests):
    """The standard tests of retrievers."""

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return ContextRouterRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"router": {"providers": {"memory": {"documents": HARBOURS}}}, "k": 5}

    @property
    def retriever_query_example(self) -> str:
        return "When does the tide turn?"
