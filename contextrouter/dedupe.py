"""Step 4: one envelope per distinct document, with the word of every list on it. Pure; the result does not depend on arrival.

Within a source a document is known by its id; across sources by what it says: url, snippet and content all equal, which is
what the SHA-256 fingerprint stands for. Comparing texts inside a bucket of equal urls decides the same question without hashing
every document, which would be most of the router's work; and an envelope is sealed when somebody looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from contextrouter.model import Document, Envelope, Hit, Provenance, RankedList


def dedupe(lists: Sequence[RankedList], identity: str = "exact") -> Pool:
    """Return the distinct documents, in the order in which they are first met in `lists`, as envelopes sealed on sight.

    `identity` says when documents of different sources are one: "exact" (url, snippet, content), "content", "url", "id" or
    "title"; a document that lacks the field is compared exactly. Of merged copies the best-ranked is kept, and all provenance.
    """
    pool = Pool(lists)
    if identity == "exact":
        pool.group_by_text()
        if pool.ids_agree():
            return pool
    pool.group_by_id_then(_KEYS.get(identity))
    return pool


class Pool(Sequence[Envelope]):
    """Distinct documents as numbers: `groups[n][i]` is that of the i-th hit of list n. Indexing seals an envelope."""

    __slots__ = ("_appearances", "_scales", "_sealed", "first", "groups", "lists", "size")

    def __init__(self, lists: Sequence[RankedList]) -> None:
        self.lists = lists
        self.groups: list[list[int]] = []
        self.size = 0
        self.first: list[Document] = []
        self._appearances: dict[int, list[tuple[int, int]]] = {}
        self._scales: dict[int, Callable[[int], float]] = {}
        self._sealed: dict[int, Envelope] = {}

    def group_by_text(self) -> None:
        """Number documents by url, snippet and content, longer keys only where shorter ones collide."""
        index: dict[Any, int] = {}
        get = index.get
        documents = self.first
        add = documents.append
        count = 0
        for ranked in self.lists:
            numbers: list[int] = []
            number = numbers.append
            for document in [hit.document for hit in ranked.hits]:
                key: Any = document.url
                at = get(key)
                if at is not None:
                    at, key = _tied(index, documents, document, at)
                if at is None:
                    index[key] = at = count
                    count += 1
                    add(document)
                number(at)
            self.groups.append(numbers)
        self.size = count

    def ids_agree(self) -> bool:
        """Whether every id of a source names one document, so that numbering by text numbered by id as well."""
        by_source: dict[str, list[int]] = {}
        for number, ranked in enumerate(self.lists):
            by_source.setdefault(ranked.source, []).append(number)
        for numbers in by_source.values():
            ids = [[hit.document.id for hit in self.lists[n].hits] for n in numbers]
            if len(numbers) == 1 and len(set(ids[0])) == len(ids[0]):
                continue
            known: dict[str, int] = {}
            for n, names in zip(numbers, ids, strict=True):
                known.update(zip(names, self.groups[n], strict=True))
            for n, names in zip(numbers, ids, strict=True):
                if [known[name] for name in names] != self.groups[n] and not self._blank_ids_differ(n, names, known):
                    return False
        return True

    def _blank_ids_differ(self, n: int, names: Sequence[str], known: Mapping[str, int]) -> bool:
        """Whether only documents without an id differ, which no id can name."""
        return all(not name or known[name] == group for name, group in zip(names, self.groups[n], strict=True))

    def group_by_id_then(self, key_of: Callable[[Document], Any] | None) -> None:
        """Number documents by id within a source; then number their best-ranked copies by `key_of`, or by text."""
        at_of, copies = self._by_id()
        self.groups, self.first = [], []
        index: dict[Any, int] = {}
        joined: dict[int, int] = {}
        best: list[Document] = []
        for ranked, places in zip(self.lists, at_of, strict=True):
            numbers = []
            for place, _ in zip(places, ranked.hits, strict=True):
                if place not in joined:
                    joined[place] = _number(index, best, copies[place], key_of)
                numbers.append(joined[place])
            self.groups.append(numbers)
        self.first, self.size = best, len(best)

    def _by_id(self) -> tuple[list[list[int]], list[Document]]:
        """Documents of one source with one id share a number; and the best-ranked copy of each."""
        places: list[list[int]] = []
        known: dict[tuple[str, str], int] = {}
        ranks: list[tuple[int, str, str]] = []
        copies: list[Document] = []
        for ranked in self.lists:
            own = []
            for position, hit in enumerate(ranked.hits):
                document = hit.document
                name = (ranked.source, document.id)
                place = known.get(name) if document.id else None
                rank = (position, ranked.leg, ranked.query)
                if place is None:
                    place = len(copies)
                    copies.append(document)
                    ranks.append(rank)
                    if document.id:
                        known[name] = place
                elif rank < ranks[place]:
                    ranks[place], copies[place] = rank, document
                own.append(place)
            places.append(own)
        return places, copies

    def appearances(self, number: int) -> list[tuple[int, int]]:
        """Where a document stood: (list, position), each list once, at its best."""
        found = self._appearances.get(number)
        if found is None:
            self.look_up([number])
            found = self._appearances[number]
        return found

    def look_up(self, numbers: Sequence[int]) -> None:
        """Find where these documents stood, all in one pass over the lists."""
        known = self._appearances
        wanted = {number for number in numbers if number not in known}
        if not wanted:
            return
        for number in wanted:
            known[number] = []
        few = len(wanted) < 64
        for at, group in enumerate(self.groups):
            if few:
                for number in wanted.intersection(group):
                    known[number].append((at, group.index(number)))
                continue
            for position, number in enumerate(group):
                if number in wanted:
                    places = known[number]
                    if not places or places[-1][0] != at:
                        places.append((at, position))

    def scaled(self, number: int) -> Callable[[int], float]:
        """A function from a position in list `number` to the score in [0, 1] there."""
        if number not in self._scales:
            self._scales[number] = _scale(self.lists[number])
        return self._scales[number]

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        if isinstance(index, slice):
            return [self[i] for i in range(self.size)[index]]
        number = range(self.size)[index]
        sealed = self._sealed.get(number)
        if sealed is None:
            sealed = self._sealed[number] = self.seal(number)
        return sealed

    def seal(self, number: int, score: float = 0.0, normalized: float = 0.0) -> Envelope:
        """The envelope of one document, with a score."""
        places = self.appearances(number)
        if len(places) == 1:
            list_number, position = places[0]
            hit = self.lists[list_number].hits[position]
            return Envelope(
                document=hit.document, provenance=(self._stamp(list_number, position, hit),), score=score, normalized=normalized,
                highlights=hit.highlights, vector=hit.vector,
            )  # fmt: skip
        lists = self.lists
        places = sorted(places, key=lambda at: (at[1], lists[at[0]].source, lists[at[0]].leg, lists[at[0]].query))
        hits = [lists[list_number].hits[position] for list_number, position in places]
        return Envelope(
            document=hits[0].document, score=score, normalized=normalized,
            provenance=tuple([self._stamp(n, position, hit) for (n, position), hit in zip(places, hits, strict=True)]),
            highlights=tuple(dict.fromkeys(text for hit in hits for text in hit.highlights)),
            vector=next((hit.vector for hit in hits if hit.vector is not None), None),
        )  # fmt: skip

    def _stamp(self, number: int, position: int, hit: Hit) -> Provenance:
        ranked = self.lists[number]
        return Provenance(
            source=ranked.source, leg=ranked.leg, query=ranked.query, rank=position + 1, score=hit.score,
            normalized=self.scaled(number)(position), weight=ranked.weight, retrieved_at=ranked.retrieved_at,
        )  # fmt: skip


def _tied(index: dict[Any, int], documents: list[Document], document: Document, at: int) -> tuple[int | None, Any]:
    """For a document whose url is known: the number of the equal one, or None and the key to enter it under."""
    url, snippet, content = document.url, document.snippet, document.content
    other = documents[at]
    if other.content == content and other.snippet == snippet:
        return at, None
    key: Any
    for key in ((url, snippet), (url, snippet, content)):
        found = index.get(key)
        if found is None:
            return None, key
        other = documents[found]
        if other.content == content and other.snippet == snippet:
            return found, None
    return None, key


def _number(index: dict[Any, int], best: list[Document], document: Document, key_of: Callable[[Document], Any] | None) -> int:
    key = key_of(document) if key_of else None
    at = index.get(key) if key is not None else None
    if key is None:
        key = document.url
        at = index.get(key)
        if at is not None:
            at, key = _tied(index, best, document, at)
    if at is None:
        at = index[key] = len(best)
        best.append(document)
    return at


_KEYS: dict[str, Callable[[Document], Any]] = {
    "content": lambda document: ("content", document.content) if document.content else None,
    "url": lambda document: ("url", document.url) if document.url else None,
    "id": lambda document: ("id", document.id) if document.id else None,
    "title": lambda document: ("title", document.title.casefold()) if document.title else None,
}


def _scale(ranked: RankedList) -> Callable[[int], float]:
    """From a position to the score in [0, 1] within the list.

    A declared range beats min-max; a list of one, or of equal scores, is all 1.0. Where a score is missing or not finite,
    the whole list is scaled by rank instead: no arithmetic on what is not there, and the source's order holds.
    """
    numbers: list[float] = [hit.score for hit in ranked.hits]  # type: ignore[misc]
    if None in numbers or not all(map(math.isfinite, numbers)):
        size = len(numbers)
        return lambda position: (size - position) / size
    low, high = ranked.score_range or (min(numbers), max(numbers))
    spread = high - low
    if not spread > 0:
        return lambda position: 1.0
    return lambda position: min(1.0, max(0.0, (numbers[position] - low) / spread))
