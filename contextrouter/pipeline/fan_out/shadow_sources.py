"""Shadow sources: asked beside the others, compared with them, and never shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from contextrouter.model import Envelope, Harvest, RankedList


def take_out(harvest: Harvest, shadows: Collection[str]) -> tuple[Harvest, list[RankedList]]:
    """Return the harvest without what shadow sources found and how they did, and what they found."""
    found = [ranked for ranked in harvest.lists if ranked.source in shadows]
    shown = harvest.replace(
        lists=tuple([ranked for ranked in harvest.lists if ranked.source not in shadows]),
        reports=tuple([report for report in harvest.reports if report.source not in shadows]),
    )
    return shown, found


def compare(found: Sequence[RankedList], shown: Sequence[Envelope]) -> str:
    """Say how many of the documents that are shown each shadow source found too, and how many others."""
    keys = {key for envelope in shown for key in _keys(envelope.document.id, envelope.document.content)}
    notes = []
    for source in dict.fromkeys(ranked.source for ranked in found):
        hits = [hit.document for ranked in found if ranked.source == source for hit in ranked.hits]
        documents = {document.id or document.content: document for document in hits}.values()
        both = sum(bool(keys & _keys(document.id, document.content)) for document in documents)
        notes.append(
            f"{source!r} found {both} of the {len(shown)} documents shown, and {len(documents) - both} others"
        )
    return "; ".join(notes)


def _keys(id: str, content: str) -> set[str]:
    return {f"id {id}", f"text {content}"} if id else {f"text {content}"}
