"""Charts of Office documents as tables: the names of the categories and the values that the chart shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contextrouter.builtin.connectors.files.parsing.office_files.packages import xml
from contextrouter.builtin.connectors.files.parsing.parsed import markdown_line, markdown_table

_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_MOST_POINTS = 10_000


def chart_blocks(data: bytes) -> Iterator[str]:
    """Yield the title of a chart and its table: a row for each category, a column for each series."""
    chart = xml(data).find(_C + "chart")
    if chart is None:
        return
    title = _chart_title(chart)
    if title:
        yield markdown_line(f"Chart: {title}")
    series = list(chart.iter(_C + "ser"))
    categories = next((labels for column in series if (labels := _points(column, "cat", "xVal"))), {})
    values = [_points(column, "val", "yVal") for column in series]
    rows = sorted({*categories, *(point for points in values for point in points)})
    if rows:
        head = [_axis(chart), *map(_series_name, series)]
        yield markdown_table(
            [head, *([categories.get(row, row + 1), *(points.get(row) for points in values)] for row in rows)]
        )


def chart_title(data: bytes) -> str:
    """The title of a chart with the names of its series, for a chart whose numbers stand beside it."""
    chart = xml(data).find(_C + "chart")
    if chart is None:
        return ""
    names = ", ".join(filter(None, map(_series_name, chart.iter(_C + "ser"))))
    return " — ".join(filter(None, (_chart_title(chart), names)))


def _chart_title(chart: Any) -> str:
    title = chart.find(_C + "title")
    return "" if title is None else " ".join("".join(title.itertext(_A + "t", _C + "v")).split())


def _axis(chart: Any) -> str:
    for axis in chart.iter(_C + "catAx", _C + "dateAx"):
        if text := _chart_title(axis):
            return text
    return ""


def _series_name(series: Any) -> str:
    name = series.find(_C + "tx")
    return "" if name is None else " ".join("".join(name.itertext(_C + "v")).split())


def _points(series: Any, *names: str) -> dict[int, str]:
    """The cached points of a series by their index."""
    points: dict[int, str] = {}
    for name in names:
        for point in series.iterfind(f"{_C}{name}//{_C}pt"):
            value, index = point.find(_C + "v"), point.get("idx", "")
            if value is not None and index.isdigit() and len(points) < _MOST_POINTS:
                points[int(index)] = value.text or ""
    return points
