"""Incremental ingestion without parsing: a source names the version of each document, and the store knows
the version it was made from.

A document is stored with `FINGERPRINT.MAKER.VERSION`: what it says, what it was labelled and cut with, and
its source's version.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from hashlib import sha256
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsCrawl
from contextrouter.model import Document

Listed = tuple[str, str, Document | None]
"""Id, version, and the document; None in its place where it is known by that version. "": without a
version.
"""


@runtime_checkable
class SupportsVersions(Protocol):
    """A source that can tell, without parsing a document, that it is what it was."""

    def crawl_since(self, known: Mapping[str, str]) -> AsyncIterator[Listed]:
        """Yield every document as `crawl` does, with its version; None for one whose version is that in
        `known`.

        A version is a word without dots. Documents that something was wrong with come with the version "":
        they are read, and reported, each time.
        """
        ...


def maker(made_by: str, labels: Mapping[str, str]) -> str:
    """A digest of how documents are cut and labelled, for comparing."""
    return sha256(repr((made_by, sorted(labels.items()))).encode()).hexdigest()[:16]


def marked(fingerprint: str, maker: str, version: str) -> str:
    """The fingerprint that a document is stored with."""
    return f"{fingerprint}.{maker}.{version}" if version else fingerprint


def said(stored: str) -> str:
    """Of a stored fingerprint what stands for the document's text and for how it was cut."""
    return stored.partition(".")[0]


def versions(
    stored: Mapping[str | None, Mapping[str, str]], origin: str, maker: str
) -> tuple[dict[str, str], dict[str, str | None]]:
    """Id -> version, and id -> tenant, of an origin's documents that were made the same way; none that two
    tenants have.
    """
    known: dict[str, str] = {}
    owner: dict[str, str | None] = {}
    twice: set[str] = set()
    for tenant, marks in stored.items():
        for id, mark in marks.items():
            begin, _, own = id.partition(":")
            parts = mark.split(".")
            if begin == origin and len(parts) == 3 and parts[1] == maker:
                twice |= {own} & owner.keys()
                known[own], owner[own] = parts[2], tenant
    return {id: version for id, version in known.items() if id not in twice}, owner


async def listed(
    source: SupportsCrawl, known: Mapping[str, str], *, every: bool
) -> AsyncGenerator[Listed, None]:
    """Every document of a source; with `every` all of them whole. Closing it closes the source's own
    generator.
    """
    crawl: AsyncIterator[Listed] | AsyncIterator[Document]
    crawl = (
        source.crawl_since({} if every else known) if isinstance(source, SupportsVersions) else source.crawl()
    )
    try:
        async for each in crawl:
            yield (each.id, "", each) if isinstance(each, Document) else each
    finally:
        if isinstance(crawl, AsyncGenerator):
            await crawl.aclose()
