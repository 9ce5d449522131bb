"""Places in a document: the page, the line or the moment at which a piece of its text begins."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from contextrouter.model import Document


def place_at(document: Document, start: int, end: int) -> dict[str, Any]:
    """Return where the characters from `start` to `end` of a document's content are, as metadata of a piece:
    `page` from 1, `next_pages` with number and beginning, in the piece, of each further page,
    `start_seconds`, `line` from 1; what is not known is left out.

    The document's metadata says where its pages (`page_starts`) and cues (`cue_starts`) begin, and on which
    line of its file (`first_line`) its content.
    """
    position: dict[str, Any] = {}
    metadata = document.metadata
    if starts := metadata.get("page_starts"):
        position["page"] = max(bisect_right(starts, start), 1)
        page = position["page"]
        following = enumerate(starts[page:], page + 1)
        if pages := [[number, begin - start] for number, begin in following if begin < end]:
            position["next_pages"] = pages
    if cues := metadata.get("cue_starts"):
        index = bisect_right(cues, start, key=lambda cue: cue[0]) - 1
        position["start_seconds"] = cues[max(index, 0)][1]
    if isinstance(line := metadata.get("first_line"), int):
        position["line"] = line + document.content.count("\n", 0, start)
    return position
