"""Embedding of chunks during ingestion: one vector for each chunk and vector leg.

A chunk whose text the store already holds a vector for is not embedded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from contextrouter.contracts import Embedder, Entry, SupportsModel, SupportsVectors
from contextrouter.errors import IngestError
from contextrouter.ingest.document_queue import PreparedDocument
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.preparation import leg_text
from contextrouter.ingest.report import Report
from contextrouter.model import Document, Vector

VectorsByText = Mapping[tuple[str, str], Vector]
"""(leg, text) -> vector."""


class ChunkVectors:
    """The embedder of a job, and the vectors that the store already has."""

    def __init__(self, plugins: JobPlugins, options: JobOptions) -> None:
        self.store, self.embedder, self.options = plugins.store, plugins.embedder, options
        self.others = plugins.others

    async def announce_model(self) -> None:
        """Tell the store which model makes the vectors, so that it can refuse vectors of another model."""
        if self.embedder is None or self.options.dry_run or not isinstance(self.store, SupportsModel):
            return
        model = self.embedder.model
        with as_ingest_error(f"The store does not take vectors of {model!r}"):  # nothing was stored yet
            await self.store.embedded_by(model, self.embedder.dimensions)

    async def embed(self, documents: Sequence[PreparedDocument], report: Report) -> list[Entry]:
        """Return the entries of the documents with one vector per chunk and vector leg. The report counts the
        texts that were embedded.
        """
        entries = [document.entry for document in documents if document.entry]
        if self.embedder is None:
            return entries
        changed = [document.change.document for document in documents if document.change.stored]
        vectors = await self._embed_legs(self.embedder, entries, changed, report)
        others = {
            further.model: await self._embed_legs(further, entries, changed, report)
            for further in self.others
        }
        result: list[Entry] = []
        start = 0
        for entry in entries:
            stop = start + len(entry.chunks)
            legs = _part(vectors, start, stop)
            other_legs = {model: _part(by_leg, start, stop) for model, by_leg in others.items()}
            result.append(msgspec.structs.replace(entry, vectors=legs, other_vectors=other_legs))
            start = stop
        return result

    async def _embed_legs(
        self, embedder: Embedder, entries: Sequence[Entry], changed: Sequence[Document], report: Report
    ) -> Mapping[str, Sequence[Vector | None]]:
        """Return leg -> the vectors of all chunks, in their order."""
        chunks = [chunk for entry in entries for chunk in entry.chunks]
        stored = await self._load_vectors(changed, embedder.model)
        return {
            leg: await self._embed_leg(embedder, leg, chunks, stored, report)
            for leg in self.store.vector_legs
        }

    async def _load_vectors(self, documents: Sequence[Document], model: str) -> VectorsByText:
        """Return the vectors that the store holds for the earlier versions of these documents."""
        if self.options.rebuild or not model or not isinstance(self.store, SupportsVectors):
            return {}
        changed: dict[str | None, list[str]] = {}
        for document in documents:
            changed.setdefault(document.tenant or None, []).append(document.id)
        vectors: dict[tuple[str, str], Vector] = {}
        for tenant, ids in changed.items():
            message = "The store does not give back its vectors"
            with as_ingest_error(message, ids[0]):  # earlier batches stay stored; nothing is removed
                chunks = await self.store.embedded(ids, tenant, model)
            vectors.update(
                ((leg, leg_text(leg, chunk) or ""), vector)
                for chunk, legs in chunks
                for leg, vector in legs.items()
            )
        return vectors

    async def _embed_leg(
        self, embedder: Embedder, leg: str, chunks: Sequence[Document], stored: VectorsByText, report: Report
    ) -> list[Vector | None]:
        """Return one vector per chunk; None if the leg has no text. A call embeds at most `batch` texts."""
        texts = [leg_text(leg, chunk) for chunk in chunks]
        vectors = [stored.get((leg, text)) if text else None for text in texts]
        positions = [index for index, text in enumerate(texts) if text and vectors[index] is None]
        for start in range(0, len(positions), self.options.batch):
            part = positions[start : start + self.options.batch]
            document = chunks[part[0]].parent or ""
            message = f"The embedder failed at {document!r}, leg {leg!r}"
            with as_ingest_error(message, document):  # earlier batches stay stored; nothing is removed
                embeddings = await embedder.embed([texts[index] or "" for index in part])
            if len(embeddings) != len(part):
                raise IngestError(
                    f"The embedder returned {len(embeddings)} vectors for {len(part)} texts; it must return"
                    " one each."
                )
            report.embedded += len(embeddings)
            for index, vector in zip(part, embeddings, strict=True):
                vectors[index] = vector
        return vectors


def _part(
    by_leg: Mapping[str, Sequence[Vector | None]], start: int, stop: int
) -> dict[str, Sequence[Vector | None]]:
    return {leg: vectors[start:stop] for leg, vectors in by_leg.items()}
