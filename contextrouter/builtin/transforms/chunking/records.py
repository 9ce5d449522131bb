"""JSON chunking: cuts at records (array items, lines, or members of a long object). Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs of the standard library
from typing import Any, NamedTuple

from contextrouter.builtin.transforms.chunking.boundaries import TokenizedText
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_DEEPEST = 50
# Numbers stay texts, because a number of a million digits takes long to parse.
_DECODER = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str)


class _Child(NamedTuple):
    """An item of an array, or a member of an object with its key. `value` is where its value starts."""

    start: int
    end: int
    value: int
    key: str
    decoded: Any


def records(tokenized: TokenizedText, sizes: Sizes, *, lines: bool, problems: list[str]) -> Iterator[Piece]:
    """Yield a piece for each record. A text that is no JSON is one piece, and adds a problem."""
    text = tokenized.text
    if lines:
        yield from _cut_lines(tokenized, sizes, problems)
        return
    start = _SPACE.match(text, 0).end()  # type: ignore[union-attr]  # the pattern matches no space too
    try:
        decoded, end = _DECODER.raw_decode(text, start)
        if text[end:].strip():
            raise ValueError(f"more follows at character {end + 1}")
    except (ValueError, RecursionError) as error:
        problems.append(f"is not JSON ({_error_text(error)}), so it was cut as text.")
        yield Piece(0, len(text))
        return
    if isinstance(decoded, list) or (
        isinstance(decoded, dict) and tokenized.estimate(start, end) > sizes.target
    ):
        yield from _cut_container(tokenized, _Child(start, end, start, "", decoded), sizes, (), top=True)
    else:
        yield Piece(start, end, title=_title(decoded))


def _cut_lines(tokenized: TokenizedText, sizes: Sizes, problems: list[str]) -> Iterator[Piece]:
    text = tokenized.text
    for number, match in enumerate(re.finditer(r"[^\n]+|\n(?=\n)|\A\n", text), 1):
        line = match.group()
        if not line.strip("\ufeff \t\r\n"):
            continue
        start, end = match.span()
        try:
            decoded = _DECODER.decode(line.strip("\ufeff \t\r\n"))
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number} is not JSON ({_error_text(error)}), so it was cut as text.")
            yield Piece(start, end)
            continue
        value = _SPACE.match(text, start).end()  # type: ignore[union-attr]  # the pattern matches no space too
        yield from _cut_record(tokenized, _Child(start, end, value, "", decoded), sizes, ())


def _cut_record(
    tokenized: TokenizedText, child: _Child, sizes: Sizes, path: tuple[str, ...]
) -> Iterator[Piece]:
    """Yield a whole record, or its parts if it is too long."""
    if (
        tokenized.estimate(child.start, child.end) > sizes.maximum
        and isinstance(child.decoded, dict | list)
        and len(path) < _DEEPEST
    ):
        yield from _cut_container(tokenized, child, sizes, path)
    else:
        yield Piece(child.start, child.end, path, title=_title(child.decoded))


def _cut_container(
    tokenized: TokenizedText, container: _Child, sizes: Sizes, path: tuple[str, ...], *, top: bool = False
) -> Iterator[Piece]:
    """Yield the items or members of a container: one piece for each record, other values together up to the
    target.

    The first piece starts with the container, and the last one ends with it. So only commas are left out.
    """
    children = list(_read_children(tokenized.text, container.value))
    if not children:
        yield Piece(container.start, container.end, path)
        return
    children[0] = children[0]._replace(start=container.start)
    children[-1] = children[-1]._replace(end=container.end)
    run: list[_Child] = []
    for child in children:
        alone = _is_record(child, top) or tokenized.estimate(child.start, child.end) > sizes.maximum
        if run and (alone or tokenized.estimate(run[0].start, child.end) > sizes.target):
            yield _merge(run, path)
            run = []
        if alone:
            yield from _cut_record(tokenized, child, sizes, (*path, child.key) if child.key else path)
        else:
            run.append(child)
    if run:
        yield _merge(run, path)


def _is_record(child: _Child, top: bool) -> bool:
    """Whether a child is a record: any item of the top array, or an object in an array or at the top."""
    return (
        isinstance(child.decoded, dict)
        if child.key and top
        else (top or isinstance(child.decoded, dict)) and not child.key
    )


def _merge(run: list[_Child], path: tuple[str, ...]) -> Piece:
    key = run[0].key if len(run) == 1 else ""
    return Piece(run[0].start, run[-1].end, (*path, key) if key else path)


def _read_children(text: str, position: int) -> Iterator[_Child]:
    """Yield the children of the container that opens at `position`. Its syntax is already checked."""
    keyed = text[position] == "{"
    position = _skip_space(text, position + 1)
    while text[position] not in "]}":
        start, key = position, ""
        if keyed:
            key, position = scanstring(text, position + 1, False)
            position = _skip_space(text, _skip_space(text, position) + 1)
        decoded, end = _DECODER.raw_decode(text, position)
        yield _Child(start, end, position, key, decoded)
        position = _skip_space(text, end)
        if text[position] == ",":
            position = _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]  # the pattern matches no space too


def _title(decoded: Any) -> str:
    title = decoded.get("title") if isinstance(decoded, dict) else None
    return " ".join(title.split()) if isinstance(title, str) and len(title) <= 500 else ""


def _error_text(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
