"""Worker processes on this machine: each is a new Python, never a fork, with a pipe to its coordinator."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from contextrouter.ingest.runners.ingest_worker import LENGTH
from contextrouter.ingest.runners.pool import WorkerDied

START_SECONDS = 120.0
"""How long a process may take to import the package and to read its settings."""
STOP_SECONDS = 10.0
"""How long a process may take to close its plugins before it is killed."""
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from contextrouter.ingest.runners.ingest_worker import main; main()"
)


class ProcessWorker:
    """One worker process."""

    def __init__(self, setup: bytes) -> None:
        self._setup = setup
        self._process: Process | None = None

    async def start(self) -> bytes:
        """Start the process and return its first reply. Raises WorkerDied."""
        program = _PROGRAM.format(path=sys.path)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                "contextrouter-ingest-worker",
                stdin=PIPE,
                stdout=PIPE,
                process_group=0,  # Ctrl-C in a terminal reaches the coordinator alone
            )
        except OSError as error:  # the system has no room for it, perhaps for the moment
            raise WorkerDied(f"an error of the system: {error}") from error
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self.work(self._setup)
        except TimeoutError as error:
            raise WorkerDied(f"it did not start within {START_SECONDS:g} s") from error

    async def work(self, body: bytes) -> bytes:
        """Send a message and return the reply. Raises WorkerDied if the process ends before."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(LENGTH.pack(len(body)) + body)
            await process.stdin.drain()
            length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
            return await process.stdout.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise WorkerDied(await self._cause(process)) from error

    async def _cause(self, process: Process) -> str:
        code = await self._end(process)
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def stop(self) -> None:
        """Let the process close its plugins; kill it if it takes too long."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with suppress(ConnectionError, TimeoutError):
            process.stdin.write(LENGTH.pack(0))
            process.stdin.close()
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        await self.kill()

    async def kill(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await self._end(process)

    async def _end(self, process: Process) -> int:
        """Wait for the end of a process, and close its pipes."""
        if process.stdin is not None:
            process.stdin.close()
        if process.stdout is not None:
            while await process.stdout.read(65_536):
                pass  # what it had written when it ended
        return await process.wait()
