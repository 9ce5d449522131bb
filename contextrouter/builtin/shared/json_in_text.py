"""JSON in the text of a language model: whole, after its thinking, in a fence, or in prose. All is pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

_THINKING = "</think>"
_OPEN_THINKING = re.compile(r"<think>.*\Z", re.S)
_FENCE = re.compile(r"^[ \t]*(```|~~~)([^\n]*)$", re.M)
_START = re.compile(r'\{(?=\s*["}])|\[(?=\s*(?:["{\[\]\d-]|true\b|false\b|null\b))')
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]', re.S)
_MOST_VALUES = 1_000  # in prose, of which each is parsed; and fences
_CLOSING = {"{": "}", "[": "]"}


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError for anything else, NaN, infinity, and a key that
    stands twice.
    """
    try:
        return json.loads(
            text,
            strict=False,  # a line break within a text means one
            object_pairs_hook=_make_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("It is nested too deeply.") from None


def json_texts(text: str) -> Iterator[str]:
    """Yield the parts of a text that may be the object or list that is meant, the likeliest first.

    They are the whole text, what stands behind `</think>`, fenced blocks, objects in prose, and lists in
    prose that end their line. A value that is not closed ends the search: what it holds is a
    part of something.
    """
    text = text.strip("\ufeff \t\r\n")
    yield text
    answer = _OPEN_THINKING.sub("", text.rpartition(_THINKING)[2]).strip()
    if answer != text:
        yield answer
    yield from _fenced(answer)
    values = list(islice(_values_in_prose(answer), _MOST_VALUES))
    yield from (value for value in values if value.startswith("{"))
    yield from (value for value in values if value.startswith("["))


def _fenced(text: str) -> Iterator[str]:
    """Yield the blocks between a fence and the next one like it that stands alone on its line."""
    marks = list(islice(_FENCE.finditer(text), _MOST_VALUES))
    closing: dict[int, int] = {}  # number of a mark -> that of the mark which ends its block
    last: dict[str, int] = {}
    for number in range(len(marks) - 1, -1, -1):
        fence, rest = marks[number].groups()
        if fence in last:
            closing[number] = last[fence]
        if not rest.strip():
            last[fence] = number
    number = 0
    while number < len(marks):
        if number in closing:
            yield text[marks[number].end() : marks[closing[number]].start()].strip()
            number = closing[number]
        number += 1


def _values_in_prose(text: str) -> Iterator[str]:
    position = 0
    while start := _START.search(text, position):
        end = _end_of_value(text, start.start())
        if end is None:
            return
        if start[0] == "{" or _stands_alone(text, start.start(), end):
            yield text[start.start() : end]
        position = end


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether a list ends its line, and begins it or follows a colon: "[2]" in a sentence is a citation."""
    before, after = (
        text[max(0, start - 80) : start].rstrip(" \t")[-1:],
        text[end : end + 80].lstrip(" \t.")[:1],
    )
    return before in ("", ":", "\n") and after in ("", "\r", "\n")


def _end_of_value(text: str, start: int) -> int | None:
    """Return where the value that begins at `start` ends, brackets within texts aside; None: it does not."""
    expected: list[str] = []
    for token in _BRACKETS.finditer(text, start):
        mark = token[0]
        if mark in _CLOSING:
            expected.append(_CLOSING[mark])
        elif mark in ("}", "]"):
            if expected.pop() != mark:
                return token.end()  # no JSON, and no reason to look no further
            if not expected:
                return token.end()
    return None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"The key {twice[:80]!r} stands twice.")
    return members


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:80]} is too large a number.")
    return number
