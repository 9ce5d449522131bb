"""Workers on a Ray cluster: each is an actor, which opens its own plugins on its machine."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack
from typing import Any

from contextrouter.errors import IngestError, MissingDependency
from contextrouter.ingest.runners.ingest_worker import Worker
from contextrouter.ingest.runners.pool import WorkerDied
from contextrouter.ingest.runners.worker_messages import Reply, encode_reply
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import work_aside

REACH_SECONDS = 5.0
"""How long a cluster may take to accept a connection."""
_HOST = re.compile(r"(?:ray://)?\[?([\w.:-]+?)\]?:(\d{1,5})")
STOP_SECONDS = 10.0
"""How long an actor may take to close its plugins before it is killed."""


async def connect(address: str, stack: AsyncExitStack) -> None:
    """Connect to a cluster, unless this program is connected already; `stack` ends the connection.

    Raises MissingDependency without Ray, IngestError when there is no cluster at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency("ray", "ray") from error
    if ray.is_initialized():
        return
    try:
        await _reach(address)
        await work_aside(_connect, ray, address)
    except Exception as error:  # nothing was stored or removed yet
        raise IngestError(
            f"No Ray cluster is at {address!r}: {_first_line(error)}; start one with `ray start"
            ' --head`, or set `[ingest] ray_address = "local"`.'
        ) from error
    stack.callback(ray.shutdown)


async def _reach(address: str) -> None:
    """Raise OSError or TimeoutError where nothing answers at a host and port: Ray would try for minutes."""
    if match := _HOST.fullmatch(address):
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(match[1], int(match[2]))
        writer.close()
        await writer.wait_closed()


def _connect(ray: Any, address: str) -> None:
    ray.init(address=address, include_dashboard=False, log_to_driver=True, logging_level=logging.WARNING)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return mask(lines[0]) if lines else type(error).__name__


class WorkerActor:
    """A worker as an actor of Ray. It reads its settings in `start`, so that the reply says what is wrong."""

    def __init__(self, setup: bytes) -> None:
        self._setup = setup
        self._worker: Worker | None = None

    async def start(self) -> bytes:
        """Read the settings."""
        try:
            self._worker = Worker(self._setup)
        except Exception as error:  # the coordinator ends the run and says why
            return encode_reply(Reply(error=f"{type(error).__name__}: {error}"))
        return encode_reply(Reply())

    async def work(self, body: bytes) -> bytes:
        """Do the work in `body` and return the reply."""
        assert self._worker is not None, "start() comes first"
        return await self._worker.work(body)

    async def aclose(self) -> None:
        """Close the plugins."""
        if self._worker is not None:
            await self._worker.aclose()


class RayWorker:
    """One actor, as the pool sees it."""

    def __init__(self, setup: bytes) -> None:
        import ray

        self._ray: Any = ray
        self._setup = setup
        self._actor: Any = None

    async def start(self) -> bytes:
        """Start the actor and return its first reply. Raises WorkerDied."""
        actor = self._ray.remote(WorkerActor).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self._actor = actor.remote(self._setup)
        return await self._call(self._actor.start)

    async def work(self, body: bytes) -> bytes:
        """Send a message and return the reply. Raises WorkerDied if the actor ends before."""
        return await self._call(self._actor.work, body)

    async def _call(self, method: Any, *values: bytes) -> bytes:
        try:
            reply: bytes = await method.remote(*values)
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(_first_line(error)) from error
        return reply

    async def stop(self) -> None:
        """Let the actor close its plugins, and end it."""
        if self._actor is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._call(self._actor.aclose)
        except (WorkerDied, TimeoutError):
            pass  # it is ended all the same
        await self.kill()

    async def kill(self) -> None:
        """End the actor at once."""
        actor, self._actor = self._actor, None
        if actor is not None:
            self._ray.kill(actor)
