"""Markdown parsing: front matter, titles and passages; also of plain text and JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

PASSAGE_CHARACTERS = 2_000
"""A passage longer than this is cut between paragraphs, or inside one that is longer itself."""
SNIPPET_CHARACTERS = 200
"""The snippet of a document or passage is so much of its beginning."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)(?:^)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_PAIR = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)$")


class Passage(NamedTuple):
    """A piece of a text: its title, the headings it stands under (outermost first), and the text itself."""

    title: str
    path: tuple[str, ...]
    text: str


def front_matter(text: str) -> tuple[dict[str, str | list[str]], str, list[str]]:
    """Return what stands between `---` lines at the very start (key -> text or list), the rest, and the lines
    not understood.

    A block that holds no `key: value` line is no front matter, but a text that starts with a rule.
    """
    match = _FRONT.match(text)
    if not match:
        return {}, text, []
    values: dict[str, str | list[str]] = {}
    unread: list[str] = []
    key = ""
    for line in match.group(1).splitlines():
        pair, item = _PAIR.match(line), _ITEM.match(line)
        if pair:
            key = pair.group(1).lower()
            values[key] = _value(pair.group(2) or "")
        elif item and key and (isinstance(values[key], list) or not values[key]):
            values[key] = [*values[key], _unquote(item.group(1))]
        elif line.strip() and not line.lstrip().startswith("#"):
            unread.append(line.strip())
    return (values, text[match.end() :], unread) if values else ({}, text, [])


def _value(text: str) -> str | list[str]:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return [_unquote(part) for part in text[1:-1].split(",") if part.strip()]
    return _unquote(text)


def _unquote(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return re.sub(r"\s+#.*$", "", text)


def as_list(value: str | list[str]) -> tuple[str, ...]:
    """Return a list's items, or those of a text separated by commas."""
    parts = value if isinstance(value, list) else value.split(",")
    return tuple(part.strip() for part in parts if part.strip())


def as_moment(text: str) -> datetime | None:
    """Return an ISO date or instant as an aware instant, in UTC where it names no zone; None when it is
    neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _lines(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield each line with its heading match; what looks like a heading inside a fenced block is none."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence) and not line.strip(" `~"):
                fence = ""
            yield line, None
        elif mark:
            fence = mark.group(1)
            yield line, None
        else:
            yield line, _HEADING.match(line)


def first_heading(text: str) -> str:
    """Return the text of the first level-one heading, or an empty text."""
    for _, heading in _lines(text):
        if heading and len(heading.group(1)) == 1:
            return (heading.group(2) or "").strip()
    return ""


def markdown_passages(text: str, title: str) -> list[Passage]:
    """Cut Markdown at its headings; a heading with nothing below it gives no passage of its own."""
    passages: list[Passage] = []
    path: list[tuple[int, str]] = []
    body: list[str] = []

    def close() -> None:
        names = tuple(name for _, name in path if name)
        passages.extend(Passage(title, names, piece) for piece in pieces("\n".join(body)))
        body.clear()

    for line, heading in _lines(text):
        if not heading:
            body.append(line)
            continue
        close()
        level = len(heading.group(1))
        path[:] = [
            *((depth, name) for depth, name in path if depth < level),
            (level, (heading.group(2) or "").strip()),
        ]
    close()
    if not passages and text.strip():
        passages.append(Passage(title, tuple(name for _, name in path if name), text.strip()))
    return passages


def text_passages(text: str, title: str) -> list[Passage]:
    """Cut plain text between paragraphs."""
    return [Passage(title, (), piece) for piece in pieces(text)]


def json_passages(text: str, title: str) -> list[Passage]:
    """Cut JSON lines: one passage a record, its `content`, `text` or `body` where it has one, else the line
    itself.
    """
    passages: list[Passage] = []
    for line in text.splitlines():
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        fields = record if isinstance(record, dict) else {}
        body = next(
            (fields[key] for key in ("content", "text", "body") if isinstance(fields.get(key), str)), line
        )
        name = fields.get("title")
        passages += (
            Passage(name if isinstance(name, str) and name else title, (), piece) for piece in pieces(body)
        )
    return passages


def pieces(text: str, size: int = PASSAGE_CHARACTERS) -> list[str]:
    """Pack whole paragraphs into pieces of at most `size` characters; cut a longer paragraph. Loses only
    blank space.
    """
    packed: list[str] = []
    current = ""
    for paragraph in re.split(r"\n[ \t\r]*\n", text.strip()):
        if current and len(current) + 2 + len(paragraph) > size:
            packed.append(current)
            current = ""
        current = f"{current}\n\n{paragraph}" if current else paragraph
        while len(current) > size:
            packed.append(current[:size])
            current = current[size:]
    packed.append(current)
    return [piece.strip() for piece in packed if piece.strip()]


def code_fence(code: str, language: str = "") -> str:
    """Code as a fenced block of Markdown, with its blank lines; the fence is longer than any in the code."""
    runs = [len(run) for run in re.findall(r"`{3,}", code)]
    fence = "`" * (max(runs, default=2) + 1)
    lines = code.replace("\r\n", "\n").rstrip().removeprefix("\n")
    return f"{fence}{language}\n{lines}\n{fence}"
