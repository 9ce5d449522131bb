"""Labels of a question by meaning: compares it with what labels mean, by an embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from contextrouter.builtin.interpreters.label_texts import label_texts, read_labels, words_of_name
from contextrouter.builtin.shared.unrelated_texts import Unrelated, embed_alike, measure_unrelated
from contextrouter.contracts import (
    Embedder,
    FilePath,
    Interpreter,
    InterpreterContext,
    Provider,
    SupportsFacets,
    SupportsVersion,
)
from contextrouter.errors import ContractError
from contextrouter.model import Intent, Query, Vector
from contextrouter.runtime.lru import Lru
from contextrouter.scope import Scope
from contextrouter.text.query_syntax import drop_exclusions
from contextrouter.vectors import Near, can_compare, cosine, direction

MATCHES = "label_matches"
"""Key in `Intent.attributes`: label -> the cosine of the question and the nearest of its texts."""
NOTE = "labels"
"""Key in `Intent.attributes`: which labels were not compared, and why."""
_MOST = 2_000  # labels that are compared
_MOST_TEXTS = 50_000  # whose vectors are kept
_BATCH = 64  # texts that are embedded at once, so that a question that is cancelled keeps most of the work
_READ = 2_000  # characters of a question
_LEAST_SHARE = 0.75
_LONG_VALUE = "\x1e"  # a facet that begins with it stands for a label too long to be named


class Labels(Interpreter):
    """Adds the labels that the question is about; they restrict the search to documents that carry one of
    them.

    `embedder` compares the question with each label: with its name in words, its description and its
    examples; the highest cosine counts. `labels` says what labels mean: `"views.code" = { description = "…",
    examples = ["…"] }`; `path` is a TOML or JSON file with the same mapping. With `store`, a provider that
    counts (`SupportsFacets`), candidates are the labels in it that the caller may see, the most frequent
    2,000; one without a description is compared by its name. Without `store` they are those described.

    A label matches from the cosine `threshold` on. None takes the embedder's own: what unrelated questions
    hardly ever reach; then a label counts only if it is at least three quarters as far above unrelated as
    the best one. At most `limit` labels are added, best first. Labels that the caller demands leave nothing
    to infer.
    """

    def __init__(
        self,
        *,
        embedder: Embedder,
        store: Provider | None = None,
        labels: dict[str, dict[str, Any]] | None = None,
        path: FilePath = "",
        threshold: float | None = None,
        limit: int = 8,
    ) -> None:
        if not 1 <= limit <= 8:
            raise ValueError(f"limit {limit!r} is not between 1 and 8.")
        if threshold is not None and not -1 <= threshold <= 1:
            raise ValueError(f"threshold {threshold!r} is no cosine. Give -1 to 1.")
        if store is not None and not isinstance(store, SupportsFacets):
            raise ValueError(
                f"store: a {type(store).__name__} cannot count its labels. Name a store that can, such as"
                " `sqlite`."
            )
        if store is None and not labels and not path:
            raise ValueError("there are no labels to compare with. Give store, labels or path.")
        self._embedder, self._store, self._path = embedder, store, path
        self._threshold, self._limit = threshold, limit
        self._own_texts = self._texts = label_texts(labels or {})
        self._unrelated: Unrelated | None = None
        self._vectors: Lru[str, Vector] = Lru(_MOST_TEXTS)
        self._in_use: Lru[tuple[str, Scope | None], tuple[str, ...]] = Lru(64)
        self._embedding = asyncio.Lock()

    @classmethod
    def example(cls) -> Self:
        """Two labels, with an embedder that counts words."""
        from contextrouter.builtin.stages.reranking_example import HashedWords  # nobody else needs it

        return cls(
            embedder=HashedWords(),
            labels={
                "work.log": {"description": "what was done at work", "examples": ["what did I work on"]},
                "views": {"examples": ["my opinion on the question"]},
            },
            threshold=0.5,
        )

    async def open(self) -> None:
        """Read the file and embed all labels. Raises SettingsError when the file is missing or wrong."""
        self._embedding = asyncio.Lock()  # one of the running event loop
        if self._path:
            self._texts = {**read_labels(Path(self._path)), **self._own_texts}
        if self._threshold is None:
            self._unrelated = await measure_unrelated(self._embedder)
        labels = await self._labels_of_store(None)  # only embedded: each caller is shown those of its scope
        await self._embed([text for label in labels[:_MOST] for text in self._texts_of(label)])

    async def aclose(self) -> None:
        """Let go of the vectors."""
        self._vectors.clear()
        self._in_use.clear()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with its labels; `label_matches` in its attributes has their cosines."""
        question = drop_exclusions(intent.text)[:_READ].strip()
        if context.request.labels or not question:
            return intent
        candidates = await self._candidates(context)
        if not candidates:
            return intent
        similarities = await self._similarities(question, candidates[:_MOST])
        matches = {label: round(similarities[label], 3) for label in self._choose(similarities)}
        attributes: dict[str, Any] = {**intent.attributes}
        if len(candidates) > _MOST:
            attributes[NOTE] = f"only the {_MOST:,} most frequent of {len(candidates):,} labels are compared"
        if matches:
            earlier = attributes.get(MATCHES)
            attributes[MATCHES] = {**(earlier if isinstance(earlier, Mapping) else {}), **matches}
        labels = tuple(dict.fromkeys((*intent.labels, *matches)))
        return intent.replace(labels=labels, attributes=attributes)

    async def _candidates(self, context: InterpreterContext) -> Sequence[str]:
        """Return the labels that the caller may see; of a store that the request may not ask, none."""
        if self._store is not None and not any(source is self._store for source in context.sources.values()):
            return ()
        return await self._labels_of_store(context.request.scope)

    async def _labels_of_store(self, scope: Scope | None) -> Sequence[str]:
        """Return the labels in use, most frequent first; without a store, those described."""
        store = self._store
        if store is None:
            return tuple(self._texts)
        assert isinstance(store, SupportsFacets)
        version = await store.version() if isinstance(store, SupportsVersion) else None
        labels = self._in_use.get((version, scope)) if version is not None else None
        if labels is None:
            facets = await store.facets(Query(text="", scope=scope), ["labels"])
            values = [facet.value for facet in facets if facet.dimension == "labels"]
            labels = tuple(value for value in values if value and not value.startswith(_LONG_VALUE))
            if version is not None:
                self._in_use.put((version, scope), labels)
        return labels

    def _texts_of(self, label: str) -> Sequence[str]:
        return self._texts.get(label) or (words_of_name(label),)

    async def _similarities(self, question: str, labels: Sequence[str]) -> dict[str, float]:
        """Return the highest cosine of each label."""
        pairs = [(label, text) for label in labels for text in self._texts_of(label)]
        vectors = await self._embed([question, *(text for _, text in pairs)])
        best = dict.fromkeys(labels, -1.0)
        for number, similarity in _cosines(vectors[question], [vectors[text] for _, text in pairs]).items():
            label = pairs[number][0]
            best[label] = max(best[label], similarity)
        return best

    def _choose(self, similarities: Mapping[str, float]) -> list[str]:
        """Return the labels that match, best first; equal ones in the order of the candidates."""
        threshold = self._threshold
        if threshold is None:
            if self._unrelated is None:
                raise ContractError(
                    "Interpreter 'labels' is not open. Call open() first.", law="opened before use"
                )
            mean, related_from = self._unrelated
            threshold = max(related_from, mean + _LEAST_SHARE * (max(similarities.values()) - mean))
        matching = [label for label, similarity in similarities.items() if similarity >= threshold]
        return sorted(matching, key=lambda label: -similarities[label])[: self._limit]

    async def _embed(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors of texts, embedding those that are new."""
        async with self._embedding:
            vectors = {text: self._vectors.get(text) for text in texts}
            missing = [text for text, vector in vectors.items() if vector is None]
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                for text, vector in zip(batch, await embed_alike(self._embedder, batch), strict=True):
                    vectors[text] = vector
                    self._vectors.put(text, vector)
        return {text: vector for text, vector in vectors.items() if vector is not None}


def _cosines(question: Vector, vectors: Sequence[Vector]) -> dict[int, float]:
    """Return the cosine of each vector with that of the question, by place."""
    if can_compare():
        return Near(question, dict(enumerate(vectors))).cosines()
    target = direction(question)
    return {number: cosine(target, direction(vector)) for number, vector in enumerate(vectors)}
