"""The embedder `onnx`: any sentence model in ONNX from a local folder, on the CPU, without a network."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from contextrouter.builtin.embedders.onnx_example import write_model
from contextrouter.builtin.embedders.onnx_model import FILES, OnnxModel, Pooling, digest_of, read_folder
from contextrouter.builtin.embedders.sentence_embedder import SentenceEmbedder, check_max_tokens
from contextrouter.builtin.shared.model_in_threads import onnx_session
from contextrouter.contracts import FilePath
from contextrouter.errors import PluginError
from contextrouter.runtime.threads import check_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Onnx(SentenceEmbedder[OnnxModel]):
    """Embeds texts with the model in the folder `path`: `tokenizer.json`, and `file` ("": `model.onnx`, else
    `onnx/model.onnx`).

    `pooling` "auto" and `max_tokens` 0 are what the folder's files say (those of sentence-transformers), else
    the mean and 512. `threads` batches are embedded at once, one core each. By default each text is embedded
    for itself: at eight bits a batch would share one scale. The prefixes, too, are those of the folder's
    files, unless they are given. `model` names the folder with a digest of the model and of what changes its
    vectors.
    """

    label, extra = "Embedder 'onnx'", "onnx"
    packages: Mapping[str, str] = {"onnxruntime": "onnxruntime", "tokenizers": "tokenizers", "numpy": "numpy"}

    def __init__(
        self,
        *,
        path: FilePath,
        file: str = "",
        pooling: Literal["auto", "mean", "cls", "last"] = "auto",
        max_tokens: int = 0,
        threads: int = 1,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        dimensions: int = 0,
        batch_tokens: int = 0,
        score_weights: Mapping[str, float] = {},
        leg_weights: Mapping[str, float] = {},
        unrelated: float = 0.0,
    ) -> None:
        if not path.strip():
            raise ValueError("path is empty. Give the folder of a sentence model in ONNX.")
        if pooling not in ("auto", "mean", "cls", "last"):
            raise ValueError(f"pooling {pooling!r} is not known. Give auto, mean, cls or last.")
        check_max_tokens(max_tokens)
        check_threads(threads)
        self.path, self.file, self.pooling = path, file, pooling
        self.max_tokens, self.threads = max_tokens, threads
        self.set_options(
            query_prefix=query_prefix,
            document_prefix=document_prefix,
            dimensions=dimensions,
            batch_tokens=batch_tokens,
            score_weights=score_weights,
            leg_weights=leg_weights,
            unrelated=unrelated,
        )

    @classmethod
    def example(cls) -> Self:
        """With a tiny model in a temporary folder; its vectors mean nothing."""
        folder = tempfile.mkdtemp(prefix="contextrouter-")
        write_model(Path(folder))
        embedder = cls(path=folder)
        weakref.finalize(embedder, shutil.rmtree, folder, ignore_errors=True)
        return embedder

    def load(self) -> OnnxModel:
        """The session and the tokenizer. Raises PluginError for a folder without a sentence model."""
        from tokenizers import Tokenizer

        folder, file = self._find_files()
        try:
            described = read_folder(folder)
            pooling = cast("Pooling", described.pooling or "mean" if self.pooling == "auto" else self.pooling)
            max_tokens = self.max_tokens or described.max_tokens
            try:
                tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            except Exception as error:  # it raises bare ones, which do not name the file
                raise PluginError(f"its tokenizer.json cannot be read: {error}") from error
            model = OnnxModel(onnx_session(str(file)), tokenizer, pooling, max_tokens)
            if described.dense and not model.pooled:
                raise PluginError(
                    "`modules.json` names a Dense layer behind the pooling, which is not in the ONNX file."
                    " Export the whole model, with an output 'sentence_embedding'"
                )
            of_model = model.dimensions()
        except Exception as error:  # both libraries raise bare ones
            raise self.load_error(str(file), error) from error
        self.prompts = described.prompts
        self.set_dimensions(of_model)
        files = [file, folder / "tokenizer.json"]
        files += [data for data in (Path(f"{file}_data"), Path(f"{file}.data")) if data.is_file()]
        prefixes = [self.options.prefix(query, self.prompts) for query in (True, False)]
        how = "" if model.pooled else pooling
        digest = digest_of(files, how, max_tokens, self.dimensions, *prefixes)
        self.model = f"{folder.resolve().name}@{digest}"
        return model

    def encode(
        self, model: OnnxModel, texts: Sequence[str], prefix: str, *, query: bool
    ) -> NDArray[np.float32]:
        """The vectors of texts, as the model makes them."""
        return model.encode([prefix + text for text in texts])

    def _find_files(self) -> tuple[Path, Path]:
        """Return the folder and the model's file. Raises PluginError where something is missing."""
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise PluginError(
                f"{self.label} finds no folder {str(folder)!r}; give the folder of a sentence model in ONNX."
            )
        files: Any = [folder / name for name in ((self.file,) if self.file else FILES)]
        file = next((file for file in files if file.is_file()), None)
        if file is None or not (folder / "tokenizer.json").is_file():
            absent = "tokenizer.json" if file is not None else self.file or " or ".join(FILES)
            raise PluginError(
                f"{self.label} finds no {absent} in {str(folder)!r}; export the model there, for instance"
                " with `optimum-cli export onnx --model NAME FOLDER`."
            )
        return folder, file
