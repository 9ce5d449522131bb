"""Survey of a source: some transforms have to see all documents before any document is processed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsCrawl, Transform
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.model import Document


@runtime_checkable
class SupportsSurvey(Protocol):
    """A transform that sees the whole source before a run, if `surveys` is true."""

    @property
    def surveys(self) -> bool:
        """Whether its settings need the survey."""
        ...

    def begin(self) -> None:
        """Forget the documents of earlier surveys."""
        ...

    def survey(self, document: Document) -> None:
        """See one document."""
        ...

    def mark(self, document: Document) -> str:
        """Return the findings that change how this document is processed, or "".

        The document is processed again when they change.
        """
        ...


def surveying(transforms: Iterable[Transform]) -> list[SupportsSurvey]:
    """Return the transforms that have to see the whole source first."""
    return [
        transform for transform in transforms if isinstance(transform, SupportsSurvey) and transform.surveys
    ]


async def survey(source: SupportsCrawl, surveyors: Sequence[SupportsSurvey], origin: str) -> None:
    """Show the whole source to the transforms. Raises IngestError if the source fails."""
    for surveyor in surveyors:
        surveyor.begin()
    if not surveyors:
        return
    crawl = source.crawl()
    try:
        message = f"Source {origin!r} broke off while it was looked over, nothing was stored"
        with as_ingest_error(message):  # nothing was removed either
            async for document in crawl:
                for surveyor in surveyors:
                    surveyor.survey(document)
    finally:
        if isinstance(crawl, AsyncGenerator):
            await crawl.aclose()
