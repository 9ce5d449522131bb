"""A server that speaks as much of Redis's protocol as a cache needs, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from time import monotonic


class RespServer:
    """Keeps texts by key with their expiry. `hang` makes it read and never answer; `commands` are the names
    it was sent.
    """

    def __init__(self) -> None:
        self.data: dict[bytes, tuple[bytes, float]] = {}
        self._serials: dict[bytes, int] = {}
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.commands: list[str] = []
        self.hang = False
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        tasks = {task for task in self._tasks if task is not None}
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                parts = []
                for _ in range(int(line[1:])):
                    size = int((await reader.readline())[1:])
                    parts.append((await reader.readexactly(size + 2))[:-2])
                self.commands.append(parts[0].decode().upper())
                if not self.hang:
                    writer.write(self._answer(parts[0].decode().upper(), parts[1:]))
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    def _live(self, key: bytes) -> bytes | None:
        value, until = self.data.get(key, (b"", 0.0))
        return value if monotonic() < until else None

    def _answer(self, name: str, rest: list[bytes]) -> bytes:
        if name == "GET":
            value = self._live(rest[0])
            return b"$-1\r\n" if value is None else bulk(value)
        if name == "SET":
            options = [option.upper() for option in rest[2:]]
            if b"NX" in options and self._live(rest[0]) is not None:
                return b"$-1\r\n"
            milliseconds = int(options[options.index(b"PX") + 1])
            self.data[rest[0]] = (rest[1], monotonic() + milliseconds / 1000)
            self._serials.setdefault(rest[0], len(self._serials) + 1)
            return b"+OK\r\n"
        if name == "EVAL":  # unlocks: removes a key that has this value
            _, _, key, token = rest
            return b":%d\r\n" % (self._live(key) == token and self.data.pop(key) is not None)
        if name == "STRLEN":
            return b":%d\r\n" % len(self._live(rest[0]) or b"")
        if name == "UNLINK":
            return b":%d\r\n" % sum(self.data.pop(key, None) is not None for key in rest)
        if (
            name == "SCAN"
        ):  # two keys a page; the cursor is the serial number of the last, so that keys may go meanwhile
            found = [
                (n, key)
                for key, n in self._serials.items()
                if n > int(rest[0]) and self._live(key) is not None
            ]
            page = [(n, key) for n, key in found if fnmatchcase(key.decode(), rest[2].decode())][:2]
            cursor = page[-1][0] if len(page) == 2 else 0
            return (
                b"*2\r\n"
                + bulk(b"%d" % cursor)
                + b"*%d\r\n" % len(page)
                + b"".join(bulk(key) for _, key in page)
            )
        return b"+OK\r\n"


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


@asynccontextmanager
async def resp_server() -> AsyncIterator[RespServer]:
    server = RespServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
