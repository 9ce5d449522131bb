"""Link centrality: documents with more links to and from others rank higher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Literal, NamedTuple

from contextrouter.builtin.stages.envelope_values import read_value
from contextrouter.contracts import Stage, StageContext, SupportsDegrees
from contextrouter.model import Envelope

CANDIDATES, GRAPH = "candidates", "graph"


class _Degrees(NamedTuple):
    """The degree of each envelope, in order; `note` says what was not counted."""

    degrees: Sequence[int]
    note: str = ""


class Centrality(Stage):
    """Adds degree centrality to the order there is. The degree of a document is the number of links from it
    and to it; its centrality is that ÷ the largest degree among the documents.

    `over` says which links count. "candidates": those of the documents that were found, and the links among
    them. "graph": all links of the sources that found a document. A name: all links of this source, which
    knows the documents by their ids. With fewer than `least_links` links per document on average, centrality
    is off: the order stays.

    `mode = "rrf"` scores 1 ÷ (`k` + rank) + `weight` ÷ (`k` + rank by centrality). "linear" scores (1 −
    `weight`) × value + `weight` × centrality, where 0.4 is usual. `reads` is the value: "normalized", the
    score ÷ the most it could be; "similarity", the best raw score that a leg of `legs` gave; or the name of a
    signal. No value counts as 0.
    """

    switch = "enable_reranker"

    def __init__(
        self,
        *,
        mode: Literal["rrf", "linear"] = "rrf",
        weight: float = 0.5,
        k: float = 60.0,
        least_links: float = 2.0,
        over: str = CANDIDATES,
        reads: str = "normalized",
        legs: Sequence[str] = ("vector", "keywords"),
    ) -> None:
        if mode not in ("rrf", "linear"):
            raise ValueError(f"mode {mode!r} is neither rrf nor linear.")
        if not 0 <= weight <= 1:
            raise ValueError(f"weight {weight!r} is not between 0 and 1.")
        if not 0 <= k <= 1e9:
            raise ValueError(f"k {k!r} is not between 0 and 1e9.")
        if not 0 <= least_links <= 1e9:
            raise ValueError(f"least_links {least_links!r} is not between 0 and 1e9.")
        if not over:
            raise ValueError("over is empty; give candidates, graph or the name of a source.")
        if not reads:
            raise ValueError("reads is empty; give normalized, similarity or the name of a signal.")
        if mode == "rrf" and reads != "normalized":
            raise ValueError(f'reads {reads!r} is for mode = "linear"; rrf goes by the ranks there are.')
        self._mode, self._weight, self._k, self._least = mode, weight, k, least_links
        self._over, self._reads, self._legs = over, reads, frozenset(legs)

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all; the signal `centrality` is between 0 and 1.

        Raises ValueError when `over` names no source that counts links.
        """
        if not envelopes:
            return []
        if self._over == CANDIDATES:
            degrees, note = self._among_candidates(envelopes)
        else:
            degrees, note = await self._in_graphs(envelopes, context)
        if note:
            context.note(note)
        largest = max(degrees)
        return (
            self._score(envelopes, [degree / largest for degree in degrees]) if largest else list(envelopes)
        )

    def _among_candidates(self, envelopes: Sequence[Envelope]) -> _Degrees:
        mean = sum(len(set(e.document.links)) for e in envelopes) / len(envelopes)
        if mean < self._least:
            return _Degrees([0] * len(envelopes), f"off: {self._too_few('the candidates', mean)}")
        return _Degrees(_candidate_degrees(envelopes))

    async def _in_graphs(self, envelopes: Sequence[Envelope], context: StageContext) -> _Degrees:
        """Take the degrees from the sources in turn; a graph with too few links counts nothing."""
        degrees, notes, counts = [0] * len(envelopes), [], False
        for name, ids in self._ids_by_source(envelopes, context).items():
            source: object = context.sources[name]
            assert isinstance(source, SupportsDegrees)
            counted = await source.degrees(list(dict.fromkeys(ids.values())), context.scope)
            if counted.mean < self._least:
                notes.append(self._too_few(repr(name), counted.mean))
                continue
            counts = True
            if unknown := sum(id not in counted.degrees for id in ids.values()):
                notes.append(f"{name!r} does not know {unknown} of {len(ids)} documents")
            for position, id in ids.items():
                degrees[position] = max(degrees[position], counted.degrees.get(id, 0))
        if not counts:
            notes = [f"off: {'; '.join(notes) or 'no source of the documents counts links'}"]
        return _Degrees(degrees, "; ".join(notes))

    def _ids_by_source(
        self, envelopes: Sequence[Envelope], context: StageContext
    ) -> Mapping[str, dict[int, str]]:
        """Return the sources to ask, each with the ids of its documents by their positions."""
        ids: dict[str, dict[int, str]] = {}
        if self._over != GRAPH:
            if not isinstance(context.sources.get(self._over), SupportsDegrees):
                raise ValueError(f"over {self._over!r} is no source that counts links.")
            by_position = {at: e.document.id for at, e in enumerate(envelopes) if e.document.id}
            return {self._over: by_position} if by_position else {}
        for position, envelope in enumerate(envelopes):
            for name in dict.fromkeys(seal.source for seal in envelope.provenance):
                if envelope.document.id and isinstance(context.sources.get(name), SupportsDegrees):
                    ids.setdefault(name, {})[position] = envelope.document.id
        return ids

    def _too_few(self, where: str, mean: float) -> str:
        return f"{floor(mean * 100) / 100:g} links per document in {where}, fewer than {self._least:g}"

    def _score(self, envelopes: Sequence[Envelope], shares: Sequence[float]) -> list[Envelope]:
        order = sorted(range(len(envelopes)), key=lambda position: -shares[position])
        rank_of = {position: rank for rank, position in enumerate(order, 1)}
        scored = []
        for position, (envelope, share) in enumerate(zip(envelopes, shares, strict=True)):
            if self._mode == "rrf":
                score = 1 / (self._k + position + 1) + self._weight / (self._k + rank_of[position])
                maximum = (1 + self._weight) / (self._k + 1)
            else:
                value = read_value(envelope, self._reads, self._legs) or 0.0
                score, maximum = (1 - self._weight) * value + self._weight * share, 1.0
            scored.append(envelope.scored(score, min(1.0, max(0.0, score / maximum)), centrality=share))
        return sorted(scored, key=lambda envelope: -envelope.score)


def _candidate_degrees(envelopes: Sequence[Envelope]) -> list[int]:
    """Links out, and in from the others; a link is an id or a URL, of the document or of the one it was cut
    from.
    """
    names = [{n for n in (e.document.id, e.document.parent, e.document.url) if n} for e in envelopes]
    outgoing = [set(e.document.links) for e in envelopes]
    return [
        len(outgoing[i]) + sum(1 for j, links in enumerate(outgoing) if j != i and links & names[i])
        for i in range(len(outgoing))
    ]
