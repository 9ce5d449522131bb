"""The suites of the conformance kit against a real project of Google Cloud, and what only a project can tell.

Not collected by default: it costs money and needs credentials. Name a project, and a collection that may be
emptied, made with 16 dimensions by `contextrouter db migrate`:

    VERTEX_PROJECT=acme-test VERTEX_COLLECTION=conformance pytest -n 0 tests/live/test_vertex.py
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from contextrouter import Document, Query
from contextrouter.builtin.embedders.vertex import VertexEmbedder
from contextrouter.builtin.generators.vertex import VertexGenerator
from contextrouter.builtin.providers.vertex import Vertex, lookup
from contextrouter.builtin.providers.vertex.data_objects import Row
from contextrouter.builtin.stages.vertex import VertexReranker
from contextrouter.contracts import Entry, Plugin
from contextrouter.errors import SourceError
from contextrouter.testing import EmbedderSuite, GeneratorSuite, ProviderSuite, RerankerSuite

PROJECT = os.environ.get("VERTEX_PROJECT", "")
COLLECTION = os.environ.get("VERTEX_COLLECTION", "conformance")
LOCATION = os.environ.get("VERTEX_LOCATION", "us-central1")
X, Y = [1.0] + [0.0] * 15, [0.0, 1.0] + [0.0] * 14
VISIBLE = 30  # seconds within which a deletion must be seen


def store() -> Vertex:
    return Vertex(project=PROJECT, location=LOCATION, collection=COLLECTION, request_timeout=60.0)


class Emptied(Vertex):
    """The laws expect a store that has what they put in, and nothing else: also when it is opened again."""

    emptied = False

    async def open(self) -> None:
        await super().open()
        if not self.emptied:
            await self.clear()
            self.emptied = True


class TestStore(ProviderSuite):
    plugin = Vertex

    def make(self) -> Plugin:
        return Emptied(project=PROJECT, location=LOCATION, collection=COLLECTION, request_timeout=60.0)


class TestEmbedder(EmbedderSuite):
    plugin = VertexEmbedder

    def make(self) -> Plugin:
        return VertexEmbedder(project=PROJECT, location=LOCATION)


class TestEmbedderOfOneText(EmbedderSuite):
    plugin = VertexEmbedder

    def make(self) -> Plugin:
        return VertexEmbedder(project=PROJECT, location=LOCATION, model="gemini-embedding-2")


class TestReranker(RerankerSuite):
    plugin = VertexReranker

    def make(self) -> Plugin:
        return VertexReranker(project=PROJECT)


class TestGenerator(GeneratorSuite):
    plugin = VertexGenerator

    def make(self) -> Plugin:
        return VertexGenerator(project=PROJECT, location=LOCATION)


@asynccontextmanager
async def filled() -> AsyncIterator[Vertex]:
    """A collection with two documents, one of them labelled and tagged."""
    vertex = store()
    try:
        await vertex.open()
        await vertex.clear()
        moon = Document(id="moon", content="The moon raises the tides.", labels=("sky", "sea"))
        sun = Document(id="sun", content="The sun dries the sand.", tenant="acme")
        entries = [(moon, X), (sun, Y)]
        await vertex.upsert(
            [Entry(document=each, chunks=[each], vectors={"vector": [v]}) for each, v in entries]
        )
        yield vertex
    finally:
        await vertex.clear()
        await vertex.aclose()


async def test_a_write_is_found_by_the_next_question():
    async with filled() as vertex:
        hits = await vertex.search(Query(text="", leg="vector", vector=X))
        assert [hit.document.id for hit in hits] == ["moon", "sun"]


async def test_a_vector_is_at_the_distance_one_from_itself():
    async with filled() as vertex:
        assert abs(float((await vertex.status())["distance to itself"])) == pytest.approx(1.0, abs=1e-3)


async def test_in_on_a_list_finds_what_has_one_of_the_values():
    async with filled() as vertex:
        assert await vertex.search(Query(text="", leg="vector", vector=X, labels=("sky", "no such label")))
        assert not await vertex.search(Query(text="", leg="vector", vector=X, labels=("no such label",)))


async def test_the_text_search_joins_words_by_and():
    async with filled() as vertex:
        searches = [("moon sand", [], 10), ("moon", [], 10)]
        both, one = await vertex._get_collection().text_searches(searches, with_vectors=False)
        assert (len(both), len(one)) == (0, 1)


async def test_objects_that_are_there_already_are_no_error_in_a_batch():
    async with filled() as vertex:
        moon = Document(id="moon", content="The moon raises the tides.", labels=("sky", "sea"))
        more = Document(id="more", content="More of the moon.")
        entries = [Entry(document=each, chunks=[each], vectors={"vector": [X]}) for each in (moon, more)]
        await vertex.upsert(entries)
        assert set(await vertex.fingerprints()) == {"moon", "more"}


async def test_an_object_is_created_once_and_an_old_etag_changes_nothing():
    """What the turns of processes depend on."""
    async with filled() as vertex:
        collection = vertex._get_collection()
        assert await collection.create_new(Row("turn", {"role": "turn"}))
        assert not await collection.create_new(Row("turn", {"role": "turn"}))
        old = await collection.get("turn")
        assert old is not None
        await collection.replace_unchanged(Row("turn", {"role": "turn", "id": "new"}), old, monotonic() + 60)
        await collection.delete_unchanged(old)
        present = await collection.get("turn")
        assert present is not None, "the old etag removes nothing"
        with pytest.raises(SourceError):
            await collection.replace_unchanged(Row("turn", {"role": "turn"}), old, monotonic() + 60)
        await collection.delete_unchanged(present)
        assert await collection.get("turn") is None


async def test_counts_and_filters_of_missing_labels_agree():
    async with filled() as vertex:
        assert await vertex._get_collection().count([lookup.DOCUMENTS]) == 2
        assert await vertex.tenants() == [None, "acme"]


@pytest.mark.parametrize("condition", [{"$not": {"role": {"$eq": "chunk"}}}, {"updated": {"$in": [1, 2]}}])
async def test_the_service_refuses_what_the_stand_in_refuses(condition: dict[str, object]):
    async with filled() as vertex:
        with pytest.raises(SourceError):
            await vertex._get_collection().query([condition], ["id"])


async def test_what_is_deleted_is_gone():
    async with filled() as vertex:
        assert await vertex.delete(["moon"]) == 1
        for _ in range(VISIBLE):
            if not await vertex.fetch(["moon"]):
                return
            await asyncio.sleep(1.0)
        pytest.fail("it is still there")
