"""A worker of an ingestion run: opens its own plugins from settings, and stores the documents it is sent.

As a process it reads messages from its standard input and answers on its standard output. It ends when the
input ends, so that none outlives its coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import struct
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import BinaryIO, cast

from contextrouter.errors import ContextRouterError, IngestError
from contextrouter.ingest.changes import Change
from contextrouter.ingest.job_models import add_models
from contextrouter.ingest.job_options import JobOptions
from contextrouter.ingest.job_plugins import Wiring
from contextrouter.ingest.report import Progress
from contextrouter.ingest.runners.local import LocalRunner
from contextrouter.ingest.runners.worker_messages import (
    Reply,
    decode_setup,
    decode_work,
    encode_reply,
    received,
)
from contextrouter.model import Document
from contextrouter.router import ContextRouter
from contextrouter.runtime.registry import Registry
from contextrouter.settings.loading import load
from contextrouter.settings.reading import PREFIX

LENGTH = struct.Struct(">Q")
"""The length of a message, which stands before it. An empty message ends the worker."""


class Worker:
    """The plugins of a worker. They are opened with the first work of their job."""

    def __init__(self, setup: bytes) -> None:
        values = decode_setup(setup)
        # The coordinator has put variables for settings into the tables.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        settings, registry = load(values.tables, Registry, environ=environ, location=values.location)
        self._router = ContextRouter(settings, registry=cast(Registry, registry))
        self._stack = AsyncExitStack()
        self._wiring = Wiring(self._router, self._stack)
        self._runners: dict[str, LocalRunner] = {}

    async def work(self, body: bytes) -> bytes:
        """Do the work in `body` and return the reply. What goes wrong is in the reply."""
        work = decode_work(body)
        progress = Progress(None)
        reply = Reply(report=progress.report)
        try:
            runner = await self._runner(work.job, work.options)
            await runner.run(_changes([received(change) for change in work.changes]), progress)
        except ContextRouterError as error:
            reply.error = str(error)
            reply.document = str(error.document or "") if isinstance(error, IngestError) else ""
        except Exception as error:  # the coordinator ends the run and says why
            reply.error = f"{type(error).__name__}: {error}"
        return encode_reply(reply)

    async def _runner(self, name: str, options: JobOptions) -> LocalRunner:
        if name not in self._runners:
            job = self._router.settings.ingest[name]
            plugins = await self._wiring.filling(name, job, _NoSource())
            plugins = await add_models(plugins, self._wiring.embedder_of, dry_run=options.dry_run)
            runner = LocalRunner(plugins, options)
            await runner.vectors.announce_model()
            self._runners[name] = runner
        return self._runners[name]

    async def aclose(self) -> None:
        """Close the plugins."""
        self._runners.clear()
        try:
            await self._stack.aclose()
        finally:
            await self._router.instances.aclose()


class _NoSource:
    """A worker reads no source: its coordinator sends it the documents."""

    async def crawl(self) -> AsyncGenerator[Document, None]:
        none: tuple[Document, ...] = ()
        for document in none:
            yield document


async def _changes(changes: Sequence[Change]) -> AsyncGenerator[Change, None]:
    for change in changes:
        yield change


class _Pipe:
    """The messages of a process. Its own output goes to stderr: plugins may print."""

    def __init__(self) -> None:
        self._input: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def read(self) -> bytes:
        """Return the next message. The process ends where there is none: its coordinator is gone."""
        length = self._input.read(LENGTH.size)
        body = self._input.read(LENGTH.unpack(length)[0]) if len(length) == LENGTH.size else b""
        if len(length) < LENGTH.size or len(body) < LENGTH.unpack(length)[0]:
            os._exit(1)
        return body

    def write(self, body: bytes) -> None:
        try:
            self._output.write(LENGTH.pack(len(body)) + body)
            self._output.flush()
        except OSError:
            os._exit(1)


async def _serve(pipe: _Pipe) -> None:
    """Answer messages until an empty one comes. A thread waits for them, so that the process ends with its
    coordinator whatever the event loop does.
    """
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        while body := pipe.read():
            loop.call_soon_threadsafe(messages.put_nowait, body)
        loop.call_soon_threadsafe(messages.put_nowait, b"")

    threading.Thread(target=read, name="contextrouter-messages", daemon=True).start()
    try:
        worker = Worker(await messages.get())
    except Exception as error:  # the coordinator ends the run and says why
        pipe.write(encode_reply(Reply(error=f"{type(error).__name__}: {error}")))
        return
    pipe.write(encode_reply(Reply()))
    try:
        while body := await messages.get():
            pipe.write(await worker.work(body))
    finally:
        await worker.aclose()


def main() -> None:
    """Run a worker process until its coordinator ends it, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which ends its workers
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    asyncio.run(_serve(_Pipe()))
