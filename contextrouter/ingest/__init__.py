"""Ingestion fills a store from a source: crawl, transform, embed, upsert. It repeats only what changed."""

from contextrouter.ingest.bulk_load import SupportsBulkLoad
from contextrouter.ingest.document_versions import SupportsVersions
from contextrouter.ingest.forgetting import Removal, RemovedDocument, forget_documents
from contextrouter.ingest.job import ingest
from contextrouter.ingest.jobs import SupportsClear, SupportsRebuild, run
from contextrouter.ingest.model_change import ModelReport, drop_model, embed, stored_models
from contextrouter.ingest.orphans import Leftover, forget, leftovers
from contextrouter.ingest.report import (
    Report,
    SupportsEmptyFolders,
    SupportsNotRead,
    SupportsProblems,
    SupportsSize,
)
from contextrouter.ingest.run_records import SupportsRuns
from contextrouter.ingest.runners.protocol import SupportsManyWriters
from contextrouter.ingest.store_lock import SupportsTurns
from contextrouter.ingest.survey import SupportsSurvey
from contextrouter.ingest.watch import watch

__all__ = [
    "Leftover",
    "ModelReport",
    "Removal",
    "RemovedDocument",
    "Report",
    "SupportsBulkLoad",
    "SupportsClear",
    "SupportsEmptyFolders",
    "SupportsManyWriters",
    "SupportsNotRead",
    "SupportsProblems",
    "SupportsRebuild",
    "SupportsRuns",
    "SupportsSize",
    "SupportsSurvey",
    "SupportsTurns",
    "SupportsVersions",
    "drop_model",
    "embed",
    "forget",
    "forget_documents",
    "ingest",
    "leftovers",
    "run",
    "stored_models",
    "watch",
]
