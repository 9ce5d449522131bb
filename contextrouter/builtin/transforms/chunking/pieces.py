"""A piece of a text as a strategy of cutting proposes it; how long it may be is seen to afterwards."""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """`text[start:end]` under `path`, outermost first; `header` is where the lines lie that are repeated
    above it.
    """

    start: int
    end: int
    path: tuple[str, ...] = ()
    header: tuple[int, int] | None = None
    title: str = ""


class Sizes(NamedTuple):
    """How many tokens a chunk should have, may have at most, and shares with the one before."""

    target: int
    maximum: int
    overlap: int
