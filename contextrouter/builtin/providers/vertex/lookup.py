"""Reading a collection otherwise than by search: fingerprints, tenants, documents by id, vectors, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from contextrouter.builtin.providers.filtering import make_facet
from contextrouter.builtin.providers.vertex.collection import Collection, StoredRow
from contextrouter.builtin.providers.vertex.data_objects import (
    UNTRUSTED_VALUE,
    VECTOR,
    decode_label,
    decode_value,
    encode_label,
    owner_id,
    read_document,
)
from contextrouter.builtin.providers.vertex.object_filter import Condition, in_scope
from contextrouter.model import Document, Facet, Query, Vector
from contextrouter.scope import Scope

DOCUMENTS: Condition = {"role": {"$eq": "document"}}
CHUNKS: Condition = {"role": {"$eq": "chunk"}}
_AT_ONCE = 100  # values in one filter


async def fingerprints(collection: Collection, tenant: str | None) -> dict[str, str]:
    """Document id -> fingerprint, of one tenant."""
    rows = await collection.query(
        [DOCUMENTS, {"tenant": {"$eq": encode_label(tenant)}}], ["id", "fingerprint"]
    )
    return {row.data["id"]: row.data["fingerprint"] for row in rows}


async def tenants(collection: Collection) -> list[str | None]:
    """Whose documents are there. Each call leaves out those that are known, so there are few."""
    names: set[str] = set()
    while True:
        others = [{"tenant": {"$nin": sorted(names)}}] if names else []
        rows = await collection.query([DOCUMENTS, *others], ["tenant"], pages=1)
        new = {row.data["tenant"] for row in rows} - names
        if not new:
            return [decode_label(name) for name in sorted(names)]
        names |= new


async def read_objects(
    collection: Collection, owners: Sequence[str], fields: Sequence[str] = (), *, with_vectors: bool = False
) -> list[StoredRow]:
    """The objects of documents, with their role and owner."""
    rows: list[StoredRow] = []
    for start in range(0, len(owners), _AT_ONCE):
        condition = {"owner": {"$in": list(owners[start : start + _AT_ONCE])}}
        rows += await collection.query([condition], ["role", "owner", *fields], with_vectors=with_vectors)
    return rows


async def fetch(collection: Collection, ids: Sequence[str], scope: Scope | None) -> list[Document]:
    """Whole documents by id, or chunks by theirs, that may be seen, in the order asked."""
    requested = [id for id in dict.fromkeys(ids) if id and id == id.encode("utf-8", "replace").decode()]
    rows: list[StoredRow] = []
    for start in range(0, len(requested), _AT_ONCE):
        condition = {"id": {"$in": requested[start : start + _AT_ONCE]}}
        rows += await collection.query(
            [condition, *in_scope(scope)], ["role", "owner", "id", "tenant", "payload"]
        )
    complete = {row.id for row in rows if row.data["role"] == "document" and row.data["payload"]}
    by_id: defaultdict[str, list[tuple[bool, str, Document]]] = defaultdict(list)
    for row in rows:
        document = read_document(row.data["payload"])
        chunk = row.data["role"] == "chunk"
        # A chunk with the id of its document is shown where it is all of the document.
        if document is None or (chunk and row.data["owner"] in complete and document.parent is None):
            continue
        if scope is None or scope.allows(document):
            by_id[document.id].append((chunk, row.data["tenant"], document))
    return [
        document
        for id in requested
        for _, _, document in sorted(by_id[id], key=lambda entry: (entry[0], entry[1]))
    ]


async def chunk_vectors(
    collection: Collection, ids: Sequence[str], tenant: str | None
) -> list[tuple[Document, Mapping[str, Vector]]]:
    """The chunks of documents, each with its vector."""
    owners = [owner_id(tenant, id) for id in dict.fromkeys(ids)]
    rows = await read_objects(collection, owners, ["payload"], with_vectors=True)
    chunks = [
        (document, {VECTOR: row.vector})
        for row in rows
        if row.data["role"] == "chunk"
        and row.vector is not None
        and (document := read_document(row.data["payload"])) is not None
    ]
    return sorted(chunks, key=lambda pair: pair[0].id)


async def count_values(
    collection: Collection, query: Query, conditions: Sequence[Condition], dimensions: Sequence[str]
) -> list[Facet]:
    """How many admitted documents have each value of each dimension, most first, at most `query.limit`."""
    rows = await collection.query([CHUNKS, *conditions], ["owner", "values"], deadline=query.deadline)
    facets: list[Facet] = []
    for dimension in dict.fromkeys(dimensions):
        owners: defaultdict[str, set[str]] = defaultdict(set)
        foreign: set[str] = set()  # values that strangers wrote
        for row in rows:
            for text in row.lists.get("values", ()):
                if (value := decode_value(text, dimension)) is not None:
                    owners[value].add(row.data["owner"])
                    if UNTRUSTED_VALUE in row.lists["values"]:
                        foreign.add(value)
        counts = sorted((-len(documents), value) for value, documents in owners.items())
        facets += [
            make_facet(dimension, value, -n, untrusted=value in foreign)
            for n, value in counts[: max(query.limit, 0)]
        ]
    return facets
