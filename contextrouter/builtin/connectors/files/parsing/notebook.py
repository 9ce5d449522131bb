"""Jupyter notebooks to Markdown: texts, code and what it printed; no images."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.connectors.markup import code_fence

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_IMAGE = re.compile(r"!\[([^\]\n]{0,300})\]\((?:attachment:|data:)[^)\n]*\)")
_TEXTS = ("text/markdown", "text/plain", "text/latex")


def read_notebook(data: bytes) -> Parsed:
    """The cells in order. Raises Unreadable for what is no notebook, or an empty one."""
    try:
        notebook = json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is no notebook ({error}).") from None
    sheets = notebook.get("worksheets") if isinstance(notebook, dict) else None  # version 3
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if isinstance(sheets, list) and sheets and isinstance(sheets[0], dict):
        cells = sheets[0].get("cells")
    if not isinstance(cells, list):
        raise Unreadable("is no notebook: it has no cells.")
    about = _mapping(notebook.get("metadata"))
    kernel, language = _mapping(about.get("kernelspec")), _mapping(about.get("language_info"))
    name = str(language.get("name") or kernel.get("language") or "")
    blocks = [block for cell in cells if isinstance(cell, dict) for block in _cell(cell, name)]
    title = about.get("title")
    return Parsed(
        text="\n\n".join(blocks),
        media_type=MARKDOWN,
        title=title if isinstance(title, str) else "",
        metadata={"code_language": name} if name else {},
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _cell(cell: Mapping[str, Any], language: str) -> Iterator[str]:
    source = _join_lines(cell.get("source", cell.get("input")))
    kind = cell.get("cell_type")
    if kind == "code":
        if source.strip():
            yield code_fence(source, language)
        for output in cell.get("outputs") or ():
            if isinstance(output, dict) and (text := _output(output).strip("\n")):
                yield text if "text/markdown" in _mapping(output.get("data")) else code_fence(text)
    elif kind == "heading":
        yield f"{'#' * int(cell.get('level') or 1)} {source}"
    elif source.strip():
        text = _IMAGE.sub(r"\1", source).strip()
        yield text if kind == "markdown" else code_fence(text)


def _output(output: Mapping[str, Any]) -> str:
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = _mapping(output.get("data"))
    text = next((_join_lines(data[kind]) for kind in _TEXTS if kind in data), "")
    if any(kind.startswith("image/") for kind in data) and text.startswith("<"):
        return ""  # the name of a figure, which nobody reads
    return _ANSI.sub("", text or _join_lines(output.get("text")))


def _join_lines(value: Any) -> str:
    """A text of a notebook: one, or its lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""
