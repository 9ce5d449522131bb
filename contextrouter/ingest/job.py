"""One run of an ingestion job: a pipeline of reader, workers and storer that fills a store from a source.

Documents are stored under `origin:id`, so several sources can fill one store. A run stores new and changed
documents batch by batch. It deletes what the source no longer has only after it has read the whole source. It
holds in memory one batch, the few documents in work, and the ids. After an interruption the next run goes on:
it recognises by their fingerprints the documents that are stored already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime

from contextrouter.contracts import Embedder, Entry, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.errors import IngestError
from contextrouter.ingest.changes import Change, Changes
from contextrouter.ingest.chunk_vectors import ChunkVectors
from contextrouter.ingest.deletion import delete_vanished
from contextrouter.ingest.document_queue import (
    AHEAD,
    CharacterBudget,
    DocumentQueue,
    End,
    Flush,
    PreparedDocument,
    prepare_document,
)
from contextrouter.ingest.entity_vectors import embed_entities
from contextrouter.ingest.job_models import add_models, among
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.report import Progress, Report, SupportsNotRead, SupportsProblems, SupportsSize
from contextrouter.ingest.run_records import record_run
from contextrouter.ingest.store_lock import turn
from contextrouter.ingest.stored_fingerprints import StoredFingerprints
from contextrouter.ingest.storing import Storing
from contextrouter.runtime.plugin_calls import containment


async def ingest(
    source: SupportsCrawl,
    store: SupportsUpsert,
    transforms: Sequence[Transform],
    embedder: Embedder | None,
    *,
    others: Sequence[Embedder] = (),
    labels: Mapping[str, str] = {},
    origin: str,
    batch: int = 64,
    dry_run: bool = False,
    rebuild: bool = False,
    remove: bool = False,
    remove_at_most: float = 0.5,
    wait: float = 60.0,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Bring `store` in line with `source` and report what was done. All plugins are open.

    `others` are the embedders of further models whose vectors the store has. `labels` (kind, trust, tenant,
    compartment, sensitivity) fill what documents lack and may only tighten. `batch` is how many chunks are
    embedded and stored at a time. `dry_run` embeds and stores nothing, and lists the changes. `rebuild`
    processes unchanged documents, too. Of the documents that the source no longer has, at most a share
    `remove_at_most` of all is removed, and none if the source lists nothing; `remove` confirms that so many
    are gone. If another run fills the store, this one waits up to `wait` seconds. `progress` is called with
    the report so far, after every batch and several times a second between. A document that fails is
    reported and skipped.

    Raises IngestError when the source fails (documents before are stored, nothing is removed), or when the
    embedder or the store fails; ValueError for an argument that makes no sense.
    """
    plugins = JobPlugins(source, store, transforms, embedder)
    options = JobOptions(
        origin=origin,
        labels=labels,
        batch=batch,
        dry_run=dry_run,
        rebuild=rebuild,
        remove=remove,
        remove_at_most=remove_at_most,
    )
    async with AsyncExitStack() as stack:
        if not dry_run:
            await stack.enter_async_context(turn(store, origin, wait))
        plugins = await add_models(plugins, among(others), dry_run=dry_run)
        return await JobRun(plugins, options, progress).execute()


class JobRun:
    """The state of one run.

    Three tasks run at the same time. The reader compares the source with the store; workers chunk and enrich
    the documents that changed; the storer embeds and stores them, batch by batch, in the order of the source.
    Each waits when the next one is behind.
    """

    def __init__(
        self, plugins: JobPlugins, options: JobOptions, progress: Callable[[Report], None] | None = None
    ) -> None:
        self.plugins, self.options = plugins, options
        self.progress = Progress(progress)
        self.report = self.progress.report
        self.stored = StoredFingerprints(plugins.store)
        self.changes = Changes(plugins, options, self.stored, self.progress)
        self.vectors = ChunkVectors(plugins, options, self.stored, self.report)
        self.storing = Storing(plugins.store, self.report)
        self.budget = CharacterBudget()
        self.ready: list[PreparedDocument] = []

    async def execute(self) -> Report:
        """Store what is new or changed in the source, delete what the source no longer has, and embed the
        entities of the facts.
        """
        start = datetime.now(UTC)
        if isinstance(self.plugins.source, SupportsSize):
            self.report.total = await _size(self.plugins.source)
        await self.vectors.announce_model()
        await self.stored.load(self.options.labels.get("tenant"))
        await self.changes.survey()
        await self._store_changes()
        await delete_vanished(
            self.plugins, self.options, self.stored, self.changes.source_documents, self.report
        )
        await embed_entities(self.plugins, self.options, self.report)
        if not self.report.in_doubt:  # else the store is not known to be in line with the source
            await record_run(self.plugins, self.options, start)
        self.progress.send()
        return self.report

    async def _store_changes(self) -> None:
        """Run the pipeline to its end. Raises IngestError when the source fails; nothing is deleted then."""
        queue: DocumentQueue = asyncio.Queue(AHEAD)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._store(queue))
                await self._read(queue, group)
        except* IngestError as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        origin, source, failure = self.options.origin, self.plugins.source, self.changes.failure
        if isinstance(source, SupportsProblems):
            for problem in source.problems:
                self.report.skip(origin, problem)
        if isinstance(source, SupportsNotRead):
            self.report.not_read = dict(source.not_read)
        if failure is not None:
            raise IngestError(
                f"Source {origin!r} broke off after {len(self.changes.source_documents)} documents, nothing"
                f" was removed: {failure}"
            ) from failure

    # The reader

    async def _read(self, queue: DocumentQueue, group: asyncio.TaskGroup) -> None:
        """Start a worker for every document that is new or changed."""
        async with aclosing(self.changes.read()) as changes:
            async for change in changes:
                await self._start_worker(change, queue, group)
        await queue.put(End())

    async def _start_worker(self, change: Change, queue: DocumentQueue, group: asyncio.TaskGroup) -> None:
        length = len(change.document.content)
        if not self.budget.fits(length):
            await queue.put(Flush())
        await self.budget.acquire(length)
        await queue.put(group.create_task(prepare_document(change, self.plugins.transforms)))

    # The storer

    async def _store(self, queue: DocumentQueue) -> None:
        """Store the documents in their order, whenever a batch is full or the reader says so."""
        while True:
            message = await queue.get()
            if isinstance(message, asyncio.Task):
                self._add(await message)
                chunks = (max(1, len(document.entry.chunks)) for document in self.ready if document.entry)
                if sum(chunks) >= self.options.batch:
                    await self._flush()
                continue
            await self._flush()
            if isinstance(message, End):
                return

    def _add(self, prepared: PreparedDocument) -> None:
        """Add a document to the next batch, unless it failed."""
        document = prepared.change.document
        for problem in [prepared.failure] if prepared.failure else prepared.problems:
            self.report.skip(document.id, problem)
        if prepared.entry is None:
            self.budget.release(len(document.content))
        else:
            self.ready.append(prepared)

    async def _flush(self) -> None:
        """Embed and store the batch, then count it."""
        batch, self.ready = self.ready, []
        entries = [prepared.entry for prepared in batch if prepared.entry]
        if not entries:
            return
        refused: Collection[Entry] = ()
        if not self.options.dry_run:
            entries = await self.vectors.embed(entries)
            refused = await self.storing.store_batch(entries)
        ids = {(entry.document.tenant, entry.document.id) for entry in refused}
        for prepared in batch:
            self.budget.release(len(prepared.change.document.content))
            if prepared.entry and (prepared.entry.document.tenant, prepared.entry.document.id) not in ids:
                self._count(prepared)
        self.progress.send()

    def _count(self, prepared: PreparedDocument) -> None:
        """Add one document to the report."""
        report, change = self.report, prepared.change
        report.documents += 1
        report.changed += change.stored
        report.added += not change.stored
        report.tokens += prepared.tokens
        if prepared.entry:
            report.chunks += len(prepared.entry.chunks)
            report.facts += len(prepared.entry.facts)
        if self.options.dry_run:
            report.changes.append(("changed" if change.stored else "added", change.document.id))


async def _size(source: SupportsSize) -> int | None:
    """Return how many documents there are; None if the source cannot say."""
    try:
        with containment():
            return await source.size()
    except Exception:  # only the progress lacks a total; reading the source reports the failure
        return None
