"""Workbooks of Excel and OpenDocument to Markdown: a table for each run of rows."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.office_files.charts import chart_title
from contextrouter.builtin.connectors.files.parsing.office_files.packages import Package
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    Unreadable,
    markdown_line,
    markdown_table,
)

MOST_CELLS = 20_000_000
"""Cells that a sheet may span, the empty ones too."""
_HEAD = 4096
_SPAN = re.compile(rb'<(?:\w+:)?dimension [^>]*ref="(?:[A-Z]+\d+:)?([A-Z]{1,3})(\d{1,7})"')


def read_sheets(data: bytes) -> Parsed:
    """Sheet by sheet: its name as heading, and a table for each run of rows that are not empty; formulas as
    last computed.

    Of a chart its title and the names of its series are kept: its numbers stand in the cells.
    """
    from io import BytesIO

    from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum

    _refuse_vast_sheets(data)
    try:
        book = CalamineWorkbook.from_filelike(BytesIO(data))
    except PasswordError:
        raise Unreadable("is encrypted; save it without a password.") from None
    except CalamineError as error:
        raise Unreadable(f"is broken ({' '.join(str(error).split())[:200]}).") from None
    blocks: list[str] = []
    for sheet in book.sheets_metadata:
        if sheet.typ in (SheetTypeEnum.ChartSheet, SheetTypeEnum.Vba):
            continue
        rows = book.get_sheet_by_name(sheet.name).to_python()
        tables = [markdown_table(run) for run in _runs([_readable(value) for value in row] for row in rows)]
        if tables:
            blocks += [f"## {' '.join(sheet.name.split())}", *tables]
    title, charts = _of_package(data)
    return Parsed(text="\n\n".join([*blocks, *charts]), media_type=MARKDOWN, title=title)


def _refuse_vast_sheets(data: bytes) -> None:
    """Raise Unreadable for a sheet with a stray cell far from its table: the library makes a cell of every
    place between, and its process ends for want of memory.
    """
    try:
        package = Package(data)
    except Unreadable:
        return  # not a zip: xls
    for name in package.names:
        if name.startswith("xl/worksheets/sheet") and (span := _SPAN.search(package.read(name)[:_HEAD])):
            columns = reduce(lambda count, letter: count * 26 + letter - 64, span[1], 0)
            if columns * int(span[2]) > MOST_CELLS:
                raise Unreadable(
                    f"{name} spans {int(span[2]):,} rows and {columns:,} columns; delete the cells that stand"
                    " far from the others."
                )


def _of_package(data: bytes) -> tuple[str, list[str]]:
    """The title of a workbook, and a line for each of its charts; nothing for a workbook that is no zip."""
    title, charts = "", []
    with suppress(Unreadable):
        package = Package(data)
        for name in package.names:
            if name in ("docProps/core.xml", "meta.xml"):
                tag = "{http://purl.org/dc/elements/1.1/}title"
                title = next((element.text or "" for element in package.xml(name).iter(tag)), "")
            elif name.startswith("xl/charts/chart") and (text := chart_title(package.read(name))):
                charts.append(markdown_line(f"Chart: {text}"))
    return title, charts


def _readable(value: Any) -> Any:
    """A value as a person reads it: whole numbers without a fraction, days without a time."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date()
    return value


def _runs(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Rows that follow each other, without the columns that are empty in all of them."""
    run: list[Sequence[Any]] = []
    for row in rows:
        if any(value is not None and str(value).strip() for value in row):
            run.append(row)
        elif run:
            yield _trim(run)
            run = []
    if run:
        yield _trim(run)


def _trim(run: list[Sequence[Any]]) -> list[Sequence[Any]]:
    used = [
        i for i in range(max(map(len, run))) if any(i < len(row) and row[i] not in ("", None) for row in run)
    ]
    return [[row[i] if i < len(row) else None for i in used] for row in run]
