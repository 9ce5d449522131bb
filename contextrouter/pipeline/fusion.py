"""Step 5: one order out of many lists. Pure.

Level 1 fuses the lists of one source: its legs, and the queries on each, of which the question itself
decides. Level 2 fuses the sources, each now one list. Where a single source answered, level 1 is the whole of
it; `levels = 1` fuses all lists flat.

Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): a list of weight w gives w / (k + rank). Weighted:
w times the score scaled to [0, 1] within the list. A list that does not hold a document says nothing about
it.

The order is total: score, best rank, order of the sources, then the names of the lists (leg, query) that gave
that rank. It never depends on arrival or on hashes of strings: lists are added up in the order of their
names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat, zip_longest
from operator import add
from typing import Protocol, overload

from contextrouter.model import Envelope
from contextrouter.pipeline.deduplication import Pool
from contextrouter.pipeline.lanes import Dropped, Lane
from contextrouter.settings import Rag

_NO_PROFILE: Mapping[str, float] = {}
FEW = 1000
"""So many scores are sorted sooner than it is thought over which of them to sort."""
NO_WEIGHT = "only found by lists of weight 0"


def fuse(
    envelopes: Sequence[Envelope],
    rag: Rag,
    *,
    profiles: Mapping[str, Mapping[str, float]] | None = None,
    sources: Sequence[str] = (),
    question: str = "",
) -> Lane:
    """Return the envelopes best first, with `score` and `normalized` set; those found by nothing that counts
    come last, dropped.

    `envelopes` come from `dedupe`, or are any that are sealed. `profiles` maps a source to the leg weights of
    its embedder's profile; `sources` gives the order that breaks ties; what other queries than `question`
    found weighs `derived_query_weight` beside what it found itself ("": all queries weigh alike).

    `normalized` is the score ÷ the most it could be over the lists of the sources that returned the document.
    """
    table: _Table = _PoolTable(envelopes) if isinstance(envelopes, Pool) else _SealedTable(envelopes)
    lists = table.lists()
    _weigh(lists, rag, profiles or {}, question)
    counting = [entry for entry in lists if entry.weight > 0 and entry.source_weight > 0]
    added = _Sum(table, counting, rag)
    scores, most = added.of(table.size)
    ordered: list[_List] = counting
    if not added.single:
        place = {name: index for index, name in enumerate(sources)}
        named = sorted(
            added.by_source, key=lambda name: place.get(name, len(place))
        )  # those not given last, by name
        ordered = [entry for name in named for entry in added.by_source[name]]
    if len(counting) == len(lists):
        shared = table.shared() if rag.hybrid_fusion == "rrf" else None
        return Lane(Ranked(table, scores, most, ordered, len(envelopes), shared))
    live = {number for entry in counting for number in entry.numbers}
    lost = [
        envelope for number, envelope in zip(table.numbers(), envelopes, strict=True) if number not in live
    ]
    return Lane(Ranked(table, scores, most, ordered, len(live)), Dropped(lost, 0, NO_WEIGHT) if lost else ())


class _List:
    """One ranked list: which documents it names, by number, at which ranks (None: 1, 2, 3 …)."""

    __slots__ = ("leg_of", "n", "numbers", "query", "ranks", "source", "source_weight", "weight")

    def __init__(
        self,
        n: int,
        source: str,
        leg: str,
        query: str,
        weight: float,
        numbers: Sequence[int],
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.n, self.source, self.leg_of, self.query = n, source, (source, leg), query
        self.source_weight, self.numbers, self.ranks = weight, numbers, ranks
        self.weight = 1.0  # within its source

    def by_rank(self, depth: int | None = None) -> Sequence[int | None]:
        """Its documents down to rank `depth`, the one of rank r at r - 1; None where a worse copy of one
        stood.
        """
        if self.ranks is None:
            return self.numbers[:depth]
        ranks = self.ranks[: None if depth is None else bisect_right(self.ranks, depth)]
        places: list[int | None] = [None] * max(ranks, default=0)
        for number, rank in zip(self.numbers, ranks, strict=False):
            places[rank - 1] = number
        return places


class _Table(Protocol):
    """What fusion needs to know of the documents, which go by numbers below `size`, and of their lists."""

    size: int

    def lists(self) -> list[_List]: ...
    def numbers(self) -> Sequence[int]: ...
    def shared(self) -> Collection[int] | None: ...
    def scaled(self, entry: _List) -> Sequence[float]: ...
    def seal(
        self, numbers: Sequence[int], scores: Sequence[float], most: Mapping[str, float]
    ) -> list[Envelope]: ...


class _PoolTable:
    """Documents fresh from dedupe, whose envelopes are not sealed yet."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.size = len(pool.documents)
        self.numbers, self.seal = pool.firsts, pool.seal

    def lists(self) -> list[_List]:
        """The lists of the sources that found something: a query that found nothing on a leg has its share of
        the leg's weight.
        """
        made = []
        pool = self.pool
        answered = {ranked.source for ranked in pool.lists if ranked.hits}
        for n, (ranked, numbers) in enumerate(zip(pool.lists, pool.numbers, strict=True)):
            if ranked.source not in answered:
                continue
            ranks: list[int] | None = None
            if not isinstance(numbers, range) and len({*numbers}) < len(numbers):
                best: dict[int, int] = {}  # several copies in one list count once, at their best rank
                for rank, number in enumerate(numbers, 1):
                    best.setdefault(number, rank)
                numbers, ranks = list(best), list(best.values())
            made.append(_List(n, ranked.source, ranked.leg, ranked.query, ranked.weight, numbers, ranks))
        return made

    def shared(self) -> Collection[int] | None:
        """The documents that more than one hit holds."""
        return self.pool.again

    def scaled(self, entry: _List) -> Sequence[float]:
        """The scaled scores of a list, in its order; only weighted fusion asks."""
        return self.pool.scaled(
            entry.n, [rank - 1 for rank in entry.ranks] if entry.ranks else range(len(entry.numbers))
        )


class _SealedTable:
    """Documents that are sealed already, by whatever step."""

    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        self.envelopes, self.size = envelopes, len(envelopes)
        self._scaled: list[list[float]] = []

    def lists(self) -> list[_List]:
        found: dict[tuple[str, str, str], tuple[float, list[tuple[int, int, float]]]] = {}
        for number, envelope in enumerate(self.envelopes):
            for p in envelope.provenance:
                _, words = found.setdefault((p.source, p.leg, p.query), (p.weight, []))
                words.append((number, p.rank, p.normalized or 0.0))
        made = []
        for n, (name, (weight, words)) in enumerate(sorted(found.items())):
            numbers, ranks, scaled = map(list, zip(*words, strict=True))
            made.append(_List(n, *name, weight, numbers, ranks))
            self._scaled.append(scaled)
        return made

    def numbers(self) -> Sequence[int]:
        return range(self.size)

    def shared(self) -> Collection[int] | None:
        """Not known: the envelopes may be a part of what the lists held."""
        return None

    def scaled(self, entry: _List) -> Sequence[float]:
        return self._scaled[entry.n]

    def seal(
        self, numbers: Sequence[int], scores: Sequence[float], most: Mapping[str, float]
    ) -> list[Envelope]:
        made = []
        for number, score in zip(numbers, scores, strict=True):
            envelope = self.envelopes[number]
            possible = sum(
                [most.get(source, 0.0) for source in sorted({p.source for p in envelope.provenance})]
            )
            made.append(envelope.scored(score, min(1.0, score / possible) if possible else 0.0))
        return made


def _weigh(
    lists: Sequence[_List], rag: Rag, profiles: Mapping[str, Mapping[str, float]], question: str
) -> None:
    """Give each list its weight: the leg's, shared by the queries that were answered on it."""
    derived = rag.derived_query_weight if question else 1.0
    sums: dict[tuple[str, str], float] = {}
    for entry in lists:
        if entry.query != question:
            entry.weight = derived
        sums[entry.leg_of] = sums.get(entry.leg_of, 0.0) + entry.weight
    for name, total in sums.items():
        sums[name] = leg_weight(*name, rag, profiles.get(name[0], _NO_PROFILE)) / (total or 1.0)
    for entry in lists:
        entry.weight *= sums[entry.leg_of]


def leg_weight(source: str, leg: str, rag: Rag, profile: Mapping[str, float]) -> float:
    """The weight of a leg: `[rag.leg_weights]` by "source.leg" or "leg"; in weighted mode `hybrid_…_weight`;
    else the profile.
    """
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
        self.longest = max([len(entry.numbers) for entry in lists], default=0)
        self.by_source: dict[str, list[_List]] = {}
        for entry in lists:
            self.by_source.setdefault(entry.source, []).append(entry)
        self._shares: dict[float, Sequence[float]] = {}  # by the weight of a list
        self.single = len(self.by_source) == 1
        self.flat = rag.levels == 1 or self.single

    def of(self, size: int) -> tuple[list[float], dict[str, float]]:
        """The score of every document, and the most that each source can give."""
        scores = [0.0] * size
        most: dict[str, float] = {}
        best = 1.0 / (self.k + 1) if self.rrf else 1.0
        for source, lists in self.by_source.items():
            weight = 1.0 if self.single else lists[0].source_weight
            if not self.flat and len(lists) > 1:
                self._second_level(lists, weight, scores)
                most[source] = weight * best
                continue
            total = 0.0
            for entry in lists:
                own = entry.weight * weight if self.flat else weight
                total += own
                numbers, values = entry.numbers, self._shares.get(own) if entry.ranks is None else None
                if values is None:
                    values = self._values(entry, own)
                if isinstance(numbers, range):  # met for the first time, so nothing stands there yet
                    scores[numbers.start : numbers.stop] = values[: len(numbers)]
                else:
                    for number, value in zip(numbers, values, strict=False):
                        scores[number] += value
            most[source] = total * best
        return scores, most

    def _values(self, entry: _List, weight: float) -> Sequence[float]:
        """What a list of this weight gives to each of its documents; there may be more values than
        documents.
        """
        if not self.rrf:
            return [weight * value for value in self.table.scaled(entry)]
        if entry.ranks is not None:
            k = self.k
            return [weight / (k + rank) for rank in entry.ranks]
        shares = self._shares[weight] = _reciprocal(weight, self.k, self.longest)
        return shares

    def _second_level(self, lists: Sequence[_List], weight: float, scores: list[float]) -> None:
        """Fuse the lists of one source; its order, in which equal scores share a rank, gives to the whole."""
        within = dict(zip(lists[0].numbers, self._values(lists[0], lists[0].weight), strict=False))
        for entry in lists[1:]:
            before = map(within.get, entry.numbers, repeat(0.0))
            within.update(
                zip(entry.numbers, map(add, before, self._values(entry, entry.weight)), strict=False)
            )
        if not self.rrf:
            most = sum([entry.weight for entry in lists])
            for number, value in within.items():
                scores[number] += weight * value / most
            return
        ordered = sorted(within, key=within.__getitem__, reverse=True)
        shares = _reciprocal(weight, self.k, len(within))
        if len({*within.values()}) == len(within):
            for number, value in zip(ordered, shares, strict=False):
                scores[number] += value
            return
        rank, last = 0, -1.0
        for index, number in enumerate(ordered):
            value = within[number]
            if value != last:
                rank, last = index, value
            scores[number] += shares[rank]


def _reciprocal(weight: float, k: float, size: int) -> tuple[float, ...]:
    """What the ranks from 1 to `size`, or further, of a list of this weight give."""
    return _shares(weight, k, 1 << size.bit_length())


@lru_cache(maxsize=16)
def _shares(weight: float, k: float, size: int) -> tuple[float, ...]:
    return tuple([weight / (k + rank) for rank in range(1, size + 1)])


class Ranked(Sequence[Envelope]):
    """Documents by score. Only as much is put in order, and sealed, as is looked at.

    `lists` gave the scores, and stand in the order in which equal scores are told apart. `shared` are the
    documents that more than one list holds, where each list gives less to every later rank; None where that
    is not known.
    """

    def __init__(
        self,
        table: _Table,
        scores: Sequence[float],
        most: Mapping[str, float],
        lists: Sequence[_List],
        count: int,
        shared: Collection[int] | None = None,
    ) -> None:
        self._table, self._scores, self._most = table, scores, most
        self._lists, self._count, self._shared = lists, count, shared
        self._ordered: list[int] = []  # the best so far, or all
        self._sealed: dict[int, Envelope] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        at = range(self._count)[index]
        if isinstance(at, int):
            self._order(at + 1)
            return self._envelopes([self._ordered[at]])[0]
        if at:
            self._order(max(at[0], at[-1]) + 1)
        ordered = self._ordered
        return self._envelopes(ordered[at.start : at.stop] if at.step == 1 else [ordered[i] for i in at])

    def __iter__(self) -> Iterator[Envelope]:
        self._order(self._count)
        return iter(self._envelopes(self._ordered))

    def _order(self, count: int) -> None:
        """Make sure that the best `count` are in order. Sorting keeps the order in which equal scores
        come.
        """
        if len(self._ordered) >= count:
            return
        if self._ordered:
            count = self._count  # whoever looks twice may look on
        if count * 4 < self._count and self._shared is not None:
            numbers: Iterable[int] = self._best(count)
        else:
            numbers = dict.fromkeys([number for number in self._by_rank() if number is not None])
        ordered = sorted(numbers, key=self._scores.__getitem__, reverse=True)
        del ordered[count:]
        self._ordered = ordered

    def _by_rank(self, depth: int | None = None) -> Iterator[int | None]:
        """The documents of the lists by rank, down to `depth`, then the order of the lists; as often as they
        stand there.

        None where a list has ended. Each is met at its best rank first.
        """
        return chain.from_iterable(zip_longest(*[entry.by_rank(depth) for entry in self._lists]))

    def _best(self, count: int) -> list[int]:
        """The best `count`, and what ties with the last of them, by best rank.

        A document of one list only comes behind all that stand before it there, whose scores are no lower and
        whose ranks are better. So beside those of several lists only the first `count` of each list can be
        among the best.
        """
        scores, depth = self._scores, count
        if len(scores) <= FEW:
            high = sorted(scores)
        else:
            possible = {number for entry in self._lists for number in entry.numbers[:count]}
            worst = sorted([scores[number] for number in possible])[-count]
            possible.update([number for number in self._shared or () if scores[number] >= worst])
            high = sorted([scores[number] for number in possible])
        worst = high[-count]
        wanted = len(high) - bisect_left(high, worst)
        while True:
            found = dict.fromkeys(
                [number for number in self._by_rank(depth) if number is not None and scores[number] >= worst]
            )
            if len(found) == wanted or depth >= len(scores):
                return [*found]
            depth *= 4  # few of them stand far down in every list

    def _envelopes(self, numbers: Sequence[int]) -> list[Envelope]:
        sealed, scores = self._sealed, self._scores
        new = [number for number in numbers if number not in sealed] if sealed else numbers
        made = self._table.seal(new, [scores[number] for number in new], self._most)
        sealed.update(zip(new, made, strict=True))
        return made if new is numbers else [sealed[number] for number in numbers]
