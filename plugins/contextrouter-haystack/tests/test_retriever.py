"""The component gives what the router gives: documents, scores, ids, citations, coverage and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from haystack import Pipeline
from haystack.core.errors import DeserializationError, PipelineRuntimeError, SerializationError
from haystack.errors import FilterError
from haystack.tools import ComponentTool
from haystack_integrations.components.retrievers.contextrouter import ContextRouterRetriever, filters_of

from contextrouter import AllSourcesFailed, Connector, ContextRouter, Hit, Portal, Query, Scope, SourceError

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
ACME = Scope(tenant="acme")


class Failing(Connector):
    """A source that cannot answer."""

    async def search(self, query: Query) -> Sequence[Hit]:
        raise SourceError("the lighthouse is dark")


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal(TABLES) as opened:
        yield opened


def ids(outputs: dict[str, Any]) -> list[str]:
    return [document.meta["id"] for document in outputs["documents"]]


def test_documents_are_those_of_the_router(portal: Portal):
    context = portal.route(QUESTION)
    outputs = ContextRouterRetriever(portal).run(QUESTION)
    documents = outputs["documents"]
    assert [d.id for d in documents] == [e.id for e in context.envelopes]
    assert [d.score for d in documents] == [e.normalized for e in context.envelopes]
    assert [d.meta["number"] for d in documents] == [1, 2, 3]
    assert documents[0].meta["url"] == "https://sea.example.org/tides"
    assert json.loads(json.dumps(documents[0].meta)) == documents[0].meta
    assert outputs["context"] == context.text
    assert (outputs["degraded"], outputs["outcome"]) == (False, "answered")
    assert [(r["source"], r["status"]) for r in outputs["coverage"]] == [("notes", "ok")]


async def test_a_pipeline_is_written_and_read_and_runs_both_ways():
    pipeline = Pipeline()
    scoped = ContextRouterRetriever(TABLES, top_k=2, scope=ACME, filters=equal("id", "ports"))
    pipeline.add_component("retriever", scoped)
    again = Pipeline.loads(pipeline.dumps())
    component = again.get_component("retriever")
    assert (component.scope, component.top_k, component.filters) == (scoped.scope, 2, scoped.filters)
    assert ids(pipeline.run({"retriever": {"query": "tide"}})["retriever"]) == ["ports"]
    assert ids(again.run({"retriever": {"query": "tide"}})["retriever"]) == ["ports"]
    assert ids((await again.run_async({"retriever": {"query": "tide"}}))["retriever"]) == ["ports"]
    pipeline.close()
    again.close()


def test_no_secret_is_written():
    generator = {"use": "openai", "model": "m", "api_key": "sk-very-secret"}
    with pytest.raises(SerializationError, match=r"generators\.g\.api_key") as told:
        ContextRouterRetriever({**TABLES, "generators": {"g": generator}}).to_dict()
    assert "sk-very-secret" not in str(told.value)
    cache = {"tier": "redis", "url": "redis://:hunter2@127.0.0.1:1/0"}
    with pytest.raises(SerializationError, match=r"cache\.url"):
        ContextRouterRetriever({**TABLES, "cache": cache}).to_dict()


def test_a_secret_that_names_a_variable_is_written_as_that(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEA_KEY", "sk-very-secret")
    generator = {"use": "openai", "model": "m", "api_key": "${SEA_KEY}"}
    api: dict[str, Any] = {"use": "http_api", "url": "https://sea.example.org", "fields": {"content": "text"}}
    api["headers"] = {"Authorization": "Bearer ${SEA_KEY}"}
    written = ContextRouterRetriever(
        {**TABLES, "generators": {"g": generator}, "connectors": {"c": api}}
    ).to_dict()
    assert "sk-very-secret" not in json.dumps(written)
    router = written["init_parameters"]["router"]
    assert router["generators"]["g"]["api_key"] == "${SEA_KEY}"
    assert router["connectors"]["c"]["headers"] == {"Authorization": "Bearer ${SEA_KEY}"}


def test_a_portal_is_not_written_and_not_closed(portal: Portal):
    retriever = ContextRouterRetriever(portal)
    with pytest.raises(SerializationError, match="Portal"):
        retriever.to_dict()
    retriever.close()
    assert ids(retriever.run("tide", top_k=1)) != []


def test_a_file_of_a_pipeline_loads_no_plugins(tmp_path: Path):
    (tmp_path / "evil.py").write_text("raise SystemExit('loaded')")
    written = ContextRouterRetriever(TABLES).to_dict()
    written["init_parameters"]["router"] = {**TABLES, "plugins": {"paths": [str(tmp_path)]}}
    with pytest.raises(DeserializationError, match="plugins"):
        ContextRouterRetriever.from_dict(written)


def test_without_a_scope_input_there_is_no_scope_to_give(portal: Portal):
    tool = ComponentTool(ContextRouterRetriever(portal), name="search")
    assert set(tool.parameters["properties"]) == {"query", "filters", "top_k"}
    pipeline = Pipeline()
    pipeline.add_component("retriever", ContextRouterRetriever(portal))
    with pytest.raises(ValueError, match="scope"):
        pipeline.run({"retriever": {"query": "tide", "scope": ACME}})
    with pytest.raises(TypeError, match="'scope'"):
        ContextRouterRetriever(portal).run("tide", scope=ACME)


def test_with_a_scope_input_no_run_goes_without_one(portal: Portal):
    pipeline = Pipeline()
    pipeline.add_component("retriever", ContextRouterRetriever(portal, scope=ACME, scope_input=True))
    assert ids(pipeline.run({"retriever": {"query": "tide", "scope": ACME}})["retriever"]) == ["ports"]
    assert ids(pipeline.run({"retriever": {"query": "tide", "scope": Scope()}})["retriever"]) == [
        "tides",
        "ships",
    ]
    with pytest.raises(ValueError, match="scope"):
        pipeline.run({"retriever": {"query": "tide"}})
    with pytest.raises((TypeError, PipelineRuntimeError), match="Scope"):
        pipeline.run({"retriever": {"query": "tide", "scope": {"tenant": "acme"}}})
    with pytest.raises(TypeError, match="Scope"):
        ContextRouterRetriever(portal, scope_input=True).run("tide", scope=None)


def equal(field: str, value: Any, operator: str = "==") -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


def test_filters_are_translated_and_those_of_both_places_hold(portal: Portal):
    nested = {
        "operator": "AND",
        "conditions": [
            equal("meta.topic", ["ships", "ports"], "in"),
            {"operator": "AND", "conditions": [equal("meta.kind", "document")]},
        ],
    }
    assert filters_of(nested) == {"topic": ["ships", "ports"], "kind": "document"}
    assert filters_of(equal("meta.metadata.topic", "ships")) == {"topic": "ships"}
    assert filters_of({}) == filters_of(None) == {}
    retriever = ContextRouterRetriever(portal, filters=nested)
    assert ids(retriever.run("tide")) == ["ships"]
    assert ids(retriever.run("tide", filters=equal("meta.topic", "ports"))) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *[
            (equal("meta.year", 3, operator), f"'{operator}', of the field 'meta.year'")
            for operator in ("!=", ">", ">=", "<", "<=", "not in", "like")
        ],
        *[
            ({"operator": operator, "conditions": [equal("a", 1)]}, f"'{operator}'")
            for operator in ("OR", "NOT", "XOR")
        ],
        (equal("a", None), "no value"),
        (equal("a", "x", "in"), "'in' a list"),
        (equal("a", ["x"]), "'in' a list"),
        ({"topic": "ships"}, "'topic'"),
        ({"operator": "AND", "conditions": [{}]}, "condition"),
    ],
)
def test_what_a_router_cannot_filter_is_refused_by_name(portal: Portal, given: dict[str, Any], words: str):
    with pytest.raises(FilterError, match=words):
        ContextRouterRetriever(portal).run("tide", filters=given)
    with pytest.raises(FilterError, match=words):
        ContextRouterRetriever(portal, filters=given)


@pytest.mark.parametrize("arguments", [{"top_k": 0}, {"top_k": 1001}, {"scope": {"tenant": "acme"}}])
def test_wrong_arguments_of_the_component_are_refused(portal: Portal, arguments: dict[str, Any]):
    with pytest.raises((TypeError, ValueError)):
        ContextRouterRetriever(portal, **arguments)


def test_a_failing_source_gives_the_documents_of_the_others_and_says_degraded():
    with Portal(lambda: ContextRouter(TABLES, connectors={"light": Failing()})) as portal:
        pipeline = Pipeline()
        pipeline.add_component("retriever", ContextRouterRetriever(portal))
        for outputs in (
            pipeline.run({"retriever": {"query": QUESTION}}),
            asyncio.run(pipeline.run_async({"retriever": {"query": QUESTION}})),
        ):
            told = outputs["retriever"]
            assert set(ids(told)) == set(NOTES)
            assert told["degraded"] is True
            assert {document.meta["degraded"] for document in told["documents"]} == {True}
            assert ("light", "error") in {(r["source"], r["status"]) for r in told["coverage"]}


def test_where_every_source_failed_the_error_is_raised():
    with Portal(lambda: ContextRouter(connectors={"light": Failing()})) as portal:
        with pytest.raises(AllSourcesFailed, match="the lighthouse is dark"):
            ContextRouterRetriever(portal).run("tide")
        with pytest.raises(AllSourcesFailed, match="the lighthouse is dark"):
            asyncio.run(ContextRouterRetriever(portal).run_async("tide"))


async def test_asynchronous_calls_give_the_same_also_in_another_event_loop(portal: Portal):
    retriever = ContextRouterRetriever(portal)
    expected = ids(retriever.run(QUESTION))
    assert ids(await retriever.run_async(QUESTION)) == expected
    assert ids(await asyncio.to_thread(lambda: asyncio.run(retriever.run_async(QUESTION)))) == expected
