"""MDX to Markdown: without imports, exports, tags of components and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.connectors.markup import front_matter

_MODULE = re.compile(r"(?:import|export)\b(?=[\s{*\"'])")
_COMMENT = re.compile(r"\{\s*/\*.*?\*/\s*\}|<!--.*?-->", re.S)
_TAG = re.compile(r"</?[A-Z][\w.]*(?:\s[^<>]{0,2000}?)?/?>|</?>", re.S)
_FENCE = re.compile(r"^ {0,12}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,12}\1[`~]*[ \t]*$|\Z)", re.S | re.M)


def read_mdx(data: bytes) -> Parsed:
    """The text as Markdown; code stays as it is."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    _, source, _ = front_matter(text)
    pieces, position = [], 0
    for code in _FENCE.finditer(source):
        pieces += [_prose(source[position : code.start()]), _dedent(code[0])]
        position = code.end()
    pieces.append(_prose(source[position:]))
    body = re.sub(r"\n{3,}", "\n\n", "".join(pieces))
    return Parsed(text=text[: len(text) - len(source)] + body, media_type=MARKDOWN)


def _prose(text: str) -> str:
    return "\n".join(_lines_without_modules(_TAG.sub("", _COMMENT.sub("", text))))


def _lines_without_modules(text: str) -> Iterator[str]:
    """Yield lines without modules, whose blocks end at a blank line, and without the indent of components."""
    is_module = False
    for line in text.split("\n"):
        if not line.strip():
            is_module = False
        elif _MODULE.match(line):
            is_module = True
        if not is_module:
            indent = len(line) - len(line.lstrip())
            is_item = re.match(r"[-*+]|\d+[.)]", line.lstrip())
            yield line if is_item or indent < 2 else line.lstrip()


def _dedent(code: str) -> str:
    lines = code.split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[min(indent, len(line) - len(line.lstrip())) :] for line in lines)
