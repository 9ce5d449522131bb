"""Shadow sources: asked beside the others, compared with them, and never shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from contextrouter.model import Envelope, Harvest, RankedList


def take_out(harvest: Harvest, shadows: Collection[str]) -> tuple[Harvest, list[RankedList]]:
    """Return the harvest without what shadow sources found and how they did, and what they found."""
    lists = [ranked for ranked in harvest.lists if ranked.source in shadows]
    rest_of_harvest = harvest.replace(
        lists=tuple([ranked for ranked in harvest.lists if ranked.source not in shadows]),
        reports=tuple([report for report in harvest.reports if report.source not in shadows]),
    )
    return rest_of_harvest, lists


def compare(lists: Sequence[RankedList], envelopes: Sequence[Envelope]) -> str:
    """Say how many of the documents that are shown each shadow source found too, and how many others."""
    keys = {
        key for envelope in envelopes for key in _identities(envelope.document.id, envelope.document.content)
    }
    notes = []
    for source in dict.fromkeys(ranked.source for ranked in lists):
        hits = [hit.document for ranked in lists if ranked.source == source for hit in ranked.hits]
        documents = {document.id or document.content: document for document in hits}.values()
        common = sum(bool(keys & _identities(document.id, document.content)) for document in documents)
        others = len(documents) - common
        notes.append(
            f"{source!r} found {common} of the {len(envelopes)} documents shown, and {others} others"
        )
    return "; ".join(notes)


def _identities(id: str, content: str) -> set[str]:
    return {f"id {id}", f"text {content}"} if id else {f"text {content}"}
