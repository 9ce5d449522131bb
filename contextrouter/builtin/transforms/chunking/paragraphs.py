"""Paragraph chunking: joins whole paragraphs up to the target size. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from contextrouter.builtin.transforms.chunking.boundaries import PARAGRAPH, TokenizedText
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes


def paragraphs(tokenized: TokenizedText, sizes: Sizes) -> Iterator[Piece]:
    """Yield pieces of whole paragraphs up to the target. Each repeats whole paragraphs within the overlap."""
    text = tokenized.text
    bounds = [0, *(match.end() for match in PARAGRAPH.finditer(text) if match.end() < len(text)), len(text)]
    begin = 0
    while begin < len(bounds) - 1:
        end = begin + 1
        while end < len(bounds) - 1 and tokenized.estimate(bounds[begin], bounds[end + 1]) <= sizes.target:
            end += 1
        yield Piece(bounds[begin], bounds[end])
        if end == len(bounds) - 1:
            return
        restart = end
        while restart - 1 > begin and tokenized.estimate(bounds[restart - 1], bounds[end]) <= sizes.overlap:
            restart -= 1
        # The repeated paragraphs must leave room for the next one, or the piece has nothing new.
        begin = restart if tokenized.estimate(bounds[restart], bounds[end + 1]) <= sizes.target else end
