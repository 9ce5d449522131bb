"""Leg weights: how much each leg of a source counts beside its others, and what else fusion knows of a
source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from contextrouter.contracts import Embedder, FactSource, Source
from contextrouter.settings import Rag

UNMEASURED: Mapping[str, float] = {"vector": 0.7, "keywords": 0.1}
"""Weights in mode "scores" of vector legs whose embedder names none: those that cost little with a weak
embedder and with a strong one.
"""


class Profile(NamedTuple):
    """What fusion knows of a source."""

    position: int = 0  # in the settings; breaks ties
    embedder: str | None = None
    vector_legs: frozenset[str] = frozenset()
    score_weights: Mapping[str, float] = {}
    rank_weights: Mapping[str, float] = {}
    unrelated: float = 0.0

    def leg_weight(self, source: str, leg: str, rag: Rag) -> float:
        """Return the weight of a leg: `[rag.leg_weights]` by "source.leg" or "leg"; in mode "weighted" the
        `hybrid_…_weight`; else what the embedder says.
        """
        for key in (f"{source}.{leg}", leg) if rag.leg_weights else ():
            if key in rag.leg_weights:
                return rag.leg_weights[key]
        if rag.hybrid_fusion == "scores":
            default = UNMEASURED.get(leg, 1.0) if leg in self.vector_legs else 1.0
            return self.score_weights.get(leg, default)
        if rag.hybrid_fusion == "weighted":
            if leg == "vector":
                return rag.hybrid_vector_weight
            if leg == "text":
                return rag.hybrid_text_weight
        return self.rank_weights.get(leg, 1.0)


class Profiles(dict[str, Profile]):
    """Source -> its profile, made when it is first asked for: by then the source is open and its legs are
    fixed. A source that is not known has the default one.
    """

    def __init__(
        self, sources: Mapping[str, Source | FactSource] = {}, embedders: Mapping[str, Embedder] = {}
    ) -> None:
        super().__init__()
        self._sources, self._embedders = sources, embedders
        self._positions = {name: position for position, name in enumerate(sources)}

    def __missing__(self, name: str) -> Profile:
        source = self._sources.get(name)
        position = self._positions.get(name, len(self._positions))
        profile = Profile(position)
        if isinstance(source, Source):
            profile = Profile(position, source.embedder, frozenset(source.vector_legs))
            embedder = self._embedders.get(source.embedder or "")
            if embedder is not None:
                profile = profile._replace(
                    score_weights=embedder.score_weights,
                    rank_weights=embedder.leg_weights,
                    unrelated=embedder.unrelated,
                )
        self[name] = profile
        return profile
