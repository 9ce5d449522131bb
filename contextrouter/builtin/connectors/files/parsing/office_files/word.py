"""Word documents to Markdown, in their final view: insertions kept, deletions and hidden text left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.office_files.charts import chart_blocks
from contextrouter.builtin.connectors.files.parsing.office_files.packages import openable
from contextrouter.builtin.connectors.files.parsing.office_files.word_styles import OFF, WordStyles
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, markdown_line, markdown_table

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_TRANSPARENT = {
    *(_W + name for name in "sdt sdtContent smartTag customXml ins moveTo fldSimple bdo dir".split()),
    _M + "oMathPara",
}
"""Elements that stand around text without changing it."""
_DELETED = {_W + "del", _W + "moveFrom"}
_SIGNS = {"tab": " ", "br": " ", "cr": " ", "noBreakHyphen": "-", "ptab": " "}
_NOTES = ("footnote", "endnote")
_DEEPEST = 100


def read_docx(data: bytes) -> Parsed:
    """The final view of a Word document, in order; its own properties as title and author."""
    import docx

    document = docx.Document(openable(data))
    has_properties = _has_properties(document)
    reader = _Reader(document.part)
    blocks = list(reader.blocks(document.element.body))
    properties = document.core_properties if has_properties else None
    return Parsed(
        text="\n\n".join(filter(None, blocks)),
        media_type=MARKDOWN,
        title=properties.title or "" if properties else "",
        links=list(reader.links),
        language=(properties.language or "").partition("-")[0].lower() if properties else "",
        metadata={"author": properties.author} if properties and properties.author else {},
        problems=reader.problems(),
    )


def _has_properties(document: Any) -> bool:
    """Whether the file has properties of its own; python-docx makes some up where there are none."""
    return any(rel.reltype.endswith("/core-properties") for rel in document.part.package.rels.values())


class _Reader:
    """The text of the parts of one document."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._styles = WordStyles(part)
        self._notes = {kind: _read_notes(part, kind) for kind in _NOTES}
        self._notes_of_paragraph: list[tuple[str, str]] = []  # of the paragraph that is being read
        self._boxes: list[Any] = []  # text boxes and charts of that paragraph
        self._joined = ""  # text of paragraphs whose end was deleted
        self._left_out: Counter[str] = Counter()
        self._depth = 0
        self.links: dict[str, None] = {}

    def problems(self) -> list[str]:
        """What was left out on purpose, in one sentence."""
        counts = ", ".join(f"{name} {count}" for name, count in self._left_out.items() if count)
        if not counts:
            return []
        return [f"left out of the final view: {counts}."]

    def blocks(self, parent: Any) -> Iterator[str]:
        """Yield the paragraphs and tables below an element as blocks of Markdown."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self._left_out["parts nested too deeply"] += 1
        else:
            for child in parent:
                yield from self._block(child)
            yield self._take_joined()
        self._depth -= 1

    def _take_joined(self) -> str:
        """The text of paragraphs whose end was deleted, where no further paragraph takes it up."""
        joined, self._joined = self._joined, ""
        return markdown_line(joined)

    def _block(self, element: Any) -> Iterator[str]:
        if element.tag == _W + "p":
            yield from self._paragraph(element)
        elif element.tag == _W + "tbl":
            yield from self._table(element)
        elif element.tag in _TRANSPARENT:
            yield from self.blocks(element)
        elif element.tag == _MC + "AlternateContent":
            yield from self.blocks(_alternative(element))
        elif element.tag == _W + "altChunk":
            self._left_out["embedded documents"] += 1

    def _paragraph(self, paragraph: Any) -> Iterator[str]:
        outer = self._notes_of_paragraph, self._boxes
        self._notes_of_paragraph, self._boxes = [], []
        text = self._joined + "".join(self._text(paragraph))
        notes, boxes = self._notes_of_paragraph, self._boxes
        self._notes_of_paragraph, self._boxes = outer
        if paragraph.find(f"{_W}pPr/{_W}rPr/{_W}del") is not None:
            self._joined = text  # the end was deleted, so the next paragraph goes on here
        else:
            self._joined = ""
            yield self._styles.mark(paragraph, markdown_line(text))
        for box in boxes:
            yield from self._box(box)
        for label, note in notes:
            yield f"[^{label}]: {note}"

    def _box(self, box: Any) -> Iterator[str]:
        if box.tag == _W + "txbxContent":
            yield from self.blocks(box)
        else:
            yield from chart_blocks(self._part.related_parts[box.get(_R + "id")].blob)

    def _text(self, parent: Any) -> Iterator[str]:
        """Yield the text of runs below an element."""
        for child in parent:
            if child.tag == _W + "r":
                yield from self._run(child)
            elif child.tag in _DELETED:
                self._left_out["deletions"] += 1
            elif child.tag == _W + "hyperlink":
                self._note_link(child)
                yield from self._text(child)
            elif child.tag in _TRANSPARENT:
                yield from self._text(child)
            elif child.tag == _MC + "AlternateContent":
                yield from self._text(_alternative(child))
            elif child.tag == _M + "oMath":
                yield "".join(child.itertext(_M + "t"))

    def _run(self, run: Any) -> Iterator[str]:
        if self._styles.is_hidden(run):
            self._left_out["hidden texts"] += bool("".join(run.itertext(_W + "t")).strip())
            return
        yield from self._run_content(run)

    def _run_content(self, run: Any) -> Iterator[str]:
        for child in run:
            name = child.tag.removeprefix(_W) if isinstance(child.tag, str) else ""
            if name == "t":
                yield child.text or ""
            elif name in _SIGNS:
                yield _SIGNS[name]
            elif name == "sym":
                yield _symbol(child)
            elif name in ("footnoteReference", "endnoteReference"):
                yield self._note(name.removesuffix("Reference"), child.get(_W + "id"))
            elif name in ("drawing", "pict", "object"):
                self._drawing(child)
            elif name == "ruby":
                yield from self._text(child.find(_W + "rubyBase") or ())
            elif child.tag == _MC + "AlternateContent":
                yield from self._run_content(_alternative(child))

    def _drawing(self, drawing: Any) -> None:
        """Note the text boxes and charts of a drawing, each once, for the end of the paragraph."""
        for element in drawing.iterchildren():
            if element.tag == _W + "txbxContent":
                self._boxes.append(element)
            elif element.tag == _MC + "AlternateContent":
                self._drawing(_alternative(element))
            elif isinstance(element.tag, str) and element.tag.endswith("/chart}chart"):
                if element.get(_R + "id") in self._part.related_parts:
                    self._boxes.append(element)
            else:
                self._drawing(element)

    def _note(self, kind: str, number: str) -> str:
        element = self._notes[kind].get(number)
        if element is None:
            return ""
        label = f"{'e' if kind == 'endnote' else ''}{number}"
        self._notes_of_paragraph.append((label, " ".join(filter(None, self.blocks(element)))))
        return f"[^{label}]"

    def _note_link(self, link: Any) -> None:
        relation = self._part.rels.get(link.get(_R + "id"))
        if relation is not None and relation.is_external and relation.target_ref:
            self.links[relation.target_ref] = None

    def _table(self, table: Any) -> Iterator[str]:
        """Yield a table, and behind it the tables in its cells. A table of one cell only frames its text."""
        yield self._take_joined()
        all_rows = list(_inside(table, "tr"))
        shown = [row for row in all_rows if not _is_left_out(row, "hidden")]
        self._left_out["hidden texts"] += len(all_rows) - len(shown)
        rows = [list(_inside(row, "tc")) for row in shown if not _is_left_out(row, "del")]
        if len(rows) == 1 and len(rows[0]) == 1:
            yield from self.blocks(rows[0][0])
            return
        nested: list[str] = []
        yield markdown_table([[text for cell in row for text in self._cell(cell, nested)] for row in rows])
        yield from nested

    def _cell(self, cell: Any, nested: list[str]) -> Iterator[str]:
        """Yield the text of a cell, and an empty one for each further column that it spans."""
        properties = cell.find(_W + "tcPr")
        merged = None if properties is None else properties.find(_W + "vMerge")
        parts: list[str] = []
        for block in self.blocks(cell):
            (nested if block.startswith("| ") and "\n" in block else parts).append(block)
        is_continued = merged is not None and merged.get(_W + "val") != "restart"
        yield "" if is_continued else " ".join(filter(None, parts))
        span = None if properties is None else properties.find(_W + "gridSpan")
        columns = span.get(_W + "val", "1") if span is not None else "1"
        yield from [""] * (min(int(columns), 64) - 1 if columns.isdigit() else 0)


def _read_notes(part: Any, kind: str) -> dict[str, Any]:
    """The footnotes or endnotes of a document, by number."""
    from docx.oxml import parse_xml

    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.endswith(f"/{kind}s"):
            root = parse_xml(relation.target_part.blob)
            return {
                note.get(_W + "id"): note
                for note in root.iterchildren(_W + kind)
                if note.get(_W + "type") in (None, "normal")
            }
    return {}


def _alternative(element: Any) -> Any:
    """The one of several versions of a part that is read: the first that has a text, else the first."""
    choices = [*element.iterchildren(_MC + "Choice"), *element.iterchildren(_MC + "Fallback")]
    full = (choice for choice in choices if "".join(choice.itertext(_W + "t")).strip())
    return next(full, choices[0] if choices else ())


def _inside(parent: Any, name: str) -> Iterator[Any]:
    """Yield rows or cells, also those inside content controls."""
    children: Iterable[Any] = parent
    for child in children:
        if child.tag == _W + name:
            yield child
        elif child.tag in _TRANSPARENT:
            yield from _inside(child, name)


def _is_left_out(row: Any, why: str) -> bool:
    """Whether a row is marked as hidden or deleted ("del")."""
    mark = row.find(f"{_W}trPr/{_W}{why}")
    return mark is not None and mark.get(_W + "val") not in OFF


def _symbol(element: Any) -> str:
    code = element.get(_W + "char", "")
    if not re.fullmatch(r"[0-9A-Fa-f]{4}", code):
        return ""
    number = int(code, 16)
    return "" if 0xD800 <= number < 0xF900 else chr(number)  # private characters of a symbol font
