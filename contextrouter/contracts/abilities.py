"""Optional plugin abilities: a protocol for each, such as being filled, crawled or counted.

A plugin has an ability when it has the methods; nothing is registered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from contextrouter.contracts.kinds import (
    ENTITIES,
    FACETS,
    FACTS,
    MENTIONS,
    PATH,
    Completion,
    FactSource,
    Source,
    Writing,
)
from contextrouter.model import Document, Entity, Facet, Fact, Hit, Query, Vector
from contextrouter.scope import Scope

if TYPE_CHECKING:
    from pathlib import Path


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One document on its way into a store, with all that was made of it.

    `vectors` maps a vector leg to one vector (or None) per chunk. `fingerprint` stands for the document's
    content and for how it was cut: equal fingerprints mean nothing has to be done again. Facts without labels
    take the document's. `other_vectors` maps further models to their `vectors`, for a store that has those of
    several.
    """

    document: Document
    chunks: Sequence[Document]
    vectors: Mapping[str, Sequence[Vector | None]] = {}
    other_vectors: Mapping[str, Mapping[str, Sequence[Vector | None]]] = {}
    facts: Sequence[Fact] = ()
    fingerprint: str = ""


@runtime_checkable
class SupportsUpsert(Protocol):
    """A store that can be filled. Each document is replaced whole, atomically, by `(tenant, id)`."""

    embedder: str | None
    vector_legs: Sequence[str]

    async def upsert(self, entries: Sequence[Entry]) -> None:
        """Put each entry's chunks and facts in place of what its document had before. Returns when they are
        durable.
        """
        ...

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        """Document id -> the fingerprint it was stored with."""
        ...

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        """Remove documents, their chunks and facts; return how many documents there were."""
        ...


@runtime_checkable
class SupportsFingerprintPages(Protocol):
    """A store that lists its fingerprints page by page, so that ingestion compares millions of documents
    without holding them in memory. Such a store `SupportsUpsert`, too.
    """

    def fingerprint_pages(self) -> AsyncIterator[Sequence[tuple[str | None, str, str]]]:
        """Yield the (tenant, id, fingerprint) of every document, each once, some thousand at a time."""
        ...


@runtime_checkable
class SupportsModel(Protocol):
    """A store that notes which embedder's model filled it, and refuses the vectors of another."""

    embedder: str | None

    async def embedded_by(self, model: str, dimensions: int) -> None:
        """Say whose vectors come from now on, and how long they are. Raises SourceError when others filled
        the store.
        """
        ...


@runtime_checkable
class SupportsTenants(Protocol):
    """A store that knows whose documents it holds, so that ingestion finds what it put under another tenant
    before.
    """

    async def tenants(self) -> Sequence[str | None]:
        """Return every tenant that has a document, each once; None stands for documents without a tenant."""
        ...


@runtime_checkable
class SupportsVectors(Protocol):
    """A store that gives back the vectors it holds, so that what did not change in a changed document is not
    embedded again.
    """

    async def embedded(
        self, ids: Sequence[str], tenant: str | None, model: str
    ) -> Sequence[tuple[Document, Mapping[str, Vector]]]:
        """Return the chunks of documents, each with its vectors by leg; nothing when another model filled the
        store.
        """
        ...


@runtime_checkable
class SupportsCrawl(Protocol):
    """A source whose documents can be listed for ingestion."""

    def crawl(self) -> AsyncIterator[Document]:
        """Yield every document, whole."""
        ...


@runtime_checkable
class SupportsFetch(Protocol):
    """A source that can return documents by id."""

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return those that exist and may be seen, in the order asked."""
        ...


@runtime_checkable
class SupportsFiles(Protocol):
    """A source that reads files of this machine: the id of a document is the path of its file below
    `local_folder`, or the name of that file itself.
    """

    local_folder: Path


@runtime_checkable
class SupportsNeighbours(Protocol):
    """A source that knows which documents link to which."""

    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        """Return documents linked with `ids`, either way, strongest first."""
        ...


class LinkDegrees(msgspec.Struct, frozen=True, kw_only=True):
    """How well documents are linked. `degrees` maps an id to the number of links from and to its document;
    `mean` is the number of links ÷ the number of documents, over the whole graph.
    """

    degrees: Mapping[str, int]
    mean: float


@runtime_checkable
class SupportsDegrees(Protocol):
    """A source that counts the links of its documents."""

    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        """Return the degrees of `ids` (of documents or chunks) in the graph that `scope` allows.

        A link counts once where both documents may be seen, and are two. An id that does not exist, or may
        not be seen, has no degree.
        """
        ...


@runtime_checkable
class SupportsMentions(Protocol):
    """A store that finds the documents that name an entity."""

    async def mentions(self, query: Query) -> Sequence[Hit]:
        """Return one hit for each document whose facts or key phrases (`Document.keywords`) name an entity of
        the query: `query.entities`, or without any the names in its text.

        Best first: those that name the most entities, then those that name them most often. The score is
        entities + n ÷ (n + 1), where n counts how often they are named. Scope, period, filters, labels and
        excluded words narrow before the limit.
        """
        ...


@runtime_checkable
class SupportsFacets(Protocol):
    """A source that can count instead of list."""

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Return counts over everything that matches, before any limit; then, of each dimension,
        `query.limit` values at most, those of most documents or statements first, ties by value.
        """
        ...


@runtime_checkable
class SupportsEntities(Protocol):
    """A fact source that knows entities and their attributes."""

    async def entities(self, query: Query) -> Sequence[Entity]:
        """Return the entities the query names, at most `query.limit`.

        With `query.attribute`, those that have it, and nothing else of them. Attributes are one if they
        differ in case, in `_` or spaces, or in the endings of their words.
        """
        ...


class EntityMatch(msgspec.Struct, frozen=True, kw_only=True):
    """An entity near a hint: its name, and the cosine of the hint and the nearest text about it."""

    name: str
    cosine: float


@runtime_checkable
class SupportsEntityHints(Protocol):
    """A source that finds entities by meaning: "wife" finds Anna, of whom a fact says that she is.

    `embedder` names the embedder of the vectors it is asked with. `entity_threshold` is the cosine that a
    match needs; None: that of the embedder.
    """

    embedder: str | None
    entity_threshold: float | None

    async def exact_names(self, hints: Sequence[str], query: Query) -> Sequence[str]:
        """Return the hints that are names as they stand, of entities that the scope of the query shows."""
        ...

    async def nearest_entities(
        self, vector: Vector, query: Query, *, threshold: float
    ) -> Sequence[EntityMatch]:
        """Return the entities in scope with a cosine of at least `threshold`, nearest first, `query.limit` at
        most.

        Raises SourceError where there are no vectors of entities, and says what to do.
        """
        ...


@runtime_checkable
class SupportsEntityVectors(Protocol):
    """A store that keeps vectors of the entities of its facts. Ingestion embeds what they need."""

    async def entity_texts(self) -> Sequence[str]:
        """Return distinct texts about the next entities that have no vectors, some thousand at most: name,
        aliases and description of each.
        """
        ...

    async def embed_entities(self, vectors: Mapping[str, Vector]) -> int:
        """Keep text -> vector for each of these entities whose texts are all in `vectors`; return how many
        those are. 0: there is nothing more to do.
        """
        ...


@runtime_checkable
class SupportsGraph(Protocol):
    """A fact source that knows how entities hang together. Of the query, scope, period, limit and deadline
    count.
    """

    async def path(self, start: str, goal: str, query: Query, *, hops: int | None = None) -> Sequence[Fact]:
        """Return the facts of a shortest way between two names, in order; nothing when there is none of
        `hops` facts at most, 1 to 10. None: as many as the source's settings say.
        """
        ...

    async def related(self, name: str, query: Query) -> Sequence[Entity]:
        """Return the entities that facts link with a name, those of most facts first; attributes say how and
        how well linked.
        """
        ...


@runtime_checkable
class SupportsVersion(Protocol):
    """A source that can say cheaply whether its content changed."""

    async def version(self) -> str:
        """Return a string that changes whenever an answer could."""
        ...


@runtime_checkable
class SupportsInspect(Protocol):
    """A connector that can show what it makes of one address."""

    def inspect(self, url: str) -> AsyncIterator[tuple[str, str]]:
        """Yield each step's name and what is to be seen of it. Raises SourceError when nothing comes of the
        address.
        """
        ...


@runtime_checkable
class SupportsWriting(Protocol):
    """A generator that can be told how to write, and says in the end what it cost."""

    def write(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncIterator[str | Completion]:
        """Yield the answer in pieces, and last the Completion."""
        ...


class TermStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a source reports of its index: how many documents, how long, and in how many each term occurs."""

    documents: int
    average_length: float
    frequencies: Mapping[str, int]


@runtime_checkable
class SupportsStatistics(Protocol):
    """A source that reports term statistics."""

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        """Return the statistics of `terms` over the documents that `scope` allows, and no other; None: over
        all.
        """
        ...


def legs_of(source: Source | FactSource) -> tuple[str, ...]:
    """Return the legs of a source: those it names, and those that its abilities make."""
    legs = (FACTS,) if isinstance(source, FactSource) else tuple(source.legs)
    abilities = {
        MENTIONS: isinstance(source, SupportsMentions),
        FACETS: isinstance(source, SupportsFacets),
        ENTITIES: isinstance(source, FactSource) and isinstance(source, SupportsEntities),
        PATH: isinstance(source, FactSource) and isinstance(source, SupportsGraph),
    }
    return (*legs, *(leg for leg, able in abilities.items() if able))
