"""Markdown chunking: cuts at H1, H2 and H3 headings, with a CommonMark parser. Pure functions."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from contextrouter.errors import MissingDependency

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SMALL, CRUMB, JOINED = 8, 16, 6
"""A section with less than the first part of the target is joined with its sibling, if both together have at
most the third. One with less than the second part is joined with any sibling, up to the target.

Measured on kgpacks-faq, its sources joined: 2,000 tokens full of chunks hold the answer to 1,346 of 1,355
questions; to 1,345 without joining or with a quarter, to 1,341 with a third, and with the whole target for
all to .986 of them.
"""
_LINE_END = re.compile(r"\r\n|\n|\r")
# Front matter starts at the first character, and a line closes it. A later "---" is a rule or a setext
# heading.
_FRONT_MATTER = re.compile(
    r"---[ \t]*(?:\r\n|\n|\r)"
    r"(?:(?!(?:---|\.\.\.)[ \t]*(?:[\r\n]|\Z))[^\r\n]*(?:\r\n|\n|\r))*"
    r"(?:---|\.\.\.)[ \t]*(?:\r\n|\n|\r|\Z)"
)


class Heading(NamedTuple):
    """A heading: its level (1 to 3), its text, and the start and end of its lines (characters)."""

    level: int
    text: str
    start: int
    end: int


class Section(NamedTuple):
    """The section `text[start:end]`. `path` has its headings, outermost first; `level` is that of its own."""

    start: int
    end: int
    path: tuple[str, ...]
    level: int = 0


def headings(text: str) -> list[Heading]:
    """Return the H1, H2 and H3 of a Markdown text, in order. Headings in code, quotes and lists do not count.

    As in CommonMark, a line of "=" or "-" under a paragraph makes the whole paragraph a heading. Raises
    MissingDependency without markdown-it-py.
    """
    if importlib.util.find_spec("markdown_it") is None:
        raise MissingDependency("markdown-it-py", "markdown", what="Cutting Markdown at its headings")
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    offset = front_matter(text)
    lines = [offset, *(match.end() for match in _LINE_END.finditer(text, offset)), len(text)]
    blocks = _blocks(parser, text[offset:])
    result = []
    for opening, inline in pairwise(blocks):
        if opening.type == "heading_open" and opening.level == 0 and opening.tag in ("h1", "h2", "h3"):
            first_line, end_line = opening.map
            result.append(
                Heading(
                    int(opening.tag[1]),
                    _heading_text(parser, inline.content),
                    lines[first_line],
                    lines[end_line],
                )
            )
    return result


def front_matter(text: str) -> int:
    """Return the length of the front matter of `text`, in characters."""
    match = _FRONT_MATTER.match(text)
    return match.end() if match else 0


def sections(text: str, outline: Sequence[Heading]) -> Iterator[Section]:
    """Yield sections that cover `text`, with the headings of `outline`.

    Front matter and a heading without text join the next section. At the end of the text they join the last
    one.
    """
    path: list[tuple[int, str]] = []
    marks = [Heading(0, "", 0, front_matter(text)), *outline]
    ends = [*(mark.start for mark in marks[1:]), len(text)]
    start, ready = 0, None
    for mark, end in zip(marks, ends, strict=True):
        if mark.level:
            path = [*(outer for outer in path if outer[0] < mark.level), (mark.level, mark.text)]
        if not text[mark.end : end].strip():
            continue
        if ready is not None:
            yield ready
        ready = Section(start, end, tuple(name for _, name in path if name), mark.level)
        start = end
    if ready is not None:
        yield ready._replace(end=len(text))
    elif text.strip():
        yield Section(0, len(text), tuple(name for _, name in path if name))


def join_siblings(
    parts: Iterable[Section], size: Callable[[int, int], int], target: int
) -> Iterator[Section]:
    """Yield sections, small ones joined with their next sibling: a section of the same level under the same
    heading. The last of several siblings joins the one before it.

    A section is small if it has less than an eighth of `target`. What is joined stands under the common
    heading, and has at most a sixth of it; with a sixteenth, a crumb, at most all of it. `size` counts the
    tokens between two places.
    """
    pending: Section | None = None
    for section in parts:
        if pending is not None and _are_siblings(pending, section):
            sizes = size(pending.start, pending.end), size(section.start, section.end)
            most = target if min(sizes) < target // CRUMB else target // JOINED
            if min(sizes) < target // SMALL and size(pending.start, section.end) <= most:
                pending = Section(pending.start, section.end, section.path[:-1], section.level)
                continue
        if pending is not None:
            yield pending
        pending = section
    if pending is not None:
        yield pending


def _are_siblings(before: Section, second: Section) -> bool:
    """Whether two sections that follow each other stand under the same heading. What was joined stands
    directly under it.
    """
    parent = second.path[:-1]
    return bool(parent) and before.level == second.level and parent in (before.path[:-1], before.path)


def _blocks(parser: MarkdownIt, text: str) -> list[Any]:
    """Return the block tokens. Inline tokens are not parsed, because they take most of the time."""
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser.parse(text)


def _heading_text(parser: MarkdownIt, source: str) -> str:
    """Return the text of a heading without markup."""
    parser.core.ruler.enableOnly(["normalize", "block", "inline", "text_join"])
    children = [child for token in parser.parseInline(source) for child in token.children or ()]
    return " ".join("".join(" " if c.type.endswith("break") else c.content for c in children).split())
