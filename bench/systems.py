"""What is compared in `quality.py`: baselines from other packages, and the router as it is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import bm25s
import Stemmer
from judged import Collection, Kept, Question, stores

from contextrouter import ContextRouter
from contextrouter.builtin.embedders.minilm import MiniLM
from contextrouter.builtin.embedders.static import Static
from contextrouter.contracts import Embedder
from contextrouter.text.stemming import ALGORITHMS

DEPTH = 100
K1, B, K = 0.9, 0.4, 60

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
    """The router over one SQLite store for each source."""

    def __init__(
        self,
        name: str,
        collection: Collection,
        build: Path,
        embedder: str = "",
        legs: tuple[str, ...] = ("text",),
        **rag: Any,
    ) -> None:
        self.name, self.collection, self.build, self.legs, self.rag = name, collection, build, legs, rag
        self.embedder_name = embedder

    def embedder(self) -> Embedder | None:
        """The one that fills the stores and embeds the questions."""
        inner: dict[str, type[Embedder]] = {"static": Static, "minilm": MiniLM}
        if not self.embedder_name:
            return None
        return Kept(inner[self.embedder_name](), self.build / f"{self.embedder_name}.db")

    async def open(self) -> None:
        embedder = self.embedder()
        if embedder is not None:
            await embedder.open()
        folder = self.build / self.collection.name / (self.embedder_name or "text")
        folder.mkdir(parents=True, exist_ok=True)
        self.stores = await stores(self.collection, folder, embedder)
        rag = {
            "cache_enabled": False,
            "token_budget": 0,
            "candidates": DEPTH,
            "general_retrieval_final_count": DEPTH,
            "timeout_seconds": 60.0,
            **self.rag,
        }
        given = {"default": embedder} if embedder is not None else {}
        self.router = ContextRouter({"rag": rag}, providers=self.stores, embedders=given)
        await self.router.open()

    async def aclose(self) -> None:
        await self.router.aclose()

    async def answer(self, question: Question) -> Answer:
        started = perf_counter()
        context = await self.router.route(question.text, legs=self.legs, scope=question.scope)
        took = perf_counter() - started
        return [(e.document.id, 1.0 / rank) for rank, e in enumerate(context.envelopes, 1)], took


def of_collection(collection: Collection, build: Path, *, minilm: bool) -> Iterator[System]:
    """The systems that are compared on a collection; the first is what the others are held against."""
    both = ("text", "vector")
    plain = {"leg_weights": {"text": 1.0, "vector": 1.0}, "calibrate": False}
    yield MergedIndex(collection)
    if len(collection.sources) > 1:
        yield Routed("RRF of the sources, text", collection, build, calibrate=False)
        yield Routed("calibrated text", collection, build)
        if minilm:
            yield Routed("RRF of the sources, text+minilm", collection, build, "minilm", both, **plain)
            yield Routed("calibrated text+minilm", collection, build, "minilm", both)
        return
    yield Routed("text leg", collection, build)
    if collection.language:
        yield Routed("text leg without language", collection.unlabelled, build)
        return
    yield Routed("fused text+static", collection, build, "static", both)
    if minilm:
        yield Routed("minilm leg", collection, build, "minilm", ("vector",))
        yield Routed("RRF text+minilm", collection, build, "minilm", both, **plain)
        yield Routed("fused text+minilm", collection, build, "minilm", both)
