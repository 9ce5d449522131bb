"""Embedding of entities at the end of a run: the names, aliases and descriptions that the facts of a store
give.

An entity whose facts did not change keeps its vectors. What an interruption leaves out, the next run does.
"""

from __future__ import annotations

from contextrouter.contracts import SupportsEntityVectors
from contextrouter.errors import IngestError
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.report import Report
from contextrouter.model import Vector
from contextrouter.runtime.plugin_calls import containment


async def embed_entities(plugins: JobPlugins, options: JobOptions, report: Report) -> None:
    """Give the entities of a store their vectors, page by page. Raises IngestError when the embedder or the
    store fails; the documents are stored by then.
    """
    store, embedder = plugins.store, plugins.embedder
    if embedder is None or options.dry_run or not isinstance(store, SupportsEntityVectors):
        return
    try:
        while True:
            with containment():
                texts = list(await store.entity_texts())
            vectors: dict[str, Vector] = {}
            for start in range(0, len(texts), options.batch):
                part = texts[start : start + options.batch]
                with containment():
                    vectors.update(zip(part, await embedder.embed(part), strict=True))
            with containment():
                entities = await store.embed_entities(vectors)
            if not entities:
                return
            report.embedded += len(texts)
            report.entities += entities
    except Exception as error:  # the documents are stored; the next run goes on with the entities
        raise IngestError(f"Entities could not be embedded: {error}") from error
