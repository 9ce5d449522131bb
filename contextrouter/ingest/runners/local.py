"""The runner of one process: workers chunk and enrich the documents, and a storer embeds and stores them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection

from contextrouter.contracts import Entry
from contextrouter.ingest.changes import Change
from contextrouter.ingest.chunk_vectors import ChunkVectors
from contextrouter.ingest.document_queue import (
    AHEAD,
    CharacterBudget,
    DocumentQueue,
    End,
    Flush,
    PreparedDocument,
    prepare_document,
)
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.report import Progress
from contextrouter.ingest.storing import Storing


class LocalRunner:
    """Runs tasks side by side: a worker for each document, and a storer that takes them in their order.

    Each waits when the next one is behind.
    """

    def __init__(self, plugins: JobPlugins, options: JobOptions) -> None:
        self.plugins, self.options = plugins, options
        self.vectors = ChunkVectors(plugins, options)
        self.storing = Storing(plugins.store)
        self.budget = CharacterBudget()
        self.progress = Progress(None)
        self.ready: list[PreparedDocument] = []

    async def run(self, changes: AsyncGenerator[Change, None], progress: Progress) -> None:
        """Store every change, in the order in which they come."""
        self.progress, self.ready = progress, []
        queue: DocumentQueue = asyncio.Queue(AHEAD)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._store(queue))
                async for change in changes:
                    await self._start_worker(change, queue, group)
                await queue.put(End())
        except* Exception as failures:  # also one of the function that receives the progress
            raise failures.exceptions[0] from failures.exceptions[0].__cause__

    async def _start_worker(self, change: Change, queue: DocumentQueue, group: asyncio.TaskGroup) -> None:
        length = len(change.document.content)
        if not self.budget.fits(length):
            await queue.put(Flush())
        await self.budget.acquire(length)
        await queue.put(group.create_task(prepare_document(change, self.plugins.transforms)))

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
            self.progress.report.skip(document.id, problem)
        if prepared.entry is None:
            self.budget.release(len(document.content))
        else:
            self.ready.append(prepared)

    async def _flush(self) -> None:
        """Embed and store the batch, then count it."""
        batch, self.ready = self.ready, []
        if not batch:
            return
        report = self.progress.report
        refused: Collection[Entry] = ()
        if not self.options.dry_run:
            refused = await self.storing.store_batch(await self.vectors.embed(batch, report), report)
        ids = {(entry.document.tenant, entry.document.id) for entry in refused}
        for prepared in batch:
            self.budget.release(len(prepared.change.document.content))
            if prepared.entry and (prepared.entry.document.tenant, prepared.entry.document.id) not in ids:
                self._count(prepared)
        self.progress.send()

    def _count(self, prepared: PreparedDocument) -> None:
        """Add one document to the report."""
        report, change = self.progress.report, prepared.change
        report.documents += 1
        report.changed += change.stored
        report.added += not change.stored
        report.tokens += prepared.tokens
        if prepared.entry:
            report.chunks += len(prepared.entry.chunks)
            report.facts += len(prepared.entry.facts)
        if self.options.dry_run:
            report.changes.append(("changed" if change.stored else "added", change.document.id))
