"""Storing of a batch: a document that the store cannot take is reported and left out."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.contracts import Entry, SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.ingest.report import Report
from contextrouter.model import Document

_TEXTS = (
    "id",
    "content",
    "url",
    "title",
    "snippet",
    "kind",
    "tenant",
    "compartment",
    "sensitivity",
    "language",
)
_LISTS = ("path", "keywords", "labels", "links")


async def store_entries(store: SupportsUpsert, entries: Sequence[Entry], report: Report) -> list[Entry]:
    """Store the entries, and return those that the store refused, each of them with a line in the report.

    A batch that is refused is stored document by document. If none of them goes in and it was no document's
    fault (`IngestError` names one), the store is at fault. Raises IngestError then; earlier batches stay
    stored, and nothing is removed.
    """
    try:
        await store.upsert(entries)
        return []
    except Exception as reason:  # one of them may be at fault: see below
        failure = reason
    if len(entries) == 1 and not isinstance(failure, IngestError):
        raise _refusal(entries, failure) from failure
    refused: list[tuple[Entry, Exception]] = []
    for entry in entries:
        try:
            await store.upsert([entry])
        except Exception as error:  # reported below, or raised if all fail
            refused.append((entry, error))
    if len(refused) == len(entries) and not all(isinstance(fault, IngestError) for _, fault in refused):
        raise _refusal(entries, failure) from failure
    for entry, fault in refused:
        report.skip(entry.document.id, f"the store refused it: {fault}")
    return [entry for entry, _ in refused]


def _refusal(entries: Sequence[Entry], error: Exception) -> IngestError:
    start, stop = entries[0].document.id, entries[-1].document.id
    return IngestError(f"The store refused {start!r} to {stop!r}: {error}", document=start)


def surrogate_in(document: Document) -> str:
    """Return what is wrong with a document that holds a lone surrogate, which no store takes; "" for none."""
    for name in _TEXTS:
        if not _is_text(getattr(document, name)):
            return f"{name} holds a lone surrogate, which is no character; decode it with errors='replace'"
    for name in _LISTS:
        if not all(map(_is_text, getattr(document, name))):
            return f"{name} holds a lone surrogate, which is no character; decode it with errors='replace'"
    return ""


def _is_text(value: str | None) -> bool:
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        return False
    return True
