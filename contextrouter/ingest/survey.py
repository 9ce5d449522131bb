"""Transforms that have to see every document of a source before the first is worked on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol, runtime_checkable

from contextrouter.contracts import SupportsCrawl, Transform
from contextrouter.errors import IngestError
from contextrouter.model import Document


@runtime_checkable
class SupportsSurvey(Protocol):
    """A transform that looks over the whole source before a run, when `surveys` is true."""

    @property
    def surveys(self) -> bool:
        """Whether it has to, as it is set."""
        ...

    def begin(self) -> None:
        """Forget what was seen before."""
        ...

    def survey(self, document: Document) -> None:
        """See one document."""
        ...

    def mark(self, document: Document) -> str:
        """What the survey found that changes what becomes of this document; it is done again when that
        changes. "" for nothing.
        """
        ...


def surveying(transforms: Iterable[Transform]) -> list[SupportsSurvey]:
    """Those of the transforms that have to see the source first."""
    return [each for each in transforms if isinstance(each, SupportsSurvey) and each.surveys]


async def survey(source: SupportsCrawl, surveyors: Sequence[SupportsSurvey], origin: str) -> None:
    """Show them the whole source. Raises IngestError when it breaks off: nothing was stored or removed
    yet.
    """
    for each in surveyors:
        each.begin()
    if not surveyors:
        return
    crawl = source.crawl()
    try:
        async for document in crawl:
            for each in surveyors:
                each.survey(document)
    except Exception as error:
        raise IngestError(
            f"Source {origin!r} broke off while it was looked over, nothing was stored: {error}"
        ) from error
    finally:
        if isinstance(crawl, AsyncGenerator):
            await crawl.aclose()
