"""A local stand-in for Vector Search 2, for examples and tests: it keeps objects in memory.

It refuses what the service refuses: ids of another form, more than 1,000 objects in a request, a scan or a
listing of more than 100,000 objects, $not, null, and numbers in $in, vectors of another length, filters and
fields that an index does not hold. Its text search joins words by AND.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from contextrouter.builtin.providers.vertex.data_objects import SCHEMA, VECTOR
from contextrouter.builtin.providers.vertex.server_filter import (
    Refused,
    check_id,
    fields_of,
    holds,
    plain_filter,
)
from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer, Rpc

_API = "google.cloud.vectorsearch.v1"


class CollectionServer(GrpcServer):
    """Keeps one project. `collection` is there from the start, with vectors of `dimensions`; "": none is.

    `scanned` is the most objects that are searched without an index, or listed. `sign` -1: distances are
    negative products. A collection or an index is ready after `polls` questions.
    """

    def __init__(self, collection: str = "", dimensions: int = 0) -> None:
        super().__init__()
        self.first = (collection, dimensions)
        self.scanned, self.sign, self.polls, self.writes = 100_000, 1.0, 0, 0
        self.collections: dict[str, Any] = {}  # id -> Collection
        self.indexes: dict[str, Any] = {}  # full name -> Index
        self.objects: dict[str, Any] = {}  # full name -> DataObject
        self.data: dict[str, dict[str, Any]] = {}  # full name -> its data, plain
        self.operations: dict[str, list[Any]] = {}  # name -> [questions until it is done, operation]

    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """The methods that the provider calls."""
        from google.cloud import vectorsearch_v1 as types
        from google.longrunning import operations_pb2
        from google.protobuf import empty_pb2

        self.types: Any = types
        if self.first[0] and not self.collections:
            self.collections[self.first[0]] = self._make_collection(self.first[1])

        def rpc(answer: Callable[[Any], Any], name: str, response: Any = None) -> Rpc:
            message = response or getattr(types, f"{name}Response", None)
            return Rpc(_answering(answer), getattr(types, f"{name}Request"), message)

        poll = Rpc(_answering(self._poll), operations_pb2.GetOperationRequest, operations_pb2.Operation)
        operation, empty, stored = operations_pb2.Operation, empty_pb2.Empty, types.DataObject
        return {
            f"{_API}.VectorSearchService": {
                "GetCollection": rpc(self._get_collection, "GetCollection", types.Collection),
                "CreateCollection": rpc(self._create_collection, "CreateCollection", operation),
                "ListIndexes": rpc(self._list_indexes, "ListIndexes"),
                "GetIndex": rpc(lambda r: self._find_index(r.name), "GetIndex", types.Index),
                "CreateIndex": rpc(self._create_index, "CreateIndex", operation),
            },
            "google.longrunning.Operations": {"GetOperation": poll},
            f"{_API}.DataObjectService": {
                "GetDataObject": rpc(self._get, "GetDataObject", stored),
                "CreateDataObject": rpc(lambda r: self._create([r])[0], "CreateDataObject", stored),
                "UpdateDataObject": rpc(lambda r: self._update([r])[0], "UpdateDataObject", stored),
                "DeleteDataObject": rpc(lambda r: self._delete([r]), "DeleteDataObject", empty),
                "BatchCreateDataObjects": rpc(self._batch_create, "BatchCreateDataObjects"),
                "BatchUpdateDataObjects": rpc(self._batch_update, "BatchUpdateDataObjects"),
                "BatchDeleteDataObjects": rpc(
                    lambda r: self._delete(_few(r.requests)), "BatchDeleteDataObjects", empty
                ),
            },
            f"{_API}.DataObjectSearchService": {
                "SearchDataObjects": rpc(self._search, "SearchDataObjects"),
                "BatchSearchDataObjects": rpc(self._batch_search, "BatchSearchDataObjects"),
                "QueryDataObjects": rpc(self._query, "QueryDataObjects"),
                "AggregateDataObjects": rpc(self._aggregate, "AggregateDataObjects"),
            },
        }

    # Collections

    def _make_collection(self, dimensions: int) -> Any:
        message = self.types.Collection(data_schema=SCHEMA)
        if dimensions:
            dense = self.types.DenseVectorField(dimensions=dimensions)
            message.vector_schema[VECTOR] = self.types.VectorField(dense_vector=dense)
        return message

    def _find_collection(self, name: str) -> Any:
        message = self.collections.get(name.split("/collections/")[1].split("/")[0])
        if message is None:
            raise Refused("NOT_FOUND", f"Collection {name!r} was not found")
        return message

    def _get_collection(self, request: Any) -> Any:
        return self._find_collection(request.name)

    def _create_collection(self, request: Any) -> Any:
        check_id("collection_id", request.collection_id)
        if request.collection_id in self.collections:
            raise Refused("ALREADY_EXISTS", f"Collection {request.collection_id!r} exists")
        self.collections[request.collection_id] = request.collection
        return self._start(request.parent, request.collection)

    def _list_indexes(self, request: Any) -> Any:
        self._find_collection(request.parent)
        indexes = [item for name, item in self.indexes.items() if name.startswith(request.parent)]
        return self.types.ListIndexesResponse(indexes=indexes)

    def _create_index(self, request: Any) -> Any:
        self._find_collection(request.parent)
        check_id("index_id", request.index_id)
        name = f"{request.parent}/indexes/{request.index_id}"
        if name in self.indexes:
            raise Refused("ALREADY_EXISTS", f"Index {name!r} exists")
        index = request.index
        index.name = name
        self.indexes[name] = index
        return self._start(request.parent, index)

    def _find_index(self, name: str) -> Any:
        if name not in self.indexes:
            raise Refused("NOT_FOUND", f"Index {name!r} was not found")
        return self.indexes[name]

    def _start(self, parent: str, resource: Any) -> Any:
        from google.longrunning import operations_pb2

        operation = operations_pb2.Operation(name=f"{parent}/operations/{len(self.operations) + 1}")
        self.operations[operation.name] = [self.polls]
        if self.polls == 0:
            operation.done = True
            operation.response.Pack(type(resource).pb(resource))
        return operation

    def _poll(self, request: Any) -> Any:
        from google.longrunning import operations_pb2

        countdown = self.operations[request.name]
        countdown[0] -= 1
        return operations_pb2.Operation(name=request.name, done=countdown[0] <= 0)

    # Objects

    def _get(self, request: Any) -> Any:
        self._find_collection(request.name)
        if request.name not in self.objects:
            raise Refused("NOT_FOUND", f"DataObject {request.name!r} was not found")
        return self.objects[request.name]

    def _batch_create(self, request: Any) -> Any:
        return self.types.BatchCreateDataObjectsResponse(data_objects=self._create(_few(request.requests)))

    def _create(self, requests: Any) -> list[Any]:
        for item in requests:
            self._find_collection(item.parent)
            check_id("data_object_id", item.data_object_id)
            if f"{item.parent}/dataObjects/{item.data_object_id}" in self.objects:
                raise Refused("ALREADY_EXISTS", f"DataObject {item.data_object_id!r} exists")
            self._check_vectors(item.parent, item.data_object)
        return [
            self._keep(f"{item.parent}/dataObjects/{item.data_object_id}", item.data_object)
            for item in requests
        ]

    def _batch_update(self, request: Any) -> Any:
        self._update(_few(request.requests))
        return self.types.BatchUpdateDataObjectsResponse()

    def _update(self, requests: Any) -> list[Any]:
        for item in requests:
            self._find_collection(item.data_object.name)
            self._check_present(item.data_object.name, item.data_object.etag)
            self._check_vectors(item.data_object.name, item.data_object)
        return [self._keep(item.data_object.name, item.data_object) for item in requests]

    def _delete(self, requests: Any) -> Any:
        from google.protobuf import empty_pb2

        for item in requests:
            self._find_collection(item.name)
            self._check_present(item.name, item.etag)
        for item in requests:
            self.objects.pop(item.name, None)
            self.data.pop(item.name, None)
        return empty_pb2.Empty()

    def _check_present(self, name: str, etag: str) -> None:
        if name not in self.objects:
            raise Refused("NOT_FOUND", f"DataObject {name!r} was not found")
        if etag and etag != self.objects[name].etag:
            raise Refused("ABORTED", f"DataObject {name!r} has another etag than {etag!r}")

    def _keep(self, name: str, sent: Any) -> Any:
        from google.protobuf import json_format

        stored = type(sent)()
        stored._pb.CopyFrom(sent._pb)
        stored.name, stored.data_object_id = name, name.rpartition("/")[2]
        self.writes += 1
        stored.etag = f"e{self.writes}"
        self.objects[name] = stored
        self.data[name] = json_format.MessageToDict(stored._pb.data)
        return stored

    def _check_vectors(self, name: str, sent: Any) -> None:
        schema = self._find_collection(name).vector_schema
        for field, vector in sent.vectors.items():
            expected = schema[field].dense_vector.dimensions if field in schema else 0
            if len(vector.dense.values) != expected:
                raise Refused(
                    "INVALID_ARGUMENT",
                    f"vector {field!r} has {len(vector.dense.values)} dimensions, the schema has {expected}",
                )

    # Searches

    def _search(self, request: Any) -> Any:
        return self.types.SearchDataObjectsResponse(results=self._ranked(request.parent, request))

    def _batch_search(self, request: Any) -> Any:
        answer = self.types.SearchDataObjectsResponse
        lists = [answer(results=self._ranked(request.parent, item)) for item in request.searches]
        return self.types.BatchSearchDataObjectsResponse(results=lists)

    def _ranked(self, parent: str, search: Any) -> list[Any]:
        kind = type(search).pb(search).WhichOneof("search_type")
        query = getattr(search, kind)
        names = self._matching(parent, query)
        best, fields = self._occurrences, query.output_fields
        if kind == "vector_search":
            index = self._index_for(parent, query)
            best = self._nearness
        scores = best(parent, query, names)
        order = sorted(scores, key=lambda name: (-scores[name], name))[: query.top_k or 10]
        measure: Callable[[float], float] = float
        if kind == "vector_search":
            metric = query.distance_metric if index is None else index.distance_metric
            cosine = metric == self.types.DistanceMetric.COSINE_DISTANCE
            measure = (lambda score: 1.0 - score) if cosine else (lambda score: self.sign * score)
        result = self.types.SearchResult
        return [
            result(data_object=self._output(name, fields), distance=measure(scores[name])) for name in order
        ]

    def _index_for(self, parent: str, query: Any) -> Any:
        """The index of a search: the named one, or without a hint any; None: all vectors are compared."""
        hint = type(query.search_hint).pb(query.search_hint)
        index = None
        if hint.HasField("index_hint"):
            index = self._find_index(hint.index_hint.name)
        elif not hint.HasField("knn_hint"):
            index = next((item for name, item in self.indexes.items() if name.startswith(f"{parent}/")), None)
        if index is None:
            if len(self._of(parent)) > self.scanned:
                raise Refused(
                    "FAILED_PRECONDITION", f"KNN is limited to {self.scanned} objects; use an index"
                )
            return None
        filtered = fields_of(plain_filter(query))
        for kind, names, present in (
            ("filter", filtered, index.filter_fields),
            ("store", {*query.output_fields.data_fields}, index.store_fields),
        ):
            if others := sorted({*names} - {*present}):
                raise Refused("INVALID_ARGUMENT", f"{others} are no {kind}_fields of the index")
        return index

    def _nearness(self, parent: str, query: Any, names: list[str]) -> dict[str, float]:
        target = list(query.vector.values)
        schema = self._find_collection(parent).vector_schema
        if query.search_field not in schema:
            raise Refused("INVALID_ARGUMENT", f"there is no vector field {query.search_field!r}")
        if len(target) != schema[query.search_field].dense_vector.dimensions:
            raise Refused("INVALID_ARGUMENT", f"the query vector has {len(target)} dimensions")
        field, message = query.search_field, self.types.DataObject
        vectors = {name: message.pb(self.objects[name]).vectors for name in names}
        return {
            name: math.fsum(map(operator.mul, item[field].dense.values, target))
            for name, item in vectors.items()
            if field in item
        }

    def _occurrences(self, parent: str, query: Any, names: list[str]) -> dict[str, float]:
        """All words must occur. The rarer a word and the more often it occurs, the higher the score."""
        if not query.data_field_names or not query.search_text.strip():
            raise Refused("INVALID_ARGUMENT", "search_text and data_field_names are required")
        every = {name: self._words(name, query.data_field_names) for name in self._of(parent)}
        target = dict.fromkeys(query.search_text.lower().split())
        rarity = {
            word: math.log(1 + len(every) / (1 + sum(word in words for words in every.values())))
            for word in target
        }
        return {
            name: sum(rarity[word] * every[name][word] / (1 + every[name][word]) for word in target)
            for name in names
            if all(every[name][word] for word in target)
        }

    def _words(self, name: str, fields: Any) -> Counter[str]:
        return Counter(" ".join(str(self.data[name].get(field, "")) for field in fields).lower().split())

    def _of(self, parent: str) -> list[str]:
        self._find_collection(parent)
        return [name for name in self.objects if name.startswith(f"{parent}/")]

    def _matching(self, parent: str, query: Any) -> list[str]:
        condition = plain_filter(query)
        holds({}, condition)  # refused in an empty collection, too
        return [name for name in self._of(parent) if holds(self.data[name], condition)]

    def _output(self, name: str, fields: Any) -> Any:
        data = {key: value for key, value in self.data[name].items() if {"*", key} & {*fields.data_fields}}
        message = self.types.DataObject(name=name, data_object_id=name.rpartition("/")[2], data=data)
        for field in fields.vector_fields:
            if field in self.objects[name].vectors:
                message.vectors[field] = self.objects[name].vectors[field]
        return message

    def _query(self, request: Any) -> Any:
        if len(self._of(request.parent)) > self.scanned:
            raise Refused("FAILED_PRECONDITION", f"query is limited to {self.scanned} objects")
        if request.page_size > 1_000:
            raise Refused("INVALID_ARGUMENT", f"page_size {request.page_size}; at most 1000")
        names = self._matching(request.parent, request)
        size, start = request.page_size or 100, int(request.page_token or 0)
        return self.types.QueryDataObjectsResponse(
            data_objects=[self._output(name, request.output_fields) for name in names[start : start + size]],
            next_page_token=str(start + size) if start + size < len(names) else "",
        )

    def _aggregate(self, request: Any) -> Any:
        answer = self.types.AggregateDataObjectsResponse
        raw = answer.pb()()
        raw.aggregate_results.add().update({"count": len(self._matching(request.parent, request))})
        return answer.wrap(raw)


def _few(requests: Any) -> Any:
    if len(requests) > 1_000:
        raise Refused("INVALID_ARGUMENT", f"{len(requests)} requests in a batch; at most 1000")
    return requests


def _answering(answer: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A method of a service: what `answer` returns, or the status that it raises."""

    async def method(request: Any, context: Any) -> Any:
        import grpc

        try:
            return answer(request)
        except Refused as refused:
            await context.abort(getattr(grpc.StatusCode, refused.code), refused.message)

    return method
