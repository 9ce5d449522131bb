"""One run of an ingestion job: a pipeline of reader and runner that fills a store from a source.

Documents are stored under `origin:id`, so several sources can fill one store. A run stores new and changed
documents batch by batch. It deletes what the source no longer has only after it has read the whole source. It
holds in memory one batch, the few documents in work, and the ids. After an interruption the next run goes on:
it recognises by their fingerprints the documents that are stored already.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from datetime import UTC, datetime

from contextrouter.contracts import Embedder, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.errors import IngestError
from contextrouter.ingest.bulk_load import begin_load, loading
from contextrouter.ingest.changes import Change, Changes
from contextrouter.ingest.chunk_vectors import ChunkVectors
from contextrouter.ingest.deletion import delete_vanished
from contextrouter.ingest.entity_vectors import embed_entities
from contextrouter.ingest.job_models import add_models, among
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.report import Progress, Report, SupportsNotRead, SupportsProblems, SupportsSize
from contextrouter.ingest.run_records import record_run
from contextrouter.ingest.runners.local import LocalRunner
from contextrouter.ingest.runners.protocol import Runner
from contextrouter.ingest.store_lock import turn
from contextrouter.ingest.stored_fingerprints import StoredFingerprints
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
            await stack.enter_async_context(loading(store, origin))
        plugins = await add_models(plugins, among(others), dry_run=dry_run)
        return await JobRun(plugins, options, progress).execute()


class JobRun:
    """The state of one run: a reader compares the source with the store, and a runner stores the changes."""

    def __init__(
        self,
        plugins: JobPlugins,
        options: JobOptions,
        progress: Callable[[Report], None] | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.plugins, self.options = plugins, options
        self.progress = Progress(progress)
        self.report = self.progress.report
        self.runner: Runner = runner or LocalRunner(plugins, options)
        self.stored = StoredFingerprints(plugins.store)
        self.changes = Changes(plugins, options, self.stored, self.progress)

    async def execute(self) -> Report:
        """Store what is new or changed in the source, delete what the source no longer has, and embed the
        entities of the facts.
        """
        start = datetime.now(UTC)
        with closing(self.stored):
            if isinstance(self.plugins.source, SupportsSize):
                self.report.total = await _size(self.plugins.source)
            await ChunkVectors(self.plugins, self.options).announce_model()
            await self.stored.load(self.options.labels.get("tenant"))
            await self.changes.survey()
            await self._store_changes()
            await delete_vanished(self.plugins, self.options, self.stored, self.report)
        await embed_entities(self.plugins, self.options, self.report)
        if not self.report.in_doubt:  # else the store is not known to be in line with the source
            await record_run(self.plugins, self.options, start)
        self.progress.send()
        return self.report

    async def _store_changes(self) -> None:
        """Have the runner store every change. Raises IngestError when the source fails; nothing is deleted
        then.
        """
        async with aclosing(self._read()) as changes:
            await self.runner.run(changes, self.progress)
        origin, source, failure = self.options.origin, self.plugins.source, self.changes.failure
        if isinstance(source, SupportsProblems):
            for problem in source.problems:
                self.report.skip(origin, problem)
        if isinstance(source, SupportsNotRead):
            self.report.not_read = dict(source.not_read)
        if failure is not None:
            raise IngestError(
                f"Source {origin!r} broke off after {self.stored.count_listed()} documents, nothing was"
                f" removed: {failure}"
            ) from failure

    async def _read(self) -> AsyncGenerator[Change, None]:
        """Yield the changes. Before the first one the store learns how many come at least."""
        announced = self.options.dry_run
        async with aclosing(self.changes.read()) as changes:
            async for change in changes:
                if not announced:
                    announced = True
                    await begin_load(self.plugins.store, self._expected())
                yield change

    def _expected(self) -> int | None:
        """Return how many documents are new at least, if the source knows how many it has; all in a rebuild.

        They are more if the source lost documents that are stored. How many have changed shows only when they
        are read.
        """
        if self.report.total is None or self.options.rebuild:
            return self.report.total
        return max(0, self.report.total - self.stored.count_stored(self.options.origin))


async def _size(source: SupportsSize) -> int | None:
    """Return how many documents there are; None if the source cannot say."""
    try:
        with containment():
            return await source.size()
    except Exception:  # only the progress lacks a total; reading the source reports the failure
        return None
