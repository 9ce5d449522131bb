"""Incremental ingestion by versions: skips documents whose version did not change, without parsing them.

The store keeps `FINGERPRINT.RECIPE.VERSION` with each document: a digest of its content and labels, a digest
of how it is labelled, chunked and embedded, and the source's version.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from hashlib import sha256
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsCrawl
from contextrouter.model import Document

Listed = tuple[str, str, Document | None]
"""Id, version ("": none), and the document; None if the store already has this version."""


@runtime_checkable
class SupportsVersions(Protocol):
    """A source that can tell, without parsing a document, that the document did not change."""

    def crawl_since(self, known: Mapping[str, str]) -> AsyncIterator[Listed]:
        """Yield every document as `crawl` does, with its version. Yield None instead of a document whose
        version is the one in `known`.

        A version is a word without dots. A document with a problem has the version "": it is read, and its
        problem reported, each time.
        """
        ...


def recipe_digest(configuration: str, labels: Mapping[str, str]) -> str:
    """Return a digest of how documents are chunked, embedded and labelled."""
    return sha256(repr((configuration, sorted(labels.items()))).encode()).hexdigest()[:16]


def format_fingerprint(content: str, recipe: str, version: str) -> str:
    """Return the fingerprint that a document is stored with."""
    return f"{content}.{recipe}.{version}" if version else content


def content_fingerprint(stored: str) -> str:
    """Return the part of a stored fingerprint that stands for the content and how it is processed."""
    return stored.partition(".")[0]


async def list_documents(source: SupportsCrawl, versions: Mapping[str, str]) -> AsyncGenerator[Listed, None]:
    """Yield every document of a source, without content where its version is the one in `versions`.

    Closing this generator closes the source's own.
    """
    crawl: AsyncIterator[Listed] | AsyncIterator[Document]
    crawl = source.crawl_since(versions) if isinstance(source, SupportsVersions) else source.crawl()
    try:
        async for item in crawl:
            yield (item.id, "", item) if isinstance(item, Document) else item
    finally:
        if isinstance(crawl, AsyncGenerator):
            await crawl.aclose()
