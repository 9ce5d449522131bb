"""Step 4: one envelope per distinct document, with the word of every list on it. Pure; the result does not
depend on arrival.

Within a source a document is known by its tenant and id, whatever its copies say; across sources by what the
first copy says: url, snippet and content all equal, which is what the SHA-256 fingerprint stands for.
Comparing the texts of documents that share a url decides the same question without hashing them, which would
be most of the router's work; and an envelope is sealed when somebody looks at it.
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
_Key = Callable[[Document], Any]
_Common = tuple[Sequence[Hit], str, str, str, float, datetime | None, Sequence[float], float, float]
"""Hits, source, leg, query, weight and time of a list; the values of its hits, the lowest, and how far they
are spread.
"""


def dedupe(lists: Sequence[RankedList], identity: str = "exact") -> Pool:
    """Return the distinct documents as envelopes sealed on sight, in the order of the names and ranks of the
    lists they are in.

    `identity` says when documents of different sources are one: "exact" (url, snippet, content), "content",
    "url", "id" or "title"; a document that lacks the field, or whose url is not absolute, is compared
    exactly. Of merged copies the best-ranked is kept, and all provenance.
    """
    return Pool(lists, _KEYS.get(identity))


class Pool(Sequence[Envelope]):
    """Distinct documents. Indexing seals an envelope.

    `lists` are in the order of their names. Hits are counted through them all: the one at `position` holds
    `documents[position]`, and `starts[n]` is the position of the first hit of list n. The number of a
    document is the position at which it is first met; `numbers[n]` are those of list n; where they are a
    range, all are met for the first time. `again` are the numbers of documents that are met again, at the
    positions `again_at`. `places[number]` is where a document stood, as (list, index), once it was looked up.
    """

    __slots__ = (
        "_common",
        "_firsts",
        "_given",
        "_key_of",
        "_sealed",
        "again",
        "again_at",
        "documents",
        "lists",
        "numbers",
        "places",
        "starts",
    )

    def __init__(self, lists: Iterable[RankedList], key_of: _Key | None = None) -> None:
        self.lists = sorted(lists, key=_NAME)
        self._given = len(self.lists)
        self.starts: list[int] = []
        self.places: dict[int, list[tuple[int, int]]] = {}
        self._common: dict[int, _Common] = {}
        self._sealed: dict[int, Envelope] = {}
        self._firsts: Sequence[int] | None = None
        self._key_of = key_of  # None: documents of different sources are compared exactly
        self.documents: list[Document] = []
        self.numbers: list[Sequence[int]] = []
        self.again: list[int] = []
        self.again_at: list[int] = []
        self._number()

    def _number(self) -> None:
        """Give each document its number: by its id within a source, else by its text."""
        index: dict[Any, int] = {}  # what a document says -> its number
        by_id: dict[Any, int] = {}  # where a source first gave an id
        at: list[int] = []  # the number at each position
        names = [None, *[ranked.source for ranked in self.lists], None]
        for n, ranked in enumerate(self.lists):
            documents = [hit.document for hit in ranked.hits]
            start = len(at)
            positions = range(start, start + len(documents))
            self.starts.append(start)
            self.documents += documents
            ids = [d.id if not d.tenant or not d.id else (d.id, d.tenant) for d in documents]
            firsts: Sequence[int] = positions
            if names[n] != ranked.source:
                by_id = {}
            if names[n] == ranked.source or names[n + 2] == ranked.source or len({*ids}) < len(ids):
                known = len(by_id)
                firsts = [*map(by_id.setdefault, ids, positions)]
                if by_id.pop("", None) is not None:  # a blank id names nothing
                    firsts = [
                        first if name else here
                        for first, name, here in zip(firsts, ids, positions, strict=True)
                    ]
                elif len(by_id) - known == len(ids):
                    firsts = positions
            if firsts is positions:
                numbers = self._by_text(index, documents, positions)
            elif max(firsts) < start:
                numbers = [at[first] for first in firsts]
                self.again += numbers
                self.again_at += positions
            else:
                numbers = self._by_either(index, documents, positions, firsts, at)
            self.numbers.append(numbers)
            at[start:] = numbers

    def _by_text(self, index: dict[Any, int], documents: list[Document], positions: range) -> Sequence[int]:
        """The numbers of a list of documents that their source has not given before."""
        known = len(index)
        numbers = [*map(index.setdefault, self._keys(documents), positions)]
        if len(index) - known == len(documents):
            return positions
        again, again_at, start, everything = (
            self.again.append,
            self.again_at.append,
            positions.start,
            self.documents,
        )
        exact = self._key_of is None
        for position, number in enumerate(numbers, start):
            if number == position:
                continue
            if exact:
                document, other = everything[position], everything[number]
                if other.content != document.content or other.snippet != document.snippet:
                    number = numbers[position - start] = index.setdefault(_text(document), position)
                    if number == position:
                        continue
            again(number)
            again_at(position)
        return numbers

    def _by_either(
        self,
        index: dict[Any, int],
        documents: list[Document],
        positions: range,
        firsts: Sequence[int],
        at: list[int],
    ) -> list[int]:
        """The numbers of a list of documents of which their source has given some before, at `firsts`."""
        at += positions
        new = [first == position for first, position in zip(firsts, positions, strict=True)]
        where = [*compress(positions, new)]
        subset = [*compress(documents, new)]
        for document, position, number in zip(
            subset, where, map(index.setdefault, self._keys(subset), where), strict=True
        ):
            other = self.documents[number]
            if self._key_of is None and (
                other.content != document.content or other.snippet != document.snippet
            ):
                number = index.setdefault(_text(document), position)
            at[position] = number
        for position, first in zip(positions, firsts, strict=True):
            number = at[position] = at[first]
            if number != position:
                self.again.append(number)
                self.again_at.append(position)
        return at[positions.start :]

    def _keys(self, documents: list[Document]) -> list[Any]:
        """What documents have in common that may be one."""
        if self._key_of is None:  # what has no url is never under a key with what has one
            return [document.url or (document.snippet or document.content,) for document in documents]
        keys = map(self._key_of, documents)
        return [
            _text(document) if key is None else key for document, key in zip(documents, keys, strict=True)
        ]

    def also(self, ranked: RankedList, numbers: Sequence[int]) -> None:
        """Add a list of documents that are here already, by number. It speaks of them and is not where they
        come from.
        """
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
            for number, position in compress(
                zip(self.again, self.again_at, strict=True), map(wanted.__contains__, self.again)
            ):
                n, found = bisect_right(starts, position) - 1, places[number]
                if found[-1][0] < n:
                    found.append((n, position - starts[n]))

    def scaled(self, n: int, indexes: Iterable[int]) -> list[float]:
        """The scores of these hits of list n, scaled to [0, 1] within the list."""
        *_, values, low, spread = self._common.get(n) or self._common_to(n)
        return [(values[index] - low) / spread for index in indexes]

    def _common_to(self, n: int) -> _Common:
        """What the provenance of every hit of a list says, and how what speaks for them is brought to [0, 1].

        A declared range beats min-max; a list of one, or of equal scores, is all 1.0. Where a score is
        missing or not finite, or they are too far apart for a number, the whole list is scaled by rank: no
        arithmetic on what is not there.
        """
        ranked = self.lists[n]
        values: Sequence[Any] = [hit.score for hit in ranked.hits]
        try:
            ordered = sorted(values)
            lowest, highest = ordered[0], ordered[-1]
            low, high = ranked.score_range or (lowest, highest)
            spread = high - low
            finite = isfinite(spread) and (
                isfinite(sum(values)) or all(map(isfinite, values))
            )  # a sum may be beyond all numbers
        except (TypeError, OverflowError, IndexError):
            finite = False
        if not finite:
            values, low, spread = range(len(values), 0, -1), 0.0, len(values)
        elif not spread:
            values, low, spread = [1.0] * len(values), 0.0, 1.0
        elif lowest < low or highest > high:
            values = [min(high, max(low, value)) for value in values]
        common = self._common[n] = (
            ranked.hits,
            ranked.source,
            ranked.leg,
            ranked.query,
            ranked.weight,
            ranked.retrieved_at,
            values,
            low,
            spread,
        )
        return common

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

    def seal(
        self, numbers: Sequence[int], scores: Sequence[float], most: Mapping[str, float] = _NOTHING
    ) -> list[Envelope]:
        """The envelopes of these documents, with these scores. `most` is what each source can give to a score
        at best.
        """
        self.look_up(numbers)
        lists, common, common_to = self.lists, self._common, self._common_to
        standing: Any = self._standing if len(lists) > self._given else _RANK
        made: list[Envelope] = []
        for number, score in zip(numbers, scores, strict=True):
            places = self.places[number]
            if len(places) == 1:
                possible = most.get(lists[places[0][0]].source, 0.0)
            else:
                possible, source = 0.0, None
                for n, _ in places:  # in the order of names, so those of one source follow each other
                    if lists[n].source != source:
                        source = lists[n].source
                        possible += most.get(source, 0.0)
                places = sorted(places, key=standing)
            stamps: tuple[Provenance, ...] = ()
            for n, index in places:
                hits, source, leg, query, weight, at, values, low, spread = common.get(n) or common_to(n)
                hit = hits[index]
                stamp = Provenance(
                    source=source,
                    leg=leg,
                    query=query,
                    rank=index + 1,
                    score=hit.score,
                    normalized=(values[index] - low) / spread,
                    weight=weight,
                    retrieved_at=at,
                )
                if not stamps:
                    best, highlights, vector, stamps = hit, hit.highlights, hit.vector, (stamp,)
                    continue
                stamps += (stamp,)
                if hit.highlights:
                    highlights = tuple(dict.fromkeys((*highlights, *hit.highlights)))
                if vector is None:
                    vector = hit.vector
            made.append(
                Envelope(
                    document=best.document,
                    provenance=stamps,
                    score=score,
                    normalized=min(1.0, score / possible) if possible else 0.0,
                    highlights=highlights,
                    vector=vector,
                )
            )
        return made

    def _standing(self, place: tuple[int, int]) -> tuple[bool, int]:
        """By rank; behind all sources what was added."""
        return place[0] >= self._given, place[1]


_NAME = attrgetter("source", "leg", "query")
_RANK: Any = itemgetter(1)


def _text(document: Document) -> tuple[str, str, str]:
    return document.url, document.snippet, document.content


_ABSOLUTE = r"(?i)[a-z][a-z0-9+.-]+://.|urn:.|doi:."
"""What a url has to begin with to name one document wherever it stands; `README.md` is the name of many."""

_KEYS: dict[str, _Key] = {
    "content": lambda document: ("content", document.content) if document.content else None,
    "url": lambda document: ("url", document.url) if re.match(_ABSOLUTE, document.url) else None,
    "id": lambda document: ("id", document.id) if document.id else None,
    "title": lambda document: ("title", document.title.casefold()) if document.title else None,
}
