"""A pool of workers: sends them documents in batches, and sends them again when a worker dies.

A store replaces a document as a whole, so work that is done twice leaves the same rows. A document that ends
its worker again and again is reported, and the others are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

import msgspec

from contextrouter.errors import IngestError
from contextrouter.ingest.changes import Change
from contextrouter.ingest.job_options import JobOptions
from contextrouter.ingest.report import Progress
from contextrouter.ingest.runners.worker_messages import decode_reply, encode_change, encode_work, merge

_log = logging.getLogger("contextrouter")
DOCUMENTS, CHARACTERS = 32, 200_000
"""What one message holds at most. A longer document has a message of its own."""
ATTEMPTS = 3
"""How often a document that was put aside may end its worker."""
STARTS = 5
"""How often a worker may die before it begins."""
IN_A_ROW = 10
"""How many documents may end their workers one after the other, before that counts as a fault of the
workers.
"""


class WorkerDied(Exception):
    """The worker is gone; the message says how it ended."""


class PoolWorker(Protocol):
    """A worker as the pool sees it: a process, or an actor on another machine."""

    async def start(self) -> bytes:
        """Start it and return its first reply. Raises WorkerDied."""
        ...

    async def work(self, body: bytes) -> bytes:
        """Return its reply to a message. Raises WorkerDied."""
        ...

    async def stop(self) -> None:
        """Let it close its plugins, and end it."""
        ...

    async def kill(self) -> None:
        """End it at once."""
        ...


class Item(NamedTuple):
    """A document on its way to a worker."""

    id: str
    change: msgspec.Raw


Batch = list[Item]


class WorkerPool:
    """The workers of a run, which serve its jobs one after the other. `make` makes a worker."""

    def __init__(self, size: int, make: Callable[[], PoolWorker]) -> None:
        self.slots = [_Slot(make) for _ in range(size)]

    async def aclose(self) -> None:
        """End all workers."""
        async with asyncio.TaskGroup() as group:
            for slot in self.slots:
                group.create_task(slot.stop())


class PooledRunner:
    """The runner of one job whose documents the workers of a pool store.

    A worker may die of a document, or of something else. So a batch is sent twice, then each document of it
    alone. One that is alone when its worker dies is put aside, and tried again when all others are stored.
    Where that happens to one document after the other, and to no worker anything else, the run ends.
    """

    def __init__(self, pool: WorkerPool, job: str, options: JobOptions) -> None:
        self.pool, self.job, self.options = pool, job, options
        self.suspects: Batch = []
        self._in_a_row = 0  # documents that were put aside since a worker stored something

    async def run(self, changes: AsyncGenerator[Change, None], progress: Progress) -> None:
        """Send the changes to the workers, and add what they reply to the report. The order of documents may
        differ from that of the source.

        Raises IngestError when the workers cannot do their work, whatever the document.
        """
        queue: asyncio.Queue[Batch] = asyncio.Queue(len(self.pool.slots))
        self.suspects, self._in_a_row = [], 0
        try:
            async with asyncio.TaskGroup() as group:
                for slot in self.pool.slots:
                    group.create_task(self._serve(slot, queue, progress))
                async for batch in _group_changes(changes, progress):
                    await queue.put(batch)
                for _ in self.pool.slots:
                    await queue.put([])
        except* Exception as failures:  # also one of the function that receives the progress
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        for item in self.suspects:
            await self._try_suspect(item, progress)

    async def _serve(self, slot: _Slot, queue: asyncio.Queue[Batch], progress: Progress) -> None:
        """Have the worker of one slot do what is in the queue."""
        while batch := await queue.get():
            done = False
            for _ in range(2 if len(batch) > 1 else 0):
                done = done or await self._do(slot, batch, progress)
            for item in batch if not done else ():
                if not await self._do(slot, [item], progress):
                    self._put_aside(item, slot.cause)

    def _put_aside(self, item: Item, cause: str) -> None:
        """Keep a document whose worker died for the end. Raises IngestError after too many in a row."""
        self.suspects.append(item)
        self._in_a_row += 1
        if self._in_a_row == IN_A_ROW:
            raise IngestError(
                f"The workers of job {self.job!r} ended at {IN_A_ROW} documents one after the other"
                f" ({cause}), the last one {item.id!r}; what was stored stays. Read above what they wrote,"
                " and mend that; where memory is short, lower `workers`, or set `workers = 0`.",
                document=item.id,
            )

    async def _try_suspect(self, item: Item, progress: Progress) -> None:
        for _ in range(ATTEMPTS):
            if await self._do(self.pool.slots[0], [item], progress):
                return
        progress.report.skip(
            item.id,
            f"ended its worker {ATTEMPTS} times ({self.pool.slots[0].cause}) and was left out; what is stored"
            " of it stays. Read above what the worker wrote, and mend the document or a transform of the job",
        )

    async def _do(self, slot: _Slot, batch: Batch, progress: Progress) -> bool:
        """Have a batch stored. False: its worker died."""
        body = encode_work(self.job, self.options, [item.change for item in batch])
        try:
            reply = decode_reply(await slot.work(body))
        except WorkerDied as error:
            _log.warning("A worker of job %r ended (%s); its documents are sent again.", self.job, error)
            return False
        except BaseException:
            await slot.kill()  # it may be in the middle of a message
            raise
        if reply.error:
            raise IngestError(reply.error, document=reply.document)
        self._in_a_row = 0
        merge(progress.report, reply.report)
        progress.send()
        return True


async def _group_changes(
    changes: AsyncGenerator[Change, None], progress: Progress
) -> AsyncGenerator[Batch, None]:
    """Yield the changes in batches. One that no message can hold is reported."""
    batch: Batch = []
    length = 0
    async for change in changes:
        try:
            item = Item(change.document.id, encode_change(change))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            progress.report.skip(change.document.id, f"{type(error).__name__}: {error}")
            continue
        size = len(change.document.content)
        if batch and (len(batch) == DOCUMENTS or length + size > CHARACTERS):
            yield batch
            batch, length = [], 0
        batch.append(item)
        length += size
    if batch:
        yield batch


class _Slot:
    """A slot of the pool: its worker is started with the first work, and again when it died."""

    def __init__(self, make: Callable[[], PoolWorker]) -> None:
        self._make = make
        self._worker: PoolWorker | None = None
        self.cause = ""  # how the last worker died

    async def work(self, body: bytes) -> bytes:
        """Return the reply of the worker. Raises WorkerDied, and IngestError if none starts."""
        worker = self._worker or await self._start()
        try:
            return await worker.work(body)
        except WorkerDied as error:
            self.cause = str(error)
            await self.kill()
            raise

    async def _start(self) -> PoolWorker:
        for _ in range(STARTS):
            self._worker = worker = self._make()
            try:
                reply = decode_reply(await worker.start())
            except WorkerDied as error:
                self.cause = str(error)
                await self.kill()
                continue
            if reply.error:
                raise IngestError(
                    f"A worker of the ingestion cannot use the settings: {reply.error.rstrip('.')}. Give it"
                    " the plugins, files and variables that this process has, or set `workers = 0`."
                )
            return worker
        raise IngestError(
            f"Workers of the ingestion do not start, {STARTS} times in a row ({self.cause}). Read above what"
            " they wrote, and mend that, or set `workers = 0`."
        )

    async def stop(self) -> None:
        """End the worker, after it has closed its plugins."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()

    async def kill(self) -> None:
        """End the worker at once."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()
