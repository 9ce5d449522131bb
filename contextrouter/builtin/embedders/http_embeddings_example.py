"""Local embedding server for the example of the embedder `http`."""

from __future__ import annotations

import hashlib
import json

from contextrouter.builtin.shared.loopback_server import Loopback

HOST = "embed.example"


class VectorServer(Loopback):
    """Answers `{"inputs": [texts]}` with `{"vectors": [vectors]}`, made of hashes: equal texts have equal
    vectors.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self._dimensions = dimensions

    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        """The vectors as JSON."""
        digests = [
            hashlib.shake_128(text.encode()).digest(self._dimensions) for text in json.loads(body)["inputs"]
        ]
        vectors = [[byte - 127.5 for byte in digest] for digest in digests]
        return b"application/json", json.dumps({"vectors": vectors}).encode()
