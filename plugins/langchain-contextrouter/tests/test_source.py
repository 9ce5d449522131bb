"""Retrievers and vector stores of LangChain as sources of a router."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_contextrouter import FromLangChain
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

from contextrouter import ContextRouter, Scope
from contextrouter.testing import subject_of, verdict

MEMORY = {"providers": {"notes": {"use": "memory", "documents": [{"id": "n", "content": "The tide turns."}]}}}
PLUGIN = """
from langchain_contextrouter import FromLangChain
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

class Buoys(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content="A buoy shows the tide.")]

class FromBuoys(FromLangChain):
    \"\"\"Asks the buoys.\"\"\"
    def build(self):
        return Buoys()
"""


class Given(BaseRetriever):
    """Answers with the documents that it is given."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


class Waiting(BaseRetriever):
    """Blocks its thread until it is released."""

    release: threading.Event

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        self.release.wait(10)
        return []


def test_the_source_keeps_the_laws_of_its_kind():
    judged = verdict(subject_of(FromLangChain, questions=["tide"]))
    assert not judged.broken, judged.broken


async def route(source: FromLangChain, question: str = "tide", *, tables: Any = None, **fields: Any) -> Any:
    async with ContextRouter(MEMORY if tables is None else tables, connectors={"lc": source}) as router:
        return await router.route(question, **fields)


async def test_documents_come_with_ids_titles_and_addresses():
    given = [
        Document(
            id="x", page_content="One tide.", metadata={"title": "X", "source": "https://a.example.org/x"}
        ),
        Document(page_content="Two tides.", metadata={"source": "notes/two.md", "page": 0}),
    ]
    context = await route(FromLangChain(Given(documents=given)), tables={})
    first, second = (envelope.document for envelope in context.envelopes)
    assert (first.id, first.title, first.url) == ("x", "X", "https://a.example.org/x")
    assert second.id == "125d28aa2cb4462d58c3aaadfabf4bc2075793a731f9e6275288c5310c6527da"
    assert (second.url, second.metadata["source"]) == ("", "notes/two.md")
    assert context.citations[1].page == 1
    assert first.untrusted


async def test_a_retriever_that_blocks_is_timed_out_and_the_others_answer():
    release = threading.Event()
    try:
        context = await route(FromLangChain(Waiting(release=release)), deadline=0.5)
    finally:
        release.set()
    assert [envelope.document.id for envelope in context.envelopes] == ["n"]
    assert {report.source: report.status for report in context.coverage} == {"notes": "ok", "lc": "timeout"}


async def test_a_retriever_that_raises_is_reported():
    class _Broken(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            raise ConnectionError("no such harbour")

    for asynchronous in (False, True):
        context = await route(FromLangChain(_Broken(), asynchronous=asynchronous))
        (report,) = [report for report in context.coverage if report.source == "lc"]
        assert (report.status, "no such harbour" in report.error) == ("error", True)


async def test_a_vector_store_is_asked_for_as_many_as_the_router_wants():
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([Document(id=f"v{n}", page_content=f"tide {n}") for n in range(12)])
    source = FromLangChain(store)
    context = await route(source, tables={"connectors": {"lc": {"limit": 12}}}, limit=12)
    assert len(context.envelopes) == 12


async def test_relevance_scores_of_a_vector_store_arrive():
    class _Scored(InMemoryVectorStore):
        def _select_relevance_score_fn(self) -> Any:
            return lambda similarity: (similarity + 1) / 2

    store = _Scored(DeterministicFakeEmbedding(size=8))
    store.add_documents([Document(id=f"v{n}", page_content=f"tide {n}") for n in range(3)])
    context = await route(FromLangChain(store), "tide 1", tables={})
    assert context.envelopes[0].document.id == "v1"
    assert context.envelopes[0].provenance[0].score == pytest.approx(1.0)


async def test_labels_come_from_the_table_and_without_them_a_scope_sees_nothing():
    source = FromLangChain(
        Given(documents=[Document(id="x", page_content="tide", metadata={"tenant": "acme"})])
    )
    acme = Scope(tenant="acme")
    assert (await route(source, tables={}, scope=acme)).envelopes == ()
    labelled = await route(source, tables={"connectors": {"lc": {"tenant": "acme"}}}, scope=acme)
    assert [envelope.document.id for envelope in labelled.envelopes] == ["x"]


async def test_filters_are_checked_on_arrival():
    given = [
        Document(id=str(n), page_content="tide", metadata={"topic": topic}) for n, topic in enumerate("aab")
    ]
    context = await route(FromLangChain(Given(documents=given)), tables={}, filters={"topic": "b"})
    assert [envelope.document.id for envelope in context.envelopes] == ["2"]


async def test_a_plugin_file_of_a_few_lines_is_a_source(tmp_path: Path):
    (tmp_path / "buoys.py").write_text(PLUGIN)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.buoys]\n')
    async with ContextRouter.from_toml(tmp_path / "settings.toml") as router:
        context = await router.route("tide")
    assert [envelope.document.content for envelope in context.envelopes] == ["A buoy shows the tide."]


def test_a_source_without_a_retriever_is_refused():
    with pytest.raises(ValueError, match=r"build\(\)"):
        FromLangChain()


def test_something_else_than_a_retriever_is_refused():
    with pytest.raises(TypeError, match="not a str"):
        FromLangChain("notes")


async def test_what_build_returns_is_checked_and_tried_again_with_the_next_question():
    class _Later(FromLangChain):
        built = 0

        def build(self) -> Any:
            self.built += 1
            return "notes" if self.built == 1 else Given(documents=[Document(id="x", page_content="tide")])

    source = _Later()
    with pytest.raises(TypeError, match="not a str"):
        await source.open()
    context = await route(source, tables={})
    assert [envelope.document.id for envelope in context.envelopes] == ["x"]
