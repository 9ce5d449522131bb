"""The calls to one collection: search, query, get, create, update, delete, count. Answers are read raw.

Reading the plain protobuf messages is ten times as fast as reading the client's own classes around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.vertex.data_objects import RETURNED, VECTOR, Row
from contextrouter.builtin.providers.vertex.object_filter import Condition, join_conditions
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.request_batches import MOST, cut_batches


class StoredRow(NamedTuple):
    """What was asked for of a stored object."""

    id: str
    data: Mapping[str, Any]  # texts and numbers; lists are left out
    lists: Mapping[str, Sequence[str]]
    vector: Sequence[float] | None
    etag: str = ""  # stands for this state of the object


class Result(NamedTuple):
    """One result of a search: the payload and the terms of a chunk, and how near it is."""

    id: str
    payload: str
    terms: str
    score: float | None
    vector: Sequence[float] | None


class Collection:
    """One collection, by an open connection."""

    def __init__(self, connection: CloudConnection, location: str, collection: str) -> None:
        from google.cloud import vectorsearch_v1

        self.types: Any = vectorsearch_v1
        self.connection, self.id = connection, collection
        self.location = f"projects/{connection.project}/locations/{location}"
        self.name = connection.resource = f"{self.location}/collections/{collection}"
        self.searches = connection.client("data_object_search_service")
        self.objects = connection.client("data_object_service")
        self.admin = connection.client("vector_search_service")
        # Until when a request that writes may last, by the turn of this process.
        self.write_deadline: Callable[[], float | None] = lambda: None

    def object_name(self, id: str) -> str:
        """Return the full name of an object."""
        return f"{self.name}/dataObjects/{id}"

    # Reading

    async def vector_search(
        self,
        vector: Sequence[float],
        conditions: Sequence[Condition],
        top: int,
        *,
        hint: Any,
        with_vectors: bool,
        deadline: float | None = None,
    ) -> list[Result]:
        """Return the chunks nearest to a vector. `hint` says whether an index is used."""
        types = self.types
        search = types.VectorSearch(
            search_field=VECTOR,
            vector=types.DenseVector(values=vector),
            search_hint=hint,
            distance_metric=types.DistanceMetric.DOT_PRODUCT,  # without an index, which has its own
            **self._common(conditions, top, with_vectors),
        )
        request = types.SearchDataObjectsRequest(parent=self.name, vector_search=search)
        answer = await self.connection.call(self.searches.search_data_objects, request, deadline=deadline)
        return [self._result(item) for item in answer.results]  # of the first page, without a further call

    async def text_searches(
        self,
        searches: Sequence[tuple[str, Sequence[Condition], int]],
        *,
        with_vectors: bool,
        deadline: float | None = None,
    ) -> list[list[Result]]:
        """For each text, conditions and limit: the chunks that have all its words and meet the conditions."""
        types = self.types
        message = [
            types.Search(
                text_search=types.TextSearch(
                    search_text=text,
                    data_field_names=["terms"],
                    **self._common(conditions, top, with_vectors),
                )
            )
            for text, conditions, top in searches
        ]
        request = types.BatchSearchDataObjectsRequest(parent=self.name, searches=message)
        answer = await self.connection.call(
            self.searches.batch_search_data_objects, request, deadline=deadline
        )
        lists = [[self._result(item) for item in response.results] for response in answer.results]
        if len(lists) != len(searches):
            raise self.connection.answer_error(f"gave {len(lists)} lists for {len(searches)} searches")
        return lists

    async def query(
        self,
        conditions: Sequence[Condition],
        fields: Sequence[str],
        *,
        with_vectors: bool = False,
        pages: int | None = None,
        deadline: float | None = None,
    ) -> list[StoredRow]:
        """Return the objects that meet the conditions, page by page; `pages`: so many at most."""
        types, rows, token, tokens = self.types, list[StoredRow](), "", {""}
        output = types.OutputFields(data_fields=fields, vector_fields=[VECTOR] if with_vectors else [])
        while pages is None or pages > 0:
            request = types.QueryDataObjectsRequest(
                parent=self.name,
                output_fields=output,
                page_size=MOST,
                page_token=token,
                **_filter(conditions),
            )
            answer = await self.connection.call(self.searches.query_data_objects, request, deadline=deadline)
            rows += [self._row(item) for item in answer.data_objects]
            token, pages = answer.next_page_token, None if pages is None else pages - 1
            if not token:
                break
            if token in tokens:
                raise self.connection.answer_error("gives the same page of a list again and again")
            tokens.add(token)
        return rows

    async def get(self, id: str, *, deadline: float | None = None) -> StoredRow | None:
        """Return an object; None where there is none."""
        request = self.types.GetDataObjectRequest(name=self.object_name(id))
        empty = self.types.DataObject()
        answer = await self.connection.call(
            self.objects.get_data_object, request, deadline=deadline, instead={"NotFound": empty}
        )
        row = self._row(answer)
        return row if row.id else None

    async def count(self, conditions: Sequence[Condition]) -> int:
        """Return how many objects meet the conditions."""
        types = self.types
        request = types.AggregateDataObjectsRequest(
            parent=self.name, aggregate=types.AggregationMethod.COUNT, **_filter(conditions)
        )
        answer = await self.connection.call(self.searches.aggregate_data_objects, request)
        numbers = [
            value.number_value
            for result in type(answer).pb(answer).aggregate_results
            for value in result.fields.values()
        ]
        return int(numbers[0]) if numbers else 0

    # Writing

    async def create(self, rows: Sequence[Row]) -> None:
        """Create objects. One that is there already has the same content, and stays."""
        types = self.types
        for part in cut_batches(rows, lambda row: row.size):
            requests = [
                types.CreateDataObjectRequest(
                    parent=self.name, data_object_id=row.id, data_object=self._object(row)
                )
                for row in part
            ]
            request = types.BatchCreateDataObjectsRequest(parent=self.name, requests=requests)
            if not await self._done(self.objects.batch_create_data_objects, request, "AlreadyExists"):
                for item in requests:
                    await self._done(self.objects.create_data_object, item, "AlreadyExists")

    async def put(self, rows: Sequence[Row]) -> None:
        """Create objects, or replace those that are there."""
        types = self.types
        for part in cut_batches(rows, lambda row: row.size):
            requests = [
                types.UpdateDataObjectRequest(data_object=self._object(row, self.object_name(row.id)))
                for row in part
            ]
            request = types.BatchUpdateDataObjectsRequest(parent=self.name, requests=requests)
            if await self._done(self.objects.batch_update_data_objects, request, "NotFound"):
                continue
            for row, item in zip(part, requests, strict=True):
                if not await self._done(self.objects.update_data_object, item, "NotFound"):
                    await self.create([row])

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove objects. One that is not there is no error."""
        types = self.types
        for start in range(0, len(ids), MOST):
            requests = [
                types.DeleteDataObjectRequest(name=self.object_name(id)) for id in ids[start : start + MOST]
            ]
            request = types.BatchDeleteDataObjectsRequest(parent=self.name, requests=requests)
            method = self.objects.batch_delete_data_objects
            if not await self._done(method, request, "NotFound", answers=False):
                for item in requests:
                    await self._done(self.objects.delete_data_object, item, "NotFound", answers=False)

    async def _done(self, method: Any, request: Any, unless: str, *, answers: bool = True) -> bool:
        """Make a call that writes, within the turn of this process; False: it failed in this one way."""
        call, deadline = self.connection.call, self.write_deadline()
        return (
            await call(method, request, deadline=deadline, instead={unless: False}, answers=answers)
            is not False
        )

    # Writing one object that others may write, too

    async def create_new(self, row: Row) -> bool:
        """Create an object; False: there is one."""
        request = self.types.CreateDataObjectRequest(
            parent=self.name, data_object_id=row.id, data_object=self._object(row)
        )
        method = self.objects.create_data_object
        return await self.connection.call(method, request, instead={"AlreadyExists": False}) is not False

    async def replace_unchanged(self, row: Row, present: StoredRow, deadline: float) -> None:
        """Replace an object, unless it is another than `present` by now: that is an error."""
        changed = self._object(row, self.object_name(row.id))
        changed.etag = present.etag
        request = self.types.UpdateDataObjectRequest(data_object=changed)
        await self.connection.call(self.objects.update_data_object, request, deadline=deadline)

    async def delete_unchanged(self, present: StoredRow) -> None:
        """Remove an object, unless it is another than `present` by now, or gone."""
        request = self.types.DeleteDataObjectRequest(name=self.object_name(present.id), etag=present.etag)
        await self.connection.call(
            self.objects.delete_data_object,
            request,
            instead={"NotFound": None, "Aborted": None},
            answers=False,
        )

    # Messages

    def _common(self, conditions: Sequence[Condition], top: int, with_vectors: bool) -> dict[str, Any]:
        vectors = [VECTOR] if with_vectors else []
        output = self.types.OutputFields(data_fields=RETURNED, vector_fields=vectors)
        return {**_filter(conditions), "top_k": min(top, MOST), "output_fields": output}

    def _object(self, row: Row, name: str = "") -> Any:
        message = self.types.DataObject
        raw = message.pb()(name=name)
        raw.data.update(row.data)
        if row.vector is not None:
            raw.vectors[VECTOR].dense.values.extend(row.vector)
        return message.wrap(raw)

    def _result(self, result: Any) -> Result:
        raw = type(result).pb(result)
        row = self._row(result.data_object)
        score = raw.distance if raw.HasField("distance") else None
        payload, terms = (str(row.data.get(field, "")) for field in RETURNED)
        return Result(row.id, payload, terms, score, row.vector)

    def _row(self, stored: Any) -> StoredRow:
        raw = type(stored).pb(stored)
        data: dict[str, Any] = {}
        lists: dict[str, Sequence[str]] = {}
        for key, value in raw.data.fields.items():
            kind = value.WhichOneof("kind")
            if kind == "list_value":
                lists[key] = [item.string_value for item in value.list_value.values]
            else:
                data[key] = getattr(value, kind) if kind else None
        vector = list(raw.vectors[VECTOR].dense.values) if VECTOR in raw.vectors else None
        return StoredRow(raw.name.rpartition("/")[2], data, lists, vector, raw.etag)


def _filter(conditions: Sequence[Condition]) -> dict[str, Condition]:
    return {"filter": join_conditions(conditions)} if conditions else {}
