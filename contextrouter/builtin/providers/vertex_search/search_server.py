"""A local stand-in for Vertex AI Search, for examples and tests: documents that share words with a question.

It refuses filters of another form, and filters on fields that it does not have. It makes pages smaller
without a word, and asked for the other mode than it was made for it finds nothing, as the service does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.example_documents import EXAMPLE_DOCUMENTS
from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer, Rpc

_STRING = r'"(?:[^"\\]|\\.)*"'
_CONDITION = re.compile(rf"([\w.]+): ANY\(({_STRING}(?:, {_STRING})*)\)")
_API = "google.cloud.discoveryengine.v1"


class Stored(NamedTuple):
    """One document of the store: its only chunk, and its structured data."""

    id: str
    title: str
    text: str
    data: Mapping[str, Any] = {}
    url: str = ""


def _example() -> list[Stored]:
    unlabelled = dict.fromkeys(("tenant", "compartment", "sensitivity"), "-")
    return [Stored(item.id, item.title, item.content, unlabelled) for item in EXAMPLE_DOCUMENTS]


class SearchServer(GrpcServer):
    """One data store, and one engine on it. `chunked`: it was made with chunks. `most` results are a page.

    `segments`: documents mode gives parts of texts, else it gives structured data. `asked` are the requests.
    """

    def __init__(self, documents: Sequence[Stored] = (), *, chunked: bool = True) -> None:
        super().__init__()
        self.documents = list(documents) or _example()
        self.chunked, self.segments, self.most = chunked, True, 100
        self.derived: Mapping[str, Any] = {}  # in place of what is derived of a document
        self.named: Callable[[Stored], bool] = lambda document: True  # whether a result has its ids
        self.share: Callable[[float], float] = float  # what becomes of a score
        self.boost: Callable[[Stored], float] = lambda document: 0.0  # moves a document, not its relevance
        self.asked: list[Any] = []

    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """The methods that the provider calls."""
        from google.cloud import discoveryengine_v1 as types

        self.types: Any = types
        return {
            f"{_API}.SearchService": {"Search": Rpc(self._search, types.SearchRequest, types.SearchResponse)},
            f"{_API}.EngineService": {
                "GetEngine": Rpc(self._get_engine, types.GetEngineRequest, types.Engine)
            },
            f"{_API}.DataStoreService": {
                "GetDataStore": Rpc(self._get_data_store, types.GetDataStoreRequest, types.DataStore)
            },
        }

    async def _get_engine(self, request: Any, context: Any) -> Any:
        return self.types.Engine(name=request.name, data_store_ids=["example"])

    async def _get_data_store(self, request: Any, context: Any) -> Any:
        import grpc

        if request.name.endswith("/missing"):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"DataStore {request.name!r} not found")
        data_store = self.types.DataStore(name=request.name)
        if self.chunked:
            chunking = self.types.DocumentProcessingConfig.ChunkingConfig()
            layout = chunking.LayoutBasedChunkingConfig(chunk_size=500)
            chunking.layout_based_chunking_config = layout
            data_store.document_processing_config.chunking_config = chunking
        return data_store

    async def _search(self, request: Any, context: Any) -> Any:
        import grpc

        self.asked.append(request)
        try:
            conditions = parse_filter(request.filter, {key for item in self.documents for key in item.data})
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        chunks = request.content_search_spec.search_result_mode.name == "CHUNKS"
        matching = (
            [item for item in self.documents if _meets(item, conditions)] if chunks == self.chunked else []
        )
        words = set(re.findall(r"\w+", request.query.casefold()))
        scored = [(share, item) for item in matching if (share := _word_share(item, words))]
        scored.sort(key=lambda pair: (-(pair[0] + self.boost(pair[1])), pair[1].id))
        size, start = min(request.page_size or 10, self.most), int(request.page_token or 0)
        make = self._chunk if chunks else self._document
        page = scored[start : start + size]
        return self.types.SearchResponse(
            results=[make(request, share, item) for share, item in page],
            total_size=len(scored),
            next_page_token=str(start + size) if start + size < len(scored) else "",
        )

    def _chunk(self, request: Any, share: float, stored: Stored) -> Any:
        types = self.types
        branch = request.serving_config.split("/servingConfigs/")[0] + "/branches/0"
        about = types.Chunk.DocumentMetadata(
            title=stored.title, uri=stored.url, struct_data=dict(stored.data)
        )
        chunk = types.Chunk(
            name=f"{branch}/documents/{stored.id}/chunks/c1" if self.named(stored) else "",
            id="c1",
            content=stored.text,
            relevance_score=self.share(share),
            document_metadata=about,
            page_span=types.Chunk.PageSpan(page_start=2, page_end=3),
        )
        return types.SearchResponse.SearchResult(id="c1", chunk=chunk)

    def _document(self, request: Any, share: float, stored: Stored) -> Any:
        types = self.types
        derived: dict[str, Any] = {"title": stored.title, "link": stored.url}
        data = dict(stored.data)
        if self.segments:
            derived["extractive_segments"] = [{"content": stored.text, "pageNumber": "2"}]
            derived["extractive_answers"] = [{"content": stored.text[:20]}]
            derived["snippets"] = [{"snippet": f"<b>{request.query}</b>", "snippet_status": "SUCCESS"}]
        else:
            data["content"] = stored.text
        id = stored.id if self.named(stored) else ""
        document = types.Document(id=id, struct_data=data, derived_struct_data={**derived, **self.derived})
        result = types.SearchResponse.SearchResult(id=id, document=document)
        if request.relevance_score_spec.return_relevance_score:
            result.rank_signals.relevance_score = self.share(share)
        return result


def parse_filter(text: str, fields: set[str]) -> list[tuple[str, set[str]]]:
    """Read a filter: conditions that all must hold. Raises ValueError for another form or field."""
    conditions: list[tuple[str, set[str]]] = []
    position = 0
    while position < len(text):
        match = _CONDITION.match(text, position)
        if match is None:
            raise ValueError(f"Invalid filter syntax at {position}")
        if match[1] not in fields:
            raise ValueError(f"Unsupported field {match[1]!r} in the filter")
        values = {re.sub(r"\\(.)", r"\1", item[1:-1]) for item in re.findall(_STRING, match[2])}
        conditions.append((match[1], values))
        position = match.end()
        if text[position:] and not text.startswith(" AND ", position):
            raise ValueError(f"Invalid filter syntax at {position}")
        position += len(" AND ") if text[position:] else 0
    return conditions


def _meets(stored: Stored, conditions: Sequence[tuple[str, set[str]]]) -> bool:
    for field, values in conditions:
        present = stored.data.get(field)
        if not any(item in present if isinstance(present, list) else item == present for item in values):
            return False
    return True


def _word_share(stored: Stored, words: set[str]) -> float:
    text_words = re.findall(r"\w+", f"{stored.title} {stored.text}".casefold())
    return len(words & set(text_words)) / len(words) if words else 0.0
