"""Step 5: one order out of many lists. Pure.

Level 1 fuses the lists of one source (its legs, and the queries on each); level 2 fuses the sources, each now one list.
Where a single source answered, level 1 is the whole of it; `levels = 1` fuses all lists flat.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): a list of weight w gives w / (k + rank). Weighted: w times the score
scaled to [0, 1] within the list. A list that does not hold a document says nothing about it.

The order is total: score, best rank, order of the sources, fingerprint. It never depends on arrival or on hashes of strings:
lists are added up in the order of their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple, Protocol, overload

from contextrouter.dedupe import Pool
from contextrouter.lanes import Dropped, Lane
from contextrouter.model import Envelope
from contextrouter.settings import Rag

NO_WEIGHT = "only found by lists of weight 0"


def fuse(
    envelopes: Sequence[Envelope],
    rag: Rag,
    *,
    profiles: Mapping[str, Mapping[str, float]] | None = None,
    sources: Sequence[str] = (),
) -> Lane:
    """Return the envelopes best first, with `score` and `normalized` set; those found by nothing that counts come last, dropped.

    `envelopes` come from `dedupe`, or are any that are sealed. `profiles` maps a source to the leg weights of its embedder's
    profile; `sources` gives the order that breaks ties. `normalized` is the score ÷ the most it could be over the lists of the
    sources that returned the document.
    """
    table: _Table = _PoolTable(envelopes) if isinstance(envelopes, Pool) else _SealedTable(envelopes)
    weighed = _weighed(table.lists(), rag, profiles or {})
    counting = [entry for entry in weighed if entry.weight > 0 and entry.source_weight > 0]
    scores, most = _Sum(table, counting, rag).of(len(envelopes))
    live: Sequence[int] = range(len(envelopes))
    lost: list[int] = []
    if len(counting) < len(weighed):
        named = {number for entry in counting for number in entry.numbers}
        live, lost = sorted(named), [number for number in live if number not in named]
    ranked = Ranked(table, scores, most, live, {name: index for index, name in enumerate(sources)})
    return Lane(ranked, Dropped([envelopes[number] for number in lost], 0, NO_WEIGHT) if lost else ())


class _List(NamedTuple):
    """One ranked list: which documents it names, by number, at which ranks (None: 1, 2, 3 …) with which scaled scores."""

    source: str
    leg: str
    query: str
    source_weight: float
    numbers: Sequence[int]
    ranks: Sequence[int] | None
    scaled: Sequence[float] | None
    weight: float = 1.0  # within its source


class _Table(Protocol):
    """What fusion needs to know of the documents and their lists."""

    def lists(self) -> list[_List]: ...
    def scaled(self, entry: _List) -> Sequence[float]: ...
    def places(self, number: int) -> list[tuple[int, str]]: ...
    def look_up(self, numbers: Sequence[int]) -> None: ...
    def seal(self, number: int, score: float, normalized: float) -> Envelope: ...


class _PoolTable:
    """Documents fresh from dedupe, whose envelopes are not sealed yet."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.once = sum(map(len, pool.groups)) == pool.size

    def lists(self) -> list[_List]:
        return [self._list(n) for n, ranked in enumerate(self.pool.lists) if ranked.hits]

    def _list(self, n: int) -> _List:
        ranked, numbers = self.pool.lists[n], self.pool.groups[n]
        ranks: list[int] | None = None
        if not self.once and len(set(numbers)) < len(numbers):  # several copies in one list count once, at their best rank
            best = {number: rank for rank, number in zip(range(len(numbers), 0, -1), reversed(numbers), strict=True)}
            numbers, ranks = list(best), list(best.values())
        return _List(ranked.source, ranked.leg, ranked.query, ranked.weight, numbers, ranks, None)

    def scaled(self, entry: _List) -> Sequence[float]:
        """The scaled scores of a list, in its order; only weighted fusion asks."""
        pool = self.pool
        n = next(
            i for i, r in enumerate(pool.lists) if r.hits and (r.source, r.leg, r.query) == (entry.source, entry.leg, entry.query)
        )  # fmt: skip
        scale = pool.scaled(n)
        positions = range(len(entry.numbers)) if entry.ranks is None else [rank - 1 for rank in entry.ranks]
        return [scale(position) for position in positions]

    def look_up(self, numbers: Sequence[int]) -> None:
        self.pool.look_up(numbers)

    def places(self, number: int) -> list[tuple[int, str]]:
        lists = self.pool.lists
        return [(position + 1, lists[n].source) for n, position in self.pool.appearances(number)]

    def seal(self, number: int, score: float, normalized: float) -> Envelope:
        return self.pool.seal(number, score, normalized)


class _SealedTable:
    """Documents that are sealed already, by whatever step."""

    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        self.envelopes = envelopes

    def lists(self) -> list[_List]:
        found: dict[tuple[str, str, str], _List] = {}
        for number, envelope in enumerate(self.envelopes):
            for p in envelope.provenance:
                key = (p.source, p.leg, p.query)
                if key not in found:
                    found[key] = _List(*key, p.weight, [], [], [])
                entry = found[key]
                entry.numbers.append(number)  # type: ignore[attr-defined]
                entry.ranks.append(p.rank)  # type: ignore[union-attr]
                entry.scaled.append(p.normalized or 0.0)  # type: ignore[union-attr]
        return list(found.values())

    def scaled(self, entry: _List) -> Sequence[float]:
        assert entry.scaled is not None
        return entry.scaled

    def look_up(self, numbers: Sequence[int]) -> None:
        """Nothing to do: provenance is at hand."""

    def places(self, number: int) -> list[tuple[int, str]]:
        return [(p.rank, p.source) for p in self.envelopes[number].provenance]

    def seal(self, number: int, score: float, normalized: float) -> Envelope:
        return self.envelopes[number].scored(score, normalized)


def _weighed(lists: list[_List], rag: Rag, profiles: Mapping[str, Mapping[str, float]]) -> list[_List]:
    """The lists in the order of their names, each with its weight: the leg's, shared by the queries that found something on it."""
    queries: dict[tuple[str, str], int] = {}
    for entry in lists:
        key = (entry.source, entry.leg)
        queries[key] = queries.get(key, 0) + 1
    weight = {(s, leg): leg_weight(s, leg, rag, profiles.get(s, {})) / count for (s, leg), count in queries.items()}
    ordered = sorted(lists, key=lambda entry: entry[:3])
    return [entry._replace(weight=weight[entry.source, entry.leg]) for entry in ordered]


def leg_weight(source: str, leg: str, rag: Rag, profile: Mapping[str, float]) -> float:
    """The weight of a leg: `[rag.leg_weights]` by "source.leg" or "leg"; in weighted mode `hybrid_…_weight`; else the profile."""
    if rag.leg_weights:
        for key in (f"{source}.{leg}", leg):
            if key in rag.leg_weights:
                return rag.leg_weights[key]
    if rag.hybrid_fusion == "weighted":
        if leg == "vector":
            return rag.hybrid_vector_weight
        if leg == "text":
            return rag.hybrid_text_weight
    return profile.get(leg, 1.0)


class _Sum:
    """Adds the lists up, source by source."""

    def __init__(self, table: _Table, lists: Sequence[_List], rag: Rag) -> None:
        self.table, self.k, self.rrf = table, rag.rrf_k, rag.hybrid_fusion == "rrf"
        self.by_source: dict[str, list[_List]] = {}
        for entry in lists:
            self.by_source.setdefault(entry.source, []).append(entry)
        self.flat = rag.levels == 1 or len(self.by_source) == 1
        self.single = len(self.by_source) == 1
        self._shares: dict[float, list[float]] = {}

    def of(self, size: int) -> tuple[list[float], dict[str, float]]:
        """The score of every document, and the most that each source can give."""
        scores = [0.0] * size
        most: dict[str, float] = {}
        best = 1.0 / (self.k + 1) if self.rrf else 1.0
        for source, lists in self.by_source.items():
            weight = 1.0 if self.single else lists[0].source_weight
            if self.flat or len(lists) == 1:
                own = [entry.weight * weight if self.flat else weight for entry in lists]
                for entry, share in zip(lists, own, strict=True):
                    for number, value in zip(entry.numbers, self._values(entry, share), strict=False):
                        scores[number] += value
                most[source] = sum(own) * best
            else:
                self._second_level(lists, weight, scores)
                most[source] = weight * best
        return scores, most

    def _values(self, entry: _List, weight: float) -> Sequence[float]:
        """What a list of this weight gives to each of its documents."""
        if not self.rrf:
            return [weight * value for value in self.table.scaled(entry)]
        if entry.ranks is not None:
            k = self.k
            return [weight / (k + rank) for rank in entry.ranks]
        shares = self._shares.get(weight)
        if shares is None or len(shares) < len(entry.numbers):
            k = self.k
            shares = self._shares[weight] = [weight / (k + rank) for rank in range(1, len(entry.numbers) + 1)]
        return shares

    def _second_level(self, lists: Sequence[_List], weight: float, scores: list[float]) -> None:
        """Fuse the lists of one source; its order, in which equal scores share a rank, gives to the whole."""
        within: dict[int, float] = {}
        get = within.get
        for entry in lists:
            for number, value in zip(entry.numbers, self._values(entry, entry.weight), strict=False):
                within[number] = get(number, 0.0) + value
        if not self.rrf:
            most = sum(entry.weight for entry in lists)
            for number, value in within.items():
                scores[number] += weight * value / most
            return
        rank, before = 0, -1.0
        for index, (number, value) in enumerate(sorted(within.items(), key=_value, reverse=True), 1):
            if value != before:
                rank, before = index, value
            scores[number] += weight / (self.k + rank)


def _value(pair: tuple[int, float]) -> float:
    return pair[1]


class Ranked(Sequence[Envelope]):
    """Documents by score. Only as much is put in order, and sealed, as is looked at."""

    def __init__(
        self, table: _Table, scores: Sequence[float], most: Mapping[str, float], live: Sequence[int], order: Mapping[str, int]
    ) -> None:
        self._table, self._scores, self._most, self._live, self._sources = table, scores, most, live, order
        self._ordered: list[int] = []  # the best so far, or all
        self._sealed: dict[int, Envelope] = {}

    def __len__(self) -> int:
        return len(self._live)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        at = range(len(self._live))[index]
        if isinstance(at, int):
            self._order(at + 1)
            return self._envelope(self._ordered[at])
        if at:
            self._order(max(at) + 1)
        return [self._envelope(self._ordered[i]) for i in at]

    def _order(self, count: int) -> None:
        """Make sure that the best `count` are in order."""
        if len(self._ordered) >= count:
            return
        numbers = self._live
        scores = self._scores
        if count * 4 < len(numbers) and not self._ordered:
            worst = nlargest(count, scores)[-1]
            numbers = [number for number in numbers if scores[number] >= worst]
        ordered = sorted(numbers, key=scores.__getitem__, reverse=True)
        self._table.look_up(ordered)
        start = 0
        for end in range(1, len(ordered) + 1):
            if end == len(ordered) or scores[ordered[end]] != scores[ordered[start]]:
                if end - start > 1:
                    ordered[start:end] = self._untied(ordered[start:end])
                start = end
        self._ordered = ordered

    def _untied(self, numbers: list[int]) -> list[int]:
        """Order equal scores by best rank, then source; what is still tied by fingerprint. Nothing else is hashed."""
        keyed: dict[tuple[int, int, str], list[int]] = {}
        for number in numbers:
            places = [
                (rank, self._sources.get(s, len(self._sources)), s) for rank, s in self._table.places(number) if s in self._most
            ]
            keyed.setdefault(min(places), []).append(number)
        ordered: list[int] = []
        for _, tied in sorted(keyed.items()):
            ordered.extend(tied if len(tied) == 1 else sorted(tied, key=lambda number: self._envelope(number).id))
        return ordered

    def _envelope(self, number: int) -> Envelope:
        envelope = self._sealed.get(number)
        if envelope is None:
            score = self._scores[number]
            places = self._table.places(number)
            if len(places) == 1:
                most = self._most[places[0][1]]
            else:
                most = sum([self._most.get(source, 0.0) for source in sorted({source for _, source in places})])
            envelope = self._sealed[number] = self._table.seal(number, score, min(1.0, score / most) if most else 0.0)
        return envelope
