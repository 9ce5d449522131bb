"""Local embedding server for the example of `openai`, which then needs no key and no network."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from contextrouter.builtin.shared.loopback_server import Loopback


class EmbeddingServer(Loopback):
    """Answers `POST …/embeddings` with vectors made of hashes: equal texts have equal vectors, and nothing
    more is in them.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self._dimensions = dimensions

    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        """Embeddings in OpenAI's format."""
        return b"application/json", json.dumps(self._embed(json.loads(body))).encode()

    def _embed(self, request: dict[str, Any]) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": self._vector(text)}
            for index, text in enumerate(request["input"])
        ]
        return {
            "object": "list",
            "data": data,
            "model": request["model"],
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        }

    def _vector(self, text: str) -> list[float]:
        digest = hashlib.shake_128(text.encode()).digest(self._dimensions)
        return [(byte - 127.5) / 127.5 for byte in digest]
