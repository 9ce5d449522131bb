"""Rich Text Format (RTF) to plain text, by striprtf."""

from __future__ import annotations

import re
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import PLAIN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable

_TITLE = re.compile(r"\{\\title ((?:[^{}\\]|\\'[0-9a-fA-F]{2}|\\[a-z]+-?\d* ?)*)\}")

_RUN = re.compile(r"\{((?:\\[a-zA-Z]+-?\d*[ \r\n]?)+)([^{}]*)\}")
_NOT_SHOWN = re.compile(r"\\(?:v|deleted)(?![a-zA-Z0-9])")


def read_rtf(data: bytes) -> Parsed:
    """The paragraphs, in the code page that the file names. Raises Unreadable for another format."""
    from striprtf import striprtf

    to_text: Any = striprtf.rtf_to_text

    source = data.decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        raise Unreadable("is no RTF.")
    source, hidden = _without_hidden(source)
    paragraphs = (" ".join(line.split()) for line in to_text(source, errors="replace").splitlines())
    title = _TITLE.search(source[:20_000])
    name = to_text("{\\rtf1 " + title[1] + "}", errors="replace").strip() if title else ""
    problems = [f"left out of the final view: hidden texts and deletions {hidden}."] if hidden else []
    text = "\n\n".join(filter(None, paragraphs))
    return Parsed(text=text, media_type=PLAIN, title=name, problems=problems)


def _without_hidden(source: str) -> tuple[str, int]:
    """The source without its runs that are hidden or deleted, and how many these were."""
    left_out = 0

    def keep(group: re.Match[str]) -> str:
        nonlocal left_out
        if not _NOT_SHOWN.search(group[1]):
            return group[0]
        left_out += bool(group[2].strip())
        return ""

    return _RUN.sub(keep, source), left_out
