"""Tables as text (CSV, TSV): which character separates the fields, and where the header stands."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

SEPARATORS = ",;\t|"
_LOOKED_AT = 32_768  # characters
_MOST_ROWS = 50
_DECLARED = re.compile(r"\ufeff?\"?sep=(.)\"?[ \t]*(?:\r\n|\n|\r|\Z)", re.I)
_LINE_END = re.compile(r"\r\n|\n|\r")


class Row(NamedTuple):
    """One row: its place in the text (characters), and its fields."""

    start: int
    end: int
    fields: list[str]


class Layout(NamedTuple):
    """How a table is written. `header` is the character at which the row with the names begins."""

    separator: str
    header: int


def layout(text: str, media_type: str) -> Layout:
    """Find the separator and the header of a table.

    A first line such as `sep=;` names the separator and is no header. Else it is the one by which most of
    the first rows have the same number of fields, two or more. Lines above the header that are no rows of
    the table, such as a title, are left out.
    """
    declared = _DECLARED.match(text)
    start = declared.end() if declared else 1 if text.startswith("\ufeff") else 0
    separators = "\t" if "tab-separated" in media_type else SEPARATORS
    separators = declared[1] if declared else separators
    best = max((_Guess.of(text, start, separator) for separator in separators), key=lambda guess: guess.score)
    return Layout(best.separator, best.header)


class _Guess(NamedTuple):
    """What the first rows of a table look like with one separator."""

    score: tuple[int, int]  # rows of equal width, their width
    separator: str
    header: int

    @classmethod
    def of(cls, text: str, start: int, separator: str) -> _Guess:
        sample: list[Row] = []
        for row in rows(text[: start + _LOOKED_AT], separator, start):
            if row.fields and len(sample) < _MOST_ROWS:
                sample.append(row)
        widths = Counter(len(row.fields) for row in sample)
        width = max(widths, key=lambda size: (size > 1, widths[size], size), default=1)
        if width < 2:
            return cls((0, 1), separator, start)
        header_row = next(row for row in sample if len(row.fields) >= width)
        above = [row for row in sample if row.start < header_row.start]
        is_title = all(len(row.fields) == 1 for row in above)
        header = header_row.start if is_title else start
        return cls((widths[width], width), separator, header)


def rows(text: str, separator: str, start: int = 0) -> Iterator[Row]:
    """Yield the rows from `start` on. A field in quotes may have line ends; where quotes do not close, lines
    are rows. A blank line is a row without fields.
    """
    position = start

    def lines() -> Iterator[str]:
        nonlocal position
        for line in io.StringIO(text[start:], newline=""):
            position += len(line)
            yield line.replace("\0", " ")

    begin = start
    try:
        for fields in csv.reader(lines(), delimiter=separator):
            yield Row(begin, position, fields)
            begin = position
    except csv.Error:  # a quoted field without end
        for match in _LINE_END.finditer(text, begin):
            yield Row(begin, match.end(), text[begin : match.start()].split(separator))
            begin = match.end()
        if begin < len(text):
            yield Row(begin, len(text), text[begin:].split(separator))
