"""Cache of results, embeddings and scores: in memory, on disk or in Redis, with a single flight for equal
requests.

`keys` says what makes two questions equal, `tiers` where answers lie, `entry` and `codec` in which form,
`results` and `embeddings` what is kept. Values are frozen, so the object handed out is the one that is kept.
Nothing is pickled.
"""

from contextrouter.cache.build import tiers_of
from contextrouter.cache.embeddings import Embedding, EmbeddingCache
from contextrouter.cache.keys import of_router
from contextrouter.cache.memory import MemoryCache
from contextrouter.cache.results import ResultCache
from contextrouter.cache.scores import ScoreCache
from contextrouter.cache.single_flight import SingleFlight
from contextrouter.cache.source_versions import Versions
from contextrouter.cache.tiers import Tier, Tiers, TierStats

__all__ = [
    "Embedding",
    "EmbeddingCache",
    "MemoryCache",
    "ResultCache",
    "ScoreCache",
    "SingleFlight",
    "Tier",
    "TierStats",
    "Tiers",
    "Versions",
    "of_router",
    "tiers_of",
]
