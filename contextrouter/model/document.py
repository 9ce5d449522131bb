"""Document, hit, ranked list, envelope and provenance: what a source finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, Literal, Self, get_args

from contextrouter.model.noun import EMPTY, Noun, Vector, equal_nouns

Trust = Literal["authoritative", "reference", "volatile"]
TRUSTS: tuple[str, ...] = get_args(Trust)
"""Highest first."""
SEARCH_TEXT = "search_text"  # key of a document's metadata: what is searched instead of its content


class Document(Noun, frozen=True, kw_only=True, gc=False):
    """A retrievable text. A chunk is a document with `parent`, the id of the document it was cut from."""

    # the citation of a document has its title and address, and the text of the context its content
    BRIEF: ClassVar[frozenset[str]] = frozenset(("id", "kind", "language", "compartment", "untrusted"))

    content: str
    id: str = ""
    url: str = ""
    title: str = ""
    snippet: str = ""  # stored; does not depend on the query
    kind: str = "document"  # book, video, qa, web, …: what quotas count
    path: tuple[str, ...] = ()  # heading path, outermost first
    parent: str | None = None
    media_type: str = "text/plain"
    language: str | None = None
    tenant: str | None = None  # None: unlabelled, takes the source's labels
    compartment: str | None = None
    sensitivity: str | None = None
    trust: str | None = None
    updated_at: datetime | None = None
    synced_at: datetime | None = None
    keywords: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    job: str | None = None  # the ingestion job that stored it; None: it is no job's
    links: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = EMPTY
    untrusted: bool = False  # written by strangers: fenced in the context, and never an instruction
    tokens: int | None = None  # of the content, counted when it was stored; None: not counted

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`. The tokens of other content are not counted yet."""
        if "content" in changes and self.tokens is not None:
            changes = {"tokens": None, **changes}
        return super().replace(**changes)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over url, snippet and content, each length-prefixed: no two triples encode alike."""
        digest = sha256()
        for part in (self.url, self.snippet, self.content):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:%b" % (len(data), data))
        return digest.hexdigest()


class Hit(Noun, frozen=True, kw_only=True, gc=False):
    """What a source says of one document. The order of hits is their rank."""

    document: Document
    score: float | None = None  # None: unscored
    vector: Vector | None = None  # None: not at hand
    highlights: tuple[str, ...] = ()  # query-dependent excerpts

    def __eq__(self, other: object) -> bool:
        return equal_nouns(self, other)

    __hash__ = None  # type: ignore[assignment]  # it holds mappings and vectors


class RankedList(Noun, frozen=True, kw_only=True, gc=False):
    """One answer of one source to one call, named so that every later number can be traced to it."""

    source: str
    leg: str
    query: str
    hits: Sequence[Hit]
    weight: float = 1.0  # the source's weight, for the fusion across sources
    score_range: tuple[float, float] | None = None  # declared by the source; beats min-max
    retrieved_at: datetime | None = None
    full: bool = False  # the source returned as many hits as it was asked for, so there may be more


class Provenance(Noun, frozen=True, kw_only=True, gc=False):
    """One ranked list's word on one document; stamped by the router alone."""

    BRIEF: ClassVar[frozenset[str]] = frozenset(("source", "leg", "rank"))

    source: str
    leg: str
    query: str
    rank: int  # from 1
    score: float | None  # raw, as the source gave it
    normalized: float | None = None  # in [0, 1] within its list; None: unscored
    weight: float = 1.0  # what the fusion multiplied the list by: weights of source, leg and query together
    retrieved_at: datetime | None = None
    place: int | None = None  # of the document in the order of its source, from 1; None: not fused
    source_score: float | None = None  # of the document within its source, which gave it that place
    # the value that this place was given beside other sources; None: one source
    calibrated: float | None = None


class Envelope(Noun, frozen=True, kw_only=True, gc=False):
    """A distinct document, sealed with its provenance: the one thing that moves from dedupe to assembly."""

    BRIEF: ClassVar[frozenset[str]] = frozenset(("document", "provenance", "normalized"))

    document: Document
    provenance: tuple[Provenance, ...] = ()  # best rank first
    score: float = 0.0  # of the last step that scored
    normalized: float = 0.0  # score ÷ the most it could be, in [0, 1]
    signals: Mapping[str, float] = EMPTY
    highlights: tuple[str, ...] = ()
    vector: Vector | None = None
    dropped: str | None = None  # why it went no further; None: live

    def __eq__(self, other: object) -> bool:
        return equal_nouns(self, other)

    __hash__ = None  # type: ignore[assignment]  # it holds mappings and vectors

    @property
    def id(self) -> str:
        """The document's fingerprint."""
        return self.document.fingerprint

    def scored(self, score: float, normalized: float | None = None, **signals: float) -> Envelope:
        """Return a copy with a new score, and `signals` added to those there are."""
        known = self.normalized if normalized is None else normalized
        return self.replace(
            score=score, normalized=known, signals={**self.signals, **signals} if signals else self.signals
        )

    def drop(self, reason: str) -> Envelope:
        """Return a copy that says why it goes no further."""
        return self.replace(dropped=reason)
