"""Base class of embedders with a local sentence model: prefixes, batches by tokens, unit vectors, threads."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from contextrouter.builtin.shared.concurrent_calls import run_together
from contextrouter.builtin.shared.model_in_threads import ModelInThreads
from contextrouter.contracts import Embedder
from contextrouter.errors import PluginError
from contextrouter.model import Vector
from contextrouter.text import tokens
from contextrouter.text.characters import is_blank
from contextrouter.vectors import unit_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

M = TypeVar("M")


class SentenceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a text is given before it, and what its vector counts.

    A prefix that is None is the one that the model's files name, else none. `dimensions` 0: all that the
    model has; fewer: the first ones of each vector, for models that are trained so (Matryoshka).
    `batch_tokens` are embedded together, 0: each text for itself. The weights and `unrelated` are those of
    the contract `Embedder`. Raises ValueError for a value out of range.
    """

    query_prefix: str | None = None
    document_prefix: str | None = None
    dimensions: int = 0
    batch_tokens: int = 0
    score_weights: Mapping[str, float] = {}
    leg_weights: Mapping[str, float] = {}
    unrelated: float = 0.0

    def __post_init__(self) -> None:
        for name in ("dimensions", "batch_tokens"):
            value = getattr(self, name)
            if not 0 <= value <= 10_000_000:
                raise ValueError(f"{name} {value!r} is out of range; give 0 or more.")
        for name in ("score_weights", "leg_weights"):
            for leg, weight in getattr(self, name).items():
                if not (math.isfinite(weight) and weight >= 0):
                    raise ValueError(f"{name}.{leg} {weight!r} is no weight; give 0 or more.")
        if not -1 <= self.unrelated < 1:
            raise ValueError(f"unrelated {self.unrelated!r} is no cosine below 1; give -1 to below 1.")

    def prefix(self, query: bool, of_model: Mapping[bool, str]) -> str:
        """Return what stands before a question, or before a document."""
        prefix = self.query_prefix if query else self.document_prefix
        return of_model.get(query, "") if prefix is None else prefix

    def apply_to(self, embedder: Embedder) -> None:
        """Give an embedder the weights of the settings, where there are any."""
        embedder.score_weights = self.score_weights or type(embedder).score_weights
        embedder.leg_weights = self.leg_weights or type(embedder).leg_weights
        embedder.unrelated = self.unrelated


class SentenceEmbedder(ModelInThreads[M], Embedder):
    """Embeds texts with a model that `load()` returns, in `threads` threads, as unit vectors (float32).

    `load()` sets `model`, and calls `set_dimensions()`. A blank text is not given to the model, and gets
    zeros. `prompts` are the prefixes that the files of the model name: True -> of questions, False -> of
    documents.
    """

    # A sentence model is taken for as good as the words of the text; the shipped ones measured so or better.
    score_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.15}
    leg_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.5}
    options: SentenceOptions = SentenceOptions()
    prompts: Mapping[bool, str] = {}

    def set_options(self, **options: Any) -> None:
        """Take the fields of SentenceOptions. The model is not known before it is loaded."""
        self.options = SentenceOptions(**options)
        self.options.apply_to(self)
        self.dimensions, self.model = self.options.dimensions, ""

    @abstractmethod
    def encode(self, model: M, texts: Sequence[str], prefix: str, *, query: bool) -> NDArray[np.float32]:
        """Return the vectors of texts that stand behind a prefix, shape (texts, dimensions of the model), of
        any length. It runs in a thread.
        """

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text, shape (dimensions,), float32, of length 1, or zeros for a blank text.

        Raises PluginError for a vector that is no vector.
        """
        import numpy as np

        pool, model = self._get_model()
        prefix = self.options.prefix(query, self.prompts)
        vectors: list[Vector] = [cast("Vector", np.zeros(self.dimensions, np.float32)) for _ in texts]
        # Lone surrogates, which no tokenizer takes, become "?".
        filled = {
            number: text.encode("utf-8", "replace").decode()
            for number, text in enumerate(texts)
            if not is_blank(text)
        }
        limit = self.options.batch_tokens  # to count tokens of many texts takes a while
        batches = await pool.run(token_batches, filled, limit) if limit else token_batches(filled, 0)
        calls: list[Callable[[], Any]] = [
            partial(pool.run, self._encode, model, [filled[number] for number in batch], prefix, query)
            for batch in batches
        ]
        for batch, rows in zip(batches, await run_together(calls, self.threads), strict=True):
            for number, row in zip(batch, rows, strict=True):
                vectors[number] = row
        return vectors

    def set_dimensions(self, of_model: int) -> None:
        """Take the dimensions of the model, or as many of them as the settings ask for.

        Raises PluginError where these are more than the model has.
        """
        if self.options.dimensions > of_model:
            raise PluginError(
                f"{self.label} has a model with {of_model} dimensions, and dimensions ="
                f" {self.options.dimensions}; give at most {of_model}, or leave it out."
            )
        self.dimensions = self.options.dimensions or of_model

    def load_error(self, name: str, error: Exception, remedy: str = "") -> PluginError:
        """Return the error of a model that a library cannot load, with its reason in one line."""
        reason = " ".join(str(error).split())[:300].rstrip(".")
        return PluginError(f"{self.label} cannot load {name!r}: {reason}.{remedy}")

    def _encode(self, model: M, texts: Sequence[str], prefix: str, query: bool) -> list[Vector]:
        import numpy as np

        rows = self.encode(model, texts, prefix, query=query)
        if rows.shape[0] != len(texts) or rows.ndim != 2 or rows.shape[1] < self.dimensions:
            raise PluginError(
                f"{self.label} got an array of shape {rows.shape} from its model for {len(texts)} texts;"
                f" expected is ({len(texts)}, {self.dimensions}). Check the model's file."
            )
        vectors: list[Vector] = []
        for row in rows:
            try:
                unit = unit_array(row[: self.dimensions])
            except ValueError as error:
                raise PluginError(f"{self.label}: the model {error}.") from None
            vectors.append(cast("Vector", np.zeros(self.dimensions, np.float32) if unit is None else unit))
        return vectors


def check_max_tokens(limit: int) -> None:
    """Raise ValueError for a limit of tokens that no model has; 0 is that of the model."""
    if limit and not 3 <= limit <= 131_072:
        raise ValueError(f"max_tokens {limit!r} is out of range; give 3 to 131,072, or 0.")


def token_batches(texts: Mapping[int, str], limit: int, most_texts: int = 1_000) -> list[list[int]]:
    """Return the numbers of texts in batches of at most `limit` tokens. Each text of a batch counts as many
    as its longest one, since it is filled up to that. 0: a batch for each text.
    """
    if not limit:
        return [[number] for number in texts]
    lengths = {number: tokens.count(text) for number, text in texts.items()}
    batches: list[list[int]] = []
    for number in sorted(texts, key=lambda number: lengths[number]):  # texts of one length need no filling up
        if batches and len(batches[-1]) < most_texts and (len(batches[-1]) + 1) * lengths[number] <= limit:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches
