"""Chunk boundaries and chunk overlap: cuts a long text at the end of a paragraph, a sentence, a line or a
word, near a number of tokens.

Positions are characters; nothing between the first and the last is left out. Pure functions.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from contextrouter.text import tokens

_LINE_END = r"(?:\r\n|\n|\r(?!\n))"
PARAGRAPH = re.compile(rf"{_LINE_END}(?:[^\S\r\n]*{_LINE_END})+")
_SENTENCE = re.compile(r"""[.!?…]+["'”’»)\]]*\s+|[。！？；｡।॥؟۔]+["”’」』）》]*\s*""")
_LINE = re.compile(_LINE_END)
_SPACE = re.compile(r"\s+")
_BLOCK = 100_000  # characters whose tokens are looked for at once


class Measured:
    """A text with the places where its tokens start, so that the tokens of any slice are counted by looking
    them up.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = _token_starts(text, 0, len(text))

    def count(self, start: int, end: int) -> int:
        """How many tokens `text[start:end]` has by itself."""
        if tokens.parts(self.text, start) and tokens.parts(self.text, end):
            return self.about(start, end)
        return tokens.count(self.text[start:end])

    def about(self, start: int, end: int) -> int:
        """As `count`, but for words that are cut at either end: good enough to propose where to cut, and much
        faster there.
        """
        return bisect_left(self.starts, end) - bisect_left(self.starts, start)

    def packed(self, bounds: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
        """Yield slices from one of `bounds` to another, each as long as `limit` tokens allow, and at least
        one step long.
        """
        start = 0
        for place in range(1, len(bounds)):
            last = place == len(bounds) - 1
            if last or self.about(bounds[start], bounds[place + 1]) > limit:
                yield bounds[start], bounds[place]
                start = place


class Cutter:
    """Cuts text into slices of about `target` tokens, never more than `maximum`, each repeating about
    `overlap` of the last.
    """

    def __init__(self, target: int, maximum: int, overlap: int) -> None:
        self.target, self.maximum, self.overlap = target, maximum, overlap

    def cut(self, measured: Measured, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of slices that cover `text[start:end]` in order. Each begins after the one
        before it began.
        """
        text, starts = measured.text, measured.starts
        position, first, last = start, bisect_left(starts, start), bisect_left(starts, end)
        while True:
            rest = last - first
            if rest <= min(self.maximum, self.target + self.target // 4) and not self._excess(
                text, position, end, rest
            ):
                yield position, end
                return
            stop = self._end(text, starts, first, position, end, last)
            yield position, stop
            if stop >= end:
                return
            position = self._restart(text, starts, position, stop)
            first = bisect_left(starts, position)

    def _excess(self, text: str, start: int, end: int, expected: int) -> int:
        """How many tokens above `maximum` the slice has; `expected` is how many it has as part of `text`.

        A word cut in two can have more tokens than the whole.
        """
        whole = tokens.parts(text, start) and tokens.parts(text, end)
        return max((expected if whole else tokens.count(text[start:end])) - self.maximum, 0)

    def _end(self, text: str, starts: array[int], first: int, position: int, end: int, last: int) -> int:
        """Where the slice from `position` ends: the last good place up to `target` tokens, or the next one up
        to `maximum`.
        """

        def place(index: int) -> int:
            return starts[index] if index < last else end

        low = place(first + max(self.target // 2, self.overlap + 1))
        high = max(place(first + self.target), position + 1)
        found = _last(text, low, high, (PARAGRAPH, _SENTENCE, _LINE))
        if found is None:
            found = _first(text, high, place(first + self.maximum), (PARAGRAPH, _SENTENCE, _LINE))
        if found is None:
            found = _last(text, low, high, (_SPACE,))
        return self._shortened(text, starts, first, position, found or high)

    def _shortened(self, text: str, starts: array[int], first: int, start: int, stop: int) -> int:
        """Cut tokens off until at most `maximum` are left."""
        while stop - start > 1:
            index = bisect_left(starts, stop)
            excess = self._excess(text, start, stop, index - first)
            if not excess:
                break
            shorter = index - excess
            stop = max(starts[shorter] if shorter >= 0 else start, start + 1)
        return stop

    def _restart(self, text: str, starts: array[int], position: int, stop: int) -> int:
        """Where the next slice begins: `overlap` tokens before `stop`, moved on to the start of a sentence or
        word.
        """
        if not self.overlap:
            return stop
        early = max(starts[max(bisect_left(starts, stop) - self.overlap, 0)], position + 1)
        if early >= stop:
            return stop
        found = _first(text, early, stop - 1, (PARAGRAPH, _SENTENCE, _LINE, _SPACE))
        return early if found is None else found


def _token_starts(text: str, start: int, end: int) -> array[int]:
    """Where the tokens of `text[start:end]` start, in order."""
    starts = array("q")
    while start < end:
        stop = min(start + _BLOCK, end)
        if stop < end:
            stop = next((i for i in range(stop, stop - _BLOCK // 2, -1) if text[i].isspace()), stop)
        begin = start
        starts.extend([begin + place for place in tokens.starts(text[start:stop])])
        start = stop
    return starts


def _last(text: str, low: int, high: int, patterns: tuple[re.Pattern[str], ...]) -> int | None:
    """The last place in [low, high] just after a match of the first pattern that has one."""
    for pattern in patterns:
        places = [m.end() for m in pattern.finditer(text, max(low - 1, 0), high) if low <= m.end()]
        if places:
            return places[-1]
    return None


def _first(text: str, low: int, high: int, patterns: tuple[re.Pattern[str], ...]) -> int | None:
    """The first place in (low, high] just after a match of the first pattern that has one."""
    for pattern in patterns:
        match = pattern.search(text, low, high)
        if match is not None:
            return match.end()
    return None


def shrunk(text: str, start: int, end: int) -> tuple[int, int]:
    """`start` and `end` without the blank lines before and the white space after; equal when nothing is
    left.
    """
    content = text[start:end]
    end = start + len(content.rstrip())
    lead = len(content) - len(content.lstrip())
    before = text[start : min(start + lead, end)]
    line = max(before.rfind("\n"), before.rfind("\r"))
    return min(start + line + 1, end), end
