"""The retriever gives what the router gives: documents, scores, ids, citations, coverage and errors."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from langchain_contextrouter import COVERAGE_EVENT, ContextRouterRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool

from contextrouter import (
    AllSourcesFailed,
    Connector,
    ContextRouter,
    Hit,
    Portal,
    Query,
    RequestRefused,
    Scope,
    SourceError,
)

NOTES = {
    "tides": {
        "title": "Tides",
        "content": "The tide turns twice a day.",
        "url": "https://sea.example.org/tides",
    },
    "ports": {"title": "Ports", "content": "A port waits for the tide.", "tenant": "acme"},
    "ships": {"title": "Ships", "content": "Ships sail with the tide.", "metadata": {"topic": "ships"}},
}
TABLES = {
    "providers": {"notes": {"use": "memory", "documents": [{"id": id, **n} for id, n in NOTES.items()]}}
}
QUESTION = "When does the tide turn?"


class Failing(Connector):
    """A source that cannot answer."""

    async def search(self, query: Query) -> Sequence[Hit]:
        raise SourceError("the lighthouse is dark")


class Slow(Connector):
    """A source that waits until it is cancelled."""

    def __init__(self) -> None:
        self.asked, self.cancelled = threading.Event(), threading.Event()

    async def search(self, query: Query) -> Sequence[Hit]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return []


class Events(BaseCallbackHandler):
    """Keeps the custom events of a chain."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Any]] = []

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.kept.append((name, data))


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal(TABLES) as opened:
        yield opened


def test_a_copy_of_a_retriever_asks_the_same_router():
    retriever = ContextRouterRetriever(router=TABLES, k=2)
    for copied in (copy.deepcopy(retriever), retriever.model_copy(deep=True)):
        assert copied.invoke(QUESTION) == retriever.invoke(QUESTION)
        assert copied.portal is retriever.portal
    retriever.portal.close()


def test_documents_are_those_of_the_router(portal: Portal):
    context = portal.route(QUESTION)
    documents = ContextRouterRetriever(router=portal).invoke(QUESTION)
    assert [d.id for d in documents] == [e.id for e in context.envelopes]
    assert [d.page_content for d in documents] == [e.document.content for e in context.envelopes]
    assert [d.metadata["number"] for d in documents] == [1, 2, 3]
    assert [d.metadata["score"] for d in documents] == [e.normalized for e in context.envelopes]
    first = documents[0].metadata
    assert (first["id"], first["source"], first["title"]) == ("tides", "notes", "Tides")
    assert first["url"] == "https://sea.example.org/tides"
    assert first["provenance"][0]["rank"] == 1
    assert first["degraded"] is False


async def test_asynchronous_calls_give_the_same_also_in_another_event_loop(portal: Portal):
    retriever = ContextRouterRetriever(router=portal)
    expected = retriever.invoke(QUESTION)
    assert await retriever.ainvoke(QUESTION) == expected
    assert await asyncio.to_thread(lambda: asyncio.run(retriever.ainvoke(QUESTION))) == expected


def test_metadata_is_json_and_none_of_it_imitates_ours():
    document = {"id": "a", "content": "The tide.", "metadata": {"source": "forged", "when": 3}}
    with Portal({"providers": {"notes": {"use": "memory", "documents": [document]}}}) as portal:
        (found,) = ContextRouterRetriever(router=portal).invoke("tide")
    assert found.metadata["source"] == "notes"
    assert found.metadata["metadata"] == {"source": "forged", "when": 3}
    assert json.loads(json.dumps(found.metadata)) == found.metadata


def test_numbers_of_numpy_become_plain_numbers():
    class _Numpy(Connector):
        async def search(self, query: Query) -> Sequence[Hit]:
            from contextrouter import Document as Found

            found = Found(id="a", content="The tide.", metadata={"depth": np.float32(0.5)})
            return [Hit(document=found, score=0.25)]

    with Portal(lambda: ContextRouter(connectors={"numpy": _Numpy()})) as portal:
        (found,) = ContextRouterRetriever(router=portal).invoke("tide")
    assert type(found.metadata["metadata"]["depth"]) is float
    assert found.metadata["metadata"]["depth"] == 0.5


def test_scope_comes_from_the_constructor_or_the_call(portal: Portal):
    acme = Scope(tenant="acme")
    assert [d.metadata["id"] for d in ContextRouterRetriever(router=portal, scope=acme).invoke("tide")] == [
        "ports"
    ]
    retriever = ContextRouterRetriever(router=portal)
    assert [d.metadata["id"] for d in retriever.invoke("tide", scope=acme)] == ["ports"]
    assert [d.metadata["id"] for d in retriever.bind(scope=acme).invoke("tide")] == ["ports"]


def test_a_tool_made_of_it_offers_the_question_alone(portal: Portal):
    tool = create_retriever_tool(ContextRouterRetriever(router=portal), "search", "Search the notes.")
    assert list(tool.args) == ["query"]


def test_filters_of_the_constructor_and_of_the_call_both_hold(portal: Portal):
    retriever = ContextRouterRetriever(router=portal, filters={"topic": ["ships", "ports"]})
    assert [d.metadata["id"] for d in retriever.invoke("tide")] == ["ships"]
    assert retriever.invoke("tide", filters={"topic": "tides"}) == []


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"kk": 3}, TypeError, "'kk'"),
        ({"k": 0}, ValueError, "1 to 1000"),
        ({"k": 1001}, ValueError, "1 to 1000"),
        ({"k": "3"}, ValueError, "1 to 1000"),
        ({"deadline": 0.0}, RequestRefused, "deadline"),
        ({"scope": {"tenant": "acme"}}, RequestRefused, "scope"),
    ],
)
def test_wrong_arguments_are_refused(
    portal: Portal, arguments: dict[str, Any], error: type[Exception], words: str
):
    with pytest.raises(error, match=words):
        ContextRouterRetriever(router=portal).invoke("tide", **arguments)


def test_a_router_that_is_made_already_is_refused():
    with pytest.raises(TypeError, match="Portal"):
        ContextRouterRetriever(router=ContextRouter(TABLES))


def test_a_failing_source_in_a_chain_gives_the_documents_of_the_others_and_says_degraded():
    events = Events()
    with Portal(lambda: ContextRouter(TABLES, connectors={"light": Failing()})) as portal:
        chain = ContextRouterRetriever(router=portal) | RunnableLambda(_titles_and_degraded)
        told = chain.invoke(QUESTION, {"callbacks": [events]})
        expected = asyncio.run(chain.ainvoke(QUESTION, {"callbacks": [events]}))
    assert told == expected == {("Tides", True), ("Ports", True), ("Ships", True)}
    assert [name for name, _ in events.kept] == [COVERAGE_EVENT, COVERAGE_EVENT]
    for _, data in events.kept:
        assert data["degraded"] is True
        assert ("light", "error") in {(r["source"], r["status"]) for r in data["coverage"]}
        assert "the lighthouse is dark" in json.dumps(data)


def _titles_and_degraded(documents: list[Document]) -> set[tuple[str, bool]]:
    return {(document.metadata["title"], document.metadata["degraded"]) for document in documents}


def test_where_every_source_failed_the_error_is_raised():
    with Portal(lambda: ContextRouter(connectors={"light": Failing()})) as portal:
        retriever = ContextRouterRetriever(router=portal)
        with pytest.raises(AllSourcesFailed, match="the lighthouse is dark"):
            retriever.invoke("tide")
        with pytest.raises(AllSourcesFailed, match="the lighthouse is dark"):
            asyncio.run(retriever.ainvoke("tide"))


def test_the_deadline_ends_a_source_that_hangs():
    slow = Slow()
    with Portal(lambda: ContextRouter(TABLES, connectors={"slow": slow})) as portal:
        documents = ContextRouterRetriever(router=portal, deadline=0.3).invoke(QUESTION)
    assert len(documents) == 3
    assert documents[0].metadata["degraded"] is True
    assert slow.cancelled.is_set()


async def test_who_cancels_the_call_cancels_the_sources():
    slow = Slow()
    with Portal(lambda: ContextRouter({"rag": {"timeout_seconds": 60}}, connectors={"slow": slow})) as portal:
        call = asyncio.create_task(ContextRouterRetriever(router=portal).ainvoke("tide"))
        assert await asyncio.to_thread(slow.asked.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(slow.cancelled.wait, 30)


def test_secrets_of_the_settings_are_not_shown():
    generator = {"use": "openai", "model": "m", "api_key": "sk-very-secret"}
    retriever = ContextRouterRetriever(router={**TABLES, "generators": {"g": generator}})
    assert "sk-very-secret" not in repr(retriever) + str(retriever.model_dump())
