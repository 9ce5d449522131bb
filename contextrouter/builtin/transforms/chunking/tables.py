"""Tables: whole when they fit, else rows by rows with the header above each piece. Pure functions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from contextrouter.builtin.transforms.chunking.boundaries import Measured
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes

_LINE_END = re.compile(r"\r\n|\n|\r")
_DELIMITERS = ",;\t|"


def csv_table(measured: Measured, sizes: Sizes, media_type: str) -> Iterator[Piece]:
    """Cut CSV between its rows; the first is the header. A row may hold line ends in quotes."""
    text = measured.text
    if "tab-separated" in media_type:
        delimiter = "\t"
    else:
        line = text.lstrip()[:4096].partition("\n")[0]
        delimiter = max(_DELIMITERS, key=line.count)
    yield from rows(measured, _csv_bounds(text, delimiter), 1, sizes)


def _csv_bounds(text: str, delimiter: str) -> list[int]:
    """Where each row starts, and the end; blank lines go with the row before."""
    place, bounds = 0, [0]

    def lines() -> Iterator[str]:
        nonlocal place
        for line in io.StringIO(text, newline=""):
            place += len(line)
            yield line.replace("\0", " ")

    try:
        for row in csv.reader(lines(), delimiter=delimiter):
            if row or len(bounds) == 1:
                bounds.append(place)
            else:
                bounds[-1] = place
    except csv.Error:  # a field without end: lines are all that is left to go by
        bounds = [0, *(match.end() for match in _LINE_END.finditer(text))]
    return bounds if bounds[-1] == len(text) else [*bounds, len(text)]


def rows(
    measured: Measured,
    bounds: Sequence[int],
    headed: int,
    sizes: Sizes,
    path: tuple[str, ...] = (),
    lead: int | None = None,
) -> Iterator[Piece]:
    """Yield a table whose rows start at `bounds`, the last of which is its end; the first `headed` rows are
    its header.

    The first piece begins at `lead`, where the words before the table do.
    """
    begin = bounds[0] if lead is None else lead
    if measured.about(begin, bounds[-1]) <= sizes.maximum or len(bounds) <= headed + 2:
        yield Piece(begin, bounds[-1], path)
        return
    header = (bounds[0], bounds[headed])
    taken = measured.about(*header)
    repeated = header if taken * 2 <= sizes.target else None
    first = True
    for start, end in measured.packed(bounds[headed:], max(sizes.target - taken, 1)):
        yield Piece(begin, end, path) if first else Piece(start, end, path, repeated)
        first = False


def markdown_tables(text: str, start: int, end: int) -> list[list[int]]:
    """Where the pipe tables of `text[start:end]` have their rows: for each the starts, and the end. Needs
    markdown-it-py.
    """
    if "|" not in text[start:end]:
        return []
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    lines = [start, *(match.end() for match in _LINE_END.finditer(text, start, end)), end]
    found = (
        token.map
        for token in parser.parse(text[start:end])
        if token.type == "table_open" and token.level == 0
    )
    return [lines[first : last + 1] for first, last in filter(None, found)]
