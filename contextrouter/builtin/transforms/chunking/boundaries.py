"""Chunk boundaries and chunk overlap: where one chunk ends, and how much of it the next one repeats.

A long text is cut at the end of a paragraph, a sentence, a line or a word, near a number of tokens. Positions
are characters. The slices cover the whole text. Pure functions.
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
_BLOCK = 100_000  # characters that are tokenized at once


class TokenizedText:
    """A text and the start of each token. So the tokens of a slice are counted without a tokenizer."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = _token_starts(text, 0, len(text))

    def count(self, start: int, end: int) -> int:
        """Return the number of tokens of `text[start:end]` alone."""
        if tokens.parts(self.text, start) and tokens.parts(self.text, end):
            return self.estimate(start, end)
        return tokens.count(self.text[start:end])

    def estimate(self, start: int, end: int) -> int:
        """Return the number of tokens of `text[start:end]` in the text.

        It differs from `count` if the slice cuts a word at an end. It is much faster, and exact enough to
        propose a cut.
        """
        return bisect_left(self.starts, end) - bisect_left(self.starts, start)

    def pack(self, bounds: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
        """Yield slices between `bounds`, each as long as `limit` tokens allow, but at least one step."""
        start = 0
        for index in range(1, len(bounds)):
            is_final = index == len(bounds) - 1
            if is_final or self.estimate(bounds[start], bounds[index + 1]) > limit:
                yield bounds[start], bounds[index]
                start = index


class Cutter:
    """Cuts text into slices of about `target` and at most `maximum` tokens. Each repeats about `overlap`."""

    def __init__(self, target: int, maximum: int, overlap: int) -> None:
        self.target, self.maximum, self.overlap = target, maximum, overlap

    def cut(self, tokenized: TokenizedText, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of slices that cover `text[start:end]`. The starts increase."""
        text, starts = tokenized.text, tokenized.starts
        position, first_token, last_token = start, bisect_left(starts, start), bisect_left(starts, end)
        while True:
            remaining = last_token - first_token
            if remaining <= min(self.maximum, self.target + self.target // 4) and not self._excess(
                text, position, end, remaining
            ):
                yield position, end
                return
            stop = self._end(text, starts, first_token, position, end, last_token)
            yield position, stop
            if stop >= end:
                return
            position = self._restart(text, starts, position, stop)
            first_token = bisect_left(starts, position)

    def _excess(self, text: str, start: int, end: int, expected: int) -> int:
        """Return how many tokens the slice has above `maximum`. `expected` is their number in the text.

        Two parts of a word can have more tokens than the word.
        """
        aligned = tokens.parts(text, start) and tokens.parts(text, end)
        return max((expected if aligned else tokens.count(text[start:end])) - self.maximum, 0)

    def _end(
        self, text: str, starts: array[int], first_token: int, position: int, end: int, last_token: int
    ) -> int:
        """Return the end of the slice from `position`: the last boundary before `target` tokens, or else the
        first one before `maximum`.
        """

        def token_start(index: int) -> int:
            return starts[index] if index < last_token else end

        low = token_start(first_token + max(self.target // 2, self.overlap + 1))
        high = max(token_start(first_token + self.target), position + 1)
        boundary = _last_match(text, low, high, (PARAGRAPH, _SENTENCE, _LINE))
        if boundary is None:
            boundary = _first_match(
                text, high, token_start(first_token + self.maximum), (PARAGRAPH, _SENTENCE, _LINE)
            )
        if boundary is None:
            boundary = _last_match(text, low, high, (_SPACE,))
        return self._shorten(text, starts, first_token, position, boundary or high)

    def _shorten(self, text: str, starts: array[int], first_token: int, start: int, stop: int) -> int:
        """Return an earlier end, so that the slice has at most `maximum` tokens."""
        while stop - start > 1:
            index = bisect_left(starts, stop)
            excess = self._excess(text, start, stop, index - first_token)
            if not excess:
                break
            shorter = index - excess
            stop = max(starts[shorter] if shorter >= 0 else start, start + 1)
        return stop

    def _restart(self, text: str, starts: array[int], position: int, stop: int) -> int:
        """Return the start of the next slice: `overlap` tokens before `stop`, or the next start of a sentence
        or word.
        """
        if not self.overlap:
            return stop
        early = max(starts[max(bisect_left(starts, stop) - self.overlap, 0)], position + 1)
        if early >= stop:
            return stop
        boundary = _first_match(text, early, stop - 1, (PARAGRAPH, _SENTENCE, _LINE, _SPACE))
        return early if boundary is None else boundary


def _token_starts(text: str, start: int, end: int) -> array[int]:
    """Return the starts of the tokens in `text[start:end]`."""
    starts = array("q")
    while start < end:
        stop = min(start + _BLOCK, end)
        if stop < end:
            stop = next((i for i in range(stop, stop - _BLOCK // 2, -1) if text[i].isspace()), stop)
        starts.extend(tokens.starts(text[start:stop], start))
        start = stop
    return starts


def _last_match(text: str, low: int, high: int, patterns: tuple[re.Pattern[str], ...]) -> int | None:
    """Return the last end of a match in [low, high], by the first pattern that matches."""
    for pattern in patterns:
        places = [m.end() for m in pattern.finditer(text, max(low - 1, 0), high) if low <= m.end()]
        if places:
            return places[-1]
    return None


def _first_match(text: str, low: int, high: int, patterns: tuple[re.Pattern[str], ...]) -> int | None:
    """Return the first end of a match in (low, high], by the first pattern that matches."""
    for pattern in patterns:
        match = pattern.search(text, low, high)
        if match is not None:
            return match.end()
    return None


def strip_blank(text: str, start: int, end: int) -> tuple[int, int]:
    """Return `start` and `end` without blank lines before and space after. They are equal if all is blank."""
    content = text[start:end]
    end = start + len(content.rstrip())
    lead = len(content) - len(content.lstrip())
    leading = text[start : min(start + lead, end)]
    line = max(leading.rfind("\n"), leading.rfind("\r"))
    return min(start + line + 1, end), end
