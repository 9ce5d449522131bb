"""Retrievers of LlamaIndex as sources of a router."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.retrievers.contextrouter import FromLlamaIndex

from contextrouter import ContextRouter, Scope
from contextrouter.testing import subject_of, verdict

MEMORY = {"providers": {"notes": {"use": "memory", "documents": [{"id": "n", "content": "The tide turns."}]}}}
PLUGIN = """
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.retrievers.contextrouter import FromLlamaIndex

class Buoys(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(text="A buoy shows the tide."))]

class FromBuoys(FromLlamaIndex):
    \"\"\"Asks the buoys.\"\"\"
    def build(self):
        return Buoys()
"""


class Given(BaseRetriever):
    """Answers with the nodes that it is given."""

    def __init__(self, *nodes: NodeWithScore) -> None:
        self.nodes = list(nodes)
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.nodes


class Waiting(BaseRetriever):
    """Blocks its thread until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.release.wait(10)
        return []


def node(id: str, text: str, score: float | None = None, **metadata: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(id_=id, text=text, metadata=metadata), score=score)


async def route(source: FromLlamaIndex, *, tables: Any = None, **fields: Any) -> Any:
    async with ContextRouter(MEMORY if tables is None else tables, connectors={"li": source}) as router:
        return await router.route("tide", **fields)


def test_the_source_keeps_the_laws_of_its_kind():
    judged = verdict(subject_of(FromLlamaIndex, questions=["tide"]))
    assert not judged.broken, judged.broken


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_nodes_come_with_ids_titles_addresses_and_parents(asynchronous: bool):
    given = node("x", "One tide.", title="X", url="https://a.example.org/x")
    given.node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="book")
    context = await route(FromLlamaIndex(Given(given), asynchronous=asynchronous), tables={})
    (document,) = [envelope.document for envelope in context.envelopes]
    assert (document.id, document.title, document.url) == ("x", "X", "https://a.example.org/x")
    assert (document.content, document.parent, document.untrusted) == ("One tide.", "book", True)


async def test_scores_count_where_their_range_is_declared():
    nodes = node("a", "tide a", 0.25), node("b", "tide b", 0.75), node("c", "tide c", None)
    undeclared = await route(FromLlamaIndex(Given(*nodes)), tables={})
    assert [envelope.provenance[0].score for envelope in undeclared.envelopes] == [None, None, None]
    declared = await route(FromLlamaIndex(Given(*nodes), score_range=(0.0, 1.0)), tables={})
    scores = {envelope.document.id: envelope.provenance[0].score for envelope in declared.envelopes}
    assert scores == {"b": 0.75, "a": 0.25, "c": None}
    assert {e.document.id: e.provenance[0].rank for e in declared.envelopes} == {"b": 1, "a": 2, "c": 3}


async def test_a_retriever_that_blocks_is_timed_out_and_the_others_answer():
    """The default `aretrieve` of LlamaIndex would block the event loop, and with it every other source."""
    waiting = Waiting()
    try:
        context = await route(FromLlamaIndex(waiting), deadline=0.5)
    finally:
        waiting.release.set()
    assert [envelope.document.id for envelope in context.envelopes] == ["n"]
    assert {report.source: report.status for report in context.coverage} == {"notes": "ok", "li": "timeout"}


async def test_threads_are_bounded():
    waiting = Waiting()
    source = FromLlamaIndex(waiting, threads=2)
    try:
        async with ContextRouter(MEMORY, connectors={"li": source}) as router:
            for question in ("tide one", "tide two", "tide three", "tide four"):
                context = await router.route(question, deadline=0.3)
                assert "li" in {report.source for report in context.coverage if report.status != "ok"}
            assert sum(thread.name.startswith("FromLlamaIndex") for thread in threading.enumerate()) == 2
    finally:
        waiting.release.set()


async def test_labels_come_from_the_table_and_without_them_a_scope_sees_nothing():
    source, acme = FromLlamaIndex(Given(node("x", "tide", tenant="acme"))), Scope(tenant="acme")
    assert (await route(source, tables={}, scope=acme)).envelopes == ()
    labelled = await route(source, tables={"connectors": {"li": {"tenant": "acme"}}}, scope=acme)
    assert [envelope.document.id for envelope in labelled.envelopes] == ["x"]


async def test_a_plugin_file_of_a_few_lines_is_a_source(tmp_path: Path):
    (tmp_path / "buoys.py").write_text(PLUGIN)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.buoys]\n')
    async with ContextRouter.from_toml(tmp_path / "settings.toml") as router:
        context = await router.route("tide")
    assert [envelope.document.content for envelope in context.envelopes] == ["A buoy shows the tide."]


def test_something_else_than_a_retriever_is_refused():
    with pytest.raises(TypeError, match="not a str"):
        FromLlamaIndex("notes")
    with pytest.raises(ValueError, match=r"build\(\)"):
        FromLlamaIndex()
