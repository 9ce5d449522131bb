"""The provider `vertex_index`: vectors in an index of Vertex AI Vector Search 1, texts in another store."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import structs

from contextrouter.builtin.providers.example_documents import EXAMPLE_DOCUMENTS
from contextrouter.builtin.providers.filtering import aligned, labelled, matches, storable
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.queries import query_direction, refuse_other_leg
from contextrouter.builtin.providers.vertex_index.datapoints import make_datapoint, restrict
from contextrouter.builtin.providers.vertex_index.deployed_index import find_deployed
from contextrouter.builtin.providers.vertex_index.index_server import IndexServer, example_vector
from contextrouter.builtin.providers.vertex_index.nearest_datapoints import Neighbours
from contextrouter.builtin.providers.vertex_index.text_store import Texts, without_list
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.cloud_options import CloudOptions, check_address, check_name
from contextrouter.builtin.shared.google_cloud.google_services import vertex_ai
from contextrouter.builtin.shared.google_cloud.request_batches import MOST, cut_batches
from contextrouter.contracts import Entry, FilePath, Partial, Provider
from contextrouter.errors import ContractError, SourceError
from contextrouter.model import Document, Hit, Query
from contextrouter.scope import Scope
from contextrouter.text.analysis import analyse
from contextrouter.text.fields import fields
from contextrouter.text.languages import language_terms
from contextrouter.text.stemming import stem_language, stemmer
from contextrouter.vectors import unit

_FEWEST_UNRESTRICTED = 200  # neighbours, where what may be seen is decided on arrival
_SERVICE = "Vector Search (index)"
_DEPLOYED = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")


class VertexIndex(Provider):
    """Asks `deployed_index` of an `index_endpoint` for neighbours; `texts` names a provider with their texts.

    The ids of datapoints are ids of chunks there; a chunk with a tenant has `tenant=NAME/` before it. `index`
    is the index that ingestion writes to ("": it cannot); it must take streaming updates.
    `restricts = false` is for datapoints that were written without labels: then all is checked on arrival.
    `public_endpoint` is the host of the deployed index; "": the service is asked for it. The other keys are
    those of the provider `vertex`. Raises ValueError for values that cannot be right.
    """

    legs: Sequence[str] = ("vector",)
    vector_legs: Sequence[str] = ("vector",)
    score_range = (-1.0, 1.0)

    def __init__(
        self,
        *,
        texts: Provider,
        index_endpoint: str,
        deployed_index: str,
        index: str = "",
        project: str = "",
        location: str = "us-central1",
        embedder: str = "default",
        restricts: bool = True,
        public_endpoint: str = "",
        request_timeout: float = 10.0,
        credentials_file: FilePath = "",
        endpoint: str = "",
    ) -> None:
        check_name("index_endpoint", index_endpoint)
        if not _DEPLOYED.fullmatch(deployed_index):
            raise ValueError(
                f"deployed_index {deployed_index!r} is no id of a deployed index. Give up to 128 letters,"
                " digits and underscores, first a letter."
            )
        self.embedder: str | None = embedder
        self._texts = Texts(texts)
        self._deployed, self._endpoint_id = deployed_index, index_endpoint
        self._index, self._restricts = index and check_name("index", index), restricts
        self._location, self._public = location, public_endpoint
        options = CloudOptions(project, location, credentials_file, endpoint, request_timeout).check()
        check_address("public_endpoint", public_endpoint)
        self._admin = CloudConnection(vertex_ai(location, _SERVICE), options, self._label, of_source=True)
        self._match: CloudConnection | None = None
        self._neighbours: Neighbours | None = None
        self._writing = asyncio.Lock()
        self._example_texts: Memory | None = None

    _label = "Provider 'vertex_index'"

    @classmethod
    def example(cls) -> Self:
        """An index of two documents on a server of its own on this machine, with their texts in memory."""
        texts = Memory()
        provider = cls(texts=texts, index_endpoint="1", deployed_index="example", index="2")
        provider._admin.server = IndexServer()
        provider._example_texts = texts
        return provider

    async def open(self) -> None:
        """Connect, and ask for the host and the measure of the deployed index. Raises MissingDependency, and
        SourceError where no such index is deployed.
        """
        if self._neighbours is not None:
            return
        try:
            await self._admin.open()
            parent = f"projects/{self._admin.project}/locations/{self._location}"
            deployed = await find_deployed(
                self._admin, parent, self._endpoint_id, self._deployed, self._index
            )
            self._admin.resource = f"{parent}/indexes/{self._index}"
            host = self._find_host(deployed.host)
            service = vertex_ai(self._location, _SERVICE)
            options = self._admin.options._replace(endpoint=host, project=self._admin.project)
            self._match = CloudConnection(service, options, self._label, of_source=True)
            await self._match.open()
            self._match.resource = f"{parent}/indexEndpoints/{self._endpoint_id}"
            self._neighbours = Neighbours(self._match, self._deployed, deployed.measure)
            self._writing = asyncio.Lock()  # of this loop: two writes at once would mix their datapoints
            if self._example_texts is not None and not await self._example_texts.tenants():
                await self.upsert([_example_entry(document) for document in EXAMPLE_DOCUMENTS])
        except BaseException:
            await self.aclose()
            raise

    def _find_host(self, host: str) -> str:
        if self._admin.server is not None:
            return f"127.0.0.1:{self._admin.server.port}"
        if not (self._public or host):
            raise self._admin.answer_error(
                f"has no public endpoint for {self._endpoint_id!r}",
                "Set public_endpoint to the host that serves it.",
            )
        try:
            return check_address("its public endpoint", self._public or host)
        except ValueError as error:
            raise self._admin.answer_error(f"gave an address that is none ({error})") from None

    async def aclose(self) -> None:
        """Close the connections. The store of `texts` is not closed: it has its own table."""
        self._neighbours = None
        match, self._match = self._match, None
        if match is not None:
            await match.aclose()
        await self._admin.aclose()

    async def ping(self) -> None:
        """Raise SourceError when the deployed index does not answer."""
        await self._get_neighbours().ping()

    def _get_neighbours(self) -> Neighbours:
        if self._neighbours is None:
            raise ContractError(f"{self._label} is not open. Call open() first.", law="opened before use")
        return self._neighbours

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the nearest chunks with their cosines, best first; Partial where texts are missing."""
        refuse_other_leg(query, self.legs)
        index, direction = self._get_neighbours(), query_direction(query, unit)
        if query.limit < 1 or direction is None:
            return []
        neighbours = await self._find_neighbours(index, query, direction)
        documents = await self._fetch(index.connection, [id for id, _ in neighbours], query.deadline)
        scored = [(documents[id], score) for id, score in neighbours if id in documents]
        hits = [Hit(document=document, score=score) for document, score in scored if _admits(document, query)]
        orphans = len(neighbours) - len(scored)
        if orphans:
            reason = f"{orphans} of {len(neighbours)} neighbours have no text in the store of `texts`"
            return Partial(hits[: query.limit], reason)
        return hits[: query.limit]

    async def _find_neighbours(
        self, index: Neighbours, query: Query, direction: Sequence[float]
    ) -> list[tuple[str, float]]:
        from google.cloud.aiplatform_v1 import types

        point = types.IndexDatapoint(feature_vector=direction)
        if self._restricts and not restrict(types, point, query):
            return []
        narrowed = query.scope is not None or query.period is not None or query.filters or query.labels
        checked = query.excluded or (narrowed and not self._restricts)
        count = max(5 * query.limit, _FEWEST_UNRESTRICTED) if checked else query.limit
        return await index.nearest(point, min(count, MOST), query.deadline)

    async def _fetch(
        self, connection: CloudConnection, ids: Sequence[str], deadline: float | None
    ) -> Mapping[str, Document]:
        """The texts, within the same deadline."""
        if not ids:
            return {}
        remaining = connection.time_left(deadline)
        try:
            async with asyncio.timeout(remaining):
                return await self._texts.by_datapoint(ids)
        except TimeoutError:
            raise connection.late(f"The store of `texts` did not answer within {remaining:.2f} s.") from None

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return documents, or chunks, by id, from the store of `texts`."""
        return [without_list(document) for document in await self._texts.store.fetch(ids, scope)]

    # Filling

    async def take_turn(self) -> str:
        """Take the turn to fill the store of `texts`, and so the index; return "". Else say who has it."""
        return await self._texts.take_turn()

    async def end_turn(self) -> None:
        """Give the turn back."""
        async with self._writing:
            await self._texts.end_turn()

    async def upsert(self, entries: Sequence[Entry]) -> None:
        """Replace documents: new datapoints first, then the texts, then stale datapoints go, then the mark.

        Raises IngestError for an entry that cannot be stored, before anything is written.
        """
        if not entries:
            return
        self._get_neighbours()
        latest = {(entry.document.tenant or None, entry.document.id): entry for entry in entries}
        points = {key: self._datapoints(entry) for key, entry in latest.items()}
        ids = {key: [point.datapoint_id for point in datapoints] for key, datapoints in points.items()}
        async with self._writing, self._texts.turn():
            current = {id for item in ids.values() for id in item}
            before = await self._datapoint_ids(list(latest))
            stale = {key: [id for id in before.get(key, ()) if id not in current] for key in latest}
            await self._write([point for datapoints in points.values() for point in datapoints])
            # Until stale datapoints are gone they stay listed, without a mark: a next run removes them.
            unmarked = {key: structs.replace(latest[key], fingerprint="") for key in latest if stale[key]}
            listed = [(entry, [*ids[key], *stale[key]]) for key, entry in unmarked.items()]
            if listed:
                await self._texts.upsert(listed, self.embedder)
                await self._remove([id for item in stale.values() for id in item])
            await self._texts.upsert([(entry, ids[key]) for key, entry in latest.items()], self.embedder)

    def _datapoints(self, entry: Entry) -> list[Any]:
        from google.cloud.aiplatform_v1 import types

        document = entry.document
        with storable(document):
            aligned(entry, self.vector_legs)
            chunks = labelled(document, entry.chunks)
            vectors = entry.vectors.get("vector", [None] * len(chunks))
            pairs = [
                (chunk, direction)
                for chunk, vector in zip(chunks, vectors, strict=True)
                if vector is not None and (direction := unit(vector)) is not None
            ]
        return [make_datapoint(types, chunk, direction) for chunk, direction in pairs]

    async def _datapoint_ids(
        self, keys: Sequence[tuple[str | None, str]]
    ) -> dict[tuple[str | None, str], list[str]]:
        """The ids of the datapoints that documents have, by tenant and id."""
        by_tenant: defaultdict[str | None, list[str]] = defaultdict(list)
        for tenant, id in keys:
            by_tenant[tenant].append(id)
        return {
            (tenant, id): listed
            for tenant, ids in by_tenant.items()
            for id, listed in (await self._texts.datapoints_of(ids, tenant)).items()
        }

    async def _write(self, points: Sequence[Any]) -> None:
        from google.cloud.aiplatform_v1 import UpsertDatapointsRequest

        client = self._writer()
        for part in cut_batches(points, lambda point: type(point).pb(point).ByteSize()):
            request = UpsertDatapointsRequest(index=self._admin.resource, datapoints=part)
            await self._admin.call(client.upsert_datapoints, request)

    async def _remove(self, ids: Sequence[str]) -> None:
        from google.cloud.aiplatform_v1 import RemoveDatapointsRequest

        client = self._writer()
        for start in range(0, len(ids), MOST):
            request = RemoveDatapointsRequest(
                index=self._admin.resource, datapoint_ids=ids[start : start + MOST]
            )
            await self._admin.call(client.remove_datapoints, request)

    def _writer(self) -> Any:
        if not self._index:
            raise SourceError("No index to write to is named. Set `index` to one with streaming updates.")
        return self._admin.client("index_service")

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        """Document id -> fingerprint, as the store of `texts` has them."""
        return await self._texts.fillable().fingerprints(tenant)

    async def tenants(self) -> Sequence[str | None]:
        """Whose documents are in the store of `texts`."""
        return await self._texts.tenants()

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        """Remove documents: their datapoints, then their texts; return how many there were."""
        self._get_neighbours()
        async with self._writing, self._texts.turn():
            listed = await self._datapoint_ids([(tenant, id) for id in dict.fromkeys(ids)])
            await self._remove([id for item in listed.values() for id in item])
            return await self._texts.fillable().delete(ids, tenant)


def _admits(document: Document, query: Query) -> bool:
    """Whether a chunk is in the scope, and passes filters and exclusions: what an index lets through is
    checked.
    """
    if not matches(document, query):
        return False
    if not query.excluded and "-" not in query.text:
        return True
    language = stem_language(document.language)
    question = language_terms(query.text, [language], excluded=query.excluded).without_phrases()
    stemmed = stemmer(document.language)
    return question.allows([analyse(text, stemmed) for text in fields(document)], language)


def _example_entry(document: Document) -> Entry:
    vectors = {"vector": [example_vector(document.content)]}
    return Entry(document=document, chunks=[document], vectors=vectors)
