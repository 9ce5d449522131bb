"""PowerPoint to Markdown: slide by slide, with tables, charts, diagrams and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.office_files.charts import chart_blocks
from contextrouter.builtin.connectors.files.parsing.office_files.packages import openable, xml
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    Unreadable,
    markdown_line,
    markdown_table,
    only_images,
)

_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds"
_DATA = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_PICTURE = "{http://schemas.openxmlformats.org/presentationml/2006/main}pic"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


def read_pptx(data: bytes) -> Parsed:
    """Slide by slide: a heading, its texts, tables, charts and diagrams, and the notes below it."""
    import pptx

    deck = pptx.Presentation(openable(data))
    text, starts, images = "", [], []
    links: dict[str, None] = {}
    for number, slide in enumerate(deck.slides, 1):
        title = slide.shapes.title
        heading = " ".join(title.text.split()) if title is not None else ""
        blocks = list(_shapes(slide.shapes, title))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            blocks += map(markdown_line, slide.notes_slide.notes_text_frame.text.splitlines())
        if heading or any(blocks):
            blocks.insert(0, f"## {heading or f'Slide {number}'}")
        elif next(slide._element.iter(_PICTURE), None) is not None:
            images.append(number)
        links.update((rel.target_ref, None) for rel in slide.part.rels.values() if rel.is_external)
        text += "\n\n" if text and any(blocks) else ""
        starts.append(len(text))
        text += "\n\n".join(filter(None, blocks))
    if not text:
        raise Unreadable(f"holds no text on its {len(starts)} slides.")
    return Parsed(
        text=text,
        media_type=MARKDOWN,
        title=deck.core_properties.title or "",
        links=list(links),
        metadata={"page_starts": starts, **({"pages_without_text": images} if images else {})},
        problems=[f"{only_images('slide', images, len(starts))}."] if images else [],
    )


def _shapes(shapes: Iterable[Any], title: Any) -> Iterator[str]:
    for shape in shapes:
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes(shape.shapes, title)
        elif getattr(shape, "has_table", False):
            yield markdown_table([[cell.text for cell in row.cells] for row in shape.table.rows])
        elif getattr(shape, "has_chart", False):
            yield from chart_blocks(shape.chart.part.blob)
        elif shape.has_text_frame:
            yield from (markdown_line(paragraph.text) for paragraph in shape.text_frame.paragraphs)
        else:
            yield from _diagram(shape)


def _diagram(shape: Any) -> Iterator[str]:
    """Yield the texts of a diagram (SmartArt), a line each."""
    for reference in shape._element.iter(_DIAGRAM):
        part = shape.part.related_parts.get(reference.get(_DATA)) if reference.get(_DATA) else None
        for paragraph in xml(part.blob).iter(_A + "p") if part is not None else ():
            yield markdown_line("".join(paragraph.itertext(_A + "t")))
