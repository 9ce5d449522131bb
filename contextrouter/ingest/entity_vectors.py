"""Embedding of entities at the end of a run: the names, aliases and descriptions that the facts of a store
give.

An entity whose facts did not change keeps its vectors. What an interruption leaves out, the next run does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from contextrouter.contracts import SupportsEntityVectors, SupportsModels
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.report import Report
from contextrouter.model import Vector
from contextrouter.runtime.plugin_calls import containment


async def embed_entities(plugins: JobPlugins, options: JobOptions, report: Report) -> None:
    """Give the entities of a store their vectors, of each of its models. Raises IngestError when an embedder
    or the store fails; the documents are stored by then.
    """
    store, embedder = plugins.store, plugins.embedder
    if embedder is None or options.dry_run or not isinstance(store, SupportsEntityVectors):
        return
    # When this fails, the documents are stored; the next run goes on with the entities.
    with as_ingest_error("Entities could not be embedded"):
        texts, entities = await embed_pages(
            store.entity_texts, store.embed_entities, embedder.embed, options.batch
        )
        report.embedded += texts
        report.entities += entities
        for further in plugins.others:
            assert isinstance(store, SupportsModels)  # `others` are of its models
            models = store.vector_models()
            texts, _ = await embed_pages(
                partial(models.entity_texts, further.model),
                partial(models.embed_entities, further.model),
                further.embed,
                options.batch,
            )
            report.embedded += texts


async def embed_pages(
    next_texts: Callable[[], Awaitable[Sequence[str]]],
    keep: Callable[[Mapping[str, Vector]], Awaitable[int]],
    embed: Callable[[list[str]], Awaitable[Sequence[Vector]]],
    batch: int,
) -> tuple[int, int]:
    """Embed the texts of entities page by page; return how many texts and entities these were."""
    embedded = count = 0
    while True:
        with containment():
            texts = list(await next_texts())
        vectors: dict[str, Vector] = {}
        for start in range(0, len(texts), batch):
            part = texts[start : start + batch]
            with containment():
                vectors.update(zip(part, await embed(part), strict=True))
        with containment():
            entities = await keep(vectors)
        if not entities:
            return embedded, count
        embedded += len(texts)
        count += entities
