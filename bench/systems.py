"""What is compared in `quality.py`: baselines from other packages, and the router as it is set."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import bm25s
import Stemmer
from judged import Collection, Kept, Question, filled

from contextrouter import Context, ContextRouter, Document
from contextrouter.builtin.embedders.minilm import MiniLM
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Embedder
from contextrouter.text.stemming import ALGORITHMS

DEPTH = 100
K1, B = 0.9, 0.4
EMBEDDERS: dict[str, type[Embedder]] = {"static": Static, "minilm": MiniLM}
LEGS: dict[str, tuple[str, ...]] = {
    "": ("text",),
    "static": ("text", "vector", "keywords"),
    "minilm": ("text", "vector"),
}
"""Embedder -> the legs that are asked; those with vectors are stored."""

Answer = tuple[list[tuple[str, float]], float]
"""Documents with scores, best first; and seconds."""


class System:
    """Somebody who answers questions with ranked documents."""

    name = ""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Make ready."""

    async def aclose(self) -> None:
        """Let go."""

    async def answer(self, question: Question) -> Answer:
        """The best DEPTH documents, timed."""
        raise NotImplementedError


class MergedIndex(System):
    """BM25 over one index of all documents, by bm25s: title and text, English stop words, Snowball stems of
    the collection's language.
    """

    name = "bm25s merged"

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    async def open(self) -> None:
        documents = self.collection.documents
        self.ids = [document.id for document in documents]
        self.stemmer = Stemmer.Stemmer(ALGORITHMS[self.collection.language or "en"])
        texts = [d.content if d.content == d.title else f"{d.title} {d.content}" for d in documents]
        self.index = bm25s.BM25(method="lucene", k1=K1, b=B)
        self.index.index(self._tokens(texts), show_progress=False)

    def _tokens(self, texts: Sequence[str]) -> Any:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=self.stemmer, show_progress=False)

    async def answer(self, question: Question) -> Answer:
        started = perf_counter()
        places, scores = self.index.retrieve(
            self._tokens([question.text]), k=min(DEPTH, len(self.ids)), show_progress=False
        )
        found = [
            (self.ids[place], float(score))
            for place, score in zip(places[0], scores[0], strict=True)
            if score > 0
        ]
        return found, perf_counter() - started


class Routed(System):
    """The router over one SQLite store for each source: of words alone, or with vectors of an embedder.

    `without` names sources whose stores have no vectors although others do. `ask` says which sources a
    question is put to; without it, to all.
    """

    def __init__(
        self,
        name: str,
        collection: Collection,
        build: Path,
        embedder: str = "",
        *,
        legs: Sequence[str] | None = None,
        without: Container[str] = (),
        ask: Callable[[Question], Sequence[str]] | None = None,
        **rag: Any,
    ) -> None:
        self.name, self.collection, self.build, self.embedder_name = name, collection, build, embedder
        self.legs = legs or LEGS[embedder]
        self.without, self.ask = without, ask
        self.rag = {"cache_enabled": False, "token_budget": 0, "timeout_seconds": 60.0, **rag}

    def embedder(self) -> Embedder | None:
        """The one that fills the stores and embeds the questions."""
        if not self.embedder_name:
            return None
        return Kept(EMBEDDERS[self.embedder_name](), self.build / f"{self.embedder_name}.db")

    async def open(self) -> None:
        embedder = self.embedder()
        if embedder is not None:
            await embedder.open()
        self.stores = {
            source: await self._store(source, documents, None if source in self.without else embedder)
            for source, documents in self.collection.sources.items()
        }
        given = {"default": embedder} if embedder is not None else {}
        self.router = ContextRouter({"rag": self.rag}, providers=self.stores, embedders=given)
        await self.router.open()

    async def _store(self, source: str, documents: Sequence[Document], embedder: Embedder | None) -> Sqlite:
        vectors = [leg for leg in LEGS[self.embedder_name] if leg != "text"] if embedder is not None else []
        folder = "-".join((self.embedder_name, *vectors)) if vectors else "text"
        return await filled(
            self.build / self.collection.name / folder / f"{source}.db", documents, embedder, vectors
        )

    async def aclose(self) -> None:
        await self.router.aclose()

    async def answer(self, question: Question) -> Answer:
        context, took = await self.context(question)
        return [(e.document.id, 1.0 / rank) for rank, e in enumerate(context.envelopes, 1)], took

    async def context(self, question: Question) -> tuple[Context, float]:
        """What the router answers, and the seconds it took."""
        started = perf_counter()
        sources = self.ask(question) if self.ask else None
        context = await self.router.route(
            question.text, legs=self.legs, scope=question.scope, sources=sources
        )
        return context, perf_counter() - started
