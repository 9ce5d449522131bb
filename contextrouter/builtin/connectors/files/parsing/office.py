"""Word, PowerPoint and Excel to Markdown, with headings, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    Unreadable,
    markdown_line,
    markdown_table,
)

_COMPOUND = (
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # how encrypted files begin, and those of the formats before 2007
)
_HEADING = re.compile(r"(?i)heading ([1-6])")


def _openable(data: bytes) -> BytesIO:
    if data.startswith(_COMPOUND):
        raise Unreadable("is encrypted, or in a format from before 2007; save it anew, without a password.")
    return BytesIO(data)


def read_docx(data: bytes) -> Parsed:
    """The paragraphs and tables of a Word document, in order; its own properties as title and author."""
    import docx
    from docx.table import Table

    document = docx.Document(_openable(data))
    blocks: list[str] = []
    links: dict[str, None] = {}
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            blocks.append(markdown_table([[cell.text for cell in row.cells] for row in block.rows]))
        else:
            blocks.append(_paragraph(block))
            links.update((link.address, None) for link in block.hyperlinks if link.address)
    properties = document.core_properties
    metadata = {"author": properties.author} if properties.author else {}
    return Parsed(
        text="\n\n".join(filter(None, blocks)),
        media_type=MARKDOWN,
        title=properties.title or "",
        links=list(links),
        language=(properties.language or "").partition("-")[0].lower(),
        metadata=metadata,
    )


def _paragraph(paragraph: Any) -> str:
    text = markdown_line(paragraph.text)
    style = (paragraph.style.name or "") if paragraph.style is not None else ""
    heading = _HEADING.match(style)
    if not text or not (heading or style in ("Title", "Subtitle") or style.startswith("List")):
        return text
    if style.startswith("List"):
        return ("1. " if "Number" in style else "- ") + text
    return "#" * (int(heading[1]) if heading else 1 if style == "Title" else 2) + " " + text


def read_pptx(data: bytes) -> Parsed:
    """Slide by slide: a heading, its texts and tables, and the notes below it."""
    import pptx

    deck = pptx.Presentation(_openable(data))
    text, starts = "", []
    links: dict[str, None] = {}
    for number, slide in enumerate(deck.slides, 1):
        title = slide.shapes.title
        heading = " ".join(title.text.split()) if title is not None else ""
        blocks = [f"## {heading or f'Slide {number}'}", *_shapes(slide.shapes, title)]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            blocks += map(markdown_line, slide.notes_slide.notes_text_frame.text.splitlines())
        links.update((rel.target_ref, None) for rel in slide.part.rels.values() if rel.is_external)
        text += "\n\n" if text else ""
        starts.append(len(text))
        text += "\n\n".join(filter(None, blocks))
    title = deck.core_properties.title
    return Parsed(
        text=text, media_type=MARKDOWN, title=title or "", links=list(links), metadata={"page_starts": starts}
    )


def _shapes(shapes: Iterable[Any], title: Any) -> Iterator[str]:
    for shape in shapes:
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes(shape.shapes, title)
        elif getattr(shape, "has_table", False):
            yield markdown_table([[cell.text for cell in row.cells] for row in shape.table.rows])
        elif shape.has_text_frame:
            yield from (markdown_line(paragraph.text) for paragraph in shape.text_frame.paragraphs)


def read_xlsx(data: bytes) -> Parsed:
    """Sheet by sheet: its name as heading, and a table for each run of rows that are not empty; formulas as
    last computed.
    """
    import openpyxl

    book = openpyxl.load_workbook(_openable(data), read_only=True, data_only=True)
    blocks: list[str] = []
    for sheet in book.worksheets:
        tables = [markdown_table(rows) for rows in _runs(sheet.iter_rows(values_only=True))]
        if tables:
            blocks += [f"## {' '.join(sheet.title.split())}", *tables]
    title = book.properties.title
    book.close()
    return Parsed(text="\n\n".join(blocks), media_type=MARKDOWN, title=title or "")


def _runs(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Rows that follow each other, without the columns that are empty in all of them."""
    run: list[Sequence[Any]] = []
    for row in rows:
        if any(value is not None and str(value).strip() for value in row):
            run.append(row)
        elif run:
            yield _trim(run)
            run = []
    if run:
        yield _trim(run)


def _trim(run: list[Sequence[Any]]) -> list[Sequence[Any]]:
    width = max(map(len, run))
    used = [i for i in range(width) if any(i < len(row) and row[i] is not None for row in run)]
    return [[row[i] if i < len(row) else None for i in used] for row in run]
