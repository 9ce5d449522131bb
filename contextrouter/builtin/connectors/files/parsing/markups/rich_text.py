"""Rich Text Format (RTF) to plain text, by striprtf."""

from __future__ import annotations

import re
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import PLAIN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable

_TITLE = re.compile(r"\{\\title ((?:[^{}\\]|\\'[0-9a-fA-F]{2}|\\[a-z]+-?\d* ?)*)\}")


def read_rtf(data: bytes) -> Parsed:
    """The paragraphs, in the code page that the file names. Raises Unreadable for another format."""
    from striprtf import striprtf

    to_text: Any = striprtf.rtf_to_text

    source = data.decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        raise Unreadable("is no RTF.")
    paragraphs = (" ".join(line.split()) for line in to_text(source, errors="replace").splitlines())
    title = _TITLE.search(source[:20_000])
    name = to_text("{\\rtf1 " + title[1] + "}", errors="replace").strip() if title else ""
    return Parsed(text="\n\n".join(filter(None, paragraphs)), media_type=PLAIN, title=name)
