"""A server of embeddings on this machine, so that the example of `openai` works with no key and no network."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any


class ExampleServer:
    """Answers `POST …/embeddings` with vectors made of hashes: equal texts have equal vectors, and nothing more is in them."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def open(self) -> str:
        """Listen on a free port of 127.0.0.1; return the base URL."""
        self._server = self._server or await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

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
                body = await reader.readexactly(_length(head))
                answer = json.dumps(self._embedded(json.loads(body))).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed
        finally:
            del self._connections[task]
            writer.close()

    def _embedded(self, asked: dict[str, Any]) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": self._vector(text)} for index, text in enumerate(asked["input"])
        ]
        return {"object": "list", "data": data, "model": asked["model"], "usage": {"prompt_tokens": 0, "total_tokens": 0}}

    def _vector(self, text: str) -> list[float]:
        digest = hashlib.shake_128(text.encode()).digest(self._dimensions)
        return [(byte - 127.5) / 127.5 for byte in digest]


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0
