"""JSON cut at its records: array items, lines, and the members of an object that is too long. Pure
functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs of the standard library
from typing import Any, NamedTuple

from contextrouter.builtin.transforms.chunking.boundaries import Measured
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_DEEPEST = 50
# Numbers stay as they are written: they are not needed, and one of a million digits takes long to read.
_DECODER = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str)


class _Child(NamedTuple):
    """An item of an array, or a member of an object with its key: where it lies, and where its value
    begins.
    """

    start: int
    end: int
    value: int
    key: str
    decoded: Any


def records(measured: Measured, sizes: Sizes, *, lines: bool, problems: list[str]) -> Iterator[Piece]:
    """Yield a piece per record; what is no JSON is one piece, and a problem."""
    text = measured.text
    if lines:
        yield from _by_line(measured, sizes, problems)
        return
    start = _SPACE.match(text, 0).end()  # type: ignore[union-attr]  # the pattern matches no space too
    try:
        decoded, end = _DECODER.raw_decode(text, start)
        if text[end:].strip():
            raise ValueError(f"more follows at character {end + 1}")
    except (ValueError, RecursionError) as error:
        problems.append(f"is no JSON ({_said(error)}); it was cut as text.")
        yield Piece(0, len(text))
        return
    if isinstance(decoded, list) or (isinstance(decoded, dict) and measured.about(start, end) > sizes.target):
        yield from _inside(measured, _Child(start, end, start, "", decoded), sizes, (), top=True)
    else:
        yield Piece(start, end, title=_title(decoded))


def _by_line(measured: Measured, sizes: Sizes, problems: list[str]) -> Iterator[Piece]:
    text = measured.text
    for number, match in enumerate(re.finditer(r"[^\n]+|\n(?=\n)|\A\n", text), 1):
        line = match.group()
        if not line.strip("\ufeff \t\r\n"):
            continue
        start, end = match.span()
        try:
            decoded = _DECODER.decode(line.strip("\ufeff \t\r\n"))
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number} is no JSON ({_said(error)}); it was cut as text.")
            yield Piece(start, end)
            continue
        value = _SPACE.match(text, start).end()  # type: ignore[union-attr]  # the pattern matches no space too
        yield from _one(measured, _Child(start, end, value, "", decoded), sizes, ())


def _one(measured: Measured, child: _Child, sizes: Sizes, path: tuple[str, ...]) -> Iterator[Piece]:
    """A record whole, or what is in it when it is too long."""
    if (
        measured.about(child.start, child.end) > sizes.maximum
        and isinstance(child.decoded, dict | list)
        and len(path) < _DEEPEST
    ):
        yield from _inside(measured, child, sizes, path)
    else:
        yield Piece(child.start, child.end, path, title=_title(child.decoded))


def _inside(
    measured: Measured, whole: _Child, sizes: Sizes, path: tuple[str, ...], *, top: bool = False
) -> Iterator[Piece]:
    """The items or members of a container: records by themselves, others together up to the target.

    The first piece begins with the container, and the last ends with it, so that nothing but commas is left
    out.
    """
    children = list(_children(measured.text, whole.value))
    if not children:
        yield Piece(whole.start, whole.end, path)
        return
    children[0] = children[0]._replace(start=whole.start)
    children[-1] = children[-1]._replace(end=whole.end)
    run: list[_Child] = []
    for child in children:
        alone = _alone(child, top) or measured.about(child.start, child.end) > sizes.maximum
        if run and (alone or measured.about(run[0].start, child.end) > sizes.target):
            yield _together(run, path)
            run = []
        if alone:
            yield from _one(measured, child, sizes, (*path, child.key) if child.key else path)
        else:
            run.append(child)
    if run:
        yield _together(run, path)


def _alone(child: _Child, top: bool) -> bool:
    """Whether a child is a record: at the top whatever is in an array, else an object in an array or at the
    top.
    """
    return (
        isinstance(child.decoded, dict)
        if child.key and top
        else (top or isinstance(child.decoded, dict)) and not child.key
    )


def _together(run: list[_Child], path: tuple[str, ...]) -> Piece:
    key = run[0].key if len(run) == 1 else ""
    return Piece(run[0].start, run[-1].end, (*path, key) if key else path)


def _children(text: str, place: int) -> Iterator[_Child]:
    """What the container that opens at `place` holds; it has been decoded before, so that its syntax is
    right.
    """
    keyed = text[place] == "{"
    place = _after_space(text, place + 1)
    while text[place] not in "]}":
        start, key = place, ""
        if keyed:
            key, place = scanstring(text, place + 1, False)
            place = _after_space(text, _after_space(text, place) + 1)
        decoded, end = _DECODER.raw_decode(text, place)
        yield _Child(start, end, place, key, decoded)
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def _after_space(text: str, place: int) -> int:
    return _SPACE.match(text, place).end()  # type: ignore[union-attr]  # the pattern matches no space too


def _title(decoded: Any) -> str:
    title = decoded.get("title") if isinstance(decoded, dict) else None
    return " ".join(title.split()) if isinstance(title, str) and len(title) <= 500 else ""


def _said(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
