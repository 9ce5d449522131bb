"""Evaluation of retrieval: measure answers on judged questions, compare settings, and tune them.

`judgements` reads the questions, `retrieval` asks a router, `measures` computes metrics and compares runs,
`trec_runs` saves and draws runs, `tuning` tries other settings.
"""

from contextrouter.evaluation.judgements import Judged, read
from contextrouter.evaluation.measures import METRICS, Compared, abstention, compare, measure
from contextrouter.evaluation.retrieval import Asked, ask
from contextrouter.evaluation.trec_runs import picture, save
from contextrouter.evaluation.tuning import Tuned, collect, tune

__all__ = [
    "METRICS",
    "Asked",
    "Compared",
    "Judged",
    "Tuned",
    "abstention",
    "ask",
    "collect",
    "compare",
    "measure",
    "picture",
    "read",
    "save",
    "tune",
]
