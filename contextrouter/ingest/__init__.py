"""Fills a store from a source: crawl, transform, embed, upsert; again only what changed."""

from contextrouter.ingest.job import Report, SupportsProblems, ingest
from contextrouter.ingest.leftovers import Leftover, forget, leftovers
from contextrouter.ingest.run import SupportsClear, run

__all__ = ["Leftover", "Report", "SupportsClear", "SupportsProblems", "forget", "ingest", "leftovers", "run"]
