"""The piece type of chunking strategies, and the chunk sizes. The chunker cuts pieces that are too long."""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """The piece `text[start:end]`. `path` has its headings, outermost first. `header` is the place of a
    repeated table header.
    """

    start: int
    end: int
    path: tuple[str, ...] = ()
    header: tuple[int, int] | None = None
    title: str = ""


class Sizes(NamedTuple):
    """Sizes of a chunk in tokens: the target, the maximum, and the overlap with the chunk before."""

    target: int
    maximum: int
    overlap: int
