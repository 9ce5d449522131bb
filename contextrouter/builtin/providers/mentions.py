"""Mentions: the documents that name an entity, and their order; said once for all stores."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from contextrouter.builtin.providers.name_candidates import NameCandidates, name_candidates, name_key
from contextrouter.model import Query

Chunk = tuple[str, str, Any]
"""The id of a chunk, its tenant, and what the store knows it by; equal scores go in this order."""


class FactNames(NamedTuple):
    """A fact: its document, and the names of its subject and its object."""

    document: Hashable
    names: Collection[str]


class PhraseName(NamedTuple):
    """A key phrase: its document, the place of its chunk there, the chunk, and the name."""

    document: Hashable
    place: int
    chunk: Chunk
    name: str


def mention_candidates(query: Query) -> NameCandidates:
    """The names to look for: the entities of a query, or without any those that its text may contain."""
    if query.entities:
        return NameCandidates((), {key for name in query.entities if (key := name_key(name))})
    return name_candidates(query.replace(concepts=()))


class Mentions:
    """The facts in scope, and the key phrases of admitted chunks, that have names looked for."""

    def __init__(
        self, candidates: NameCandidates, facts: Iterable[FactNames], phrases: Iterable[PhraseName]
    ) -> None:
        facts, phrases = list(facts), list(phrases)
        existing = {name for fact in facts for name in fact.names} | {phrase.name for phrase in phrases}
        self.names = names = candidates.matching(existing)
        self._times: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)  # document -> name -> times
        self._chunks: defaultdict[Hashable, Counter[tuple[int, Chunk]]] = defaultdict(Counter)
        for fact in facts:
            if matching := names.intersection(fact.names):
                self._times[fact.document].update(matching)
        for phrase in phrases:
            if phrase.name in names:
                self._times[phrase.document][phrase.name] += 1
                self._chunks[phrase.document][phrase.place, phrase.chunk] += 1

    @property
    def without_chunk(self) -> list[Hashable]:
        """The documents whose facts alone have the names: their first admitted chunk stands for them."""
        return [document for document in self._times if document not in self._chunks]

    def rank(self, first_chunks: Mapping[Hashable, Chunk]) -> list[tuple[Chunk, float]]:
        """Return a chunk of each document with its score, best first: the chunk whose key phrases have the
        most names, or the first admitted one. A document without an admitted chunk is left out.
        """
        ranked = []
        for document, times in self._times.items():
            chunks = self._chunks.get(document)
            if chunks:
                (_, chunk), _ = min(chunks.items(), key=lambda pair: (-pair[1], pair[0][0]))
            elif document in first_chunks:
                chunk = first_chunks[document]
            else:
                continue
            ranked.append((chunk, score(times)))
        return sorted(ranked, key=lambda pair: (-pair[1], pair[0]))


def score(times: Mapping[str, int]) -> float:
    """How many names a document has, and as a fraction how often: names + n ÷ (n + 1)."""
    often = sum(times.values())
    return round(len(times) + often / (often + 1), 9)
