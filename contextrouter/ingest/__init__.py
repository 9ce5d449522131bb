"""Fills a store from a source: crawl, transform, embed, upsert; again only what changed."""

from contextrouter.ingest.job import Report, SupportsProblems, ingest

__all__ = ["Report", "SupportsProblems", "ingest"]
