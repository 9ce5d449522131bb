"""Step 4: one envelope per distinct document, with the word of every list on it. Pure; the result does not depend on arrival.

Within a source a document is known by its id; across sources by what it says: url, snippet and content all equal, which is
what the SHA-256 fingerprint stands for. Comparing the texts of documents that share a url decides the same question without
hashing them, which would be most of the router's work; and an envelope is sealed when somebody looks at it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import compress
from math import isfinite
from operator import attrgetter, itemgetter
from typing import Any, overload

from contextrouter.model import Document, Envelope, Hit, Provenance, RankedList

_NOTHING: Mapping[str, float] = {}
_Head = tuple[Sequence[Hit], str, str, str, float, datetime | None, Sequence[float], float, float]
"""Hits, source, leg, query, weight and time of a list; the values of its hits, the lowest, and how far they are spread."""


def dedupe(lists: Sequence[RankedList], identity: str = "exact") -> Pool:
    """Return the distinct documents as envelopes sealed on sight, in the order of the names and ranks of the lists they are in.

    `identity` says when documents of different sources are one: "exact" (url, snippet, content), "content", "url", "id" or
    "title"; a document that lacks the field, or whose url is not absolute, is compared exactly. Of merged copies the best-ranked
    is kept, and all provenance.
    """
    pool = Pool(lists)
    if identity != "exact" or not pool.number_by_text():
        pool.number_by_id(_KEYS.get(identity))
    return pool


class Pool(Sequence[Envelope]):
    """Distinct documents. Indexing seals an envelope.

    `lists` are in the order of their names. Hits are counted through them all: the one at `position` holds `documents[position]`,
    and `starts[n]` is the position of the first hit of list n. The number of a document is the position at which it is first met;
    `numbers[n]` are those of list n, a range where all are met for the first time. `again` are the numbers of documents that are
    met again, at the positions `again_at`; `copied` are the lists that hold one of their own documents again. `places[number]` is
    where a document stood, as (list, index), once it was looked up.
    """

    __slots__ = (
        "_firsts", "_given", "_heads", "_sealed", "again", "again_at", "copied", "documents", "lists", "numbers", "places",
        "starts",
    )  # fmt: skip

    def __init__(self, lists: Iterable[RankedList]) -> None:
        self.lists = sorted(lists, key=_NAME)
        self._given = len(self.lists)
        self.starts: list[int] = []
        self.places: dict[int, list[tuple[int, int]]] = {}
        self._heads: dict[int, _Head] = {}
        self._sealed: dict[int, Envelope] = {}
        self._firsts: Sequence[int] | None = None
        self._clear()

    def _clear(self) -> None:
        self.documents: list[Document] = []
        self.numbers: list[Sequence[int]] = []
        self.again: list[int] = []
        self.again_at: list[int] = []
        self.copied: set[int] = set()
        self.starts.clear()

    def number_by_text(self) -> bool:
        """Number documents by url, snippet and content; False when some source gives one id to two of them."""
        index: dict[Any, int] = {}
        by_id: dict[str, int] = {}
        own = 0  # where the hits of the source begin
        everything, number_of = self.documents, index.setdefault
        names = [None, *[ranked.source for ranked in self.lists], None]
        for n, ranked in enumerate(self.lists):
            documents = [hit.document for hit in ranked.hits]
            start, known = len(everything), len(index)
            if names[n] != ranked.source:
                by_id, own = {}, start
            self.starts.append(start)
            everything += documents
            positions = range(start, len(everything))
            # What has no url is never under a key with what has one.
            keys = [document.url or (document.snippet or document.content,) for document in documents]
            numbers = [*map(number_of, keys, positions)]
            fresh = len(index) - known == len(documents)
            self.numbers.append(positions if fresh else numbers)
            several = names[n] == ranked.source or names[n + 2] == ranked.source  # lists of the source
            if not fresh and not self._compare(n, index, numbers, own, by_id if several else None):
                return False
            if fresh or not several:
                ids = [document.id for document in documents]
                if (several or len({*ids}) < len(ids)) and not _agree(ids, numbers, by_id):
                    return False
        return True

    def _compare(self, n: int, index: dict[Any, int], numbers: list[int], own: int, by_id: dict[str, int] | None) -> bool:
        """Compare the documents of list n with those that stand under the same key; where they differ, the whole text decides.

        False when the source, whose hits begin at `own`, gives one id to two of them; not looked for where `by_id` is None.
        """
        documents, again, again_at = self.documents, self.again.append, self.again_at.append
        start = self.starts[n]
        for position, number in enumerate(numbers, start):
            document = documents[position]
            if number != position:
                other = documents[number]
                if other.content != document.content or other.snippet != document.snippet:
                    number = numbers[position - start] = index.setdefault(_text(document), position)
                    other = documents[number]
            if number != position:
                again(number)
                again_at(position)
                if number >= own:
                    if number >= start:
                        self.copied.add(n)
                    if other.id == document.id:
                        continue
            if by_id is not None and by_id.setdefault(document.id, number) != number and document.id:
                return False
        return True

    def number_by_id(self, key_of: Callable[[Document], Any] | None) -> None:
        """Number documents by id within a source, then their best-ranked copies by `key_of`, or by text where that is None."""
        self._clear()
        firsts, copies = self._by_id()
        index: dict[Any, int] = {}
        number_of: dict[int, int] = {}
        for first, document in copies.items():
            key = key_of(document) if key_of else None
            number_of[first] = index.setdefault(_text(document) if key is None else key, first)
        for n, (start, ranked) in enumerate(zip(self.starts, self.lists, strict=True)):
            numbers = [number_of[first] for first in firsts[start : start + len(ranked.hits)]]
            self.numbers.append(numbers)
            if len({*numbers}) < len(numbers):
                self.copied.add(n)
        for position, first in enumerate(firsts):
            if number_of[first] != position:
                self.again.append(number_of[first])
                self.again_at.append(position)

    def _by_id(self) -> tuple[list[int], dict[int, Document]]:
        """For every hit the position at which its source first gave its id; and for each of those the best-ranked copy."""
        firsts: list[int] = []
        known: dict[tuple[str, str], int] = {}
        copies: dict[int, Document] = {}
        ranks: dict[int, int] = {}
        for ranked in self.lists:
            self.starts.append(len(self.documents))
            for rank, hit in enumerate(ranked.hits):
                document, position = hit.document, len(self.documents)
                first = known.setdefault((ranked.source, document.id), position) if document.id else position
                if rank < ranks.get(first, rank + 1):  # of equal ranks the first list in the order of names
                    ranks[first], copies[first] = rank, document
                firsts.append(first)
                self.documents.append(document)
        return firsts, copies

    def also(self, ranked: RankedList, numbers: Sequence[int]) -> None:
        """Add a list of documents that are here already, by number. It speaks of them and is not where they come from."""
        start = len(self.documents)
        self.lists.append(ranked)
        self.starts.append(start)
        self.numbers.append(numbers)
        self.documents += [self.documents[number] for number in numbers]
        self.again += numbers
        self.again_at += range(start, len(self.documents))
        self._firsts = None

    def firsts(self) -> Sequence[int]:
        """The numbers of all documents, ascending."""
        if self._firsts is None:
            size = range(len(self.documents))
            repeated = set(self.again_at)
            self._firsts = [position for position in size if position not in repeated] if repeated else size
        return self._firsts

    def look_up(self, numbers: Iterable[int]) -> None:
        """Find where these documents stood, all in one pass; each list once, at its best."""
        starts, places = self.starts, self.places
        for number in numbers:
            if number not in places:
                n = bisect_right(starts, number) - 1
                places[number] = [(n, number - starts[n])]
        wanted = {*numbers}.intersection(self.again)
        if wanted:
            for number, position in compress(zip(self.again, self.again_at, strict=True), map(wanted.__contains__, self.again)):
                n, found = bisect_right(starts, position) - 1, places[number]
                if found[-1][0] < n:
                    found.append((n, position - starts[n]))

    def scaled(self, n: int, indexes: Iterable[int]) -> list[float]:
        """The scores of these hits of list n, scaled to [0, 1] within the list."""
        *_, values, low, spread = self._heads.get(n) or self._head(n)
        return [(values[index] - low) / spread for index in indexes]

    def _head(self, n: int) -> _Head:
        """What the provenance of every hit of a list says, and how what speaks for them is brought to [0, 1].

        A declared range beats min-max; a list of one, or of equal scores, is all 1.0. Where a score is missing or not finite, the
        whole list is scaled by rank instead: no arithmetic on what is not there, and the source's order holds.
        """
        ranked = self.lists[n]
        values: Sequence[Any] = [hit.score for hit in ranked.hits]
        try:
            finite = isfinite(sum(values)) or all(map(isfinite, values))  # finite numbers may add up to infinity
        except (TypeError, OverflowError):
            finite = False
        low, spread = 0.0, 1.0
        if finite and values:
            ordered = sorted(values)
            low, high = ranked.score_range or (ordered[0], ordered[-1])
            spread = high - low
            if ordered[0] < low or ordered[-1] > high:
                values = [min(high, max(low, value)) for value in values]
        if not finite or not isfinite(spread):
            values, low, spread = range(len(values), 0, -1), 0.0, len(values)
        elif not spread:
            values, low, spread = [1.0] * len(values), 0.0, 1.0
        head = self._heads[n] = (
            ranked.hits, ranked.source, ranked.leg, ranked.query, ranked.weight, ranked.retrieved_at, values, low, spread,
        )  # fmt: skip
        return head

    def __len__(self) -> int:
        return len(self.documents) - len(self.again)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        at = self.firsts()[index]
        return self._unscored([at])[0] if isinstance(at, int) else self._unscored(at)

    def _unscored(self, numbers: Sequence[int]) -> list[Envelope]:
        sealed = self._sealed
        new = [number for number in numbers if number not in sealed]
        sealed.update(zip(new, self.seal(new, [0.0] * len(new)), strict=True))
        return [sealed[number] for number in numbers]

    def seal(self, numbers: Sequence[int], scores: Sequence[float], most: Mapping[str, float] = _NOTHING) -> list[Envelope]:
        """The envelopes of these documents, with these scores. `most` is what each source can give to a score at best."""
        self.look_up(numbers)
        lists, heads, head_of = self.lists, self._heads, self._head
        standing: Any = self._standing if len(lists) > self._given else _RANK
        made: list[Envelope] = []
        for number, score in zip(numbers, scores, strict=True):
            places = self.places[number]
            possible, source = 0.0, ""
            for n, _ in places:  # in the order of names, so those of one source follow each other
                if lists[n].source != source:
                    source = lists[n].source
                    possible += most.get(source, 0.0)
            stamps: list[Provenance] = []
            best: Hit | None = None
            for n, index in places if len(places) == 1 else sorted(places, key=standing):
                hits, source, leg, query, weight, at, values, low, spread = heads.get(n) or head_of(n)
                hit = hits[index]
                stamps.append(Provenance(
                    source=source, leg=leg, query=query, rank=index + 1, score=hit.score,
                    normalized=(values[index] - low) / spread, weight=weight, retrieved_at=at,
                ))  # fmt: skip
                if best is None:
                    best, highlights, vector = hit, hit.highlights, hit.vector
                else:
                    if hit.highlights:
                        highlights = tuple(dict.fromkeys((*highlights, *hit.highlights)))
                    if vector is None:
                        vector = hit.vector
            assert best is not None
            made.append(Envelope(
                document=best.document, provenance=tuple(stamps), score=score,
                normalized=min(1.0, score / possible) if possible else 0.0, highlights=highlights, vector=vector,
            ))  # fmt: skip
        return made

    def _standing(self, place: tuple[int, int]) -> tuple[bool, int]:
        """By rank; behind all sources what was added."""
        return place[0] >= self._given, place[1]


_NAME = attrgetter("source", "leg", "query")
_RANK: Any = itemgetter(1)


def _text(document: Document) -> tuple[str, str, str]:
    return document.url, document.snippet, document.content


def _agree(ids: Sequence[str], numbers: Sequence[int], by_id: dict[str, int]) -> bool:
    """Whether every id names one document, here and in the lists of the same source before; a blank id names none."""
    named = [*map(by_id.setdefault, ids, numbers)]
    return named == numbers or all(not i or first == number for i, first, number in zip(ids, named, numbers, strict=True))


_ABSOLUTE = r"(?i)[a-z][a-z0-9+.-]+://.|urn:.|doi:."
"""What a url has to begin with to name one document wherever it stands; `README.md` is the name of many."""

_KEYS: dict[str, Callable[[Document], Any]] = {
    "content": lambda document: ("content", document.content) if document.content else None,
    "url": lambda document: ("url", document.url) if re.match(_ABSOLUTE, document.url) else None,
    "id": lambda document: ("id", document.id) if document.id else None,
    "title": lambda document: ("title", document.title.casefold()) if document.title else None,
}
