"""Near-duplicates: moves them down by MMR (maximal marginal relevance, Carbonell and Goldstein 1998)."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import Envelope
from contextrouter.vectors import cosine, direction

_LONGEST = 4_000


class Diversity(Stage):
    """Orders by `relevance` × score − (1 − relevance) × the similarity to the most similar document above.
    Put it behind rerankers.

    The score that counts is scaled to 0…1 over the documents given. Similarity is the cosine of vectors where
    both documents have one of equal length, else the share of runs of `shingle` characters that two texts
    have in common (Jaccard), which needs no words and so serves every script. The first `among` are ordered
    anew, the others follow.
    """

    def __init__(self, *, relevance: float = 0.7, shingle: int = 5, among: int = 50) -> None:
        if not 0 <= relevance <= 1:
            raise ValueError(f"relevance {relevance!r} is not between 0 and 1.")
        for name, value in (("shingle", shingle), ("among", among)):
            if value < 1:
                raise ValueError(f"{name} {value!r} is below 1.")
        self._relevance, self._shingle, self._among = relevance, shingle, among

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all; the signal `similar` is the similarity to what stands above, 0 for the first."""
        remaining = list(envelopes[: self._among])
        if not remaining:
            return []
        low, high = min(e.score for e in remaining), max(e.score for e in remaining)
        relevance = {id(e): (e.score - low) / (high - low) if high > low else 1.0 for e in remaining}
        features = {id(e): _Features(e, self._shingle) for e in remaining}
        max_similarity = {id(e): 0.0 for e in remaining}
        selection: list[Envelope] = []
        while remaining:
            best = max(
                remaining,
                key=lambda e: (
                    self._relevance * relevance[id(e)] - (1 - self._relevance) * max_similarity[id(e)]
                ),
            )
            remaining.remove(best)
            selection.append(best.scored(best.score, similar=max_similarity[id(best)]))
            for envelope in remaining:
                max_similarity[id(envelope)] = max(
                    max_similarity[id(envelope)], features[id(best)].similarity(features[id(envelope)])
                )
        return [*selection, *envelopes[self._among :]]


class _Features:
    """What one document is compared by."""

    def __init__(self, envelope: Envelope, shingle: int) -> None:
        self.vector = direction(envelope.vector)
        text = " ".join(envelope.document.content[:_LONGEST].casefold().split())
        self.shingles = (
            {text[at : at + shingle] for at in range(max(1, len(text) - shingle + 1))} if text else set()
        )

    def similarity(self, other: _Features) -> float:
        """Similarity in [0, 1]."""
        if self.vector and len(self.vector) == len(other.vector):
            return min(1.0, max(0.0, cosine(self.vector, other.vector)))
        if not self.shingles or not other.shingles:
            return 0.0
        return len(self.shingles & other.shingles) / len(self.shingles | other.shingles)
