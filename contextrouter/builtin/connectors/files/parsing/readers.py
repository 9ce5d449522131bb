"""Which reader parses which media type. The process that parses imports a reader when it needs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from contextrouter.builtin.connectors.files.parsing import media
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed

_READERS = {
    "pdf:read": (media.PDF,),
    "office_files.word:read_docx": (media.DOCX,),
    "office_files.slides:read_pptx": (media.PPTX,),
    "office_files.sheets:read_sheets": (media.XLSX, media.XLS, media.XLSB, media.ODS),
    "office_files.opendocument:read_opendocument": (media.ODT, media.ODP),
    "epub:read_epub": (media.EPUB,),
    "page:read_html": (media.HTML,),
    "page:read_feed": (media.FEED,),
    "markups.rich_text:read_rtf": (media.RTF,),
    "notebook:read_notebook": (media.NOTEBOOK,),
    "mail:read_message": (media.MAIL,),
    "mail:read_mailbox": (media.MBOX,),
}
_TEXT_READERS = {
    "subtitles:read_subtitles": (media.SRT, media.VTT),
    "markups.rst:read_rst": (media.RST,),
    "markups.asciidoc:read_asciidoc": (media.ASCIIDOC,),
    "markups.mdx:read_mdx": (media.MDX,),
    "markups.org:read_org": (media.ORG,),
    "markups.manual:read_manual": (media.MANUAL,),
    "markups.latex:read_latex": (media.LATEX,),
    "markups.wikitext:read_wiki_dump": (media.WIKI_DUMP,),
    "calendars:read_calendar": (media.CALENDAR,),
    "calendars:read_cards": (media.CARDS,),
    "api_descriptions:read_openapi": (media.OPENAPI,),
}
READERS = {kind: reader for reader, kinds in (_READERS | _TEXT_READERS).items() for kind in kinds}
"""By media type: the module in this package, and its function."""
TEXTS = frozenset(kind for kinds in _TEXT_READERS.values() for kind in kinds)
"""Media types of texts. Their readers expect UTF-8, so the bytes are decoded first."""


def reader(media_type: str) -> Callable[[bytes], Parsed]:
    """The function that parses a media type."""
    module, _, function = READERS[media_type].partition(":")
    package = importlib.import_module(f"{__package__}.{module}")
    return cast(Callable[[bytes], Parsed], getattr(package, function))
