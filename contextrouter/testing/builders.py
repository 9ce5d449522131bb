"""Builders for tests: documents, hits, queries, facts and envelopes from few arguments."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from contextrouter.contracts import Entry, FactSource, InterpreterContext, Source, StageContext
from contextrouter.model import Document, Envelope, Fact, Hit, Intent, Provenance, Query, RankedList, Request
from contextrouter.scope import Scope

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
"""The clock of `stage_context()`."""


def doc(name: str, content: str | None = None, **fields: Any) -> Document:
    """Make a document with its own id, title and text."""
    values = {"title": name.upper(), **fields}
    return Document(id=name, content=f"text of {name}" if content is None else content, **values)


def hit(name: str, score: float | None = None, **fields: Any) -> Hit:
    """Make a hit with `doc(name, **fields)`."""
    return Hit(document=doc(name, **fields), score=score)


def hits(names: str | Sequence[str], scores: Sequence[float | None] | None = None) -> list[Hit]:
    """Make hits by name. A text is split at spaces."""
    listed = names.split() if isinstance(names, str) else list(names)
    return [hit(name, scores[i] if scores else None) for i, name in enumerate(listed)]


def ranked(
    source: str, names: str | Sequence[str], scores: Sequence[float | None] | None = None, **fields: Any
) -> RankedList:
    """Make a ranked list of `hits(names, scores)`."""
    values = {"leg": "default", "query": "q", **fields}
    return RankedList(source=source, hits=hits(names, scores), **values)


def query(text: str = "q", **fields: Any) -> Query:
    """Make a query."""
    return Query(text=text, **fields)


def intent(question: str = "q", **fields: Any) -> Intent:
    """Make an intent. Its first query is the question."""
    return Intent(question=question, **{"queries": (question,), **fields})


def fact(text: str, **fields: Any) -> Fact:
    """Make a fact from "subject predicate object", separated by spaces. The object may contain some."""
    subject, predicate, object_ = text.split(" ", 2)
    return Fact(subject=subject, predicate=predicate, object=object_, **fields)


def entry(
    document: Document, *, vectors: Mapping[str, Sequence[Any]] | None = None, fingerprint: str = ""
) -> Entry:
    """Make an entry with one chunk, the document itself."""
    return Entry(
        document=document,
        chunks=[document],
        vectors=vectors or {},
        fingerprint=fingerprint or document.fingerprint,
    )


def envelope(
    document: Document | str,
    rank: int = 1,
    score: float | None = None,
    *,
    source: str = "docs",
    **fields: Any,
) -> Envelope:
    """Make an envelope with the provenance of one list. Its default score is 1 / (60 + rank)."""
    document = doc(document) if isinstance(document, str) else document
    seal = Provenance(source=source, leg="default", query="q", rank=rank, score=score)
    values = {"score": 1 / (60 + rank), "normalized": 61 / (60 + rank), **fields}
    return Envelope(document=document, provenance=(seal,), **values)


def stage_context(
    question: str = "q",
    *,
    sources: Mapping[str, Source] | None = None,
    facts: Sequence[Fact] = (),
    scope: Scope | None = None,
    now: datetime = NOW,
    profile: Mapping[str, Any] | None = None,
    sealed: list[Envelope] | None = None,
    notes: list[str] | None = None,
    intent: Intent | None = None,
) -> StageContext:
    """Make a context whose `seal` works like the router's: it needs the source, and returns None for a
    document out of scope.

    Every envelope that it makes is added to `sealed`, and every note of the stage to `notes`.
    """

    def seal(hit: Hit, *, source: str) -> Envelope | None:
        if scope is not None and not scope.allows(hit.document):
            return None
        sealed_envelope = envelope(hit.document, score=hit.score, source=source)
        if sealed is not None:
            sealed.append(sealed_envelope)
        return sealed_envelope

    context_intent = intent or Intent(question=question, queries=(question,))
    return StageContext(
        intent=context_intent,
        scope=scope,
        profile=profile or {},
        sources=sources or {},
        facts=tuple(facts),
        now=now,
        seal=seal,
        note=(notes if notes is not None else []).append,
    )


def interpreter_context(
    request: Request | None = None,
    *,
    routes: Mapping[str, str] | None = None,
    sources: Mapping[str, Source | FactSource] | None = None,
    now: datetime = NOW,
) -> InterpreterContext:
    """Make the context of an interpreter."""
    return InterpreterContext(
        request=request or Request(question="q"), routes=routes or {}, sources=sources or {}, now=now
    )


def embedding(text: str, dimensions: int = 16) -> list[float]:
    """Make a unit vector by hashing words: texts that share words are close. A blank text has zeros."""
    vector = [0.0] * dimensions
    for word in text.casefold().split():
        digest = hashlib.sha256(word.strip(".,;:!?").encode("utf-8", "surrogatepass")).digest()
        vector[int.from_bytes(digest[:4], "big") % dimensions] += 1.0 if digest[4] & 1 else -1.0
    length = math.hypot(*vector)
    if not length and text.strip():
        vector[0], length = 1.0, 1.0
    return [value / length for value in vector] if length else vector
