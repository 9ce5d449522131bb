"""The provider `vertex_search`: asks a search app or a data store of Vertex AI Search; read only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Self

from contextrouter.builtin.connectors.matching import matches
from contextrouter.builtin.providers.vertex_search.chunking_mode import check_mode
from contextrouter.builtin.providers.vertex_search.filter_expression import checks_on_arrival, expression
from contextrouter.builtin.providers.vertex_search.search_results import LABELS, TEXTS, ResultReader, Unusable
from contextrouter.builtin.providers.vertex_search.search_server import SearchServer
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.cloud_options import CloudOptions, check_name
from contextrouter.builtin.shared.google_cloud.google_services import vertex_ai_search
from contextrouter.contracts import FilePath, Partial, Provider
from contextrouter.errors import ContractError, SourceError
from contextrouter.model import Hit, Query

MOST = 100  # results that a page has at most; less, where the store says so


class VertexSearch(Provider):
    """Asks an `engine` (search app) or a `data_store` of Vertex AI Search, for `chunks` or `documents`.

    `labels` maps labels, and keys of filters, to fields of the store: these narrow there, before the limit,
    and every document must have the mapped fields ("-": none). What is not mapped is checked on arrival.
    `fields` maps content, title, url, kind, language and updated_at of structured data. `language` is a code
    for the service. `location` is "global", "eu" or "us". The other keys are those of the provider `vertex`.
    Raises ValueError for values that cannot be right.
    """

    def __init__(
        self,
        *,
        engine: str = "",
        data_store: str = "",
        project: str = "",
        location: str = "global",
        mode: Literal["chunks", "documents"] = "chunks",
        labels: Mapping[str, str] = {},
        fields: Mapping[str, str] = {},
        language: str = "",
        serving_config: str = "default_search",
        request_timeout: float = 10.0,
        credentials_file: FilePath = "",
        endpoint: str = "",
    ) -> None:
        if bool(engine) == bool(data_store):
            raise ValueError("Give either engine (a search app) or data_store, and not both.")
        if mode not in ("chunks", "documents"):
            raise ValueError(f"mode {mode!r} is not one of 'chunks', 'documents'.")
        _check_names("labels", labels, None)
        _check_names("fields", fields, TEXTS)
        for key, value in (("engine", engine), ("data_store", data_store)):
            if value:
                check_name(key, value)
        self.score_range = (-1.0, 1.0) if mode == "chunks" else None
        self._engine, self._data_store, self._mode, self._language = engine, data_store, mode, language
        self._location, self._serving_config = location, check_name("serving_config", serving_config)
        self._labels = dict(labels)
        self._reader = ResultReader(self._labels, dict(fields))
        options = CloudOptions(project, location, credentials_file, endpoint, request_timeout).check()
        self._connection = CloudConnection(
            vertex_ai_search(location), options, "Provider 'vertex_search'", of_source=True
        )
        self._client: Any = None

    @classmethod
    def example(cls) -> Self:
        """A search app of two documents on a server of its own on this machine."""
        provider = cls(engine="example", labels={name: name for name in LABELS[:3]})
        provider._connection.server = SearchServer()
        return provider

    async def open(self) -> None:
        """Connect, and compare `mode` with the data stores. Raises MissingDependency, and SourceError for a
        mode that does not fit, or an app that is not there.
        """
        if self._connection.is_open:
            return
        try:
            await self._connection.open()
            await check_mode(self._connection, self._parent, self._engine, self._data_store, self._mode)
            self._client = self._connection.client("search_service")
            kind = f"engines/{self._engine}" if self._engine else f"dataStores/{self._data_store}"
            self._connection.resource = f"{self._parent}/{kind}/servingConfigs/{self._serving_config}"
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection."""
        self._client = None
        await self._connection.aclose()

    async def ping(self) -> None:
        """Raise SourceError when nothing can be found."""
        await self.search(Query(text="ping", limit=1))

    @property
    def _parent(self) -> str:
        project = self._connection.project
        return f"projects/{project}/locations/{self._location}/collections/default_collection"

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return chunks or documents in the order of the service, with its relevance where it gives one."""
        if query.leg not in self.legs:
            raise SourceError(f"Leg {query.leg!r} is not one of this source's legs: {', '.join(self.legs)}.")
        if self._client is None:
            raise ContractError(
                "Provider 'vertex_search' is not open. Call open() first.", law="opened before use"
            )
        if query.limit < 1 or not query.text.strip():
            return []
        size = MOST if checks_on_arrival(query, self._labels) else min(query.limit, MOST)
        pager = await self._connection.call(
            self._client.search, self._request(query, size), deadline=query.deadline
        )
        results = list(pager.results)  # of the first page, without a further call
        hits: list[Hit] = []
        flaws: Counter[str] = Counter()
        for result in results:
            try:
                hits.append(self._reader.read(result))
            except Unusable as flaw:
                flaws[str(flaw)] += 1
        gaps = [f"{count} of {len(results)} results have {flaw}" for flaw, count in flaws.items()]
        if pager.next_page_token and len(results) < size and size <= query.limit:
            gaps.append(f"a page of this store has {len(results)} results; set limit = {len(results)}")
        admitted = [hit for hit in _ranked(hits) if matches(hit.document, query)][: query.limit]
        return Partial(admitted, "; ".join(gaps)) if gaps else admitted

    def _request(self, query: Query, size: int) -> Any:
        from google.cloud.discoveryengine_v1 import SearchRequest

        request = SearchRequest(
            serving_config=self._connection.resource,
            query=query.text.encode("utf-8", "replace").decode(),
            page_size=size,
            filter=expression(query, self._labels),
            language_code=self._language,
            relevance_score_spec=SearchRequest.RelevanceScoreSpec(return_relevance_score=True),
        )
        content = SearchRequest.ContentSearchSpec
        if self._mode == "chunks":
            chunks = content.SearchResultMode.CHUNKS
            request.content_search_spec = content(search_result_mode=chunks, chunk_spec=content.ChunkSpec())
        else:
            extracts = content.ExtractiveContentSpec(
                max_extractive_answer_count=1, max_extractive_segment_count=1
            )
            request.content_search_spec = content(
                search_result_mode=content.SearchResultMode.DOCUMENTS,
                snippet_spec=content.SnippetSpec(return_snippet=True),
                extractive_content_spec=extracts,
            )
        return request


def _ranked(hits: Sequence[Hit]) -> list[Hit]:
    """Each document once. The order of the service counts: scores that contradict it are left out."""
    distinct = list({hit.document.id: hit for hit in reversed(hits)}.values())[::-1]
    scores = [hit.score for hit in distinct]
    numbers = [score for score in scores if score is not None]
    if len(numbers) < len(scores) or any(low < high for low, high in pairwise(numbers)):
        return [hit.replace(score=None) for hit in distinct]
    return distinct


def _check_names(key: str, names: Mapping[str, str], allowed: Sequence[str] | None) -> None:
    for name, field in names.items():
        if allowed is not None and name not in allowed:
            raise ValueError(f"{key} has the name {name!r}; known names: {', '.join(allowed)}.")
        if not isinstance(field, str) or not field.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"{key}.{name} {field!r} is no field of a schema; give a name such as 'team'.")
