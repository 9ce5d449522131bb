"""Cache of results, embeddings and scores: in memory, on disk or in Redis, with a single flight for equal
requests.

`keys` makes the cache keys, `tiers` are the storage, `entry` and `codec` the format, `results`, `embeddings`
and `scores` the three caches. Values are frozen, so a hit returns the cached object itself. Nothing is
pickled.
"""

from contextrouter.cache.build import build_tiers
from contextrouter.cache.embeddings import EmbeddingCache, RequestEmbeddings
from contextrouter.cache.keys import router_digest
from contextrouter.cache.memory import MemoryCache
from contextrouter.cache.results import ResultCache
from contextrouter.cache.scores import ScoreCache
from contextrouter.cache.single_flight import SingleFlight
from contextrouter.cache.source_versions import Versions
from contextrouter.cache.tiers import Tier, Tiers, TierStats

__all__ = [
    "EmbeddingCache",
    "MemoryCache",
    "RequestEmbeddings",
    "ResultCache",
    "ScoreCache",
    "SingleFlight",
    "Tier",
    "TierStats",
    "Tiers",
    "Versions",
    "build_tiers",
    "router_digest",
]
