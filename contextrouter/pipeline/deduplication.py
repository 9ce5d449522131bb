"""Deduplication (step 6): one candidate for each distinct document, from all lists. Pure.

Within a source a document is known by its tenant and id alone, whatever its copies say: two ids are two
documents, even with one text. A document without an id is known by its text. Across sources a document is
known by what its first copy says: url, snippet and content all equal, which is what the SHA-256 fingerprint
stands for. Comparing the texts of documents that share a url decides the same question without hashing them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from contextrouter.model import Document, Fact, RankedList
from contextrouter.pipeline.candidates import Candidates, Share
from contextrouter.text.fact_words import QuestionWords, same_words


def dedupe(lists: Sequence[RankedList], identity: str = "exact") -> Candidates:
    """Return the distinct documents of ranked lists; the result does not depend on the order of arrival.

    `identity` says when documents of different sources are one: "exact" (url, snippet, content), "content",
    "url", "id" or "title". A document that lacks the field, or whose url is not absolute, is compared
    exactly. It never joins two documents of one source that have different ids.
    """
    ordered = sorted(lists, key=attrgetter("source", "leg", "query"))
    index = _Index(identity)
    rows = [index.row(ranked) for ranked in ordered]
    return Candidates(index.documents, ordered, rows, index.shares)


class _Index:
    """The distinct documents so far: by id within a source, by their text across sources."""

    def __init__(self, identity: str) -> None:
        self.documents: list[Document] = []
        self.shares: list[Share] = []
        self._key_of = _KEYS.get(identity)
        self._by_text: dict[Any, int] = {}
        self._same: dict[Any, list[int]] = {}  # key -> numbers, where a key has several
        self._start_source("")

    def _start_source(self, source: str) -> None:
        self._source, self._first = source, len(self.documents)
        self._by_id: dict[str | tuple[str, str], int] = {}
        self._claims: dict[int, Document] = {}  # number -> the source's document that joined it
        self.shares.append(Share(source, self._first, self._claims))
        self._taken: dict[Any, int] = {}  # key -> how many of its first numbers the source has ids for

    def row(self, ranked: RankedList) -> list[int]:
        """Return the numbers of a list's documents. The lists of a source follow one another."""
        if ranked.source != self._source:
            self._start_source(ranked.source)
        by_id, by_text, documents, key_of = self._by_id, self._by_text, self.documents, self._key_of
        first, claims = self._first, self._claims
        row = []
        for hit in ranked.hits:
            document = hit.document
            name = (document.tenant, document.id) if document.tenant else document.id
            number = by_id.get(name)
            if number is None:
                new = len(documents)
                if key_of is not None and (key := key_of(document)) is not None:
                    number = by_text.setdefault(key, new)
                else:  # few documents share a url: comparing those costs less than hashing all texts
                    key = document.url or (document.snippet or document.content,)
                    number = by_text.setdefault(key, new)
                    if number != new and not _says_same(documents[number], document):
                        key = _text(document)
                        number = by_text.setdefault(key, new)
                if number == new:
                    documents.append(document)
                elif number < first and number not in claims:
                    claims[number] = document
                else:
                    number = self._next_number(document, key, number)
                if document.id:  # a blank id names nothing
                    by_id[name] = number
            row.append(number)
        return row

    def _next_number(self, document: Document, key: Any, first: int) -> int:
        """Return the number of a document whose source has claimed the `first` number of its key: the next
        one that no other document of the source has.
        """
        numbers = self._same.setdefault(key, [first])
        start = self._taken.get(key, 0) if document.id else 0
        for place in range(start, len(numbers)):
            number = numbers[place]
            own = self._claims.get(number) or (self.documents[number] if number >= self._first else None)
            if own is None or (not (own.id and document.id) and _text(own) == _text(document)):
                self._claims[number] = document if document.id or own is None else own
                break
        else:
            place, number = len(numbers), len(self.documents)
            numbers.append(number)
            self.documents.append(document)
        if document.id:
            self._taken[key] = place + 1
        return number


def _says_same(document: Document, other: Document) -> bool:
    return (
        document.url == other.url and document.snippet == other.snippet and document.content == other.content
    )


def _text(document: Document) -> tuple[str, str, str]:
    return document.url, document.snippet, document.content


_ABSOLUTE = r"(?i)[a-z][a-z0-9+.-]+://.|urn:.|doi:."
"""What a url begins with to name one document wherever it stands; `README.md` is the name of many."""

_KEYS: dict[str, Callable[[Document], Any]] = {
    "content": lambda document: ("content", document.content) if document.content else None,
    "url": lambda document: ("url", document.url) if re.match(_ABSOLUTE, document.url) else None,
    "id": lambda document: ("id", document.id) if document.id else None,
    "title": lambda document: ("title", document.title.casefold()) if document.title else None,
}


def distinct_facts(
    facts: Sequence[Fact], limit: int, question: str = "", language: str | None = None
) -> tuple[list[Fact], list[Fact]]:
    """Return one of each fact, at most `limit`, and those beyond. The facts that the question asks for come
    first: those with the most points (see `QuestionWords.points`).

    Facts with as many points keep the order of their source. The sources take turns, in the order of the
    settings: the first of each, the second of each, and so on.

    Facts that differ only in case or white space are one: the first stands. A fact's validity is part of
    what it says.
    """
    if not facts:  # most questions: the words of the question need not be read
        return [], []
    words = QuestionWords(question, language)
    by_source: dict[str, list[tuple[int, Fact]]] = {}
    for fact in facts:
        _add_points(fact, by_source.setdefault(fact.source, []), words)
    turns = [pair for turn in zip_longest(*by_source.values()) for pair in turn if pair is not None]
    distinct: dict[Any, Fact] = {}
    for _, fact in sorted(turns, key=lambda pair: -pair[0]):
        says = *map(same_words, (fact.subject, fact.predicate, fact.object)), fact.valid_from, fact.valid_to
        distinct.setdefault(says, fact)
    ordered = list(distinct.values())
    return ordered[:limit], ordered[limit:]


def _add_points(fact: Fact, before: list[tuple[int, Fact]], words: QuestionWords) -> None:
    """Add a fact, with its points, to those of its source.

    A fact without any word of the question that stands behind one with some has 1 point, as if it had a
    name: it may be a link between two names, and its source knows why it stands there.
    """
    points = words.points(fact.subject, fact.predicate, fact.object)
    before.append((points or (1 if before and before[-1][0] else 0), fact))
