"""Result of parsing a file: its text, or the reason why it cannot be parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file, what media type that text has, and what the file says of itself.

    `metadata["page_starts"]` holds, for each page or slide, the character at which it begins. `date` is an
    ISO date or instant that the document has of itself. A file of several documents, such as a mailbox, has
    them as `parts`, each with a `name`, and no text of its own.
    """

    text: str
    media_type: str
    title: str = ""
    language: str = ""
    date: str = ""
    name: str = ""
    links: Sequence[str] = ()
    labels: Sequence[str] = ()
    metadata: Mapping[str, Any] = {}
    problems: Sequence[str] = ()
    parts: Sequence[Parsed] = ()


class Unreadable(Exception):
    """A file that cannot be read; the message says why, and stands behind the file's name."""


def number_ranges(numbers: Sequence[int]) -> str:
    """Page numbers in order, as a reader writes them: 2-3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def only_images(unit: str, numbers: Sequence[int], count: int) -> str:
    """The sentence on pages or slides that are images without text."""
    if len(numbers) == 1:
        return f"{unit} {numbers[0]} of {count} holds images and no text"
    return f"{unit}s {number_ranges(numbers)} of {count} hold images and no text"


def markdown_line(text: str) -> str:
    """One paragraph of plain text as Markdown: on one line, and no heading, fence, rule, quote or table that
    it was not.
    """
    line = " ".join(text.split())
    if line.startswith(("#", "```", "~~~", ">", "|")) or (line and not line.strip("-=* _")):
        return "\\" + line
    return line


def markdown_table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as a pipe table whose header is the first of them; "" for none."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    cells = [[_cell(row[i]) if i < len(row) else "" for i in range(width)] for row in rows]
    lines = [cells[0], ["---"] * width, *cells[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    return "" if value is None else " ".join(str(value).split()).replace("|", "\\|")


def distinct_names(parts: Sequence[Parsed]) -> list[Parsed]:
    """The parts, each with a name of its own; the second of a name is called `name~2`."""
    counts: dict[str, int] = {}
    named = []
    for part in parts:
        name = " ".join(part.name.split())[:200] or "part"
        counts[name] = counts.get(name, 0) + 1
        named.append(
            msgspec.structs.replace(part, name=f"{name}~{counts[name]}" if counts[name] > 1 else name)
        )
    return named


def one_heading(level: int, text: str) -> str:
    """A heading of Markdown; "" without a text."""
    line = " ".join(text.split())
    return f"{'#' * min(max(level, 1), 6)} {line}" if line else ""
