"""The retriever gives what the router gives: nodes, scores, ids, citations, coverage and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode
from llama_index.core.tools import RetrieverTool
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.retrievers.contextrouter import ContextRouterRetriever, CoverageEvent, filters_of

from contextrouter import AllSourcesFailed, Connector, ContextRouter, Hit, Portal, Query, Scope, SourceError

NOTES = {
    "tides": {
        "title": "Tides",
        "content": "The tide turns twice a day.",
        "url": "https://sea.example.org/tides",
    },
    "ports": {
        "title": "Ports",
        "content": "A port waits for the tide.",
        "tenant": "acme",
        "parent": "harbours",
    },
    "ships": {"title": "Ships", "content": "Ships sail with the tide.", "metadata": {"topic": "ships"}},
}
TABLES = {
    "providers": {"notes": {"use": "memory", "documents": [{"id": id, **n} for id, n in NOTES.items()]}}
}
QUESTION = "When does the tide turn?"
EVENTS: list[CoverageEvent] = []


class Failing(Connector):
    """A source that cannot answer."""

    async def search(self, query: Query) -> Sequence[Hit]:
        raise SourceError("the lighthouse is dark")


class Keep(BaseEventHandler):
    """Keeps the coverage events."""

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, CoverageEvent):
            EVENTS.append(event)


get_dispatcher().add_event_handler(Keep())


@pytest.fixture
def portal() -> Iterator[Portal]:
    EVENTS.clear()
    with Portal(TABLES) as opened:
        yield opened


def test_nodes_are_the_documents_of_the_router(portal: Portal):
    context = portal.route(QUESTION)
    nodes = ContextRouterRetriever(portal).retrieve(QUESTION)
    assert [n.node_id for n in nodes] == [e.id for e in context.envelopes]
    assert [n.score for n in nodes] == [e.normalized for e in context.envelopes]
    assert [n.metadata["number"] for n in nodes] == [1, 2, 3]
    first = nodes[0].node
    assert (first.metadata["id"], first.metadata["source"]) == ("tides", "notes")
    assert first.metadata["url"] == "https://sea.example.org/tides"
    assert first.get_content(MetadataMode.LLM) == (
        "url: https://sea.example.org/tides\ntitle: Tides\nnumber: 1\n\nThe tide turns twice a day."
    )
    assert {n.metadata["id"]: n.node.ref_doc_id for n in nodes}["ports"] == "harbours"
    assert json.loads(json.dumps(first.metadata)) == first.metadata


async def test_asynchronous_calls_give_the_same_also_in_another_event_loop(portal: Portal):
    retriever = ContextRouterRetriever(portal)
    expected = [node.node_id for node in retriever.retrieve(QUESTION)]
    assert [node.node_id for node in await retriever.aretrieve(QUESTION)] == expected
    elsewhere = await asyncio.to_thread(lambda: asyncio.run(retriever.aretrieve(QUESTION)))
    assert [node.node_id for node in elsewhere] == expected


def test_a_query_engine_answers_from_its_nodes(portal: Portal):
    retriever = ContextRouterRetriever(portal, similarity_top_k=2)
    response = RetrieverQueryEngine.from_args(retriever, llm=MockLLM(max_tokens=8)).query(QUESTION)
    assert response.source_nodes[0].metadata["id"] == "tides"
    assert len(response.source_nodes) == 2


def test_scope_is_an_argument_of_the_constructor_alone(portal: Portal):
    retriever = ContextRouterRetriever(portal, scope=Scope(tenant="acme"))
    assert [node.metadata["id"] for node in retriever.retrieve("tide")] == ["ports"]
    schema = RetrieverTool.from_defaults(retriever, description="Search.").metadata.get_parameters_dict()
    assert list(schema["properties"]) == ["input"]


def filters(*each: MetadataFilter | MetadataFilters, condition: str = "and") -> MetadataFilters:
    return MetadataFilters(filters=list(each), condition=FilterCondition(condition))


def equal(key: str, value: Any, operator: str = "==") -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=FilterOperator(operator))


def test_filters_are_translated(portal: Portal):
    nested = filters(equal("topic", ["ships", "ports"], "in"), filters(equal("kind", "document")))
    assert filters_of(nested) == {"topic": ["ships", "ports"], "kind": "document"}
    assert filters_of(filters(equal("n", [1, 2], "in"), equal("n", 2))) == {"n": [2]}
    assert filters_of(filters(equal("n", 1), condition="or")) == {"n": 1}
    assert filters_of(None) == {}
    nodes = ContextRouterRetriever(portal, filters=nested).retrieve("tide")
    assert [node.metadata["id"] for node in nodes] == ["ships"]


REFUSED = [each for each in FilterOperator if each not in (FilterOperator.EQ, FilterOperator.IN)]


@pytest.mark.parametrize("operator", REFUSED)
def test_other_operators_are_refused_by_name(operator: FilterOperator):
    with pytest.raises(ValueError, match=f"'{operator.value}', of the key 'year'"):
        filters_of(filters(MetadataFilter(key="year", value=1, operator=operator)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (filters(equal("a", 1), equal("b", 1), condition="or"), "'or'"),
        (filters(equal("a", 1), condition="not"), "'not'"),
        (filters(equal("a", None)), "no value"),
        (filters(equal("a", "x", "in")), "and 'in' a"),
        (filters(equal("a", ["x"])), "and 'in' a"),
    ],
)
def test_what_a_router_cannot_filter_is_refused(given: MetadataFilters, words: str):
    with pytest.raises(ValueError, match=words):
        ContextRouterRetriever(TABLES, filters=given)


def test_a_number_of_nodes_out_of_range_is_refused():
    with pytest.raises(ValueError, match="1 to 1000"):
        ContextRouterRetriever(TABLES, similarity_top_k=0)


def test_a_failing_source_gives_the_nodes_of_the_others_and_says_degraded():
    EVENTS.clear()
    with Portal(lambda: ContextRouter(TABLES, connectors={"light": Failing()})) as portal:
        nodes = ContextRouterRetriever(portal).retrieve(QUESTION)
        asyncio.run(ContextRouterRetriever(portal).aretrieve(QUESTION))
    assert [node.metadata["degraded"] for node in nodes] == [True, True, True]
    assert [event.degraded for event in EVENTS] == [True, True]
    assert ("light", "error") in {(report["source"], report["status"]) for report in EVENTS[0].coverage}


def test_where_every_source_failed_the_error_is_raised():
    with Portal(lambda: ContextRouter(connectors={"light": Failing()})) as portal:
        with pytest.raises(AllSourcesFailed, match="the lighthouse is dark"):
            ContextRouterRetriever(portal).retrieve("tide")
        with pytest.raises(AllSourcesFailed, match="the lighthouse is dark"):
            asyncio.run(ContextRouterRetriever(portal).aretrieve("tide"))
