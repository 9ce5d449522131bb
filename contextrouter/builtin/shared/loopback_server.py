"""Local HTTP server for examples of plugins, which then need no key and no network."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from typing import Any


class Loopback(ABC):
    """Answers whatever is asked of 127.0.0.1 with what `answer()` says."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    @abstractmethod
    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        """The media type and the body of the answer to a request."""

    async def listen(self) -> int:
        """Listen on a free port; return it."""
        self._server = self._server or await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        """Stop listening, close the connections, and wait for what serves them."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        serving = dict(self._connections)
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(serving)
        await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                kind, answer = self.answer(head.split(b" ")[1].decode("ascii", "replace"), body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(answer))
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client has closed
        finally:
            del self._connections[task]
            writer.close()
