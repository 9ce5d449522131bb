"""Cross-encoder reranker: a local model scores each of the best documents together with the question."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contextrouter.builtin.shared.model_in_threads import ModelInThreads, onnx_session
from contextrouter.contracts import FilePath, Reranker
from contextrouter.errors import MissingDependency, PluginError
from contextrouter.model import Document
from contextrouter.runtime.threads import check_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FILES = ("tokenizer.json", "config.json")


class CrossEncoder(ModelInThreads[tuple[Any, Any]], Reranker):
    """Scores with a model in ONNX from the folder `path` (`tokenizer.json` and `file` in it), or from the
    repository `hub`.

    A repository of the Hugging Face hub is fetched once, in `revision` ("": the newest), and read from the
    cache of its library from then on. `max_tokens` are read of question and document together. The model is
    loaded once; `threads` documents are scored at once, one core each, and each for itself, so that its score
    is the same whatever it stands beside. Scores are probabilities: the logistic function of a model with one
    output, the share of the last of several.
    """

    switch = "enable_cross_encoder"
    pointwise = True
    label, extra = "Stage 'cross_encoder'", "cross-encoder"
    packages: Mapping[str, str] = {"onnxruntime": "onnxruntime", "tokenizers": "tokenizers", "numpy": "numpy"}

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
        check_threads(threads)
        self._path, self._hub, self._file, self._revision = path, hub, file, revision
        self._max_tokens, self.threads = max_tokens, threads

    @classmethod
    def example(cls) -> Self:
        """With a tiny model in a temporary folder, which tells what share of the question's words a document
        has.
        """
        from contextrouter.builtin.stages import reranking_example  # nobody else needs the model

        folder = tempfile.mkdtemp(prefix="contextrouter-")
        reranking_example.write_model(Path(folder))
        stage = cls(path=folder)
        weakref.finalize(stage, shutil.rmtree, folder, ignore_errors=True)
        return stage

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """One probability per document, that it answers the question."""
        pool, (session, tokenizer) = self._get_model()
        texts = [
            f"{document.title}\n{document.content}" if document.title else document.content
            for document in documents
        ]
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(pool.run(_probability, session, tokenizer, query, text)) for text in texts
            ]
        return [task.result() for task in running]

    def load(self) -> tuple[Any, Any]:
        """The session of onnxruntime and the tokenizer. Raises PluginError for what is no such model."""
        from tokenizers import Tokenizer

        folder = self._folder()
        for name in (self._file, "tokenizer.json"):
            if not (folder / name).is_file():
                raise PluginError(
                    f"{self.label} finds no {name!r} in {str(folder)!r}; export the model to ONNX there."
                )
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            session = onnx_session(str(folder / self._file))
        except Exception as error:  # both libraries raise bare ones
            reason = " ".join(str(error).split())[:200]
            raise PluginError(f"{self.label} cannot load {str(folder / self._file)!r}: {reason}") from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._max_tokens)
        digest = sha256((folder / self._file).read_bytes()).hexdigest()[:12]
        self.model = f"{self._hub or self._file}@{digest}/{self._max_tokens}"
        return session, tokenizer

    def _folder(self) -> Path:
        if self._path:
            return Path(self._path)
        if importlib.util.find_spec("huggingface_hub") is None:
            raise MissingDependency("huggingface-hub", self.extra, what=f"{self.label} with `hub`")
        from huggingface_hub import snapshot_download

        patterns = [*_FILES, self._file, f"{self._file}_data"]
        try:
            return Path(
                snapshot_download(self._hub, revision=self._revision or None, allow_patterns=patterns)
            )
        except Exception as error:  # of the network, the repository, the disk: each has its own
            reason = " ".join(str(error).split())[:200]
            raise PluginError(f"{self.label} cannot get {self._hub!r} from the hub: {reason}") from error


def _probability(session: Any, tokenizer: Any, query: str, text: str) -> float:
    import numpy as np

    # Lone surrogates, which no tokenizer takes, become "?".
    encoding = tokenizer.encode(*(part.encode("utf-8", "replace").decode() for part in (query, text)))
    if not encoding.ids:
        return 0.0
    inputs = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    names = {tensor.name for tensor in session.get_inputs()}
    tensors = {name: np.array([values], np.int64) for name, values in inputs.items() if name in names}
    logits: NDArray[np.float64] = np.asarray(session.run(None, tensors)[0], np.float64).reshape(-1)
    if len(logits) == 1:
        return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, float(logits[0])))))
    shares = np.exp(logits - logits.max())
    return float(shares[-1] / shares.sum())
