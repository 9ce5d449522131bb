"""Retrievers of Haystack as sources of a router."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline, SuperComponent, component
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.components.retrievers.contextrouter import FromHaystack

from contextrouter import ContextRouter, Scope
from contextrouter.testing import subject_of, verdict

MEMORY = {"providers": {"notes": {"use": "memory", "documents": [{"id": "n", "content": "The tide turns."}]}}}
PLUGIN = """
from haystack import Document
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.components.retrievers.contextrouter import FromHaystack

class FromBuoys(FromHaystack):
    \"\"\"Asks the buoys.\"\"\"
    def build(self):
        store = InMemoryDocumentStore()
        store.write_documents([Document(content="A buoy shows the tide.")])
        return InMemoryBM25Retriever(store)
"""


@component
class Waiting:
    """Blocks its thread until it is released; says when it was warmed up."""

    def __init__(self) -> None:
        self.release, self.is_warm = threading.Event(), False

    def warm_up(self) -> None:
        self.is_warm = True

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, Any]:
        self.release.wait(10)
        return {"documents": []}


def retriever(*documents: Document) -> InMemoryBM25Retriever:
    store = InMemoryDocumentStore()
    store.write_documents(list(documents))
    return InMemoryBM25Retriever(store)


async def route(source: FromHaystack, *, tables: Any = None, **fields: Any) -> Any:
    async with ContextRouter(MEMORY if tables is None else tables, connectors={"hay": source}) as router:
        return await router.route("tide", **fields)


def test_the_source_keeps_the_laws_of_its_kind():
    judged = verdict(subject_of(FromHaystack, questions=["tide"]))
    assert not judged.broken, judged.broken


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_documents_come_with_ids_titles_and_addresses(asynchronous: bool):
    given = Document(
        id="x", content="One tide.", meta={"title": "X", "url": "https://a.example.org/x", "n": 3}
    )
    context = await route(FromHaystack(retriever(given), asynchronous=asynchronous), tables={})
    (document,) = [envelope.document for envelope in context.envelopes]
    assert (document.id, document.title, document.url) == ("x", "X", "https://a.example.org/x")
    assert (document.content, document.metadata["n"], document.untrusted) == ("One tide.", 3, True)


async def test_it_is_asked_for_as_many_as_the_router_wants():
    many = [Document(id=f"d{n}", content=f"tide {n}") for n in range(15)]
    source = FromHaystack(retriever(*many))  # its own top_k is 10
    context = await route(source, tables={"connectors": {"hay": {"limit": 15}}}, limit=15)
    assert len(context.envelopes) == 15


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_pipeline_in_one_component_is_a_source(asynchronous: bool):
    pipeline = Pipeline()
    pipeline.add_component("bm25", retriever(*[Document(id=f"d{n}", content=f"tide {n}") for n in range(15)]))
    inputs = {"query": ["bm25.query"], "top_k": ["bm25.top_k"]}
    whole = SuperComponent(pipeline, input_mapping=inputs, output_mapping={"bm25.documents": "documents"})
    source = FromHaystack(whole, asynchronous=asynchronous)
    context = await route(source, tables={"connectors": {"hay": {"limit": 15}}}, limit=15)
    assert len(context.envelopes) == 15


async def test_a_component_that_blocks_is_timed_out_and_the_others_answer():
    waiting = Waiting()
    try:
        context = await route(FromHaystack(waiting), deadline=0.5)
    finally:
        waiting.release.set()
    assert [envelope.document.id for envelope in context.envelopes] == ["n"]
    assert {report.source: report.status for report in context.coverage} == {"notes": "ok", "hay": "timeout"}
    assert waiting.is_warm


async def test_labels_come_from_the_table_and_without_them_a_scope_sees_nothing():
    source, acme = (
        FromHaystack(retriever(Document(id="x", content="tide", meta={"tenant": "acme"}))),
        Scope(tenant="acme"),
    )
    assert (await route(source, tables={}, scope=acme)).envelopes == ()
    labelled = await route(source, tables={"connectors": {"hay": {"tenant": "acme"}}}, scope=acme)
    assert [envelope.document.id for envelope in labelled.envelopes] == ["x"]


async def test_a_plugin_file_of_a_few_lines_is_a_source(tmp_path: Path):
    (tmp_path / "buoys.py").write_text(PLUGIN)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.buoys]\n')
    async with ContextRouter.from_toml(tmp_path / "settings.toml") as router:
        context = await router.route("tide")
    assert [envelope.document.content for envelope in context.envelopes] == ["A buoy shows the tide."]


def test_something_else_than_a_retriever_is_refused():
    with pytest.raises(TypeError, match="not a str"):
        FromHaystack("notes")
    with pytest.raises(TypeError, match="run_async"):
        FromHaystack(Waiting(), asynchronous=True)
    with pytest.raises(ValueError, match=r"build\(\)"):
        FromHaystack()
