"""Reranker score cache: models are slow, and the same documents are often retrieved again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from contextrouter.cache import keys
from contextrouter.cache.float_entries import FloatEntries
from contextrouter.cache.tiers import Tiers
from contextrouter.contracts import Plugin, Reranker
from contextrouter.model import Document
from contextrouter.scope import Scope
from contextrouter.settings import Settings


class ScoreCache:
    """Scores by reranker, scope, question and documents, in `tiers`, for `[rag] cache_ttl_seconds`.

    Every router and process that has the same reranker shares them. A reranker is the same when its plugin,
    options and `model` are; one made by hand, when its type and `model` are. One made by hand that names no
    model has scores of its own: `token` is unique to the router.

    A pointwise reranker gives a document the same score whatever it stands beside, so each of its scores is
    an entry, and one new candidate costs one score. All others may compare the documents of a list with each
    other, as a language model does: the entry is that of the whole list.
    """

    def __init__(
        self,
        tiers: Tiers,
        settings: Settings,
        by_hand: Mapping[tuple[str, str], Plugin],
        *,
        version: str,
        token: str,
    ) -> None:
        self._entries = FloatEntries(tiers, "d", settings.rag.cache_ttl_seconds)
        self._settings, self._by_hand, self._version, self._token = settings, by_hand, version, token
        self._origins: dict[str, Any] = {}

    async def score(
        self, name: str, scope: Scope | None, reranker: Reranker, query: str, documents: Sequence[Document]
    ) -> Sequence[float]:
        """Return the scores of `reranker` (the stage `name`), cached or new. Raises the errors of
        `score()`.
        """
        digest = self._digest(name, reranker)
        parts = [[document] for document in documents] if reranker.pointwise else [documents]
        part_keys = [keys.scores_key(digest, scope, query, part) for part in parts]
        found: list[Sequence[float] | None] = [
            await self._entries.read(key, len(part)) for key, part in zip(part_keys, parts, strict=True)
        ]
        absent = [index for index, values in enumerate(found) if values is None]
        if absent:
            wanted = [document for index in absent for document in parts[index]]
            scores = await reranker.score(query, wanted)
            if len(scores) != len(wanted):
                return scores  # whoever gets it says so
            fresh = iter(scores)
            for index in absent:
                found[index] = self._entries.store(
                    part_keys[index], list(islice(fresh, len(parts[index]))), len(parts[index])
                )
        return [score for values in found for score in values or ()]

    def _digest(self, name: str, reranker: Reranker) -> bytes:
        if name not in self._origins:
            self._origins[name] = self._origin(name)
        origin = self._origins[name]
        if origin is None:
            kind = type(reranker)
            unique = "" if reranker.model else f"{self._token} {name}"
            origin = [f"{kind.__module__}.{kind.__qualname__}", unique]
        namespace = self._settings.cache.namespace
        return keys.reranker_digest(reranker, origin, version=self._version, namespace=namespace)

    def _origin(self, name: str) -> Any:
        """What the settings say of a stage; None where it was made by hand."""
        if ("stage", name) in self._by_hand:
            return None
        try:
            return keys.instance_origin(self._settings, self._by_hand, "stage", name, self._token)
        except TypeError:  # options of a program, without an exact encoding
            return [self._token, name]
