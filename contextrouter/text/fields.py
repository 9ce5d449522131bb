"""Searched fields: which texts of a document an index reads, title, heading path and body."""

from __future__ import annotations

from contextrouter.model import SEARCH_TEXT, Document


def fields(document: Document) -> tuple[str, str, str]:
    """Return what is searched of a document: title, heading path and body."""
    return document.title, " ".join(document.path), body(document)


def body(document: Document) -> str:
    """Return the text that is searched: `metadata["search_text"]` where a transform made one, else the
    content, which is what is shown.
    """
    text = document.metadata.get(SEARCH_TEXT)
    return text if isinstance(text, str) else document.content
