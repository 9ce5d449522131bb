"""The provider `vertex`: documents in a collection of Vertex AI Vector Search 2, legs vector and text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Self

from contextrouter.builtin.providers.example_documents import EXAMPLE_ENTRIES
from contextrouter.builtin.providers.filtering import matches
from contextrouter.builtin.providers.queries import refuse_other_leg, terms_of
from contextrouter.builtin.providers.vertex import collection_setup, lookup, text_leg, vector_leg, write
from contextrouter.builtin.providers.vertex.collection import Collection, Result
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.builtin.providers.vertex.data_objects import VECTOR, make_rows, read_document
from contextrouter.builtin.providers.vertex.index_distances import IndexDistances
from contextrouter.builtin.providers.vertex.ingest_lock import IngestLock
from contextrouter.builtin.providers.vertex.object_filter import query_conditions
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.cloud_options import (
    MOST_NUMBERS,
    CloudOptions,
    check_above_zero,
    check_short_name,
)
from contextrouter.builtin.shared.google_cloud.google_services import VECTOR_SEARCH
from contextrouter.builtin.shared.google_cloud.request_batches import MOST
from contextrouter.contracts import Entry, FilePath, Partial, Provider
from contextrouter.errors import ContractError, SourceError
from contextrouter.model import Document, Facet, Hit, Query, Vector
from contextrouter.scope import Scope
from contextrouter.text.languages import LanguageTerms
from contextrouter.text.stemming import stem_language

NOTES_SECONDS = 5.0
"""For so long notes are not read again: languages and model of what another process wrote since then."""


class Vertex(Provider):
    """Keeps documents in a `collection` of Vertex AI Vector Search 2, in a `project` and a `location`.

    `project` "": GOOGLE_CLOUD_PROJECT, else that of the credentials. `embedder` names the embedder of its
    vectors ("": text only), `dimensions` their length, which `contextrouter db migrate` needs. `index` names
    an index of the vectors, searched with `target_recall`; "": all vectors are compared, 100,000 at most.
    `request_timeout` is the limit of one call in seconds, unless the deadline is nearer. `credentials_file`
    is the key file of a service account; "": application default credentials. `endpoint` is host[:port]; a
    loopback address is asked without TLS and credentials. `engine` and `data_store` are keys of
    `vertex_search` and refused here. Raises ValueError for values out of range.
    """

    vector_legs: Sequence[str] = ()

    def __init__(
        self,
        *,
        collection: str = "",
        project: str = "",
        location: str = "us-central1",
        embedder: str | None = "default",
        dimensions: int = 0,
        index: str = "",
        target_recall: float = 0.0,
        request_timeout: float = 10.0,
        credentials_file: FilePath = "",
        endpoint: str = "",
        engine: str = "",
        data_store: str = "",
    ) -> None:
        _refuse_search_keys(engine, data_store)
        if not collection:
            raise ValueError(
                'collection is empty. Name one in the table of this provider, such as collection = "library";'
                " `contextrouter db migrate` makes it."
            )
        if target_recall:
            check_above_zero("target_recall", target_recall, 1.0)
        if target_recall and not index:
            raise ValueError(
                f"target_recall {target_recall!r} is for an index, and none is named. Set `index`, or remove"
                " target_recall: without an index all vectors are compared."
            )
        if dimensions:
            check_above_zero("dimensions", dimensions, MOST_NUMBERS)
        self.embedder = embedder or None
        self.legs: Sequence[str] = (VECTOR, "text") if self.embedder else ("text",)
        self.vector_legs = (VECTOR,) if self.embedder else ()
        self.score_range = {leg: (-1.0, 1.0) for leg in self.vector_legs}
        self._location, self._name = location, check_short_name("collection", collection)
        self._index, self._recall = index and check_short_name("index", index), target_recall
        self._dimensions = dimensions
        options = CloudOptions(project, location, credentials_file, endpoint, request_timeout).check()
        self._connection = CloudConnection(VECTOR_SEARCH, options, "Provider 'vertex'", of_source=True)
        self._opened: tuple[Collection, IngestLock, IndexDistances] | None = None
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()
        self._notes, self._noted_at = write.Notes(), -math.inf
        self._model: tuple[str, int] = ("", 0)
        self._examples: tuple[Entry, ...] = ()

    @classmethod
    def example(cls) -> Self:
        """A store of two documents in a server of its own on this machine; no embedder."""
        store = cls(collection="example", embedder=None)
        store._connection.server = CollectionServer("example")
        store._examples = EXAMPLE_ENTRIES
        return store

    async def open(self) -> None:
        """Connect, and read the notes of the collection. Raises MissingDependency, and SourceError where the
        service does not answer.
        """
        if self._connection.is_open:
            return
        try:
            await self._connection.open()
            collection = Collection(self._connection, self._location, self._name)
            distances = IndexDistances(collection, self._index, self._recall)
            self._opened = (collection, IngestLock(collection), distances)
            self._writing, self._reading = asyncio.Lock(), asyncio.Lock()  # of this loop
            await self._read_notes()
            examples, self._examples = self._examples, ()
            await self.upsert(examples)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection, and give back a turn."""
        opened, self._opened = self._opened, None
        try:
            if opened is not None and self._connection.at_home:
                await opened[1].release()
        finally:
            await self._connection.aclose()

    async def ping(self) -> None:
        """Raise SourceError when the collection cannot be asked, or has not the index of the settings."""
        await collection_setup.check_presence(self._get_collection(), self._index)

    def _get_opened(self) -> tuple[Collection, IngestLock, IndexDistances]:
        if self._opened is None:
            raise ContractError("Provider 'vertex' is not open. Call open() first.", law="opened before use")
        return self._opened

    def _get_collection(self) -> Collection:
        return self._get_opened()[0]

    async def _read_notes(self, deadline: float | None = None) -> write.Notes:
        """Read the notes. What this process writes meanwhile counts more."""
        before, self._noted_at = self._notes, monotonic()
        notes = await write.read_notes(self._get_collection(), deadline)
        if self._notes is before:
            self._notes = notes
        return self._notes

    async def _recent_notes(self, deadline: float | None) -> write.Notes:
        """The notes, not older than some seconds: another process may fill the collection."""
        async with self._reading:  # one reads for all
            if monotonic() - self._noted_at >= NOTES_SECONDS:
                await self._read_notes(deadline)
        return self._notes

    # Searching

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return chunks, best first; text scores are the service's, vector scores cosines in [-1, 1]."""
        refuse_other_leg(query, self.legs)
        (collection, _, distances), conditions = self._get_opened(), query_conditions(query)
        if query.limit < 1 or conditions is None:
            return []
        notes = await self._recent_notes(query.deadline)
        question = terms_of(query, notes.languages)
        if query.leg == "text":
            top = _candidates(query.limit, question)
            results = await text_leg.search_words(
                collection, query, question, conditions, top=top, with_vectors=bool(self.embedder)
            )
            return _hits(results, query, question)
        notes.refuse_other_model(*self._model)
        question = question.without_phrases()
        results = await vector_leg.search_vectors(
            collection,
            query,
            conditions,
            top=_candidates(query.limit, question),
            distances=distances,
            dimensions=notes.dimensions,
        )
        return _hits(results, query, question)

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Count documents by the values of fields (kind, labels, …) or metadata keys, over all the query lets
        through.

        Scope, period, filters and labels narrow. All chunks that are let through are read for it.
        """
        conditions = query_conditions(query)
        if conditions is None:
            return []
        return await lookup.count_values(self._get_collection(), query, conditions, dimensions)

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return whole documents, or chunks, by id, in the order asked."""
        return await lookup.fetch(self._get_collection(), ids, scope)

    async def version(self) -> str:
        """A string that changes with every write, by whichever process; "" while there is none."""
        return (await self._read_notes()).generation

    # Filling

    async def embedded_by(self, model: str, dimensions: int) -> None:
        """Say which model's vectors come from now on, and how long they are. Raises SourceError when another
        model filled the collection, here and at each search by vector, and for vectors of another length than
        `dimensions`.
        """
        if self._dimensions and dimensions and dimensions != self._dimensions:
            raise SourceError(
                f"Vectors of the embedding model {model!r} have {dimensions} dimensions, and the settings say"
                f" dimensions = {self._dimensions}; set dimensions = {dimensions}, and another `collection`"
                " if this one was made for the other length."
            )
        self._model = (model, dimensions)
        (await self._read_notes()).refuse_other_model(model, dimensions)

    async def take_turn(self) -> str:
        """Take the turn to fill this collection; return "". If another has it, say who."""
        return await self._get_opened()[1].acquire()

    async def end_turn(self) -> None:
        """Give the turn back."""
        async with self._writing:
            await self._get_opened()[1].release()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Collection]:
        """One write at a time, of this process and of others: two at once would mix their chunks. In the turn
        of a run, its writes take none.
        """
        async with self._writing:
            collection, lock, _ = self._get_opened()
            if lock.held:
                yield collection
                return
            await lock.wait()
            try:
                yield collection
            finally:
                await lock.release()

    async def upsert(self, entries: Sequence[Entry]) -> None:
        """Replace documents and their chunks; durable on return. Facts are not kept here.

        No search misses a document meanwhile; until it is done, one may see old and new chunks together.
        Raises IngestError for an entry that cannot be stored, before anything is written.
        """
        if not entries:
            return
        async with self._turn() as collection:
            await self._replace(collection, entries)

    async def _replace(self, collection: Collection, entries: Sequence[Entry]) -> None:
        model, dimensions = self._model
        notes = await write.read_notes(collection)
        notes.refuse_other_model(model, dimensions)
        dimensions = notes.dimensions or dimensions or self._dimensions
        rows = [make_rows(entry, self.vector_legs, dimensions) for entry in entries]
        sizes = {len(row.vector) for entry in rows for row in entry.chunks if row.vector is not None}
        if len(sizes) > 1:
            raise SourceError(f"The vectors have {sorted(sizes)} dimensions; embed all with one model.")
        noted = notes._replace(
            model=notes.model or (model if sizes else ""),
            dimensions=notes.dimensions or next(iter(sizes), 0),
            languages=notes.languages.union(*(entry.languages for entry in rows)),
        )
        if noted != notes:  # before the first such vector or text, so that none is there unnoticed
            noted = await write.write_notes(collection, noted)
        await write.replace_documents(collection, rows)
        self._notes = await write.write_notes(collection, noted)

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        """Document id -> fingerprint, of one tenant's documents (None: those without a tenant)."""
        return await lookup.fingerprints(self._get_collection(), tenant)

    async def tenants(self) -> Sequence[str | None]:
        """Whose documents are here; None: some have no tenant."""
        return await lookup.tenants(self._get_collection())

    async def embedded(
        self, ids: Sequence[str], tenant: str | None, model: str
    ) -> Sequence[tuple[Document, Mapping[str, Vector]]]:
        """Return the chunks of documents with their vectors; nothing when another model filled the store."""
        if not self.embedder or self._notes.model != model:
            return []
        return await lookup.chunk_vectors(self._get_collection(), ids, tenant)

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        """Remove documents of one tenant with their chunks; return how many there were."""
        async with self._turn() as collection:
            count = await write.remove_documents(collection, ids, tenant)
            if count:
                self._notes = await write.write_notes(collection, await write.read_notes(collection))
        return count

    async def clear(self) -> None:
        """Remove everything, and forget which embedder filled the store: the way to build it again."""
        async with self._turn() as collection:
            await write.remove_all(collection)
            self._notes = write.Notes()

    # The database

    async def migrate(self) -> Sequence[int]:
        """Make the collection (1) and its index (2), where they are missing; return what was made."""
        return await collection_setup.make_missing(
            self._get_collection(), self._dimensions, self._index, vectors=bool(self.embedder)
        )

    async def status(self) -> Mapping[str, int | str]:
        """What the collection holds, its indexes, and the distance of a vector to itself: 1, -1 or 0."""
        return await collection_setup.status(self._get_collection(), self._index)

    async def tune(self, *, apply: bool = False) -> Sequence[str]:
        """Say what should change in the index; with `apply` make the index that the settings name."""
        changes = await collection_setup.advice(self._get_collection(), self._index)
        if apply and changes and self._index:
            await collection_setup.create_index(self._get_collection(), self._index)
        return changes


def _refuse_search_keys(engine: str, data_store: str) -> None:
    for key, value in (("engine", engine), ("data_store", data_store)):
        if value:
            raise ValueError(
                f"{key} is a key of Vertex AI Search. Write use = 'vertex_search' for it; 'vertex' is a"
                " collection of Vector Search."
            )


def _candidates(limit: int, question: LanguageTerms) -> int:
    """How many chunks to ask for: more where phrases or exclusions are checked on arrival."""
    checked = any(item.required or item.excluded for item in question.by_language.values())
    return min(MOST, max(5 * limit, 200) if checked else limit)


def _hits(results: Sequence[Result], query: Query, question: LanguageTerms) -> Sequence[Hit]:
    """The hits among results, checked again: what a service lets through is not believed."""
    hits: list[Hit] = []
    foreign = 0
    for result in results:
        document = read_document(result.payload)
        if document is None:
            foreign += 1
        elif matches(document, query) and question.allows(
            [field.split() for field in result.terms.split("\n")], stem_language(document.language)
        ):
            hits.append(Hit(document=document, score=result.score, vector=result.vector))
    if foreign:
        return Partial(
            hits[: query.limit], f"{foreign} objects of the collection were not written by contextrouter"
        )
    return hits[: query.limit]
