"""The provider `vertex_index` against an index on loopback, with its texts in another store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from support.vertex import Script, Step, listening, opened

from contextrouter import ContextRouter, Document, Period, Query, Scope
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.vertex_index import VertexIndex
from contextrouter.builtin.providers.vertex_index.datapoints import chunk_key, datapoint_id
from contextrouter.builtin.providers.vertex_index.index_server import IndexServer
from contextrouter.contracts import Entry, Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.ingest import run
from contextrouter.testing import Fixed

X, Y = [1.0, 0.0], [0.0, 1.0]


@asynccontextmanager
async def index(
    texts: Any = None, server: IndexServer | None = None, **keys: Any
) -> AsyncIterator[tuple[VertexIndex, IndexServer, Script]]:
    server = server or IndexServer()
    keys = {"index_endpoint": "1", "deployed_index": "example", "index": "2", "project": "p", **keys}
    async with listening(server) as (endpoint, script):
        provider = VertexIndex(texts=texts or Memory(), endpoint=endpoint, **keys)
        async with opened(provider):
            script.seen.clear()
            yield provider, server, script


def entry(id: str, content: str, vector: Sequence[float] = X, fingerprint: str = "", **fields: Any) -> Entry:
    document = Document(id=id, content=content, **fields)
    return Entry(document=document, chunks=[document], vectors={"vector": [vector]}, fingerprint=fingerprint)


async def find(provider: VertexIndex, **fields: Any) -> list[str]:
    return [
        hit.document.id for hit in await provider.search(Query(text="", leg="vector", vector=X, **fields))
    ]


async def test_neighbours_come_with_their_texts_and_cosines():
    async with index() as (provider, server, script):
        await provider.upsert([entry("a", "moon", [3.0, 4.0]), entry("b", "sun", X, kind="book")])
        script.seen.clear()
        hits = await provider.search(Query(text="", leg="vector", vector=X))
        assert [(hit.document, pytest.approx(hit.score)) for hit in hits] == [
            (Document(id="b", content="sun", kind="book"), 1.0),
            (Document(id="a", content="moon"), 0.6),
        ]
        assert script.methods() == ["FindNeighbors", "ReadIndexDatapoints", "FindNeighbors"]
        assert server.asked[0].deployed_index_id == "example"
        assert server.asked[0].index_endpoint == "projects/p/locations/us-central1/indexEndpoints/1"
        await provider.ping()


@pytest.mark.parametrize("vectors", [{"c": X, "a": [0.6, 0.8], "b": [-1.0, 0.0]}, {"a": [-0.6, 0.8]}])
@pytest.mark.parametrize(
    ("measure", "distance"),
    [
        ("", float),  # an index that names no measure
        ("DOT_PRODUCT_DISTANCE", float),
        ("DOT_PRODUCT_DISTANCE", lambda product: -product),
        ("COSINE_DISTANCE", lambda product: 1 - product),
        ("SQUARED_L2_DISTANCE", lambda product: 2 - 2 * product),
    ],
)
async def test_a_distance_is_read_by_the_measure_of_its_index(
    measure: str, distance: Any, vectors: dict[str, list[float]]
):
    """One distance alone has no order that tells what it is. Whether a product comes negated, a stored vector
    tells that is compared with itself.
    """
    server = IndexServer()
    server.measure, server.distance = measure, distance
    async with index(server=server) as (provider, _, script):
        await provider.upsert([entry(id, "x", vector) for id, vector in vectors.items()])
        for _ in range(2):
            script.seen.clear()
            hits = await provider.search(Query(text="", leg="vector", vector=X))
            scores = [(hit.document.id, pytest.approx(hit.score, abs=1e-6)) for hit in hits]
            assert scores == [(id, vector[0]) for id, vector in vectors.items()]
        assert script.methods() == ["FindNeighbors"], "asked for once"


async def test_an_index_that_measures_no_cosine_is_refused_at_the_start():
    server = IndexServer()
    server.measure = "L1_DISTANCE"
    with pytest.raises(SourceError, match=r"compares with 'L1_DISTANCE' in .*Make an index with one of DOT_"):
        async with index(server=server):
            pass


@pytest.mark.parametrize(
    ("deployed", "problem"),
    [
        (
            {"library_v4": "2", "library_v3": "2"},
            "Deployed there: 'library_v3', 'library_v4'. Set deployed_index",
        ),
        ({}, "Deployed there: nothing"),
        (
            {"example": "77"},
            "has the index '77' deployed as 'example', and another is written to, '2'. Set index",
        ),
    ],
)
async def test_an_index_that_is_not_deployed_is_named_with_those_that_are(
    deployed: dict[str, str], problem: str
):
    server = IndexServer()
    server.deployed = deployed
    with pytest.raises(SourceError, match=problem):
        async with index(server=server):
            pass


async def test_scope_period_and_filters_narrow_in_the_index():
    moment = datetime(2025, 3, 8, 23, 59, tzinfo=UTC)
    async with index() as (provider, server, _):
        await provider.upsert(
            [
                entry("mine", "x", tenant="acme", sensitivity="internal"),
                entry("hidden", "x", tenant="acme", compartment="hr"),
                entry("theirs", "x", tenant="globex"),
                entry("all", "x", tenant="*"),
                entry("free", "x", updated_at=moment, metadata={"year": 2024}, labels=("sea", "sky")),
            ]
        )
        for scope, expected in (
            (Scope(tenant="acme", ceiling="internal"), ["all", "mine"]),
            (Scope(tenant="acme", compartments={"hr"}), ["all", "hidden"]),
            (Scope(), ["all", "free"]),
        ):
            assert sorted(await find(provider, scope=scope, limit=2)) == expected
        assert await find(provider, filters={"year": 2024}, limit=1) == ["free"]
        assert await find(provider, filters={"year": "2024"}) == []
        assert await find(provider, filters={"tenant": "acme"}, scope=Scope(tenant="globex")) == []
        assert await find(provider, labels=("sky", "no such label"), limit=1) == ["free"]
        assert await find(provider, period=Period(start=date(2025, 3, 8), end=date(2025, 3, 8))) == ["free"]
        assert await find(provider, period=Period(end=date(2025, 3, 7))) == []
        assert all(request.queries[0].neighbor_count in (1, 2, 30) for request in server.asked)


async def test_datapoints_without_labels_are_checked_on_arrival():
    async with index(restricts=False) as (provider, server, _):
        await provider.upsert([entry(f"a{n}", "x", tenant="acme") for n in range(5)] + [entry("free", "x")])
        for point in server.points.values():
            point.restricts = []
        assert await find(provider, scope=Scope(), limit=1) == ["free"]
        assert await find(provider, excluded=("x",)) == []


async def test_neighbours_without_a_text_are_counted_and_the_rest_goes_on():
    texts = Memory()
    async with index(texts) as (provider, _, _):
        await provider.upsert([entry("a", "moon"), entry("b", "sun"), entry("c", "sea")])
        await texts.delete(["b"])
        hits = await provider.search(Query(text="", leg="vector", vector=X))
        assert isinstance(hits, Partial)
        assert [hit.document.id for hit in hits] == ["a", "c"]
        assert hits.reason == "1 of 3 neighbours have no text in the store of `texts`"


async def test_a_document_is_replaced_and_removed_with_its_datapoints():
    texts = Memory()
    async with index(texts) as (provider, server, script):
        chunks = [Document(id=f"d#{n}", parent="d", content=f"part {n}") for n in range(3)]
        whole = Document(id="d", content="whole", metadata={"year": 1})
        await provider.upsert([Entry(document=whole, chunks=chunks, vectors={"vector": [X, X, X]})])
        assert sorted(server.points) == ["d#0", "d#1", "d#2"]
        script.seen.clear()
        await provider.upsert([Entry(document=whole, chunks=chunks[:1], vectors={"vector": [X]})])
        assert script.methods() == ["UpsertDatapoints", "RemoveDatapoints"]
        assert sorted(server.points) == ["d#0"]
        (fetched,) = await provider.fetch(["d"])
        assert fetched == whole, "the list of datapoints is not shown"
        await provider.upsert([entry("d", "other", X, tenant="acme")])
        assert await provider.delete(["d"], "acme") == 1
        assert sorted(server.points) == ["d#0"]
        assert await provider.delete(["d"]) == 1
        assert server.points == {}


async def test_a_write_that_broke_off_keeps_the_old_fingerprint():
    async with index() as (provider, _, script):
        await provider.upsert([entry("a", "old", X, "1")])
        script.steps = [Step(status="UNAVAILABLE")]
        with pytest.raises(SourceError, match="not reachable"):
            await provider.upsert([entry("a", "new", Y, "2")])
        assert await provider.fingerprints() == {"a": "1"}
        assert await find(provider) == ["a"]
        await provider.upsert([entry("a", "new", Y, "2")])
        assert await provider.fingerprints() == {"a": "2"}


async def test_stale_datapoints_that_could_not_be_removed_go_with_the_next_write():
    async with index() as (provider, server, script):

        def version(name: str) -> Entry:
            chunk = Document(id=f"d#{name}", content=name)
            document = Document(id="d", content=name)
            return Entry(document=document, chunks=[chunk], vectors={"vector": [X]}, fingerprint=name)

        await provider.upsert([version("1")])
        script.only, script.steps = ("RemoveDatapoints",), [Step(status="UNAVAILABLE")]
        with pytest.raises(SourceError, match="not reachable"):
            await provider.upsert([version("2")])
        assert await provider.fingerprints() == {"d": ""}
        await provider.upsert([version("3")])
        assert list(server.points) == ["d#3"]
        await asyncio.gather(*(provider.upsert([version(name)]) for name in "456"))
        assert list(server.points) == ["d#6"]
        assert await provider.fingerprints() == {"d": "6"}


async def test_the_texts_are_fetched_inside_the_deadline():
    class Slow(Memory):
        async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
            if self.slow:
                import asyncio

                await asyncio.sleep(30)
            return await super().fetch(ids, scope)

        slow = False

    texts = Slow()
    async with index(texts, request_timeout=1.0) as (provider, _, _):
        await provider.upsert([entry("a", "moon")])
        texts.slow = True
        with pytest.raises(SourceTimeout, match="The store of `texts` did not answer within"):
            await find(provider)


async def test_datapoints_are_written_in_requests_of_a_size_that_is_taken():
    async with index() as (provider, server, script):
        chunks = [Document(id=f"d#{n}", content="x") for n in range(400)]
        vectors = {"vector": [[1.0] * 3_072] * 400}
        document = Document(id="d", content="x")
        await provider.upsert([Entry(document=document, chunks=chunks, vectors=vectors)])
        assert len(server.points) == 400
        assert script.methods().count("UpsertDatapoints") == 2


@pytest.mark.parametrize("tenant", [None, "acme", "a/b", "=%", "*"])
@pytest.mark.parametrize("id", ["d#0", "a/b", "tenant", "ß", "tenant=acme/d#0", "tenant=", "tenant=/d"])
def test_the_id_of_a_datapoint_stands_for_one_chunk(tenant: str | None, id: str):
    assert chunk_key(datapoint_id(tenant, id)) == (tenant, id)
    if tenant is None and not id.startswith("tenant="):
        assert datapoint_id(tenant, id) == id, "an index whose ids are those of chunks needs nothing more"


async def test_the_host_of_the_deployed_index_is_asked_for_unless_it_is_named():
    server = IndexServer()
    async with listening(server) as (endpoint, script):
        keys = {"index_endpoint": "1", "deployed_index": "example", "project": "p", "endpoint": endpoint}
        async with opened(VertexIndex(texts=Memory(), **keys)) as provider:
            assert script.methods() == ["GetIndexEndpoint", "GetIndex"]
            await provider.ping()
        server.domain = ""
        async with opened(VertexIndex(texts=Memory(), public_endpoint=endpoint, **keys)) as provider:
            await provider.ping()
        with pytest.raises(SourceError, match="Set public_endpoint"):
            await VertexIndex(texts=Memory(), **keys).open()


async def test_without_an_index_to_write_to_a_write_says_so():
    async with index(index="") as (provider, _, _):
        with pytest.raises(SourceError, match="Set `index`"):
            await provider.upsert([entry("a", "moon")])


async def test_the_service_refuses_too_many_datapoints_and_vectors_of_another_length():
    from google.cloud.aiplatform_v1 import UpsertDatapointsRequest, types

    async with index() as (provider, server, script):
        await provider.upsert([entry("a", "moon")])
        for points in ([("b", [1.0, 2.0, 3.0])], [(f"b{n}", X) for n in range(1001)]):
            made = [types.IndexDatapoint(datapoint_id=id, feature_vector=vector) for id, vector in points]
            request = UpsertDatapointsRequest(index="2", datapoints=made)
            with pytest.raises(SourceError, match="refuses the request"):
                await provider._admin.call(provider._writer().upsert_datapoints, request)
        server.streaming = False
        with pytest.raises(SourceError, match="takes no streaming updates"):
            await provider.upsert([entry("b", "moon")])
        server.streaming = True
        point = types.IndexDatapoint(datapoint_id="c", feature_vector=X)
        point.numeric_restricts = [types.IndexDatapoint.NumericRestriction(namespace="n", value_int=1, op=1)]
        request = UpsertDatapointsRequest(index="2", datapoints=[point])
        with pytest.raises(SourceError, match="op is for queries only"):
            await provider._admin.call(provider._writer().upsert_datapoints, request)
        server.deployed = {}
        with pytest.raises(SourceError, match="DeployedIndex 'example' was not found"):
            await find(provider)
        server.deployed = {"example": "2"}
        with pytest.raises(SourceError, match="the query vector has 3 dimensions"):
            await provider.search(Query(text="", leg="vector", vector=[1.0, 2.0, 3.0]))
        script.seen.clear()
        chunks = [Document(id=f"d#{n}", parent="d", content=f"part {n}") for n in range(1001)]
        whole = Document(id="d", content="whole")
        await provider.upsert([Entry(document=whole, chunks=chunks, vectors={"vector": [X] * 1001})])
        assert script.methods().count("UpsertDatapoints") == 2
        assert len(server.points) == 1002


def test_texts_must_be_a_store_that_fetches():
    with pytest.raises(ValueError, match="cannot fetch by id"):
        VertexIndex(texts=Fixed("a"), index_endpoint="1", deployed_index="example")  # type: ignore[arg-type]  # a wrong plugin on purpose


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"deployed_index": "library-v3"}, "deployed_index 'library-v3' is no id of a deployed index"),
        ({"index_endpoint": "projects/1/x"}, "index_endpoint 'projects/1/x' is no name"),
        ({"public_endpoint": "https://x/y"}, "public_endpoint 'https://x/y' is no host"),
        ({"public_endpoint": "x:70000"}, "public_endpoint 'x:70000' has no port from 1 to 65535"),
    ],
)
def test_a_wrong_key_says_what_is_wrong(keys: dict[str, str], problem: str):
    with pytest.raises(ValueError, match=problem):
        VertexIndex(texts=Memory(), **{"index_endpoint": "1", "deployed_index": "example", **keys})


async def test_a_host_that_is_none_is_an_error_of_the_service():
    server = IndexServer()
    server.domain = "x/../y"
    with pytest.raises(SourceError, match="gave an address that is none"):
        async with index(server=server):
            pass


SETTINGS = """
[rag]
cache_enabled = false
provider = ["old"]

[providers.texts]
use = "sqlite"
path = "texts.db"
embedder = ""

[providers.old]
use = "vertex_index"
project = "p"
index_endpoint = "1"
deployed_index = "example"
index = "2"
texts = "texts"
endpoint = "{endpoint}"

[ingest.docs]
from = "docs"
to = "old"
"""


async def test_ingestion_fills_index_and_texts_once_and_questions_find_what_sqlite_finds(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    for name in ("tides of the moon", "comets near the sun", "bread and salt"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name.title()}\n\nAll there is about {name}.")
    path, other = tmp_path / "settings.toml", tmp_path / "sqlite.toml"
    other.write_text(
        '[rag]\ncache_enabled = false\n[providers.old]\nuse = "sqlite"\npath = "docs.db"\nlegs = ["vector"]\n'
        '[ingest.docs]\nfrom = "docs"\nto = "old"\n'
    )
    server = IndexServer()
    async with listening(server) as (endpoint, script):
        path.write_text(SETTINGS.format(endpoint=endpoint))
        for settings in (path, other):
            (report,) = (await run(settings)).values()
            assert report.added == 3
        assert len(server.points) == 3
        script.seen.clear()
        (report,) = (await run(path)).values()
        assert (report.added, report.changed, report.unchanged, report.embedded) == (0, 0, 3, 0)
        assert [name for name in script.methods() if "Datapoints" in name] == []
        async with ContextRouter.from_toml(path) as ours, ContextRouter.from_toml(other) as theirs:
            for question in ("What about the moon?", "salt", "sun"):
                found, expected = await ours.route(question), await theirs.route(question)
                asked = {(each.source, each.leg) for each in found.coverage if each.status == "ok"}
                assert asked == {("old", "vector")}
                ids = [each.document.id for each in found.envelopes]
                assert ids == [each.document.id for each in expected.envelopes]
        (tmp_path / "docs" / "bread and salt.md").unlink()
        (report,) = (await run(path)).values()
        assert (report.deleted, len(server.points)) == (1, 2)
