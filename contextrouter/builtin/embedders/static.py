"""The embedder `static`: averages a table of token vectors. It needs no network and no GPU.

The shipped table is distilled from all-MiniLM-L6-v2 (see `data/static/README.md`). Any local folder in the
format of `model2vec` does as well.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from contextrouter.builtin.shared.model_in_threads import ModelInThreads
from contextrouter.contracts import Embedder, FilePath
from contextrouter.model import Vector
from contextrouter.runtime.threads import check_threads
from contextrouter.text import tokens
from contextrouter.vectors import unit_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Numbers: TypeAlias = Callable[[Sequence[str]], list[Mapping[int, int]]]
"""Returns the numbers of each text's tokens in the table, and how often each occurs."""

_SHIPPED = Path(__file__).parents[2] / "data" / "static"
FEW, SHORT = 4, 2_000
"""Texts that are tokenized one by one, such as a question's queries: to wake threads takes longer. So many
characters together take no thread at all: a tenth of a millisecond.
"""


class Static(ModelInThreads["tuple[Numbers, NDArray[np.float32]]"], Embedder):
    """Embeds a text as the weighted mean of its tokens' vectors, scaled to length 1 (float32).

    `path` is a local model2vec folder; empty takes the shipped table of 256 dimensions. `batch_size` texts
    are tokenized at once, in one of `threads` threads. The whole text counts, however long. A text without
    known tokens (blank, or in a script the table does not know) gets a vector of zeros, which is similar to
    nothing. `model` names the table with the start of the SHA-256 over the table and its tokenizer;
    `dimensions` of a folder given by `path` are known once it is open.
    """

    label, extra = "Embedder 'static'", "static"
    packages: Mapping[str, str] = {"safetensors": "safetensors", "tokenizers": "tokenizers", "numpy": "numpy"}
    # Measured for the shipped table, nDCG@10 of text alone (SQLite FTS5 BM25), and of RRF with these weights
    # beside text 1.0: scifact .691 -> .679, nfcorpus .289 -> .294, cranfield .356 -> .372, cisi .321 -> .349,
    # cacm .502 -> .553. With vector 0.5 alone scifact falls to .656 and nfcorpus to .270; the table alone has
    # .470 and .153.
    score_weights: Mapping[str, float] = {"vector": 0.3, "keywords": 0.05}
    leg_weights: Mapping[str, float] = {"vector": 0.1, "keywords": 0.05}

    def __init__(self, *, path: FilePath = "", batch_size: int = 1024, threads: int = 1) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size {batch_size!r} is not a positive number. Give 1 or more.")
        check_threads(threads)
        self.batch_size, self.threads = batch_size, threads
        self.folder = Path(path).expanduser() if path else _SHIPPED
        self.dimensions, self.model = 0 if path else 256, ""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text, shape (dimensions,), float32; questions and documents are embedded alike."""
        pool, (numbers, table) = self._get_model()
        if len(texts) <= FEW and sum(map(len, texts)) <= SHORT:
            return _embed(numbers, table, texts)
        vectors: list[Vector] = []
        for start in range(0, len(texts), self.batch_size):
            vectors += await pool.run(_embed, numbers, table, texts[start : start + self.batch_size])
        return vectors

    def load(self) -> tuple[Numbers, NDArray[np.float32]]:
        """The model and its table. Raises ValueError when the folder holds none."""
        # A folder that does not exist would be looked for on the network.
        absent = [
            n
            for n in ("config.json", "model.safetensors", "tokenizer.json")
            if not (self.folder / n).is_file()
        ]
        if absent:
            raise ValueError(
                f"Folder {str(self.folder)!r} has no {', '.join(absent)}. Give the path of a model2vec"
                " folder."
            )
        import numpy as np
        from safetensors.numpy import load_file

        tensors = load_file(self.folder / "model.safetensors")
        table = np.asarray(tensors["embeddings"], dtype=np.float32)
        if "mapping" in tensors:  # several tokens share a row
            table = table[tensors["mapping"]]
        if "weights" in tensors:
            table *= np.asarray(tensors["weights"], dtype=np.float32)[:, None]
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        digest = hashlib.sha256()
        for name in ("model.safetensors", "tokenizer.json"):
            digest.update((self.folder / name).read_bytes())
        self.model = f"{config.get('name') or self.folder.resolve().name}@{digest.hexdigest()[:12]}"
        self.dimensions = int(table.shape[1])
        shipped = self.folder == _SHIPPED and tokens.exact()
        return _numbers_in_shipped if shipped else _Tokenizer(self.folder / "tokenizer.json").numbers, table


def _numbers_in_shipped(texts: Sequence[str]) -> list[Mapping[int, int]]:
    return [tokens.numbers(text) for text in texts]


class _Tokenizer:
    """The tokenizer of a table."""

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        model = json.loads(file.read_text(encoding="utf-8"))["model"]
        unknown = model.get("unk_token")
        self._unknown = model.get("unk_id") if unknown is None else self._tokenizer.token_to_id(unknown)

    def numbers(self, texts: Sequence[str]) -> list[Mapping[int, int]]:
        """The tokens of each text, without those that the table lacks. Lone surrogates become "?"."""
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        if len(clean) <= FEW:
            encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in clean]
        else:
            encoded = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [Counter(number for number in each.ids if number != self._unknown) for each in encoded]


def _embed(numbers: Numbers, table: NDArray[np.float32], texts: Sequence[str]) -> list[Vector]:
    return [cast("Vector", _mean(table, times_of)) for times_of in numbers(texts)]


def _mean(table: NDArray[np.float32], times_of: Mapping[int, int]) -> NDArray[np.float32]:
    """The direction of the mean; each distinct token is looked up once, so that memory does not grow with the
    text.
    """
    import numpy as np

    distinct = sorted(times_of)
    counts = np.array([times_of[number] for number in distinct], np.float32)
    direction = unit_array(counts @ table[np.array(distinct, np.int64)])
    return np.zeros(table.shape[1], np.float32) if direction is None else direction
