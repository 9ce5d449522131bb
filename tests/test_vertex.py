"""The provider `vertex` against a collection on loopback: what is asked, what is written, what is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from google.cloud import vectorsearch_v1 as types
from support.vertex import Script, Step, listening, opened

from contextrouter import ContextRouter, Document, Period, Query, Scope
from contextrouter.builtin.embedders.prediction_server import PredictionServer
from contextrouter.builtin.providers.vertex import Vertex, write
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.builtin.shared.google_cloud import request_batches
from contextrouter.contracts import Entry, Partial
from contextrouter.errors import ContractError, IngestError, SettingsError, SourceError
from contextrouter.ingest import run

X, Y, DIAGONAL = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]
PARENT = "projects/p/locations/us-central1/collections/library"


@asynccontextmanager
async def store(
    server: CollectionServer | None = None, **keys: Any
) -> AsyncIterator[tuple[Vertex, CollectionServer, Script]]:
    """An open store on a server, with vectors of two dimensions unless the server has others."""
    server = server or CollectionServer("library", 2)
    keys = {"collection": "library", "project": "p", **keys}
    async with listening(server) as (endpoint, script), opened(Vertex(endpoint=endpoint, **keys)) as vertex:
        script.seen.clear()
        yield vertex, server, script


def entry(
    id: str, content: str, vector: Sequence[float] | None = X, fingerprint: str = "", **fields: Any
) -> Entry:
    document = Document(id=id, content=content, **fields)
    return Entry(document=document, chunks=[document], vectors={"vector": [vector]}, fingerprint=fingerprint)


async def find(vertex: Vertex, text: str = "", leg: str = "vector", **fields: Any) -> list[str]:
    query = Query(text=text, leg=leg, vector=DIAGONAL if leg == "vector" else None, **fields)
    return [hit.document.id for hit in await vertex.search(query)]


async def test_hits_have_cosines_vectors_and_their_documents():
    async with store() as (vertex, _, _):
        await vertex.upsert([entry("a", "moon", [3.0, 4.0], title="Moon"), entry("b", "sun", [0.0, -2.0])])
        hits = await vertex.search(Query(text="moon", leg="vector", vector=[0.0, 5.0], limit=5))
        assert [(hit.document.id, pytest.approx(hit.score)) for hit in hits] == [("a", 0.8), ("b", -1.0)]
        assert list(hits[0].vector or ()) == pytest.approx([0.6, 0.8])
        assert hits[0].document == Document(id="a", content="moon", title="Moon")


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("index", ["", "ann"])
async def test_one_distance_alone_is_read_by_the_sign_that_the_service_gives(index: str, sign: float):
    """A product may come negated. One result has no order that tells it: a vector compared with itself does."""
    async with store(index=index) as (vertex, server, script):
        server.sign = sign
        await vertex.upsert([entry("a", "moon", [-0.6, 0.8])])
        if index:
            await vertex.migrate()
        hits = await vertex.search(Query(text="moon", leg="vector", vector=X))
        assert [(hit.document.id, pytest.approx(hit.score)) for hit in hits] == [("a", -0.6)]
        assert (await vertex.status())["distance to itself"] == f"{sign:.4f}"
        script.seen.clear()
        await find(vertex)
        assert script.methods() == ["SearchDataObjects"], "asked for once"


async def test_an_index_of_cosine_distances_is_read_as_one():
    async with store(index="ann") as (vertex, server, _):
        await vertex.upsert([entry("a", "moon", [0.6, 0.8]), entry("b", "sun", [-1.0, 0.0])])
        await vertex.migrate()
        (index,) = server.indexes.values()
        index.distance_metric = types.DistanceMetric.COSINE_DISTANCE
        hits = await vertex.search(Query(text="moon", leg="vector", vector=X))
        scores = [(hit.document.id, hit.score) for hit in hits]
        assert scores == [("a", pytest.approx(0.6)), ("b", pytest.approx(-1.0))]


async def test_an_index_that_the_settings_do_not_name_is_not_used():
    async with store(index="ann") as (vertex, server, _):
        await vertex.migrate()
        await vertex.upsert([entry("a", "moon", [0.6, 0.8])])
        async with store(server) as (other, _, _):
            (hit,) = await other.search(Query(text="moon", leg="vector", vector=X))
            assert list(hit.vector or ()) == pytest.approx([0.6, 0.8]), "all vectors were compared"


async def test_text_finds_what_has_all_words_first_then_what_has_some():
    async with store(embedder=None) as (vertex, _, script):
        texts = {"both": "the moon and the tides", "moon": "moon moon moon", "tide": "a tide", "none": "dust"}
        chunks = [Document(id=id, content=text) for id, text in texts.items()]
        await vertex.upsert([Entry(document=chunk, chunks=[chunk]) for chunk in chunks])
        script.seen.clear()
        found = await find(vertex, "Which moon raises the tides?", "text")
        assert found[0] == "both"
        assert sorted(found) == ["both", "moon", "tide"]
        assert script.methods() == ["BatchSearchDataObjects"], "all words and each word, in one request"
        assert await find(vertex, "moon tides", "text", limit=1) == ["both"]


async def test_phrases_and_exclusions_hold():
    async with store(embedder=None) as (vertex, _, _):
        texts = {"new york": "a map of New York", "york new": "York has a new map", "old": "an old map"}
        chunks = [Document(id=id, content=text) for id, text in texts.items()]
        await vertex.upsert([Entry(document=chunk, chunks=[chunk]) for chunk in chunks])
        quote_string = {"text": 'map "new york"', "required": (("new york",),)}
        assert await find(vertex, leg="text", **quote_string) == ["new york"]
        assert sorted(await find(vertex, "map -york", "text", excluded=("york",))) == ["old"]


async def test_words_are_found_in_the_language_of_their_text():
    async with store(embedder=None) as (vertex, _, _):
        chunks = [
            Document(id="de", content="alte Häuser", language="de"),
            Document(id="en", content="old houses"),
            Document(id="fr", content="les vieilles maisons", language="fr"),
        ]
        await vertex.upsert([Entry(document=chunk, chunks=[chunk]) for chunk in chunks])
        assert await find(vertex, "Haus", "text") == ["de"]
        assert await find(vertex, "house", "text") == ["en"]
        assert await find(vertex, "maison", "text") == ["fr"]


async def test_a_question_of_very_many_words_asks_for_the_longest():
    async with store(embedder=None) as (vertex, _, script):
        chunk = Document(id="a", content="an extraordinary constellation")
        await vertex.upsert([Entry(document=chunk, chunks=[chunk])])
        question = " ".join(f"w{n}" for n in range(500)) + " extraordinary"
        script.seen.clear()
        assert await find(vertex, question, "text") == ["a"]
        assert script.methods() == ["BatchSearchDataObjects"]


async def test_scope_period_and_filters_go_to_the_service_before_the_limit():
    async with store() as (vertex, server, _):
        fields: Mapping[str, Mapping[str, Any]] = {
            "mine": {"tenant": "acme", "sensitivity": "internal"},
            "hidden": {"tenant": "acme", "compartment": "hr"},
            "theirs": {"tenant": "globex"},
            "all": {"tenant": "*"},
        }
        entries = [entry(id, id, X, **labels) for id, labels in fields.items()]
        await vertex.upsert(
            [*entries, entry("free", "free", X, metadata={"year": 2024, "a=b": "c", "a": "b=c"})]
        )
        assert sorted(await find(vertex, scope=Scope(tenant="acme", ceiling="internal"))) == ["all", "mine"]
        assert sorted(await find(vertex, scope=Scope(tenant="acme", compartments={"hr"}))) == [
            "all",
            "hidden",
        ]
        assert await find(vertex, filters={"year": 2024}, limit=1) == ["free"]
        assert await find(vertex, filters={"year": "2024"}) == []
        assert await find(vertex, filters={"a=b": "c"}, limit=1) == ["free"]
        assert await find(vertex, filters={"a": "c"}) == []
        assert await find(vertex, filters={"year": None}) == []
        assert await find(vertex, period=Period(end=date(2030, 1, 1))) == [], "undated texts are in no period"
        assert len(server.objects) == 11  # five documents, five chunks, the notes


async def test_a_document_is_replaced_without_a_gap_by_its_changes_alone():
    async with store() as (vertex, server, script):
        old = [
            Document(id=f"d#{n}", parent="d", content=text) for n, text in enumerate(["same", "old", "gone"])
        ]
        new = [Document(id=f"d#{n}", parent="d", content=text) for n, text in enumerate(["same", "new"])]
        whole = Document(id="d", content="whole")
        await vertex.upsert(
            [Entry(document=whole, chunks=old, vectors={"vector": [X, X, X]}, fingerprint="1")]
        )
        script.seen.clear()
        await vertex.upsert([Entry(document=whole, chunks=new, vectors={"vector": [X, X]}, fingerprint="2")])
        writes = [name for name in script.methods() if name.startswith("Batch")]
        order = ["BatchCreateDataObjects", "BatchUpdateDataObjects", "BatchDeleteDataObjects"]
        assert writes == [*order, "BatchUpdateDataObjects"], "create, document, delete; then the notes"
        texts = sorted(
            hit.document.content for hit in await vertex.search(Query(text="", leg="vector", vector=X))
        )
        assert texts == ["new", "same"]
        assert await vertex.fingerprints() == {"d": "2"}
        assert len(server.objects) == 4  # the document, two chunks, the notes


async def test_a_write_that_broke_off_is_mended_by_the_next():
    async with store() as (vertex, _, script):
        await vertex.upsert([entry("d", "old", X, "1")])
        for method in ("BatchCreateDataObjects", "BatchUpdateDataObjects", "BatchDeleteDataObjects"):
            script.only, script.steps = (method,), [Step(status="UNAVAILABLE")]
            with pytest.raises(SourceError, match="not reachable"):
                await vertex.upsert([entry("d", f"new {method}", X, method)])
            assert await find(vertex), "some version is there all the time"
            await vertex.upsert([entry("d", f"new {method}", X, method)])
            hits = await vertex.search(Query(text="", leg="vector", vector=X))
            assert [hit.document.content for hit in hits] == [f"new {method}"]
            assert await vertex.fingerprints() == {"d": method}


async def test_a_new_document_whose_write_broke_off_is_known_and_can_be_removed():
    for number in range(3):  # of the requests that create and update: document, chunks, document
        async with store() as (vertex, server, script):
            await vertex.upsert([entry("a", "one", X, "1")])
            script.only = ("BatchCreateDataObjects", "BatchUpdateDataObjects")
            script.steps = [*[Step()] * number, Step(status="UNAVAILABLE")]
            with pytest.raises(SourceError, match="not reachable"):
                await vertex.upsert([entry("new", "two", X, "1")])
            known = await vertex.fingerprints()
            assert known.get("new", "") == ""
            assert number == 0 or "new" in known, "ingestion removes what is known and no more in its source"
            await vertex.delete(["new"])
            assert await find(vertex) == ["a"]
            assert len(server.objects) == 3


async def test_writes_at_once_do_not_mix_their_chunks_and_lose_no_language():
    async with store() as (vertex, _, _):
        await vertex.upsert([entry("d", "old", X, "1")])
        texts = {"de": "Häuser am Meer", "fr": "maisons", "ru": "дома"}
        await asyncio.gather(
            *(vertex.upsert([entry("d", text, X, text, language=name)]) for name, text in texts.items()),
            vertex.upsert([entry("other", "Haus am See", Y, language="de")]),
        )
        hits = await vertex.search(Query(text="", leg="vector", vector=X, limit=9))
        assert [hit.document.id for hit in hits] == ["d", "other"]
        assert [hits[0].document.content] == [(await vertex.fingerprints())["d"]]
        assert await find(vertex, "Häusern", "text") == ["other"]


async def test_what_another_process_wrote_or_removed_meanwhile_is_no_error():
    async with store() as (vertex, server, script):
        await vertex.upsert([entry("a", "one", X, "1")])
        script.only, script.steps = ("BatchCreateDataObjects",), [Step(status="ALREADY_EXISTS")]
        await vertex.upsert([entry("b", "two", Y, "1")])
        assert sorted(await find(vertex)) == ["a", "b"]
        for name in [name for name in server.objects if name.rpartition("/")[2].startswith("d")]:
            del server.objects[name], server.data[name]
        script.only, script.steps = ("QueryDataObjects",), []
        await vertex.upsert([entry("a", "three", X, "2")])
        script.only, script.steps = ("BatchDeleteDataObjects",), [Step(status="NOT_FOUND")]
        assert await vertex.delete(["a"]) == 1
        assert await find(vertex) == ["b"]


async def test_of_many_chunks_no_request_has_more_than_a_thousand(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_batches, "BYTES", 10**9)  # only the count decides
    async with store() as (vertex, server, script):
        chunks = [Document(id=f"d#{n}", parent="d", content=f"part {n}") for n in range(2001)]
        whole = Document(id="d", content="whole")
        await vertex.upsert([Entry(document=whole, chunks=chunks, vectors={"vector": [X] * 2001})])
        assert script.methods().count("BatchCreateDataObjects") == 5  # the notes, 3, and the document
        assert len(await vertex.embedded(["d"], None, "")) == 2001
        assert await vertex.delete(["d"]) == 1
        assert [name.rpartition("/")[2] for name in server.objects] == ["notes"]


async def test_writes_are_cut_by_bytes_and_no_large_text_is_a_matter_of_quota():
    async with store() as (vertex, _, script):
        entries = [entry(f"d{n}", f"{n} " + "字" * 20_000) for n in range(40)]
        await vertex.upsert(entries)  # letters of three bytes; gRPC refuses messages above 4 MiB
        assert len(await vertex.fingerprints()) == 40
        assert script.methods().count("BatchCreateDataObjects") > 2
        with pytest.raises(SourceError, match=r"a message is too large .* Cut texts") as caught:
            await vertex.upsert([entry("big", "字" * 1_500_000)])
        assert "quota" not in str(caught.value)


async def test_the_same_id_in_two_tenants_is_two_documents_and_fetch_keeps_the_order():
    async with store() as (vertex, _, _):
        parts = [Document(id="d#0", parent="d", content="part")]
        whole = Entry(document=Document(id="d", content="whole"), chunks=parts, vectors={"vector": [X]})
        await vertex.upsert([whole, entry("d", "other", X, tenant="acme"), entry("e", "single", Y)])
        fetched = await vertex.fetch(["e", "d#0", "no such id", "d"])
        assert [each.content for each in fetched] == ["single", "part", "whole", "other"]
        assert [each.content for each in await vertex.fetch(["d"], Scope(tenant="acme"))] == ["other"]
        assert await vertex.tenants() == [None, "acme"]
        assert await vertex.delete(["d"], "acme") == 1
        assert await vertex.tenants() == [None]


async def test_a_label_of_hyphens_is_one_of_its_own_and_none_breaks_a_search():
    async with store() as (vertex, _, _):
        await vertex.upsert([entry("none", "moon"), entry("one", "moon", tenant="-", labels=("x",))])
        await vertex.upsert([entry("two", "moon", tenant="--"), entry("kept", "moon", compartment="-")])
        for tenant, ids in ((None, ["none"]), ("-", ["one"]), ("--", ["two"])):
            assert await find(vertex, scope=Scope(tenant=tenant)) == ids
            assert sorted(await vertex.fingerprints(tenant)) == (ids if tenant else ["kept", "none"])
        assert sorted(await find(vertex, scope=Scope(compartments={"-"}))) == ["kept", "none"]
        assert await vertex.facets(Query(text="", scope=Scope()), ["labels"]) == []
        assert set(await vertex.tenants()) == {None, "-", "--"}
        for scope in (Scope(tenant="\ud800"), Scope(tenant="?", compartments={"\ud800"})):
            assert await find(vertex, scope=scope) == []
            assert await vertex.fetch(["none"], scope) == []


async def test_facets_count_documents_and_not_chunks():
    async with store() as (vertex, _, _):
        parts = [Document(id=f"d#{n}", parent="d", content="x", kind="book") for n in range(3)]
        whole = Document(id="d", content="x", kind="book")
        many = Entry(document=whole, chunks=parts, vectors={"vector": [X, X, X]})
        await vertex.upsert([many, entry("e", "y", X, kind="qa"), entry("f", "z", X, kind="qa")])
        for limit, expected in ((2, [("qa", 2), ("book", 1)]), (1, [("qa", 2)])):
            facets = await vertex.facets(Query(text="", leg="vector", limit=limit), ["kind"])
            assert [(each.value, each.count) for each in facets] == expected


async def test_vectors_of_another_model_are_refused_and_text_goes_on():
    async with store() as (vertex, _, _):
        await vertex.embedded_by("one", 2)
        await vertex.upsert([entry("a", "moon")])
        with pytest.raises(SourceError, match="filled by the embedding model 'one' with 2 dimensions"):
            await vertex.embedded_by("two", 2)
        with pytest.raises(SourceError, match="ingest --rebuild"):
            await find(vertex)
        assert await find(vertex, "moon", "text") == ["a"]
        await vertex.clear()
        await vertex.embedded_by("two", 2)
        await vertex.upsert([entry("b", "sun")])
        assert await find(vertex) == ["b"]
        with pytest.raises(SourceError, match="Query vector has 3 dimensions, the store's have 2"):
            await vertex.search(Query(text="", leg="vector", vector=[1.0, 2.0, 3.0]))


async def test_an_embedder_of_another_length_than_dimensions_is_named_before_a_write():
    async with store(dimensions=2) as (vertex, server, _):
        with pytest.raises(SourceError, match=r"model 'big' have 3 dimensions.*set dimensions = 3, and"):
            await vertex.embedded_by("big", 3)
        await vertex.embedded_by("small", 2)
        assert server.objects == {}


async def test_an_entry_that_cannot_be_stored_is_refused_before_anything_is_written():
    async with store() as (vertex, server, _):
        await vertex.upsert([entry("a", "moon")])
        before = dict(server.objects)
        for wrong, problem in (
            (entry("", "x"), "without an id"),
            (entry("b", "x", [1.0, 2.0, 3.0]), "'b' has a vector of 3 dimensions, the store's have 2"),
            (entry("b", "\ud800"), "lone surrogate"),
            (entry("b", "x", [float("nan"), 1.0]), "not finite"),
        ):
            with pytest.raises(IngestError, match=problem):
                await vertex.upsert([entry("fine", "x"), wrong])
        assert server.objects == before


async def test_an_object_of_another_program_is_reported_and_left_out():
    async with store() as (vertex, server, _):
        await vertex.upsert([entry("a", "moon", X)])
        name = f"{PARENT}/dataObjects/stranger"
        dense = types.Vector(dense=types.DenseVector(values=X))
        server.objects[name] = types.DataObject(name=name, data={"payload": "?"}, vectors={"vector": dense})
        server.data[name] = {"payload": "?"}
        hits = await vertex.search(Query(text="", leg="vector", vector=X))
        assert isinstance(hits, Partial)
        assert [hit.document.id for hit in hits] == ["a"]
        assert hits.reason == "1 objects of the collection were not written by contextrouter"


class Forgetful(CollectionServer):
    """A service that forgets the page, the filter, or a deletion."""

    forgets = ""

    def _query(self, request: Any) -> Any:
        if self.forgets == "filter":
            request.filter = {"role": "document"}
        answer = super()._query(request)
        if self.forgets == "page":
            answer.next_page_token = "1"
        return answer

    def _delete(self, requests: Any) -> Any:
        return super()._delete([] if self.forgets == "deletion" else requests)


async def test_a_service_that_forgets_holds_nobody_in_a_circle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(write, "VISIBLE", 0)
    server = Forgetful("library", 2)
    async with store(server) as (vertex, _, _):
        await vertex.upsert([entry("a", "moon"), entry("b", "sun", tenant="acme")])
        server.forgets = "page"
        with pytest.raises(SourceError, match="gives the same page of a list again and again"):
            await vertex.fingerprints()
        server.forgets = "filter"
        assert await vertex.tenants() == [None, "acme"]
        server.forgets = "deletion"
        with pytest.raises(SourceError, match="still lists 4 objects that were removed"):
            await vertex.clear()


# What the service refuses


@pytest.mark.parametrize("id", ["a" * 64, "Moon", "1a", "a-", ""])
async def test_the_service_refuses_ids_of_another_form(id: str):
    async with store() as (vertex, _, _):
        raw = vertex._get_collection()
        request = types.CreateDataObjectRequest(parent=PARENT, data_object_id=id, data_object={})
        with pytest.raises(SourceError, match="is not valid"):
            await vertex._connection.call(raw.objects.create_data_object, request)


@pytest.mark.parametrize("kind", ["create", "update", "delete"])
async def test_the_service_refuses_a_batch_of_more_than_a_thousand(kind: str):
    title = kind.title()
    async with store() as (vertex, _, _):
        raw = vertex._get_collection()
        requests = [getattr(types, f"{title}DataObjectRequest")()] * 1001
        request = getattr(types, f"Batch{title}DataObjectsRequest")(parent=PARENT, requests=requests)
        with pytest.raises(SourceError, match="1001 requests in a batch; at most 1000"):
            await vertex._connection.call(getattr(raw.objects, f"batch_{kind}_data_objects"), request)


async def test_the_service_refuses_a_listing_with_pages_of_more_than_a_thousand():
    async with store() as (vertex, _, _):
        request = types.QueryDataObjectsRequest(parent=PARENT, page_size=1001)
        with pytest.raises(SourceError, match="page_size 1001; at most 1000"):
            await vertex._connection.call(vertex._get_collection().searches.query_data_objects, request)


async def test_the_service_has_no_upsert():
    async with store() as (vertex, _, _):
        raw, call = vertex._get_collection(), vertex._connection.call
        create = types.CreateDataObjectRequest(parent=PARENT, data_object_id="a", data_object={})
        await call(raw.objects.create_data_object, create)
        with pytest.raises(SourceError, match="AlreadyExists"):
            await call(raw.objects.create_data_object, create)
        for method in ("update", "delete"):
            name = f"{PARENT}/dataObjects/b"
            fields = {"data_object": {"name": name}} if method == "update" else {"name": name}
            request = getattr(types, f"{method.title()}DataObjectRequest")(**fields)
            with pytest.raises(SourceError, match=r"'.*/dataObjects/b' was not found"):
                await call(getattr(raw.objects, f"{method}_data_object"), request)


@pytest.mark.parametrize("id", ["Library", "a_b", ""])
async def test_the_service_refuses_names_of_collections_and_indexes_of_another_form(id: str):
    async with store() as (vertex, _, _):
        admin, location = vertex._get_collection().admin, vertex._get_collection().location
        requests = {
            "collection": types.CreateCollectionRequest(parent=location, collection_id=id, collection={}),
            "index": types.CreateIndexRequest(parent=PARENT, index_id=id, index={"index_field": "vector"}),
        }
        for kind, request in requests.items():
            with pytest.raises(SourceError, match=f"{kind}_id {id!r} is not valid"):
                await vertex._connection.call(getattr(admin, f"create_{kind}"), request)


@pytest.mark.parametrize("hint", ["index", "", "knn"])
async def test_an_index_refuses_filters_and_fields_that_it_does_not_hold(hint: str):
    """Without a hint, an index is used where there is one."""
    async with store(index="ann") as (vertex, _, _):
        await vertex.migrate()
        raw = vertex._get_collection()
        hints = {"knn": {"knn_hint": {}}, "index": {"index_hint": {"name": f"{PARENT}/indexes/ann"}}, "": {}}
        search = {"search_field": "vector", "vector": {"values": X}, "search_hint": hints[hint]}
        for more, problem in (
            ({"filter": {"$or": [{"tenant": "-"}, {"id": "a"}]}}, r"\['id'\] are no filter_fields"),
            ({"output_fields": {"data_fields": ["owner"]}}, r"\['owner'\] are no store_fields"),
        ):
            request = types.SearchDataObjectsRequest(parent=PARENT, vector_search={**search, **more})
            if hint == "knn":
                await vertex._connection.call(raw.searches.search_data_objects, request)
                continue
            with pytest.raises(SourceError, match=problem):
                await vertex._connection.call(raw.searches.search_data_objects, request)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ({"$not": {"role": {"$eq": "chunk"}}}, r"operator '\$not' is not supported"),
        ({"role": {"$exists": True}}, r"operator '\$exists' is not supported"),
        ({"updated": {"$in": [1, 2]}}, r"\$in takes strings only"),
        ({"role": {"$eq": None}}, r"\$eq takes no null"),
        ({"updated": {"$gt": "x"}}, r"\$gt takes numbers only"),
    ],
)
async def test_the_service_refuses_filters_that_it_does_not_know(condition: Any, problem: str):
    async with store() as (vertex, _, _):
        await vertex.upsert([entry("a", "moon")])
        with pytest.raises(SourceError, match=problem):
            await vertex._get_collection().query([condition], ["id"])


async def test_a_second_vector_in_the_oneof_takes_the_place_of_the_first():
    search = types.VectorSearch(search_field="vector", vector=types.DenseVector(values=X))
    search.sparse_vector = types.SparseVector(values=[1.0], indices=[1])
    assert list(search.vector.values) == [], "so a query may have one kind of vector only"
    async with store() as (vertex, _, _):
        await vertex.upsert([entry("a", "moon")])
        request = types.SearchDataObjectsRequest(parent=PARENT, vector_search=search)
        with pytest.raises(SourceError, match="the query vector has 0 dimensions"):
            await vertex._connection.call(vertex._get_collection().searches.search_data_objects, request)


async def test_beyond_a_hundred_thousand_objects_an_index_is_needed():
    server = CollectionServer("library", 2)
    assert server.scanned == 100_000
    server.scanned = 4
    async with store(server) as (vertex, _, _):
        await vertex.upsert([entry(id, id) for id in "abc"])
        with pytest.raises(SourceError, match="KNN is limited to 4 objects; use an index"):
            await find(vertex)
    async with store(server, index="ann", target_recall=0.9) as (vertex, _, _):
        with pytest.raises(SourceError, match=r"indexes/ann"):
            await find(vertex)
        with pytest.raises(
            SourceError, match=r"has no index 'ann' in '.*'. Indexes there: none. Set index to"
        ):
            await vertex.ping()
        assert await vertex.tune() == ["make the index 'ann'"]
        assert await vertex.migrate() == [2]
        assert await vertex.tune() == []
        await vertex.ping()
        assert sorted(await find(vertex)) == ["a", "b", "c"]
        with pytest.raises(SourceError, match="query is limited to 4 objects"):
            await vertex.fingerprints()
        vertex._index = "other"
        with pytest.raises(SourceError, match=r"Indexes there: 'ann'. Set index to one of them, or make it"):
            await vertex.ping()
        made = server.indexes[f"{PARENT}/indexes/ann"]
        assert {"tenant", "compartment", "sensitivity", "updated", "values"} <= {*made.filter_fields}


# Settings, and the command line


def test_keys_of_search_apps_lead_to_the_right_name(tmp_path: Path):
    for key in ("engine", "data_store"):
        path = tmp_path / "settings.toml"
        path.write_text(f'[providers.docs]\nuse = "vertex"\nproject = "p"\n{key} = "intranet"\n')
        with pytest.raises(SettingsError, match=rf"providers.docs.*{key} .*vertex_search"):
            ContextRouter.from_toml(path)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "collection is empty"),
        ({"collection": "a/b"}, "collection 'a/b' is not allowed as a name.*such as 'a-b'"),
        ({"collection": "My Library_2"}, "such as 'my-library-2'"),
        ({"collection": "c" * 64}, "Give 1 to 63 small letters"),
        ({"collection": "c", "index": "ANN"}, "index 'ANN' is not allowed.*such as 'ann'"),
        ({"collection": "c", "target_recall": 0.9}, "target_recall 0.9 is for an index.*Set `index`"),
        ({"collection": "c", "location": "US Central"}, "location 'US Central' is no region"),
        ({"collection": "c", "location": "us-central1-a"}, "is a zone. Give its region, 'us-central1'"),
        ({"collection": "c", "endpoint": "localhost:99999"}, "has no port from 1 to 65535"),
        ({"collection": "c", "endpoint": "host.example.org:0"}, "has no port from 1 to 65535"),
        ({"collection": "c", "location": ""}, "location is empty"),
        ({"collection": "c", "index": "i", "target_recall": 2.0}, "target_recall 2.0 is out of range"),
        ({"collection": "c", "request_timeout": 0.0}, "request_timeout 0.0"),
        ({"collection": "c", "endpoint": "http://x/y"}, "endpoint 'http://x/y' is no host"),
        ({"collection": "c", "dimensions": -1}, "dimensions -1"),
        ({"collection": "c", "dimensions": 10**11}, "dimensions 100000000000 is out of range"),
        ({"collection": "c", "request_timeout": 1e300}, "request_timeout 1e"),
    ],
)
def test_a_wrong_key_says_what_is_wrong(keys: Mapping[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        Vertex(**keys)


def test_a_wrong_value_is_shown_at_the_line_of_its_key(tmp_path: Path):
    """Whatever the plugin: a message that begins with a key stands where that key was set."""
    path = tmp_path / "settings.toml"
    table = '[rag]\nprovider = "vertex"\n\n[providers.vertex]\nproject = "p"\ncollection = "library"\n'
    for key, line in (("location", 'location = "Mars"'), ("target_recall", "target_recall = 0.9")):
        path.write_text(f"{table}{line}\n")
        with pytest.raises(SettingsError, match=rf"settings.toml:7: providers.vertex: {key} "):
            ContextRouter.from_toml(path)


@pytest.mark.parametrize("settings", ['[rag]\nprovider = "vertex"\n', '[rag]\nprovider = "vertex_index"\n'])
def test_a_provider_without_its_table_is_reported_at_the_line_that_names_it(tmp_path: Path, settings: str):
    path = tmp_path / "settings.toml"
    path.write_text(settings)
    with pytest.raises(SettingsError, match=r"settings.toml:2: providers.vertex\w*: "):
        ContextRouter.from_toml(path)


async def test_before_open_a_call_says_so_and_without_a_project_open_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(ContractError, match=r"Call open\(\) first"):
        await Vertex(collection="c").fetch(["a"])
    async with listening(CollectionServer("c")) as (endpoint, _):
        with pytest.raises(Exception, match="Set `project`, or GOOGLE_CLOUD_PROJECT"):
            await Vertex(collection="c", endpoint=endpoint).open()
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of-the-environment")
        async with opened(Vertex(collection="c", endpoint=endpoint)) as vertex:
            await vertex.ping()
            assert vertex._get_collection().name.startswith("projects/of-the-environment/")


async def test_migrate_makes_collection_and_index_and_status_says_how_they_stand():
    server = CollectionServer()
    server.polls = 2
    async with store(server, dimensions=2, index="ann") as (vertex, _, script):
        assert await vertex.status() == {"collection": "", "documents": 0}
        with pytest.raises(SourceError, match=r"has no .*collections/library"):
            await vertex.ping()
        assert await vertex.migrate() == [1, 2]
        assert await vertex.migrate() == []
        assert script.methods().count("GetOperation") == 4
        await vertex.embedded_by("model", 2)
        await vertex.upsert([entry("a", "moon"), entry("b", "sun")])
        status = await vertex.status()
        assert (status["documents"], status["chunks"], status["dimensions"]) == (2, 2, 2)
        assert (status["indexes"], status["model"], status["distance to itself"]) == (
            "ann",
            "model",
            "1.0000",
        )
    async with store(CollectionServer(), embedder="default") as (vertex, _, _):
        with pytest.raises(SourceError, match="or make the collection: `contextrouter db migrate`"):
            await vertex.ping()
        with pytest.raises(SourceError, match="Set `dimensions`"):
            await vertex.migrate()


async def test_two_processes_that_migrate_at_once_make_one_collection_and_one_index():
    server = CollectionServer()
    server.polls = 2
    async with listening(server) as (endpoint, script):
        script.always = Step(delay=0.002)
        keys = {"collection": "library", "project": "p", "dimensions": 2, "index": "ann"}
        async with (
            opened(Vertex(endpoint=endpoint, **keys)) as first,
            opened(Vertex(endpoint=endpoint, **keys)) as second,
        ):
            made = await asyncio.gather(first.migrate(), second.migrate())
        assert sorted(number for numbers in made for number in numbers) == [1, 2]


LEGS = {("vector", "ok"), ("text", "ok")}
SETTINGS = """
[rag]
provider = "vertex"
cache_enabled = false

[providers.vertex]
project = "p"
collection = "library"
dimensions = 256
endpoint = "{endpoint}"

[ingest.docs]
from = "docs"
to = "vertex"
"""


@pytest.mark.case("R14", "R16")
async def test_ingestion_fills_the_store_once_and_questions_find_what_sqlite_finds(tmp_path: Path):
    texts = {
        "tides": "# Tides\n\nThe moon and the sun raise the tides of the sea.",
        "comets": "# Comets\n\nA comet is ice and dust; near the sun it grows a tail.",
        "bread": "# Bread\n\nFlour, water, salt and a starter make a loaf.",
        "rivers": "# Rivers\n\nA river carries water and sand to the sea.",
    }
    (tmp_path / "docs").mkdir()
    for name, text in texts.items():
        (tmp_path / "docs" / f"{name}.md").write_text(text)
    path, other = tmp_path / "settings.toml", tmp_path / "sqlite.toml"
    other.write_text(
        '[rag]\ncache_enabled = false\n[providers.vertex]\nuse = "sqlite"\npath = "docs.db"\nlegs = ["vector", "text"]\n'
        '[ingest.docs]\nfrom = "docs"\nto = "vertex"\n'
    )
    async with listening(CollectionServer("library", 256)) as (endpoint, script):
        path.write_text(SETTINGS.format(endpoint=endpoint))
        for settings in (path, other):
            (report,) = (await run(settings)).values()
            assert (report.added, report.embedded > 0) == (4, True)
        script.seen.clear()
        (report,) = (await run(path)).values()
        assert (report.added, report.changed, report.unchanged, report.embedded) == (0, 0, 4, 0)
        assert [name for name in script.methods() if name.startswith("Batch")] == []
        (tmp_path / "docs" / "bread.md").unlink()
        for settings in (path, other):
            (report,) = (await run(settings)).values()
            assert report.deleted == 1
        async with ContextRouter.from_toml(path) as ours, ContextRouter.from_toml(other) as theirs:
            for question in ("What raises the tides?", "sun", "water and sand in a river", "comet -ice"):
                found, expected = await ours.route(question), await theirs.route(question)
                assert {(each.leg, each.status) for each in found.coverage} == LEGS
                assert sorted(map(_places, found.envelopes)) == sorted(map(_places, expected.envelopes)), (
                    question
                )


async def test_a_question_costs_a_request_for_each_wording_and_leg(tmp_path: Path):
    """As docs/vertex.md says of costs."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "books.md").write_text("A first book on machine learning for a beginner to read.")
    path, models = tmp_path / "settings.toml", PredictionServer()
    async with listening(CollectionServer("library", 256)) as (endpoint, script), listening(models) as (e, _):
        text = SETTINGS.format(endpoint=endpoint)
        embedder = (
            f'\n[embedders.default]\nuse = "vertex"\nproject = "p"\ndimensions = 256\nendpoint = "{e}"\n'
        )
        path.write_text(text + embedder)
        await run(path)
        for wordings, change in ((3, ""), (1, "max_retrieval_queries = 1\n")):
            path.write_text(text.replace("[rag]\n", f"[rag]\n{change}") + embedder)
            async with ContextRouter.from_toml(path) as router:
                await router.open()
                script.seen.clear()
                models.asked.clear()
                question = "Which machine learning book should a beginner read first?"
                assert (await router.route(question)).envelopes
            counts = Counter(script.methods())
            assert counts.pop("GetDataObject", 0) <= 1
            assert counts == {"SearchDataObjects": wordings, "BatchSearchDataObjects": wordings}
            assert [len(texts) for texts, _ in models.asked] == [wordings]


def _places(envelope: Any) -> tuple[str, set[str], list[int]]:
    """A document, the legs that found it, and its ranks among vectors. Words are scored by each store."""
    places = envelope.provenance
    ranks = [each.rank for each in places if each.leg == "vector"]
    return envelope.document.id, {each.leg for each in places}, ranks
