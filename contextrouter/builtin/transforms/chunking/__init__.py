"""Chunking: cuts a document into chunks of limited size."""

from contextrouter.builtin.transforms.chunking.strategies import (
    Chunk,
    Code,
    Fixed,
    Headings,
    Paragraphs,
    Records,
    Tables,
)

__all__ = ["Chunk", "Code", "Fixed", "Headings", "Paragraphs", "Records", "Tables"]
