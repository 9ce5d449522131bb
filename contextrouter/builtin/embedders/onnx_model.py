"""Sentence models in ONNX: tokenizer, session, padding and pooling; and what the files of a folder say of
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from contextrouter.errors import PluginError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Pooling = Literal["mean", "cls", "last"]
FILES = ("model.onnx", "onnx/model.onnx")
"""Where a model stands in its folder, if the settings name no file."""
USUAL_TOKENS = 512
"""Tokens of a text that are read where no file says how many the model takes."""
_BESIDE = ("*.json", "*.txt", "*.model")
"""Files beside the weights: of configurations, tokenizers and vocabularies."""
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_POOLED = ("sentence_embedding", "pooler_output", "text_embeds")
"""Outputs that are vectors of whole texts. `pooler_output` is none of these where token states stand beside
it: it is trained for another task.
"""
# Divided by the root of its length or by its length, a sum has the same direction.
_MODES: Mapping[str, Pooling] = {
    "mean": "mean",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean",
    "cls": "cls",
    "cls_token": "cls",
    "last": "last",
    "lasttoken": "last",
}


class ModelFolder(NamedTuple):
    """What the files of a folder in the format of sentence-transformers say. `pooling` "": nothing."""

    pooling: str
    max_tokens: int
    prompts: Mapping[bool, str]  # True: before a question, False: before a document
    dense: bool  # layers behind the pooling


class OnnxModel:
    """A session of onnxruntime with its tokenizer. `pooling` makes one vector of a text's token states: their
    mean, the first one or the last one. A model that has an output for whole texts needs none.

    Raises PluginError for a model that is no sentence model.
    """

    def __init__(self, session: Any, tokenizer: Any, pooling: Pooling, max_tokens: int) -> None:
        self._session, self._tokenizer, self.pooling = session, tokenizer, pooling
        padding = tokenizer.padding or {}
        self._pad = int(padding.get("pad_id", 0))
        tokenizer.no_padding()
        tokenizer.enable_truncation(
            max_tokens, direction=(tokenizer.truncation or {}).get("direction", "right")
        )
        self._inputs = [tensor.name for tensor in session.get_inputs()]
        if odd := [name for name in self._inputs if name not in _INPUTS]:
            raise PluginError(
                f"the model asks for the input {odd[0]!r}; known are {', '.join(_INPUTS)}. Export it as a"
                " sentence model"
            )
        self._output, self.pooled = _choose_output(
            {t.name: len(t.shape or ()) for t in session.get_outputs()}
        )

    def dimensions(self) -> int:
        """Return how long the vectors are: measured, since not every file says it."""
        return int(self.encode(["dimensions"]).shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, shape (texts, dimensions). A text without tokens gets zeros."""
        import numpy as np

        encodings = [self._tokenizer.encode(text) for text in texts]
        width = max((len(encoding.ids) for encoding in encodings), default=0) or 1
        ids = np.full((len(texts), width), self._pad, np.int64)
        mask = np.zeros((len(texts), width), np.int64)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        places = np.maximum(mask.cumsum(axis=1) - 1, 0)
        tensors = dict(zip(_INPUTS, (ids, mask, np.zeros_like(ids), places), strict=True))
        states = self._session.run([self._output], {name: tensors[name] for name in self._inputs})[0]
        rows: NDArray[np.float32] = np.asarray(
            states if self.pooled else _pool(states, mask, self.pooling), np.float32
        )
        empty = [not encoding.ids or all(encoding.special_tokens_mask) for encoding in encodings]
        return np.where(np.array(empty)[:, None], np.float32(0), rows)


def _choose_output(ranks: Mapping[str, int]) -> tuple[str, bool]:
    """Return the name of the output to take, and whether it is one vector for each text."""
    if "sentence_embedding" in ranks:
        return "sentence_embedding", True
    states = [name for name, rank in ranks.items() if rank == 3]
    if states:
        preferred = [name for name in ("last_hidden_state", "token_embeddings") if name in states]
        return (preferred or states)[0], False
    pooled = [name for name in (*_POOLED, *ranks) if ranks.get(name) == 2]
    if pooled:
        return pooled[0], True
    raise PluginError(
        f"the model has the outputs {', '.join(ranks)}, and none of them are states of tokens or vectors of"
        " texts. Export it as a sentence model"
    )


def _pool(states: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling) -> Any:
    import numpy as np

    if pooling == "cls":
        return states[:, 0]
    lengths = mask.sum(axis=1)
    if pooling == "last":
        return states[np.arange(len(states)), np.maximum(lengths - 1, 0)]
    if lengths.min(initial=0) == mask.shape[1] or len(states) == 1:
        return states.mean(axis=1)
    return (states * mask[:, :, None]).sum(axis=1) / np.maximum(lengths, 1)[:, None]


def read_folder(folder: Path) -> ModelFolder:
    """Read the small files beside a model. Raises PluginError for one that cannot be read."""
    pooling = _read_json(folder / "1_Pooling" / "config.json")
    prompts = _read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise PluginError(
            "config_sentence_transformers.json has `prompts` that are no table of texts. Mend it, or take it"
            " away and set query_prefix and document_prefix"
        )
    modules = _read_json(folder / "modules.json", [])
    types = [str(module.get("type", "")) for module in modules if isinstance(module, dict)]
    lengths = (
        _read_json(folder / "sentence_bert_config.json").get("max_seq_length"),
        _read_json(folder / "tokenizer_config.json").get("model_max_length"),
    )
    usable = (int(length) for length in lengths if isinstance(length, int | float) and 3 <= length <= 131_072)
    return ModelFolder(
        pooling=_pooling_mode(pooling, folder),
        max_tokens=next(usable, USUAL_TOKENS),
        prompts={
            True: prompts.get("query") or "",
            False: prompts.get("document") or prompts.get("passage") or "",
        },
        dense=any(name.endswith(".Dense") for name in types),
    )


def _pooling_mode(config: Mapping[str, Any], folder: Path) -> str:
    """Return the pooling that a folder names; "" where it names none."""
    prefix = "pooling_mode_"
    named = [
        key.removeprefix(prefix) for key, value in config.items() if key.startswith(prefix) and value is True
    ]
    if isinstance(config.get("pooling_mode"), str):
        named = [config["pooling_mode"]]
    if not named:
        return ""
    if len(named) > 1 or named[0] not in _MODES:
        raise PluginError(
            f"{str(folder / '1_Pooling')!r} names the pooling {' and '.join(named)!r}; known are"
            f" {', '.join(get_args(Pooling))}. Set pooling, or take another model"
        )
    return _MODES[named[0]]


def _read_json(file: Path, default: Any = None) -> Any:
    if not file.is_file():
        return {} if default is None else default
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise PluginError(f"{str(file)!r} is no JSON ({' '.join(str(error).split())[:120]})") from None
    return value if isinstance(value, dict if default is None else type(default)) else default or {}


def files_of(folder: Path, weights: str) -> list[Path]:
    """Return the files of a folder that change its vectors: weights by their ending, such as "*.safetensors",
    configurations and vocabularies. What hidden folders hold is that of programs that fetch models.
    """
    names = (weights, *_BESIDE)
    files = {file.relative_to(folder) for name in names for file in folder.rglob(name) if file.is_file()}
    return [folder / file for file in sorted(files) if not any(part.startswith(".") for part in file.parts)]


def digest_of(files: Sequence[Path], *options: object) -> str:
    """Return what identifies a model: the start of the SHA-256 of its files and options."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    digest.update(repr(options).encode())
    return digest.hexdigest()[:12]
