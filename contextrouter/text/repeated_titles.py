"""Titles that stand twice: what a block of the context need not repeat of its title and heading path."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADING = re.compile(r"\s*^ {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$\n?", re.M)
_MARKS = re.compile(r"[`*_\\]|\[([^\]\n]*)\]\([^)\n]*\)")


def without_repeats(title: str, path: Sequence[str], content: str) -> tuple[tuple[str, ...], str]:
    """Return the heading path without the title, and the content without the headings at its beginning that
    the title or the path already say. A content of headings alone stays.
    """
    if not path and not content.lstrip().startswith("#"):  # as in most documents
        return (), content
    names = {_comparable(name) for name in (title, *path) if name.strip()}
    remaining = tuple(path)
    while remaining and _comparable(remaining[0]) == _comparable(title):
        remaining = remaining[1:]
    position = 0
    while (heading := _HEADING.match(content, position)) and _comparable(heading[1]) in names:
        position = heading.end()
    shorter = content[position:]
    return remaining, shorter if shorter.strip() else content


def _comparable(text: str) -> str:
    """A heading as it is compared: without markup, case and double spaces."""
    return " ".join(_MARKS.sub(lambda match: match[1] or "", text).casefold().split())
