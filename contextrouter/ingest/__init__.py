"""Ingestion fills a store from a source: crawl, transform, embed, upsert. It repeats only what changed."""

from contextrouter.ingest.document_versions import SupportsVersions
from contextrouter.ingest.job import ingest
from contextrouter.ingest.jobs import SupportsClear, SupportsRebuild, run
from contextrouter.ingest.orphans import Leftover, forget, leftovers
from contextrouter.ingest.report import Report, SupportsProblems, SupportsSize
from contextrouter.ingest.store_lock import SupportsTurns
from contextrouter.ingest.survey import SupportsSurvey
from contextrouter.ingest.watch import watch

__all__ = [
    "Leftover",
    "Report",
    "SupportsClear",
    "SupportsProblems",
    "SupportsRebuild",
    "SupportsSize",
    "SupportsSurvey",
    "SupportsTurns",
    "SupportsVersions",
    "forget",
    "ingest",
    "leftovers",
    "run",
    "watch",
]
