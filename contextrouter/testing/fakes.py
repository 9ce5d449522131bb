"""Fake plugins for tests. They obey their contracts and need no network, model or database.

`Raising` is the exception: it always fails. Some record their calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

from contextrouter.contracts import (
    Completion,
    Connector,
    Embedder,
    FactSource,
    Generator,
    Interpreter,
    InterpreterContext,
    Provider,
    Reranker,
    Stage,
    StageContext,
    Transform,
)
from contextrouter.errors import SourceError
from contextrouter.filters import admits
from contextrouter.model import Document, Envelope, Fact, Hit, Intent, Query, Vector
from contextrouter.testing.builders import embedding, hits
from contextrouter.testing.kinds import deviates


class Fixed(Connector):
    """A connector that answers every query with the same hits, after `delay` seconds.

    `answer` is names for `hits()`, or hits. With `careless` it ignores scope, period and filters, as a bad
    source may. `queries` records the queries.
    """

    def __init__(
        self, answer: Sequence[Hit] | str = "a b c", *, delay: float = 0.0, careless: bool = False
    ) -> None:
        self.answer = hits(answer) if isinstance(answer, str) else list(answer)
        self.delay, self.careless = delay, careless
        self.queries: list[Query] = []

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the first of the hits."""
        self.queries.append(query)
        if self.delay:
            await asyncio.sleep(self.delay)
        hits = self.answer if self.careless else [hit for hit in self.answer if admits(hit.document, query)]
        return hits[: max(query.limit, 0)]


class Legs(Provider):
    """A provider that answers each leg with its own hits. With an `embedder`, "vector" is a vector leg."""

    def __init__(self, by_leg: dict[str, Sequence[Hit]], embedder: str | None = None) -> None:
        self.legs = tuple(by_leg)
        self.by_leg = by_leg
        self.embedder = embedder
        self.vector_legs = ("vector",) if embedder else ()
        self.queries: list[Query] = []

    @classmethod
    def example(cls) -> Self:
        """Two legs that share a document."""
        return cls({"text": hits("a b c", [3.0, 2.0, 1.0]), "vector": hits("c d", [0.9, 0.8])})

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the first of the leg's hits; on the leg `text` those with all phrases."""
        self.queries.append(query)
        hits = [hit for hit in self.by_leg[query.leg] if admits(hit.document, query)]
        if query.leg in self.phrase_legs:
            hits = [hit for hit in hits if _has_phrases(hit.document, query)]
        return hits[: max(query.limit, 0)]


def _has_phrases(document: Document, query: Query) -> bool:
    text = f"{document.title}\n{document.content}".casefold()
    return all(any(phrase.casefold() in text for phrase in group) for group in query.required)


class Raising(Connector):
    """A connector that always fails, with the given error or with a SourceError."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or SourceError("Source is made to fail; use another one.")

    async def search(self, query: Query) -> Sequence[Hit]:
        """Raise the error."""
        raise self.error


class Facts(FactSource):
    """A fact source that answers every question with the same facts. With `careless` it ignores the scope."""

    def __init__(self, facts: Sequence[Fact], *, careless: bool = False) -> None:
        self.answer, self.careless = list(facts), careless

    @classmethod
    def example(cls) -> Self:
        """Three facts about one subject, surest first."""
        triples = (("orbits", "Earth", 1.0), ("raises", "tides", 0.9), ("reflects", "sunlight", 0.9))
        return cls([Fact(subject="Moon", predicate=p, object=o, confidence=c) for p, o, c in triples])

    async def facts(self, query: Query) -> Sequence[Fact]:
        """Return the first of the facts that the scope allows."""
        scope = query.scope
        facts = self.answer
        if scope is not None and not self.careless:
            facts = [f for f in facts if scope.allows(f if f.tenant else f.replace(tenant=scope.tenant))]
        return facts[: max(query.limit, 0)]


@deviates("`error` is the exception itself, for tests written in Python", law="keywords_are_typed_for_toml")
class Ones(Embedder):
    """An embedder with one vector of two dimensions for every text. `asked` records the texts.

    It fails with `error` when there is one.
    """

    dimensions = 2
    model = "ones"

    def __init__(self, *, error: Exception | None = None, delay: float = 0.0) -> None:
        self.error, self.delay = error, delay
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """Return (1, 0) per text."""
        self.asked.append(list(texts))
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return [(1.0, 0.0) for _ in texts]


class Hashing(Embedder):
    """An embedder by `embedding()`, `dimensions` long: texts that share words are close."""

    def __init__(self, *, dimensions: int = 16) -> None:
        if dimensions < 1:
            raise ValueError(f"dimensions {dimensions!r} is not a positive number. Give 1 or more.")
        self.dimensions, self.model = dimensions, f"hashing-{dimensions}"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """Return one unit vector per text, zeros for a blank one."""
        return [embedding(text, self.dimensions) for text in texts]


class Adding(Interpreter):
    """An interpreter that adds `queries` and `concepts` to every intent."""

    def __init__(self, *, queries: Sequence[str] = (), concepts: Sequence[str] = ()) -> None:
        self.queries, self.concepts = tuple(queries), tuple(concepts)

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with the additions."""
        queries = dict.fromkeys((*(intent.queries or (intent.question,)), *self.queries))
        return intent.replace(
            queries=tuple(queries), concepts=tuple(dict.fromkeys((*intent.concepts, *self.concepts)))
        )


class Reversing(Stage):
    """A stage that reverses the order. It passes on at most `most` envelopes, all where that is 0."""

    def __init__(self, *, most: int = 0) -> None:
        self.most = most

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return the envelopes in reverse order."""
        reverse = list(envelopes)[::-1]
        return reverse[: self.most] if self.most else reverse


class Overlap(Reranker):
    """A reranker that scores a document by the number of question words in it."""

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """Return the counts."""
        words = set(query.casefold().split())
        return [float(len(words & set(document.content.casefold().split()))) for document in documents]


class Lines(Transform):
    """A transform that cuts a document into lines of at most `longest` characters, and drops blank lines."""

    def __init__(self, *, longest: int = 1000) -> None:
        self.longest = longest

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return one document per line."""
        lines = [
            line[at : at + self.longest]
            for line in document.content.splitlines()
            for at in range(0, len(line), self.longest)
        ]
        texts = [line for line in lines if line.strip()]
        return [
            document.replace(id=f"{document.id}#{n}", content=text, parent=document.id)
            for n, text in enumerate(texts)
        ]


class Echo(Generator):
    """A generator that answers with the last message, and with `data` for a schema. `asked` records calls."""

    def __init__(self, *, data: dict[str, Any] | None = None) -> None:
        self.data: Mapping[str, Any] = data or {}
        self.asked: list[Sequence[Mapping[str, str]]] = []

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Return the last content; with a schema, the empty value of each key that `data` does not give."""
        self.asked.append(messages)
        text = messages[-1]["content"] if messages else ""
        if schema is None:
            return Completion(text=text, model="echo")
        empty = {"string": "", "integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {}}
        blanks = {
            name: empty.get(part.get("type"), "") for name, part in schema.get("properties", {}).items()
        }
        return Completion(text=text, data={**blanks, **self.data}, model="echo")
