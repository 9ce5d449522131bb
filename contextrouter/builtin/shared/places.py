"""Places in a document: the page, the line or the moment at which a piece of its text begins."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from contextrouter.model import Document


def place_at(document: Document, start: int) -> dict[str, Any]:
    """Return where character `start` of a document's content is, as metadata of a piece: `page` from 1,
    `start_seconds`, `line` from 1; what is not known is left out.

    The document's metadata says where its pages (`page_starts`) and cues (`cue_starts`) begin, and on which
    line of its file (`first_line`) its content.
    """
    place: dict[str, Any] = {}
    metadata = document.metadata
    if starts := metadata.get("page_starts"):
        place["page"] = max(bisect_right(starts, start), 1)
    if cues := metadata.get("cue_starts"):
        index = bisect_right(cues, start, key=lambda cue: cue[0]) - 1
        place["start_seconds"] = cues[max(index, 0)][1]
    if isinstance(first := metadata.get("first_line"), int):
        place["line"] = first + document.content.count("\n", 0, start)
    return place
