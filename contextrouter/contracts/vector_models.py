"""The ability of a store to change its embedding model: vectors of a second one stand beside the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from contextrouter.model import Document, Vector


class StoredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose vectors a store has. `embedder` is the embedder's name in the settings, "" where it was
    not noted. While it is not `ready`, `missing` chunks have no vectors of it, and no question is answered
    with them.
    """

    model: str
    dimensions: int
    embedder: str = ""
    ready: bool = True
    chunks: int = 0  # with vectors of it
    missing: int = 0


class ChunkToEmbed(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that has no vectors of a model. `key` is the store's own."""

    key: str
    document: Document


class VectorModels(Protocol):
    """The models of a store, and the way to fill it with the vectors of a further one, chunk by chunk, while
    it answers with those it has.
    """

    async def stored(self) -> Sequence[StoredModel]:
        """Return the models whose vectors are here, the one that was first first."""
        ...

    async def fingerprint_model(self) -> tuple[str, int] | None:
        """Return the model and dimensions that fingerprints of documents count: those before the first
        change. None: there was no change.
        """
        ...

    async def begin(self, model: str, dimensions: int, embedder: str) -> None:
        """Make a place for the vectors of a model, or go on with it. Raises SourceError where there are two
        other models.
        """
        ...

    async def missing(self, model: str, limit: int, after: str = "") -> Sequence[ChunkToEmbed]:
        """Return the next chunks without vectors of a model, in the order of their keys."""
        ...

    async def add(self, model: str, vectors: Mapping[str, Mapping[str, Vector | None]]) -> int:
        """Keep vectors: key -> leg -> vector. A chunk that is gone, or is another one, is left out. Return
        how many were kept.
        """
        ...

    async def entity_texts(self, model: str) -> Sequence[str]:
        """Return texts of entities that have no vectors of a model, as in `SupportsEntityVectors`."""
        ...

    async def embed_entities(self, model: str, vectors: Mapping[str, Vector]) -> int:
        """Keep vectors of entities, by text; return how many entities have theirs now that had none."""
        ...

    async def finish(self, model: str) -> int:
        """Answer questions with a model, from now on and at once, if nothing is missing; return how many
        chunks and entities are missing.
        """
        ...

    async def drop(self, model: str) -> None:
        """Remove the vectors of a model."""
        ...


@runtime_checkable
class SupportsModels(Protocol):
    """A store that has the vectors of a second model beside those of the first, while the model changes."""

    def vector_models(self) -> VectorModels:
        """Return its models."""
        ...
