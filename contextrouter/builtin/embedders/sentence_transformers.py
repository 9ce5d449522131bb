"""The embedder `sentence_transformers`: models of the package sentence-transformers, on a GPU or the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contextrouter.builtin.embedders.onnx_model import digest_of, files_of
from contextrouter.builtin.embedders.sentence_embedder import SentenceEmbedder, check_max_tokens
from contextrouter.contracts import FilePath
from contextrouter.errors import PluginError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_TOKENS = 8_192
"""Tokens that are embedded together, if the settings say nothing: full numbers share no scale."""


class SentenceTransformers(SentenceEmbedder[Any]):
    """Embeds texts with the model in the folder `path`, or from the repository `hub` of the Hugging Face hub.

    The first `open()` fetches a repository in `revision` ("": the newest); with `download = false` it has to
    be in the cache of its library. `device` is "cpu", "cuda", "mps", or "": the best there is. Weights are
    read from safetensors only, and code of a repository is never run. The prefixes are the prompts of the
    model, unless they are given.
    """

    label, extra, threads = "Embedder 'sentence_transformers'", "sentence-transformers", 1
    packages: Mapping[str, str] = {"sentence_transformers": "sentence-transformers", "numpy": "numpy"}

    def __init__(
        self,
        *,
        path: FilePath = "",
        hub: str = "",
        revision: str = "",
        download: bool = True,
        device: str = "",
        max_tokens: int = 0,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        dimensions: int = 0,
        batch_tokens: int = BATCH_TOKENS,
        score_weights: Mapping[str, float] = {},
        leg_weights: Mapping[str, float] = {},
        unrelated: float = 0.0,
    ) -> None:
        if bool(path) == bool(hub):
            raise ValueError(
                "path and hub are both given, or neither; name a folder with a model, or a repository of the"
                " hub."
            )
        check_max_tokens(max_tokens)
        self.path, self.hub, self.revision = path, hub, revision
        self.download, self.device, self.max_tokens = download, device, max_tokens
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
        """With a small model, from the cache: nothing is fetched."""
        return cls(hub="sentence-transformers/all-MiniLM-L6-v2", download=False)

    def load(self) -> Any:
        """The model. Raises PluginError where there is none, or its weights are no safetensors."""
        folder = Path(self.path).expanduser() if self.path else None
        if folder is not None and not folder.is_dir():
            raise PluginError(
                f"{self.label} finds no folder {str(folder)!r}; give the folder of a model, or hub ="
                " 'owner/name'."
            )
        name = str(folder or self.hub)
        try:
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(
                name,
                device=self.device or None,
                revision=self.revision or None,
                local_files_only=not self.download,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
            if self.max_tokens:
                model.max_seq_length = self.max_tokens
            of_model = len(model.encode(["dimensions"], prompt="", show_progress_bar=False)[0])
        except Exception as error:  # of the package, the network or the disk: each has its own
            remedy = "" if self.download else " With download = true it is fetched."
            raise self.load_error(name, error, remedy) from error
        prompts = getattr(model, "prompts", None) or {}
        self.prompts = {
            True: str(prompts.get("query") or ""),
            False: str(prompts.get("document") or prompts.get("passage") or ""),
        }
        self.set_dimensions(of_model)
        self.model = self._name(model, folder)
        return model

    def encode(self, model: Any, texts: Sequence[str], prefix: str, *, query: bool) -> NDArray[np.float32]:
        """The vectors of texts, as the model makes them."""
        import numpy as np

        rows = model.encode(list(texts), prompt=prefix, batch_size=len(texts), show_progress_bar=False)
        return np.asarray(rows, np.float32)

    def _name(self, model: Any, folder: Path | None) -> str:
        """The model's name, with a digest of its files or its revision, and of what changes its vectors."""
        files = files_of(folder, "*.safetensors") if folder is not None else []
        config = getattr(getattr(model[0], "auto_model", None), "config", None)
        revision = "" if folder is not None else getattr(config, "_commit_hash", None) or self.revision
        prefixes = [self.options.prefix(query, self.prompts) for query in (True, False)]
        digest = digest_of(files, revision, self.dimensions, model.max_seq_length, *prefixes)
        return f"{folder.resolve().name if folder is not None else self.hub}@{digest}"
