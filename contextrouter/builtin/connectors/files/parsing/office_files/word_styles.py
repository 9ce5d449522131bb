"""Word styles: which paragraphs are headings or items of lists, and which text is hidden."""

from __future__ import annotations

import re
from typing import Any

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"(?i)heading ?([1-9])$")
OFF = ("0", "false", "off")
_LONGEST_CHAIN = 12


class WordStyles:
    """The styles and numberings of one document. Styles are known by their names, which Word stores in
    English in every language.
    """

    def __init__(self, part: Any) -> None:
        self._styles = {style.get(_W + "styleId"): style for style in _part_elements(part, "styles", "style")}
        self._formats = _formats(part)

    def mark(self, paragraph: Any, text: str) -> str:
        """A paragraph with the mark of its style: a heading, an item of a list, or nothing."""
        if not text:
            return ""
        chain = list(self._chain(_attribute(paragraph, "pPr/pStyle")))
        names = [_attribute(style, "name") for style in chain] or [_attribute(paragraph, "pPr/pStyle")]
        level = self._level(paragraph, chain, names)
        if level:
            return "#" * min(level, 6) + " " + text
        if marker := self._list_marker(paragraph, chain, names):
            return marker + text
        return text

    def _level(self, paragraph: Any, chain: list[Any], names: list[str]) -> int:
        if names and names[0] in ("Title", "Subtitle"):
            return 1 if names[0] == "Title" else 2
        for name in names:
            if heading := _HEADING.match(name):
                return int(heading[1])
        for element in (paragraph, *chain):
            outline = _attribute(element, "pPr/outlineLvl")
            if outline.isdigit():
                return int(outline) + 1 if int(outline) < 9 else 0
        return 0

    def _list_marker(self, paragraph: Any, chain: list[Any], names: list[str]) -> str:
        number, indent = _attribute(paragraph, "pPr/numPr/numId"), _attribute(paragraph, "pPr/numPr/ilvl")
        if not number:
            number = next(filter(None, (_attribute(style, "pPr/numPr/numId") for style in chain)), "")
        level = int(indent) if indent.isdigit() else 0
        numbered = self._formats.get((number, level), "")
        if any(name.startswith("List ") for name in names) and not numbered:
            numbered = "decimal" if "Number" in names[0] else "bullet"
        if not numbered or numbered == "none" or number == "0":
            return ""
        return "  " * level + ("- " if numbered == "bullet" else "1. ")

    def is_hidden(self, run: Any) -> bool:
        """Whether the text of a run is not shown: by its own property, or by that of its style or of its
        paragraph's.
        """
        paragraph = next(run.iterancestors(_W + "p"), run)
        styles = _attribute(run, "rPr/rStyle"), _attribute(paragraph, "pPr/pStyle")
        for element in (run, *(style for name in styles for style in self._chain(name))):
            vanish = element.find(f"{_W}rPr/{_W}vanish")
            if vanish is not None:
                return vanish.get(_W + "val") not in OFF
        return False

    def _chain(self, style_id: str) -> Any:
        """Yield a style, the style it is based on, and so on."""
        for _ in range(_LONGEST_CHAIN):
            style = self._styles.get(style_id)
            if style is None:
                return
            yield style
            style_id = _attribute(style, "basedOn")


def _attribute(element: Any, path: str) -> str:
    child = element.find("/".join(_W + name for name in path.split("/")))
    return "" if child is None else child.get(_W + "val") or ""


def _part_elements(part: Any, kind: str, children: str) -> Any:
    """The children of the part with the styles or numberings; nothing where the document has none."""
    from docx.oxml import parse_xml

    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.endswith(f"/{kind}"):
            return parse_xml(relation.target_part.blob).findall(_W + children)
    return ()


def _formats(part: Any) -> dict[tuple[str, int], str]:
    """The number format of each level of each list: (number of the list, level) -> "bullet", "decimal" …"""
    levels: dict[str, dict[int, str]] = {}
    for abstract in _part_elements(part, "numbering", "abstractNum"):
        levels[abstract.get(_W + "abstractNumId")] = {
            int(level.get(_W + "ilvl", "0")): _attribute(level, "numFmt") or "decimal"
            for level in abstract.iterchildren(_W + "lvl")
        }
    return {
        (number.get(_W + "numId"), level): name
        for number in _part_elements(part, "numbering", "num")
        for level, name in levels.get(_attribute(number, "abstractNumId"), {}).items()
    }
