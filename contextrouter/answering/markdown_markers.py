"""Citation markers of a Markdown text, found by a parser: `[1]`, `[1, 2]`, `[1-3]`, outside code.

`checked` writes each marker as `[1][2]`, without the numbers that the context does not have. A marker is
never a link: the target of `[1](http://elsewhere)` goes, a link whose text has a marker becomes text, and no
line defines where a number leads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from contextrouter.errors import MissingDependency
from contextrouter.runtime.threads import work_aside

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MARKER = re.compile(r"\[\s*(\d{1,30}(?:\s*[,;–-]\s*\d{1,30})*)\s*\]")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_NUMBERS = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")
_DEEPEST = 100  # quotes and lists in each other; what is deeper is read as plain text
_LONGEST_LINK = 2_000  # characters of a link's text and target
_PASSES = 8  # what is left of nested brackets may be a marker again
LEAVES = ("inline", "fence", "code_block", "hr")
"""Tokens that hold the text of their lines."""
_LETTER = re.compile(r"[^\W\d_]")
_JOINS = ("(", "[", ":")  # behind a bracket, it would make a link or a definition of it


class Edit(NamedTuple):
    """A part of a text, what stands there instead, and the numbers that are cited there."""

    start: int
    end: int
    text: str
    numbers: tuple[int, ...] = ()


class Checked(NamedTuple):
    """A text with checked markers, and the numbers cited, in the order of their first use."""

    text: str
    numbers: tuple[int, ...]


def checked(text: str, count: int) -> Checked:
    """Check the markers of a text for a context of `count` blocks.

    Raises MissingDependency without a Markdown parser.
    """
    if "[" not in text:
        return Checked(text, ())
    lines = split_lines(text)
    unread = [bool(line.strip()) for _, line in lines]
    used: dict[int, None] = {}
    parts: list[tuple[int, int, str]] = []
    for token in parse(text):
        if token.type not in LEAVES or token.map is None:
            continue
        places = Places(token, lines) if token.type == "inline" else None
        if places is not None and "[" in token.content:
            if not places.exact:
                continue
            sources = places.sources(text)
            parts.append(
                (places(0), places(0) + sum(map(len, sources)), _check_inline(token, sources, count, used))
            )
        unread[slice(*token.map)] = [False] * len(unread[slice(*token.map)])
    for (start, line), alone in zip(lines, unread, strict=True):
        if alone and "[" in line:  # too deep for the parser: the line as it stands
            token = _parser().parseInline(line)[0]
            parts.append((start, start + len(line), _check_inline(token, list(line), count, used)))
    return Checked(_replace_parts(text, sorted(parts)), tuple(used))


def _replace_parts(text: str, parts: Sequence[tuple[int, int, str]]) -> str:
    joined, at = [], 0
    for start, end, replacement in parts:
        joined += [text[at:start], replacement]
        at = end
    return "".join((*joined, text[at:]))


def _check_inline(token: Token, sources: list[str], count: int, used: dict[int, None]) -> str:
    """Check an inline token; `sources` is what stands in the text for each of its characters. Note the
    numbers in `used`.
    """
    content = token.content
    for _ in range(_PASSES):
        edits = sorted(_inline_edits(token, count))
        text, at, loose = "", 0, False
        remaining = list[str]()
        for start, end, replacement, numbers in [*edits, Edit(len(content), len(content), "")]:
            used.update(dict.fromkeys(numbers))
            if start < at:
                continue
            between = " " if loose and text.endswith("]") and content[at:start].startswith(_JOINS) else ""
            loose = not replacement or content[end - 1] == ")" or (loose and start == at)
            text += f"{between}{content[at:start]}{replacement}"
            remaining += [*between, *sources[at:start], *replacement]
            at = end
        if text == content:
            break
        content, sources = text, remaining
        token = _parser().parseInline(content)[0]
    return "".join(sources)


def numbers_of(inner: str, count: int) -> tuple[int, ...]:
    """Return the numbers inside a marker that a context of `count` blocks has, each once."""
    numbers: dict[int, None] = {}
    for start, end in _NUMBERS.findall(inner):
        stop = min(int(end or start), count)
        numbers.update(dict.fromkeys(range(max(int(start), 1), stop + 1)))
    return tuple(numbers)


def parse(text: str) -> list[Token]:
    """Parse a Markdown text into tokens. An inline token has a child "citation" for each marker."""
    return _parser().parse(text)


def split_lines(text: str) -> list[tuple[int, str]]:
    """Return each line of a text, with its end, and where it starts."""
    lines = [(match.start(), match.group()) for match in LINE.finditer(text) if match.group()]
    return lines or [(0, "")]


class Places:
    """Where the characters of an inline token stand in the text: its lines have lost what marks a list."""

    def __init__(self, token: Token, lines: Sequence[tuple[int, str]]) -> None:
        self._starts: list[tuple[int, int, int]] = []  # of each line: in the token, in the text, its length
        self.exact = True
        self._length = len(token.content)
        first_line = token.map[0] if token.map else 0
        at = 0
        for index, content in enumerate(token.content.split("\n")):
            start, line = lines[min(first_line + index, len(lines) - 1)]
            bare = content.lstrip()
            place = line.replace("\0", "\ufffd").rfind(bare.rstrip())
            self.exact = self.exact and place >= 0
            blank = len(content) - len(bare)
            self._starts.append((at, start + place - blank, len(content)))
            at += len(content) + 1

    def __call__(self, offset: int) -> int:
        """Return the place in the text of a place in the token."""
        before = [entry for entry in self._starts if entry[0] <= offset] or self._starts[:1]
        at, start, length = before[-1]
        return start + min(offset - at, length)

    def sources(self, text: str) -> list[str]:
        """Return what stands in the text for each character; at the end of a line with what follows."""
        places = [self(offset) for offset in range(self._length)]
        return [text[at:after] for at, after in pairwise([*places, places[-1] + 1])]


def _inline_edits(token: Token, count: int) -> list[Edit]:
    """Return the edits of an inline token, by places in its content."""
    content, edits = token.content, list[Edit]()
    link: tuple[int, int, int] | None = None
    inside = False
    for child in token.children or ():
        if child.type == "link_open":
            link, inside = child.meta.get("places"), False
        elif child.type == "link_close":
            if link is not None and inside:
                start, label_end, end = link
                edits.append(_take_out(content, start, start + 1))
                edits.append(_take_out(content, label_end, end))
            link = None
        elif child.type == "citation":
            inside = True
            edits.append(
                _citation_edit(content, child.meta["start"], child.meta["end"], child.meta["inner"], count)
            )
    return edits


def _citation_edit(content: str, start: int, end: int, inner: str, count: int) -> Edit:
    """Return the edit of the marker from `start` to `end`, the target of a link included."""
    numbers = numbers_of(inner, count)
    following = content[end : end + 1]
    was_link = content[end - 1] == ")"
    if not numbers:
        at = start
        while at and content[at - 1] in " \t":
            at -= 1
        return _take_out(content, start if not at or content[at - 1] == "\n" else at, end)
    text = "".join([f"[{number}]" for number in numbers])
    if following == ":" and not _LETTER.search(content[:start].rpartition("\n")[2]):
        text += "\\"  # else the line would define where the number leads, once what it begins with is out
    elif (following == "[" and not MARKER.match(content, end)) or (was_link and following in ("(", ":")):
        text += " "
    return Edit(start, end, text, numbers)


def _take_out(content: str, start: int, end: int) -> Edit:
    """Return the edit that takes a part out, with a blank where its neighbours would join."""
    before, after = content[start - 1 : start] if start else "", content[end : end + 1]
    joins = (
        (before == "]" and after in _JOINS)
        or before == after == "`"
        or (before in ("\\", "!", "<") and bool(after.strip()))
    )
    return Edit(start, end, " " if joins else "")


async def load_parser() -> None:
    """Import the parser in a thread, where it is installed, before an answer needs it."""
    if not _parser.cache_info().currsize:
        with suppress(MissingDependency):
            await work_aside(_parser)


@cache
def _parser() -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
        from markdown_it.rules_inline import link
    except ImportError:
        raise MissingDependency("markdown-it-py", "answer", what="Checking citations") from None
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST})
    parser.disable(["reference", "html_block", "html_inline"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # what a client may link is a link here
    parser.inline.ruler.at("link", _link_rule(link))
    parser.inline.ruler.before("link", "citation", _citation_rule(link))
    return parser


Rule = Callable[[Any, bool], bool]


def _citation_rule(link: Rule) -> Rule:
    def citation(state: StateInline, silent: bool) -> bool:
        """Make a marker a token of its own, with the target of the link that it would be."""
        if silent or state.src[state.pos] != "[":
            return False
        start = state.pos
        match = MARKER.match(state.src, start, state.posMax)
        if match is None:
            return False
        end = match.end()
        if state.src[end : end + 1] == "(" and _bounded(link, state, True):
            end = state.pos
        state.pos = end
        token = state.push("citation", "", 0)
        token.meta = {"start": start, "end": end, "inner": match[1]}
        return True

    return citation


def _link_rule(link: Rule) -> Rule:
    def placed_link(state: StateInline, silent: bool) -> bool:
        """Read a link as the parser does, and keep where it stands."""
        start, before = state.pos, len(state.tokens)
        if state.src[start] != "[" or _last_target(state) < start:
            return False
        label_end = -1 if silent else state.md.helpers.parseLinkLabel(state, start, True)
        if not _bounded(link, state, silent):
            return False
        if not silent:
            opening = next(token for token in state.tokens[before:] if token.type == "link_open")
            opening.meta["places"] = (start, label_end, state.pos)
        return True

    return placed_link


def _bounded(link: Rule, state: StateInline, silent: bool) -> bool:
    """Read a link that is not longer than links are, so that many brackets do not take long."""
    end = state.posMax
    state.posMax = min(end, state.pos + _LONGEST_LINK)
    try:
        return link(state, silent)
    finally:
        state.posMax = end


def _last_target(state: StateInline) -> int:
    """Return the last place at which the target of a link may begin."""
    cached = state.env.get("last_target")
    if cached is None or cached[0] is not state.src:
        cached = (state.src, state.src.rfind("]("))
        state.env["last_target"] = cached
    place: int = cached[1]
    return place
