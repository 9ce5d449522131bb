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
XLS, XLSB = "application/vnd.ms-excel", "application/vnd.ms-excel.sheet.binary.macroenabled.12"
_OPEN = "application/vnd.oasis.opendocument."
ODT, ODP, ODS = _OPEN + "text", _OPEN + "presentation", _OPEN + "spreadsheet"
EPUB, RTF = "application/epub+zip", "application/rtf"
NOTEBOOK, MAIL, MBOX = "application/x-ipynb+json", "message/rfc822", "application/mbox"
SRT, VTT = "application/x-subrip", "text/vtt"
RST, ASCIIDOC, MDX, ORG = "text/x-rst", "text/asciidoc", "text/mdx", "text/org"
MANUAL, LATEX = "text/troff", "text/x-tex"
CALENDAR, CARDS = "text/calendar", "text/vcard"
YAML, TOML, OPENAPI = "application/yaml", "application/toml", "application/vnd.oai.openapi"
HTML, MARKDOWN, PLAIN, XML, FEED, WIKI_DUMP = (
    "text/html",
    "text/markdown",
    "text/plain",
    "application/xml",
    "application/rss+xml",
    "application/x-mediawiki-export+xml",
)
_SUFFIXES = {
    MARKDOWN: "md markdown mdown mkd",
    PLAIN: "txt text log",
    RST: "rst",
    ASCIIDOC: "adoc asciidoc",
    MDX: "mdx",
    ORG: "org",
    MANUAL: "man 1 2 3 4 5 6 7 8 9",
    LATEX: "tex",
    CALENDAR: "ics",
    CARDS: "vcf",
    YAML: "yaml yml",
    TOML: "toml",
    HTML: "html htm xhtml",
    XML: "xml",
    FEED: "rss atom rdf",
    PDF: "pdf",
    DOCX: "docx docm",
    PPTX: "pptx pptm",
    XLSX: "xlsx xlsm",
    XLS: "xls",
    XLSB: "xlsb",
    ODT: "odt",
    ODP: "odp",
    ODS: "ods",
    EPUB: "epub",
    RTF: "rtf",
    NOTEBOOK: "ipynb",
    MAIL: "eml",
    MBOX: "mbox",
    SRT: "srt",
    VTT: "vtt",
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
JSON = ("application/json", "application/jsonl")
IN_PARTS = (MBOX, WIKI_DUMP, OPENAPI, XML, YAML, "application/json")
"""Media types of files that may hold several documents."""
JUDGED_BY_BEGINNING = frozenset(["", *(f".{section}" for section in range(1, 10))])
"""Suffixes that do not say alone what a file is: none, and numbers, which are manual pages or old logs."""
_NO_TEXTS = (PDF, DOCX, PPTX, XLSX, XLS, XLSB, ODT, ODP, ODS, EPUB)
BEGINNING = 4096
"""Bytes of a file that say what it is when its name does not."""
_PAGE = re.compile(rb"\s*(?:<!--.{0,2000}?-->\s*)?(?:<!doctype\s+html|<html\b)", re.I | re.S)
_FEED = re.compile(rb"<(?:\w+:)?(?:rss|feed|rdf)\b", re.I)
_OPENAPI = re.compile(rb"""^(?:\s*\{\s*)?["']?(?:openapi|swagger)["']?\s*:\s*["']?[23]\.""", re.M)
_MAIL = re.compile(rb"(?:[A-Za-z-]{2,40}:[ \t][^\n]*\n(?:[ \t][^\n]*\n)*){2,}")
_MAIL_FIELDS = re.compile(rb"^(?:from|received|return-path|message-id|subject):", re.I | re.M)
_ZIPPED = (
    (b"word/", DOCX),
    (b"ppt/", PPTX),
    (b"xl/", XLSX),
    (b"mimetypeapplication/epub+zip", EPUB),
    (b"mimetype" + ODT.encode(), ODT),
    (b"mimetype" + ODP.encode(), ODP),
    (b"mimetype" + ODS.encode(), ODS),
)


def media_type(name: str, data: bytes) -> str:
    """The media type of a file by its suffix; where that says nothing, or only XML, by how it begins."""
    by_suffix = MEDIA_TYPES.get(PurePath(name).suffix.lower(), "")
    if by_suffix in (YAML, "application/json") and _OPENAPI.search(data[:BEGINNING]):
        return OPENAPI
    if by_suffix and by_suffix != XML:
        return by_suffix
    head = data[:BEGINNING].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"")
    if by_suffix == XML or head.lstrip().startswith((b"<?xml", b"<rss", b"<feed", b"<mediawiki")):
        if _PAGE.match(head):
            return HTML
        return WIKI_DUMP if b"<mediawiki" in head else FEED if _FEED.search(head) else XML
    return _by_beginning(data, head)


def _by_beginning(data: bytes, head: bytes) -> str:
    if head.startswith(b"%PDF-"):
        return PDF
    if head.startswith(b"{\\rtf"):
        return RTF
    if head.startswith(b"PK\3\4"):
        return next((kind for mark, kind in _ZIPPED if mark in data[:BEGINNING]), PLAIN)
    if _PAGE.match(head):
        return HTML
    if head.startswith(b"WEBVTT"):
        return VTT
    if head.startswith(b"From ") and _MAIL_FIELDS.search(head):
        return MBOX
    if (fields := _MAIL.match(head.replace(b"\r\n", b"\n"))) and len(_MAIL_FIELDS.findall(fields[0])) > 1:
        return MAIL
    return PLAIN


def hint_of_other_kind(kind: str, data: bytes) -> str:
    """A sentence on a file that does not begin like its kind; "" for any other."""
    found = media_type("", data)
    if found not in (PLAIN, kind):
        suffix = next(suffix for suffix, media_type in MEDIA_TYPES.items() if media_type == found)
        return f" It begins like {suffix}; if it is that, rename it."
    if found == PLAIN and kind in _NO_TEXTS and b"\0" not in data and not data.startswith(b"PK\3\4"):
        return " It begins like a text; if it is that, give it a suffix such as .txt or .csv."
    return ""


def is_readable_beginning(suffix: str, head: bytes) -> bool:
    """Whether a file whose suffix says nothing begins like a document, a manual page or a text."""
    if suffix:
        return re.search(rb"^[.'][ \t]*(?:TH|SH|Sh|Dt)\b", head, re.M) is not None
    if not head.strip(b"\0 \t\r\n"):
        return False
    if media_type("", head) != PLAIN or head.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        return True
    return b"\0" not in head and not head.startswith(b"PK\3\4")
