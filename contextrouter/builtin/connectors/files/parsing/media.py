"""Media type (MIME type) detection: by a file's suffix, or by its first bytes."""

from __future__ import annotations

import re
from pathlib import PurePath

PDF = "application/pdf"
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCX, PPTX, XLSX = (
    _OFFICE + name
    for name in ("wordprocessingml.document", "presentationml.presentation", "spreadsheetml.sheet")
)
HTML, MARKDOWN, PLAIN, XML, FEED = (
    "text/html",
    "text/markdown",
    "text/plain",
    "application/xml",
    "application/rss+xml",
)
_SUFFIXES = {
    MARKDOWN: "md markdown",
    PLAIN: "txt text",
    "text/x-rst": "rst",
    HTML: "html htm xhtml",
    XML: "xml",
    FEED: "rss atom rdf",
    PDF: "pdf",
    DOCX: "docx",
    PPTX: "pptx",
    XLSX: "xlsx",
    "application/json": "json",
    "application/jsonl": "jsonl ndjson",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "text/x-python": "py pyi",
    "text/javascript": "js mjs cjs jsx",
    "text/x-typescript": "ts mts cts",
    "text/x-tsx": "tsx",
    "text/x-go": "go",
    "text/x-rust": "rs",
    "text/x-java": "java",
    "text/x-c": "c h",
    "text/x-c++": "cc cpp cxx hpp hh hxx",
}
MEDIA_TYPES = {
    f".{suffix}": media_type for media_type, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}
"""By suffix, small letters."""
_PAGE = re.compile(rb"\s*(?:<!--.{0,2000}?-->\s*)?(?:<!doctype\s+html|<html\b)", re.I | re.S)
_FEED = re.compile(rb"<(?:\w+:)?(?:rss|feed|rdf)\b", re.I)


def media_type(name: str, data: bytes) -> str:
    """The media type of a file by its suffix; where that says nothing, or only XML, by how it begins."""
    by_suffix = MEDIA_TYPES.get(PurePath(name).suffix.lower(), "")
    if by_suffix and by_suffix != XML:
        return by_suffix
    head = data[:4096].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"")
    if head.startswith(b"%PDF-"):
        return PDF
    if _PAGE.match(head):
        return HTML
    if by_suffix == XML or head.lstrip().startswith((b"<?xml", b"<rss", b"<feed")):
        return FEED if _FEED.search(head) else XML
    return PLAIN
