"""How good are the answers, and which settings make them better? Measured on questions somebody judged.

`judged` reads them, `asking` asks a router, `measures` counts and compares, `runs` keeps, `tuning` tries
other settings.
"""

from contextrouter.evaluation.judgements import Judged, read
from contextrouter.evaluation.measures import METRICS, Compared, abstention, compare, measure
from contextrouter.evaluation.retrieval import Asked, ask
from contextrouter.evaluation.trec_runs import picture, save
from contextrouter.evaluation.tuning import Tuned, tune

__all__ = [
    "METRICS",
    "Asked",
    "Compared",
    "Judged",
    "Tuned",
    "abstention",
    "ask",
    "compare",
    "measure",
    "picture",
    "read",
    "save",
    "tune",
]
