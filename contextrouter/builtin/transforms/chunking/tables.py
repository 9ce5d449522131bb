"""Table chunking: keeps a short table whole, cuts a long one between rows, repeats the header. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contextrouter.builtin.shared.delimited import layout
from contextrouter.builtin.shared.delimited import rows as table_rows
from contextrouter.builtin.transforms.chunking.boundaries import TokenizedText
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes

_LINE_END = re.compile(r"\r\n|\n|\r")


def csv_table(tokenized: TokenizedText, sizes: Sizes, media_type: str) -> Iterator[Piece]:
    """Cut CSV between its rows. A row may have line ends in quotes. What stands above the header is in the
    first piece alone.
    """
    text = tokenized.text
    separator, header = layout(text, media_type)
    yield from rows(tokenized, _csv_bounds(text, separator, header), 1, sizes, lead=0)


def _csv_bounds(text: str, separator: str, header: int) -> list[int]:
    """Return the start of each row from the header on, and the end. Blank lines belong to the row before
    them.
    """
    bounds = [header]
    for row in table_rows(text, separator, header):
        if row.fields or len(bounds) == 1:
            bounds.append(row.end)
        else:
            bounds[-1] = row.end
    return bounds if bounds[-1] == len(text) else [*bounds, len(text)]


def rows(
    tokenized: TokenizedText,
    bounds: Sequence[int],
    header_rows: int,
    sizes: Sizes,
    path: tuple[str, ...] = (),
    lead: int | None = None,
) -> Iterator[Piece]:
    """Yield the pieces of a table. Its rows start at `bounds`, and the last bound is its end.

    The first `header_rows` rows are the header. The first piece starts at `lead`, the start of the words
    before the table.
    """
    begin = bounds[0] if lead is None else lead
    if tokenized.estimate(begin, bounds[-1]) <= sizes.maximum or len(bounds) <= header_rows + 2:
        yield Piece(begin, bounds[-1], path)
        return
    header = (bounds[0], bounds[header_rows])
    header_tokens = tokenized.estimate(*header)
    repeated = header if header_tokens * 2 <= sizes.target else None
    is_first = True
    for start, end in tokenized.pack(bounds[header_rows:], max(sizes.target - header_tokens, 1)):
        yield Piece(begin, end, path) if is_first else Piece(start, end, path, repeated)
        is_first = False


def markdown_tables(text: str, start: int, end: int) -> list[list[int]]:
    """Return the starts of the rows and the end, for each pipe table of `text[start:end]`. Needs
    markdown-it-py.
    """
    if "|" not in text[start:end]:
        return []
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    lines = [start, *(match.end() for match in _LINE_END.finditer(text, start, end)), end]
    line_ranges = (
        token.map
        for token in parser.parse(text[start:end])
        if token.type == "table_open" and token.level == 0
    )
    return [lines[first_line : end_line + 1] for first_line, end_line in filter(None, line_ranges)]
