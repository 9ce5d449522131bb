"""AsciiDoc to Markdown: headings, code, tables, lists and notes; no comments and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, markdown_table
from contextrouter.builtin.connectors.markup import code_fence, front_matter

_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*?)(?:[ \t]+=+)?[ \t]*$")
_ATTRIBUTE = re.compile(r":!?[\w-]+!?:(?:[ \t].*)?$")
_BLOCK_ATTRIBUTES = re.compile(r"\[([^\[\]]*)\][ \t]*$")
_FENCE = re.compile(r"(-{4,}|\.{4,}|`{3,})(\w*)[ \t]*$")
_COMMENT = re.compile(r"/{4,}[ \t]*$")
_DELIMITER = re.compile(r"(?:={4,}|\*{4,}|_{4,}|\+{4,}|--)[ \t]*$")
_TABLE = re.compile(r"[|,:!]={3,}[ \t]*$")
_CELL = re.compile(r"(?:^|(?<=[ \t]))(?:\d+[*+]|\.\d+\+)?[<^>.]*[aehlmdsv]?\|", re.M)
_LIST = re.compile(r"[ \t]*(\*{1,5}|\.{1,5}|-)[ \t]+(\S.*)$")
_TERM = re.compile(r"(\S.*?):{2,4}(?:[ \t]+(.*))?$")
_CONDITION = re.compile(r"(?:ifdef|ifndef|ifeval|endif)::.*\[.*\]$")
_NOTES = ("NOTE", "TIP", "IMPORTANT", "WARNING", "CAUTION")
_LINK = re.compile(r"(?:link:)?((?:https?|mailto|ftp):[^\s\[\]]+|(?<=link:)[^\s\[\]]+)\[([^\]\n]*)\]")
_CROSS = re.compile(r"<<([^,>\n]{1,200})(?:,([^>\n]{1,300}))?>>|xref:([^\[\s]{1,300})\[([^\]\n]*)\]")
_IMAGE = re.compile(r"image::?[^\[\s]+\[([^\]\n]*)\]")
_MACRO = re.compile(r"(?:kbd|btn|menu|pass|footnote|stem|icon):[^\[\s]*\[([^\]\n]*)\]")
_ANCHOR = re.compile(r"\[\[[^\]\n]{1,200}\]\]|\[#[^\]\n]{1,200}\](?=\S)")


def read_asciidoc(data: bytes) -> Parsed:
    """The text as Markdown. The title of the document is its first heading."""
    text = data.decode("utf-8", "replace")
    _, source, _ = front_matter(text)
    reader = _Reader(source.splitlines())
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(reader.lines())).strip()
    return Parsed(text=text[: len(text) - len(source)] + body, media_type=MARKDOWN, links=list(reader.links))


class _Reader:
    """Reads lines from the top to the bottom."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._next = lines, 0
        self._language = self._note = ""
        self.links: dict[str, None] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines of Markdown."""
        while self._next < len(self._lines):
            line = self._lines[self._next].rstrip()
            self._next += 1
            yield from self._line(line)

    def _line(self, line: str) -> Iterator[str]:
        if fence := _FENCE.match(line):
            yield from ("", code_fence("\n".join(self._until(fence[1])), fence[2] or self._language), "")
            self._language = ""
        elif _COMMENT.match(line):
            list(self._until(line))
        elif _TABLE.match(line):
            yield from ("", self._table(list(self._until(line))), "")
        elif heading := _HEADING.match(line):
            yield from ("", f"{'#' * len(heading[1])} {self._inline(heading[2])}", "")
        elif attributes := _BLOCK_ATTRIBUTES.match(line):
            self._note_attributes(attributes[1])
        elif self._is_left_out(line):
            return
        else:
            yield from self._text(line)

    def _is_left_out(self, line: str) -> bool:
        """Whether a line is a comment, an attribute or a delimiter."""
        return bool(
            (line.startswith("//") and not line.startswith("///"))
            or _ATTRIBUTE.match(line)
            or _DELIMITER.match(line)
            or _CONDITION.match(line)
            or _ANCHOR.fullmatch(line)
            or line in ("'''", "<<<", "+", "toc::[]")
        )

    def _text(self, line: str) -> Iterator[str]:
        note, self._note = self._note, ""
        if line.startswith("include::"):
            yield f"Include: `{line.removeprefix('include::').partition('[')[0]}`"
        elif match := _LIST.match(line):
            depth, number = len(match[1]) - 1, match[1].startswith(".")
            yield "  " * depth + ("1. " if number else "- ") + self._inline(match[2])
        elif (match := _TERM.match(line)) and "://" not in match[1]:
            yield from (f"**{self._inline(match[1])}**", "", *([self._inline(match[2])] if match[2] else ()))
        elif line.startswith(".") and len(line) > 1 and line[1] not in ". ":
            yield from (f"**{self._inline(line[1:])}**", "")
        else:
            yield (f"**{note.capitalize()}:** " if note and line else "") + self._inline(line)
            if note and not line:
                self._note = note

    def _note_attributes(self, attributes: str) -> None:
        names = [name.strip().strip("\"'") for name in attributes.split(",")]
        if names[0] in ("source", "source%linenums", "") and len(names) > 1:
            self._language = names[1] if re.fullmatch(r"[\w+-]+", names[1]) else ""
        elif names[0] in _NOTES:
            self._note = names[0]

    def _until(self, delimiter: str) -> Iterator[str]:
        """Yield lines up to the line that closes a block."""
        while self._next < len(self._lines):
            line = self._lines[self._next]
            self._next += 1
            if line.rstrip() == delimiter.rstrip():
                return
            yield line

    def _table(self, lines: list[str]) -> str:
        """A table whose rows are lines, or whose first line says how many cells a row has."""
        rows = [cells for line in lines if (cells := self._cells(line)) is not None]
        width = len(next((row for row in rows if row), []))
        if not width:
            return ""
        cells = [cell for row in rows for cell in row]
        if any(len(row) not in (0, width) for row in rows):
            return markdown_table([cells[i : i + width] for i in range(0, len(cells), width)])
        return markdown_table([row for row in rows if row])

    def _cells(self, line: str) -> list[str] | None:
        if not line.strip() or line.startswith("//"):
            return None
        parts = _CELL.split(line)
        return [self._inline(part.strip()) for part in parts[1:]]

    def _inline(self, text: str) -> str:
        def link(match: re.Match[str]) -> str:
            self.links[match[1]] = None
            return match[2].rstrip("^") or match[1]

        def cross(match: re.Match[str]) -> str:
            return (match[2] or match[4] or match[1] or match[3]).strip()

        text = _ANCHOR.sub("", _IMAGE.sub(r"\1", text))
        return _MACRO.sub(r"\1", _CROSS.sub(cross, _LINK.sub(link, text)))
