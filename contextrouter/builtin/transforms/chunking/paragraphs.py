"""Whole paragraphs, as many as the target allows. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from contextrouter.builtin.transforms.chunking.boundaries import PARAGRAPH, Measured
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes


def paragraphs(measured: Measured, sizes: Sizes) -> Iterator[Piece]:
    """Yield paragraphs together up to the target. The next piece repeats as many whole ones as the overlap
    allows.
    """
    text = measured.text
    bounds = [0, *(match.end() for match in PARAGRAPH.finditer(text) if match.end() < len(text)), len(text)]
    first = 0
    while first < len(bounds) - 1:
        last = first + 1
        while last < len(bounds) - 1 and measured.about(bounds[first], bounds[last + 1]) <= sizes.target:
            last += 1
        yield Piece(bounds[first], bounds[last])
        if last == len(bounds) - 1:
            return
        again = last
        while again - 1 > first and measured.about(bounds[again - 1], bounds[last]) <= sizes.overlap:
            again -= 1
        # What is repeated must leave room for the next paragraph, or nothing new would come of it.
        first = again if measured.about(bounds[again], bounds[last + 1]) <= sizes.target else last
