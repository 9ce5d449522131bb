"""A model that reads question and document together: slower than vectors, and better at telling which of the
best is best.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contextrouter.contracts import FilePath, Reranker
from contextrouter.errors import ContractError, MissingDependency, PluginError
from contextrouter.model import Document
from contextrouter.runtime.threads import Threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NEEDED = {"onnxruntime": "onnxruntime", "tokenizers": "tokenizers", "numpy": "numpy"}
_FILES = ("tokenizer.json", "config.json")


class CrossEncoder(Reranker):
    """Scores with a model in ONNX from the folder `path` (`tokenizer.json` and `file` in it), or from the
    repository `hub`.

    A repository of the Hugging Face hub is fetched once, in `revision` ("": the newest), and read from the
    cache of its library from then on. `max_tokens` are read of question and document together. The model is
    loaded once; `threads` documents are scored at once, one core each, and each for itself, so that its score
    is the same whatever it stands beside. Scores are probabilities: the logistic function of a model with one
    output, the share of the last of several.
    """

    switch = "enable_cross_encoder"

    def __init__(
        self,
        *,
        path: FilePath = "",
        hub: str = "",
        file: str = "model.onnx",
        revision: str = "",
        max_tokens: int = 512,
        threads: int = 1,
    ) -> None:
        if bool(path) == bool(hub):
            raise ValueError(
                "path and hub are both given, or neither; name a folder with a model, or a repository of the"
                " hub."
            )
        if not 8 <= max_tokens <= 8192:
            raise ValueError(f"max_tokens {max_tokens!r} is out of range; give 8 to 8192.")
        if not 1 <= threads <= 64:
            raise ValueError(f"threads {threads!r} is out of range; give 1 to 64.")
        self._path, self._hub, self._file, self._revision = path, hub, file, revision
        self._most, self._threads = max_tokens, threads
        self._session: Any = None
        self._tokenizer: Any = None
        self._inputs: frozenset[str] = frozenset()
        self._pool: Threads | None = None

    @classmethod
    def example(cls) -> Self:
        """With a tiny model in a temporary folder, which tells what share of the question's words a document
        has.
        """
        from contextrouter.builtin.stages import reranking_example  # nobody else needs the model

        folder = tempfile.mkdtemp(prefix="contextrouter-")
        reranking_example.write_model(Path(folder))
        made = cls(path=folder)
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        return made

    async def open(self) -> None:
        """Load the model. Raises MissingDependency without the extra `cross-encoder`, PluginError for what is
        no such model.
        """
        if self._pool is not None:
            return
        for module, package in _NEEDED.items():
            if importlib.util.find_spec(module) is None:
                raise MissingDependency(package, "cross-encoder", what="Stage 'cross_encoder'")
        pool = Threads(self._threads, "cross-encoder")
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
        """Raise when the model is not loaded."""
        self._opened()

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """One probability per document, that it answers the question."""
        pool = self._opened()
        texts = [
            f"{document.title}\n{document.content}" if document.title else document.content
            for document in documents
        ]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(pool.run(self._probability, query, text)) for text in texts]
        return [task.result() for task in running]

    def _opened(self) -> Threads:
        if self._pool is None:
            raise ContractError(
                "Stage 'cross_encoder' is not open. Call open() first.", law="opened before use"
            )
        return self._pool

    def _load(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        folder = self._folder()
        for name in (self._file, "tokenizer.json"):
            if not (folder / name).is_file():
                raise PluginError(
                    f"Stage 'cross_encoder' finds no {name!r} in {str(folder)!r}; export the model to ONNX"
                    " there."
                )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            session = onnxruntime.InferenceSession(
                str(folder / self._file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both libraries raise bare ones
            why = " ".join(str(error).split())[:200]
            raise PluginError(
                f"Stage 'cross_encoder' cannot load {str(folder / self._file)!r}: {why}"
            ) from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._most)
        self._tokenizer, self._session = tokenizer, session
        digest = sha256((folder / self._file).read_bytes()).hexdigest()[:12]
        self.model = f"{self._hub or self._file}@{digest}/{self._most}"
        self._inputs = frozenset(given.name for given in session.get_inputs())

    def _folder(self) -> Path:
        if self._path:
            return Path(self._path)
        if importlib.util.find_spec("huggingface_hub") is None:
            raise MissingDependency(
                "huggingface-hub", "cross-encoder", what="Stage 'cross_encoder' with `hub`"
            )
        from huggingface_hub import snapshot_download

        wanted = [*_FILES, self._file, f"{self._file}_data"]
        try:
            return Path(snapshot_download(self._hub, revision=self._revision or None, allow_patterns=wanted))
        except Exception as error:  # of the network, the repository, the disk: each has its own
            why = " ".join(str(error).split())[:200]
            raise PluginError(
                f"Stage 'cross_encoder' cannot get {self._hub!r} from the hub: {why}"
            ) from error

    def _probability(self, query: str, text: str) -> float:
        import numpy as np

        pair = (
            part.encode("utf-8", "replace").decode() for part in (query, text)
        )  # no tokenizer takes half a surrogate pair
        encoded = self._tokenizer.encode(*pair)
        given = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        if not encoded.ids:
            return 0.0
        tensors = {
            name: np.array([values], np.int64) for name, values in given.items() if name in self._inputs
        }
        logits: NDArray[np.float64] = np.asarray(self._session.run(None, tensors)[0], np.float64).reshape(-1)
        if len(logits) == 1:
            return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, float(logits[0])))))
        shares = np.exp(logits - logits.max())
        return float(shares[-1] / shares.sum())
