"""Places in a document: the page, the line or the moment at which a piece of its text begins."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from contextrouter.model import Document


class Places:
    """Where pieces of a document are. The document's metadata says where its pages (`page_starts`) and cues
    (`cue_starts`) begin, and on which line of its file (`first_line`) its content.
    """

    def __init__(self, document: Document) -> None:
        metadata = document.metadata
        self._content = document.content
        self._page_starts, self._cues = metadata.get("page_starts"), metadata.get("cue_starts")
        self._line, self._counted = metadata.get("first_line"), 0  # the line of the character `_counted`

    def at(self, start: int, end: int) -> dict[str, Any]:
        """Return where the characters from `start` to `end` of the content are, as metadata of a piece:
        `page` from 1, `next_pages` with number and beginning, in the piece, of each further page,
        `start_seconds`, `line` from 1; what is not known is left out.
        """
        position: dict[str, Any] = {}
        if starts := self._page_starts:
            position["page"] = max(bisect_right(starts, start), 1)
            page = position["page"]
            following = enumerate(starts[page : bisect_left(starts, end)], page + 1)
            if pages := [[number, begin - start] for number, begin in following]:
                position["next_pages"] = pages
        if cues := self._cues:
            index = bisect_right(cues, start, key=lambda cue: cue[0]) - 1
            position["start_seconds"] = cues[max(index, 0)][1]
        if isinstance(self._line, int):
            position["line"] = self._line = self._line + self._lines_to(start)
        return position

    def _lines_to(self, start: int) -> int:
        """How many lines further `start` is than the last one: of a long text, all lines before it are not
        counted for every piece.
        """
        last, self._counted = self._counted, start
        count = self._content.count
        return count("\n", last, start) if start >= last else -count("\n", start, last)
