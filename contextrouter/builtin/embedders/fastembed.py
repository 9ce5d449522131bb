"""The embedder `fastembed`: the models of the package fastembed, quantised ONNX models, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contextrouter.builtin.embedders.onnx_model import digest_of, files_of
from contextrouter.builtin.embedders.sentence_embedder import SentenceEmbedder
from contextrouter.contracts import FilePath
from contextrouter.errors import PluginError
from contextrouter.runtime.threads import check_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FastEmbed(SentenceEmbedder[Any]):
    """Embeds texts with `name`, a model of fastembed's list.

    The first `open()` fetches it into `cache_folder` ("": that of fastembed); with `download = false` it has
    to be there. `path` is a folder with the files of the model, which is read instead. `threads` batches are
    embedded at once, one core each. By default each text is embedded for itself: most of these models have
    eight bits, and a batch would share one scale.
    """

    label, extra = "Embedder 'fastembed'", "fastembed"
    packages: Mapping[str, str] = {"fastembed": "fastembed", "numpy": "numpy"}

    def __init__(
        self,
        *,
        name: str = "BAAI/bge-small-en-v1.5",
        path: FilePath = "",
        cache_folder: FilePath = "",
        download: bool = True,
        threads: int = 1,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        dimensions: int = 0,
        batch_tokens: int = 0,
        score_weights: Mapping[str, float] = {},
        leg_weights: Mapping[str, float] = {},
        unrelated: float = 0.0,
    ) -> None:
        if not name.strip():
            raise ValueError("name is empty. Give a model of fastembed, such as 'BAAI/bge-small-en-v1.5'.")
        check_threads(threads)
        self.name, self.path, self.cache_folder = name, path, cache_folder
        self.download, self.threads = download, threads
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
        """With the smallest English model, from the cache: nothing is fetched."""
        return cls(download=False)

    def load(self) -> Any:
        """The model. Raises PluginError where fastembed does not know it, or cannot get it."""
        from fastembed import TextEmbedding

        if self.path and not Path(self.path).expanduser().is_dir():
            raise PluginError(
                f"{self.label} finds no folder {self.path!r}; give the folder with the files of"
                f" {self.name!r}."
            )
        options: dict[str, Any] = {"local_files_only": not self.download}
        if self.path:
            options["specific_model_path"] = str(Path(self.path).expanduser())
        try:
            model = TextEmbedding(
                self.name, cache_dir=self.cache_folder or None, threads=1, cuda=False, **options
            )
            of_model = int(model.embedding_size)
        except Exception as error:  # of the package, the network or the disk: each has its own
            remedy = "" if self.download else " With download = true it is fetched."
            raise self.load_error(self.name, error, remedy) from error
        self.set_dimensions(of_model)
        files = files_of(Path(self.path).expanduser(), "*.onnx") if self.path else []
        prefixes = [self.options.prefix(query, {}) for query in (True, False)]
        self.model = f"{self.name}@{digest_of(files, self.dimensions, *prefixes)}"
        return model

    def encode(self, model: Any, texts: Sequence[str], prefix: str, *, query: bool) -> NDArray[np.float32]:
        """The vectors of texts, as the model makes them for questions or for documents."""
        import numpy as np

        embed = model.query_embed if query else model.passage_embed
        prefixed = [prefix + text for text in texts]
        return np.asarray(list(embed(prefixed, batch_size=len(prefixed))), np.float32)
