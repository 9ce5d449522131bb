"""Making a collection and its index for `contextrouter db`, and saying how they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from contextrouter.builtin.providers.vertex import lookup, write
from contextrouter.builtin.providers.vertex.collection import Collection
from contextrouter.builtin.providers.vertex.data_objects import FILTERED, RETURNED, SCHEMA, VECTOR
from contextrouter.builtin.providers.vertex.index_distances import IndexDistances
from contextrouter.errors import SourceError

WAIT_SECONDS = 1_800.0  # for a collection or an index to be made
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0
SCANNED = 100_000  # objects that a collection searches without an index
_NEAR = 0.8  # of them: an index is advised


async def make_missing(collection: Collection, dimensions: int, index: str, *, vectors: bool) -> list[int]:
    """Make what is missing: the collection (1), its index (2). Return what was made."""
    created: list[int] = []
    if await _get_collection(collection) is None:
        if vectors and not dimensions:
            raise SourceError(
                "A collection is made for vectors of one length. Set `dimensions` to that of the embedder."
            )
        if await _create_collection(collection, dimensions if vectors else 0):
            created.append(1)
    if (
        vectors
        and index
        and index not in await _indexes(collection)
        and await create_index(collection, index)
    ):
        created.append(2)
    return created


async def check_presence(collection: Collection, index: str) -> None:
    """Raise SourceError where there is no such collection, or no such index of it."""
    request = collection.types.GetCollectionRequest(name=collection.name)
    await collection.connection.call(collection.admin.get_collection, request)
    if index and index not in (present := await _indexes(collection)):
        raise collection.connection.answer_error(
            f"has no index {index!r} in {collection.name!r}",
            f"Indexes there: {', '.join(map(repr, present)) or 'none'}. Set index to one of them, or make it:"
            " `contextrouter db migrate`.",
        )


async def status(collection: Collection, index: str) -> Mapping[str, int | str]:
    """Say what there is, and how the service measures: a vector has the distance 1 from itself, -1 or 0."""
    stored = await _get_collection(collection)
    if stored is None:
        return {"collection": "", "documents": 0}
    notes = await write.read_notes(collection)
    schema, indexes = type(stored).pb(stored).vector_schema, await _indexes(collection)
    dimensions = schema[VECTOR].dense_vector.dimensions if VECTOR in schema else 0
    used = index if index in indexes else ""
    return {
        "collection": collection.name,
        "dimensions": dimensions,
        "documents": await collection.count([lookup.DOCUMENTS]),
        "chunks": await collection.count([lookup.CHUNKS]),
        "indexes": ", ".join(indexes),
        "model": notes.model,
        "distance to itself": await _distance_to_itself(collection, dimensions, used),
    }


async def advice(collection: Collection, index: str) -> list[str]:
    """Say what should change for the present number of objects."""
    if index:
        return [] if index in await _indexes(collection) else [f"make the index {index!r}"]
    count = await collection.count([])
    if count < _NEAR * SCANNED:
        return []
    return [f"set `index`: {count} objects, and without an index {SCANNED} are the most that are searched"]


async def create_index(collection: Collection, index: str) -> bool:
    """Make the index of the vectors, and wait for it. False: another process makes it."""
    types = collection.types
    created = types.Index(
        index_field=VECTOR,
        filter_fields=list(FILTERED),
        store_fields=list(RETURNED),
        distance_metric=types.DistanceMetric.DOT_PRODUCT,
    )
    request = types.CreateIndexRequest(parent=collection.name, index_id=index, index=created)
    return await _finish(collection, collection.admin.create_index, request, f"index {index!r}")


async def _create_collection(collection: Collection, dimensions: int) -> bool:
    types = collection.types
    created = types.Collection(data_schema=SCHEMA)
    if dimensions:
        dense = types.DenseVectorField(dimensions=dimensions)
        created.vector_schema[VECTOR] = types.VectorField(dense_vector=dense)
    request = types.CreateCollectionRequest(
        parent=collection.location, collection_id=collection.id, collection=created
    )
    return await _finish(
        collection, collection.admin.create_collection, request, f"collection {collection.id!r}"
    )


async def _finish(collection: Collection, method: Any, request: Any, label: str) -> bool:
    """Start an operation and ask after it until it has ended. Each question has a time limit of its own.
    False: another process started it.
    """
    from google.longrunning.operations_pb2 import GetOperationRequest

    call = collection.connection.call
    operation = await call(method, request, instead={"AlreadyExists": None})
    if operation is None:
        return False
    operation = operation.operation
    until, pause = monotonic() + WAIT_SECONDS, _FIRST_PAUSE
    while not operation.done:
        if monotonic() >= until:
            raise SourceError(
                f"The {label} is still being made. `contextrouter db status` shows when it is there."
            )
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        operation = await call(collection.admin.get_operation, GetOperationRequest(name=operation.name))
    if operation.HasField("error"):
        raise collection.connection.answer_error(f"could not make the {label}: {operation.error.message}")
    return True


async def _get_collection(collection: Collection) -> Any:
    request = collection.types.GetCollectionRequest(name=collection.name)
    return await collection.connection.call(
        collection.admin.get_collection, request, instead={"NotFound": None}
    )


async def _indexes(collection: Collection) -> Sequence[str]:
    request = collection.types.ListIndexesRequest(parent=collection.name, page_size=100)
    answer = await collection.connection.call(collection.admin.list_indexes, request)
    return sorted(index.name.rpartition("/")[2] for index in answer.indexes)


async def _distance_to_itself(collection: Collection, dimensions: int, index: str) -> str:
    if not dimensions:
        return ""
    distances = IndexDistances(collection, index, 0.0)
    start = [1.0] + [0.0] * (dimensions - 1)
    results = await collection.vector_search(start, [], 1, hint=distances.hint, with_vectors=False)
    distance = await distances.to_itself(results[0].id) if results else None
    return "" if distance is None else f"{distance:.4f}"
