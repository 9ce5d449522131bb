"""Sources that obey the contract and answer from what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextrouter import Connector, Document, Embedder, Fact, FactSource, Hit, Provider, Query, RankedList


def doc(name: str, content: str | None = None, **fields: object) -> Document:
    """A document with an id and text of its own."""
    return Document(id=name, content=f"text of {name}" if content is None else content, title=name.upper(), **fields)


def hits(names: str | Sequence[str], scores: Sequence[float | None] | None = None) -> list[Hit]:
    """Hits by name; a text is split at spaces."""
    listed = names.split() if isinstance(names, str) else list(names)
    return [Hit(document=doc(n), score=scores[i] if scores else None) for i, n in enumerate(listed)]


def ranked(source: str, names: str | Sequence[str], scores: Sequence[float | None] | None = None, **fields: object) -> RankedList:
    """A ranked list."""
    values = {"leg": "default", "query": "q", **fields}
    return RankedList(source=source, hits=hits(names, scores), **values)


class Fixed(Connector):
    """Answers every query with the same hits."""

    def __init__(self, answer: Sequence[Hit] | str = "a b c", *, delay: float = 0.0) -> None:
        self.answer = hits(answer) if isinstance(answer, str) else list(answer)
        self.delay = delay
        self.queries: list[Query] = []

    async def search(self, query: Query) -> Sequence[Hit]:
        self.queries.append(query)
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.answer[: query.limit]


class Legs(Provider):
    """Answers each leg with hits of its own."""

    def __init__(self, by_leg: dict[str, Sequence[Hit]], embedder: str | None = None) -> None:
        self.legs = tuple(by_leg)
        self.by_leg = by_leg
        self.embedder = embedder
        self.vector_legs = ("vector",) if embedder else ()
        self.queries: list[Query] = []

    async def search(self, query: Query) -> Sequence[Hit]:
        self.queries.append(query)
        return self.by_leg[query.leg][: query.limit]


class Raising(Connector):
    """Fails with the given error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def search(self, query: Query) -> Sequence[Hit]:
        raise self.error


class Facts(FactSource):
    """Answers with the same facts."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.answer = list(facts)

    async def facts(self, query: Query) -> Sequence[Fact]:
        return self.answer[: query.limit]


class Ones(Embedder):
    """Two dimensions; counts what it is asked."""

    dimensions = 2
    model = "ones"

    def __init__(self, *, error: Exception | None = None, delay: float = 0.0) -> None:
        self.error, self.delay = error, delay
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
        self.asked.append(list(texts))
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return [(1.0, 0.0) for _ in texts]
