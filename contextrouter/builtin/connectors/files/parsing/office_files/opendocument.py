"""OpenDocument texts and presentations to Markdown, in their final view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.office_files.packages import Package
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    Unreadable,
    markdown_line,
    markdown_table,
    one_heading,
    only_images,
)

_NS = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_TEXT, _TABLE, _DRAW, _OFFICE, _CHART, _STYLE = (
    _NS % name for name in ("text", "table", "drawing", "office", "chart", "style")
)
_PRESENTATION = _NS % "presentation"
_DC = "{http://purl.org/dc/elements/1.1/}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
# Deletions stand apart from the text in tracked-changes; the others are not shown, or no text of the author.
_SKIPPED = {
    *(
        _TEXT + name
        for name in "tracked-changes hidden-text hidden-paragraph sequence-decls index-source".split()
    ),
    _OFFICE + "annotation",
    _OFFICE + "forms",
}
_MOST_REPEATS = 64


def read_opendocument(data: bytes) -> Parsed:
    """The paragraphs, lists, tables, notes and charts in order; slides have a heading each."""
    package = Package(data)
    body = next(package.xml("content.xml").iter(_OFFICE + "body"), None)
    if body is None:
        raise Unreadable("is broken, or encrypted: it holds no body.")
    reader = _Reader(package)
    blocks = [block for block in reader.blocks(body) if block]
    meta = package.xml("meta.xml") if "meta.xml" in package.names else None
    values = {
        name: next((element.text or "" for element in meta.iter(_DC + name)), "") if meta is not None else ""
        for name in ("title", "creator", "language", "date")
    }
    return Parsed(
        text="\n\n".join(blocks),
        media_type=MARKDOWN,
        title=values["title"],
        language=values["language"].partition("-")[0].lower(),
        date=values["date"],
        links=list(reader.links),
        metadata={"author": values["creator"]} if values["creator"] else {},
        problems=reader.problems(),
    )


class _Reader:
    """The blocks of one document."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self.links: dict[str, None] = {}
        self._later: list[str] = []  # notes and boxes that stand in the paragraph that is being read
        self._slides = 0
        self._images: list[int] = []  # slides without text
        self._hidden_styles = _hidden_styles(package)
        self._hidden = 0

    def problems(self) -> list[str]:
        """What was left out because it is not shown, or is an image."""
        found = [f"left out of the final view: hidden texts {self._hidden}."] if self._hidden else []
        return [*found, f"{only_images('slide', self._images, self._slides)}."] if self._images else found

    def _is_hidden(self, element: Any) -> bool:
        is_hidden = (
            element.get(_TEXT + "display") == "none"
            or element.get(_TEXT + "style-name") in self._hidden_styles
        )
        self._hidden += is_hidden and bool("".join(element.itertext()).strip())
        return is_hidden

    def blocks(self, parent: Any) -> Iterator[str]:
        """Yield the blocks below an element."""
        for child in parent:
            if not isinstance(child.tag, str) or child.tag in _SKIPPED or self._is_hidden(child):
                continue
            if child.tag in (_TEXT + "p", _TEXT + "h"):
                yield from self._paragraph(child)
            elif child.tag == _TEXT + "list":
                if text := self._list(child, 0):
                    yield text
            elif child.tag == _TABLE + "table":
                yield self._table(child)
            elif child.tag == _DRAW + "page":
                yield from self._slide(child)
            elif child.tag == _DRAW + "object":
                yield from self._object(child)
            else:
                yield from self.blocks(child)

    def _paragraph(self, element: Any) -> Iterator[str]:
        outer, self._later = self._later, []
        text = "".join(self._inline(element))
        later, self._later = self._later, outer
        if element.tag == _TEXT + "h":
            level = element.get(_TEXT + "outline-level", "1")
            yield one_heading(int(level) if level.isdigit() else 1, text)
        else:
            yield markdown_line(text)
        yield from later

    def _inline(self, element: Any) -> Iterator[str]:
        yield element.text or ""
        for child in element:
            yield from self._inline_child(child)
            yield child.tail or ""

    def _inline_child(self, child: Any) -> Iterator[str]:
        if not isinstance(child.tag, str) or child.tag in _SKIPPED or self._is_hidden(child):
            return
        if child.tag in (_TEXT + "s", _TEXT + "tab", _TEXT + "line-break"):
            yield " "
        elif child.tag == _TEXT + "note":
            number = "".join(child.find(_TEXT + "note-citation").itertext()).strip()
            body = child.find(_TEXT + "note-body")
            text = " ".join(filter(None, self.blocks(body))) if body is not None else ""
            self._later.append(f"[^{number}]: {text}")
            yield f"[^{number}]"
        elif child.tag.startswith(_DRAW):
            self._later += self.blocks([child])
        else:
            if child.tag == _TEXT + "a" and (target := child.get(_XLINK, "")):
                self.links[target] = None
            yield from self._inline(child)

    def _list(self, element: Any, depth: int) -> str:
        lines = []
        for item in element:
            for child in item:
                if child.tag == _TEXT + "list":
                    lines.append(self._list(child, depth + 1))
                else:
                    lines += ["  " * depth + "- " + block for block in self.blocks([child]) if block]
        return "\n".join(filter(None, lines))

    def _table(self, table: Any) -> str:
        rows = []
        for row in table.iter(_TABLE + "table-row"):
            if next(row.iterancestors(_TABLE + "table")) is not table:
                continue
            cells: list[str] = []
            for cell in row.iterchildren(_TABLE + "table-cell", _TABLE + "covered-table-cell"):
                repeats = cell.get(_TABLE + "number-columns-repeated", "1")
                text = " ".join(filter(None, self.blocks(cell)))
                cells += [text] * min(int(repeats) if repeats.isdigit() else 1, _MOST_REPEATS)
            rows.append(cells)
        return markdown_table([row for row in rows if any(row)])

    def _slide(self, page: Any) -> Iterator[str]:
        self._slides += 1
        frames, title = list(page), ""
        for frame in frames:
            if frame.get(_PRESENTATION + "class") == "title":
                title = " ".join("".join(frame.itertext()).split())
                frames.remove(frame)
                break
        blocks = [block for block in self.blocks(frames) if block]
        if title or blocks:
            yield f"## {title or f'Slide {self._slides}'}"
        elif next(page.iter(_DRAW + "image"), None) is not None:
            self._images.append(self._slides)
        yield from blocks

    def _object(self, element: Any) -> Iterator[str]:
        """Yield the title and the table of an embedded chart."""
        name = element.get(_XLINK, "").removeprefix("./") + "/content.xml"
        if name not in self._package.names:
            return
        root = self._package.xml(name)
        for title in root.iter(_CHART + "title"):
            yield markdown_line(f"Chart: {' '.join(''.join(title.itertext()).split())}")
            break
        for table in root.iter(_TABLE + "table"):
            yield self._table(table)


def _hidden_styles(package: Package) -> set[str]:
    """The names of the styles whose text is not shown, or that are based on one."""
    parents: dict[str, str] = {}
    hidden: set[str] = set()
    for part in {"content.xml", "styles.xml"} & set(package.names):
        for style in package.xml(part).iter(_STYLE + "style"):
            name = style.get(_STYLE + "name", "")
            parents[name] = style.get(_STYLE + "parent-style-name", "")
            displays = [
                each.get(_TEXT + "display") for each in style.iterchildren(_STYLE + "text-properties")
            ]
            hidden |= {name} if "none" in displays else set()
            parents[name] = "" if any(displays) else parents[name]
    while based := {name for name, parent in parents.items() if parent in hidden} - hidden:
        hidden |= based
    return hidden
