"""Storing of a batch: a document that the store cannot take is reported and left out."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.contracts import Entry, SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.ingest.report import Report
from contextrouter.model import Document
from contextrouter.runtime.plugin_calls import containment

MOST_IN_A_ROW = 2
"""Batches of one document that a store may refuse one after the other before it counts as failing."""
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


class Storing:
    """Stores batches, and knows how often the store refused one document after the other."""

    def __init__(self, store: SupportsUpsert) -> None:
        self.store = store
        self._in_a_row = 0

    async def store_batch(self, entries: Sequence[Entry], report: Report) -> list[Entry]:
        """Store the entries, and return those that the store refused, each of them with a line in the report.

        A batch that is refused is stored document by document. If the store takes none of several, or refuses
        more than two in a row, and does not say that the documents are at fault (`IngestError`), it is at
        fault itself. Raises IngestError then; earlier batches stay stored, and nothing is removed.
        """
        if (failure := await self._upsert(entries)) is None:
            self._in_a_row = 0
            return []
        attempts: list[tuple[Entry, Exception | None]] = [(entries[0], failure)]
        if len(entries) > 1:
            attempts = [(entry, await self._upsert([entry])) for entry in entries]
        refused = [(entry, error) for entry, error in attempts if error is not None]
        self._in_a_row = self._in_a_row + 1 if len(refused) == len(entries) else 0
        at_fault = all(isinstance(error, IngestError) for _, error in refused)  # the documents
        if self._in_a_row and not at_fault and (len(entries) > 1 or not await self._goes_on()):
            start, stop = entries[0].document.id, entries[-1].document.id
            message = f"The store refused {start!r} to {stop!r}: {failure}"
            raise IngestError(message, document=start) from failure
        for entry, error in refused:
            report.skip(entry.document.id, f"the store refused it: {error}")
        return [entry for entry, _ in refused]

    async def _upsert(self, entries: Sequence[Entry]) -> Exception | None:
        try:
            with containment():
                await self.store.upsert(entries)
        except Exception as error:  # judged by the caller: one document may be at fault, or the store
            return error
        return None

    async def _goes_on(self) -> bool:
        """Whether the store can be asked, and did not refuse too many batches in a row."""
        if self._in_a_row > MOST_IN_A_ROW:
            return False
        try:
            await self.store.fingerprints()
        except Exception:  # the caller raises the error of the upsert
            return False
        return True


def surrogate_in(document: Document) -> str:
    """Return what is wrong with a document that holds a lone surrogate, which no store takes; "" for none."""
    for name in (*_TEXTS, *_LISTS):
        value = getattr(document, name)
        if not all(map(_can_be_encoded, value if name in _LISTS else (value,))):
            return f"{name} holds a lone surrogate, which is no character; decode it with errors='replace'"
    return ""


def _can_be_encoded(value: str | None) -> bool:
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        return False
    return True
