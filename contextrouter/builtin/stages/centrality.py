"""Link centrality: documents with more links to and from others rank higher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import Envelope


class Centrality(Stage):
    """Adds degree centrality to the order there is. A document's degree is the number of its links, and of
    the links to it from the other documents given; its centrality is that ÷ the largest degree.

    `mode = "rrf"` scores 1 ÷ (`k` + rank) + `weight` ÷ (`k` + rank by centrality); "linear" (1 − `weight`) ×
    normalised score + `weight` × centrality, where 0.4 is usual. With fewer than `least_links` links a
    document on average nothing is changed.
    """

    switch = "enable_reranker"

    def __init__(
        self,
        *,
        mode: Literal["rrf", "linear"] = "rrf",
        weight: float = 0.5,
        k: float = 60.0,
        least_links: float = 2.0,
    ) -> None:
        if mode not in ("rrf", "linear"):
            raise ValueError(f"mode {mode!r} is neither rrf nor linear.")
        if not 0 <= weight <= 1:
            raise ValueError(f"weight {weight!r} is not between 0 and 1.")
        if not 0 <= k <= 1e9:
            raise ValueError(f"k {k!r} is not between 0 and 1e9.")
        if not 0 <= least_links <= 1e9:
            raise ValueError(f"least_links {least_links!r} is not between 0 and 1e9.")
        self._mode, self._weight, self._k, self._least = mode, weight, k, least_links

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all; the signal `centrality` is between 0 and 1."""
        links = sum(len(set(e.document.links)) for e in envelopes)
        if not envelopes or links == 0 or links < self._least * len(envelopes):
            return list(envelopes)
        degrees = _degrees(envelopes)
        shares = [degree / max(degrees) for degree in degrees]
        order = sorted(range(len(envelopes)), key=lambda position: -shares[position])
        rank_of = {position: rank for rank, position in enumerate(order, 1)}
        scored = []
        for position, (envelope, share) in enumerate(zip(envelopes, shares, strict=True)):
            if self._mode == "rrf":
                score = 1 / (self._k + position + 1) + self._weight / (self._k + rank_of[position])
                maximum = (1 + self._weight) / (self._k + 1)
            else:
                score, maximum = (1 - self._weight) * envelope.normalized + self._weight * share, 1.0
            scored.append(envelope.scored(score, min(1.0, score / maximum), centrality=share))
        return sorted(scored, key=lambda envelope: -envelope.score)


def _degrees(envelopes: Sequence[Envelope]) -> list[int]:
    """Links out, and in from the others; a link is an id or a URL, of the document or of the one it was cut
    from.
    """
    names = [{n for n in (e.document.id, e.document.parent, e.document.url) if n} for e in envelopes]
    outgoing = [set(e.document.links) for e in envelopes]
    return [
        len(outgoing[i]) + sum(1 for j, links in enumerate(outgoing) if j != i and links & names[i])
        for i in range(len(outgoing))
    ]
