"""Citation markers in a streamed answer: each waits until it is complete, and goes out checked.

The text that comes out does not depend on how the answer is cut into pieces. What may still become a marker,
a link or code waits. It goes out as soon as nothing that follows can change it, at the latest with its
paragraph.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from contextrouter.answering.markdown_markers import LEAVES, Places, checked, parse, split_lines

if TYPE_CHECKING:
    from markdown_it.token import Token

_SPECIAL = re.compile(r"[\[\]`<\\\r\n]")
_UNDECIDED = re.compile(r"[\s>\-+*#=~`_0-9.)]*\Z")
"""A line that may still become a fence, a list or a rule."""
_FENCE = re.compile(r"[\s>\-+*0-9.)]*(?:```|~~~)")
_TARGET = re.compile(r"\(\s*(?:<[^<>\n]*>|[^\s()<>]*)(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)")
_NO_TARGET = re.compile(r"\(\s*[^\s()<>]+\s+[^\s\"'()]")
_BRACKETED = re.compile(r"<[A-Za-z][^\s<>]*(>|\Z)?")
_RUN = re.compile(r"`+")
_RARELY = 32
"""A block is parsed again when it has grown by this part of itself, so that a long one takes no long time."""


class Markers:
    """The citation markers of one answer to a context of `count` blocks.

    `feed` and `end` raise MissingDependency without a Markdown parser.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._used: dict[int, None] = {}
        self._text = ""  # of the block that is open
        self._sent = 0  # characters of its checked text that are out
        self._parsed = 0  # characters of it when it was last parsed
        self._flowing = False  # whether the text so far is out, but for blanks at its end

    @property
    def used(self) -> tuple[int, ...]:
        """Return the numbers cited, in the order of their first use."""
        return tuple(self._used)

    def feed(self, text: str) -> str:
        """Add a piece of the answer. Returns the text that is ready to show."""
        if self._flowing and not _SPECIAL.search(text):
            before = self._text
            self._text += text
            out = self._text.rstrip(" \t")[len(before.rstrip(" \t")) :]
            self._sent += len(out)
            return out
        out, lines = "", split_lines(text)
        for _, line in lines:
            self._text += line
            if line.endswith(("\n", "\r")) and self._has_grown():
                out += self._close_blocks()
        if not self._has_grown():
            self._flowing = False
            return out
        self._parsed = len(self._text)
        return out + self._emit(self._settled())

    def _has_grown(self) -> bool:
        return (len(self._text) - self._parsed) * _RARELY >= len(self._text)

    def end(self) -> str:
        """End the answer. Returns the text that was waiting."""
        return self._finish(self._text, "")

    def _finish(self, closed: str, following: str) -> str:
        """Give out all of a closed part of the text, and go on with what follows."""
        result = checked(closed, self.count)
        self._used.update(dict.fromkeys(result.numbers))
        out = result.text[self._sent :]
        self._sent = max(0, self._sent - len(result.text))
        self._text, self._parsed, self._flowing = following, 0, False
        return out

    def _close_blocks(self) -> str:
        """Give out the blocks before the last one: nothing that follows changes them."""
        if self._text.endswith("\r"):  # a line feed may follow
            return ""
        starts = [token.map[0] for token in parse(self._text) if token.level == 0 and token.map]
        if not starts or not starts[-1]:
            return ""
        at = split_lines(self._text)[starts[-1]][0]
        return self._finish(self._text[:at], self._text[at:])

    def _emit(self, settled: int) -> str:
        """Give out the text up to a place from which on something may change."""
        text = self._text[:settled].rstrip(" \t")
        self._flowing = bool(text) and text == self._text.rstrip(" \t") and text[-1] not in "\r\n"
        result = checked(text, self.count).text
        out = result[self._sent :]
        self._sent = max(self._sent, len(result))
        return out

    def _settled(self) -> int:
        """Return up to where nothing that follows can change the checked text."""
        text = self._text
        lines = split_lines(text)
        start, line = lines[-1]
        end = len(text)
        if line.endswith(("\n", "\r")):
            end -= line.endswith("\r")
        elif _UNDECIDED.match(line):
            end, lines = start, lines[:-1]  # the line may yet go on with the paragraph before it
        elif _FENCE.match(line):
            end = start
        opening = next((t for t in reversed(parse(text[:end])) if t.type in LEAVES), None)
        if opening is None or opening.type != "inline" or not _is_open(opening, lines):
            return end
        hazard = find_hazard(opening.content)
        if hazard is None:
            return end
        places = Places(opening, lines)
        start_of_token = lines[opening.map[0]][0] if opening.map else 0
        return min(end, places(hazard) if places.exact else start_of_token)


def _is_open(token: Token, lines: list[tuple[int, str]]) -> bool:
    """Whether the text that follows may belong to a token: no blank line is behind it."""
    return token.map is not None and token.map[1] >= len(lines)


def find_hazard(content: str) -> int | None:
    """Return the first place in an open paragraph whose meaning depends on what follows; None: none does."""
    at, brackets = 0, list[int]()
    while at < len(content):
        sign = content[at]
        group = brackets[0] if brackets else at
        if sign == "\\":
            at += 1
        elif sign == "`":
            after = _code_end(content, at)
            if after is None:
                return group
            at = after - 1
        elif sign == "<" and (match := _BRACKETED.match(content, at)) is not None:
            if match[1] == "":
                return group
            at = match.end() - 1 if match[1] else at
        elif sign == "[":
            brackets.append(at)
        elif sign == "]" and brackets:
            opening = brackets.pop()
            group = brackets[0] if brackets else opening
            after = _target_end(content, at + 1)
            if after is None:
                return group
            at = after - 1
        at += 1
    return brackets[0] if brackets else None


def _code_end(content: str, at: int) -> int | None:
    """Return where the code that begins with a run of backticks ends; None: not known yet."""
    run = _RUN.match(content, at)
    assert run is not None
    for closing in _RUN.finditer(content, run.end()):
        if len(closing.group()) == len(run.group()):
            return None if closing.end() == len(content) else closing.end()
    return None


def _target_end(content: str, at: int) -> int | None:
    """Return where what follows a bracket is settled; None: it may still be the target of a link."""
    if at >= len(content):
        return None
    if content[at] != "(":
        return at
    if match := _TARGET.match(content, at):
        return None if match.end() >= len(content) else match.end()
    return at if _NO_TARGET.match(content, at) else None
