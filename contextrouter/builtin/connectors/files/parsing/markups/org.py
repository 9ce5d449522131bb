"""Org mode to Markdown: headings, code, tables and links; no drawers and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.connectors.markup import code_fence

_HEADING = re.compile(
    r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING)[ \t]+)?(?:\[#[A-Z]\][ \t]+)?(.*?)[ \t]*(:[\w@:]+:)?$"
)
_KEYWORD = re.compile(r"#\+(\w+):[ \t]*(.*)$")
_BEGIN = re.compile(r"[ \t]*#\+begin_(\w+)[ \t]*(\S*).*$", re.I)
_DRAWER = re.compile(r"[ \t]*:[A-Za-z_-]+:[ \t]*$")
_LINK = re.compile(r"\[\[([^\]\n]{1,2000})\](?:\[([^\]\n]{1,500})\])?\]")
_CODE = ("src", "example", "export")


def read_org(data: bytes) -> Parsed:
    """The text as Markdown, with the title and tags that the file names."""
    reader = _Reader(data.decode("utf-8", "replace").splitlines())
    body = "\n".join(reader.lines()).strip()
    return Parsed(
        text=body,
        media_type=MARKDOWN,
        title=reader.values.get("title", ""),
        date=reader.values.get("date", "").strip("<>[]")[:10],
        links=list(reader.links),
        labels=list(reader.labels),
        metadata={"author": reader.values["author"]} if reader.values.get("author") else {},
    )


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = iter(lines)
        self.values: dict[str, str] = {}
        self.links: dict[str, None] = {}
        self.labels: dict[str, None] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines of Markdown."""
        for line in self._lines:
            if heading := _HEADING.match(line):
                self.labels.update(dict.fromkeys(filter(None, (heading[3] or "").split(":"))))
                yield f"{'#' * min(len(heading[1]), 6)} {self._inline(heading[2])}"
            elif begin := _BEGIN.match(line):
                yield from self._block(begin[1].lower(), begin[2])
            elif keyword := _KEYWORD.match(line):
                self._note(keyword[1].lower(), keyword[2].strip())
            elif _DRAWER.match(line):
                self._skip_drawer()
            elif not (line.startswith("# ") or line == "#"):
                yield self._inline(line.replace("+", "|") if re.match(r"\s*\|[-+]+\|\s*$", line) else line)

    def _note(self, name: str, value: str) -> None:
        if name == "filetags":
            self.labels.update(dict.fromkeys(filter(None, value.split(":"))))
        else:
            self.values.setdefault(name, value)

    def _block(self, kind: str, language: str) -> Iterator[str]:
        lines = []
        for line in self._lines:
            if line.strip().lower() == f"#+end_{kind}":
                break
            lines.append(line)
        if kind in _CODE:
            yield code_fence("\n".join(lines), language if kind == "src" else "")
        elif kind != "comment":
            mark = "> " if kind == "quote" else ""
            yield from (mark + self._inline(line) for line in lines)

    def _skip_drawer(self) -> None:
        for line in self._lines:
            if line.strip().lower() == ":end:":
                return

    def _inline(self, text: str) -> str:
        def link(match: re.Match[str]) -> str:
            if "://" in match[1]:
                self.links[match[1]] = None
            return match[2] or match[1]

        return _LINK.sub(link, text)
