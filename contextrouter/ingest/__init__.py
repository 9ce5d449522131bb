"""Fills a store from a source: crawl, transform, embed, upsert; again only what changed."""

from contextrouter.ingest.job import ingest
from contextrouter.ingest.leftovers import Leftover, forget, leftovers
from contextrouter.ingest.report import Report, SupportsProblems, SupportsSize
from contextrouter.ingest.run import SupportsClear, run
from contextrouter.ingest.survey import SupportsSurvey
from contextrouter.ingest.turns import SupportsTurns
from contextrouter.ingest.versions import SupportsVersions
from contextrouter.ingest.watch import watch

__all__ = [
    "Leftover", "Report", "SupportsClear", "SupportsProblems", "SupportsSize", "SupportsSurvey", "SupportsTurns",
    "SupportsVersions", "forget", "ingest", "leftovers", "run", "watch",
]  # fmt: skip
