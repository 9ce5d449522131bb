"""Documents of parsed files: front matter, properties, dates and labels put into their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any

from contextrouter.builtin.connectors.files.git_dates import choose_date
from contextrouter.builtin.connectors.files.notes import Note, notion_title, read_note
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.connectors.markup import as_list, as_moment, first_heading, front_matter
from contextrouter.model import Document
from contextrouter.scope import SENSITIVITIES
from contextrouter.text.characters import is_blank

_WITH_FRONT_MATTER = ("text/markdown", "text/plain", "text/x-rst")
_MARKDOWN = "text/markdown"
_TAKEN = {
    "title",
    "kind",
    "url",
    "date",
    "labels",
    "keywords",
    "trust",
    "sensitivity",
    "tenant",
    "compartment",
    "language",
}
_DATES = ("date", "updated", "lastmod", "modified", "last_modified", "created")
"""Keys of front matter that date a document; the first that is there counts."""


def file_documents(
    name: str, parsed: Parsed, modified: int, kind: str, committed: datetime | None = None
) -> Iterator[tuple[Document, list[str]]]:
    """Yield the document of a file, or one for each part of it, with what was wrong with each.

    A document without any text is left out. `modified` is in ns since 1970, `committed` the date of the
    last commit that changed the file.
    """
    for part in parsed.parts or [parsed]:
        id = f"{name}/{part.name}" if parsed.parts else name
        document, problems = _make_document(
            id, PurePath(name).stem, part, kind, lambda own: choose_date(own, committed, modified)
        )
        if parsed.parts:  # its id without this is that of the file
            document = document.replace(metadata={**document.metadata, "part": part.name})
        if not is_blank(document.content):
            yield document, problems


def _make_document(
    id: str,
    stem: str,
    parsed: Parsed,
    kind: str,
    date: Callable[[datetime | None], tuple[datetime | None, str]],
) -> tuple[Document, list[str]]:
    """The document of a text, and what was wrong with it."""
    problems = list(parsed.problems)
    front: dict[str, str | list[str]] = {}
    note = Note(parsed.text)
    if parsed.media_type in _WITH_FRONT_MATTER:
        front, content, unread = front_matter(parsed.text)
        problems += (f"front matter line {line!r} is not `key: value`." for line in unread)
        note = read_note(content, stem) if parsed.media_type == _MARKDOWN else Note(content)
    values = {key: ", ".join(value) if isinstance(value, list) else value for key, value in front.items()}
    heading = first_heading(note.text) if parsed.media_type == _MARKDOWN else ""
    metadata: dict[str, Any] = {
        **parsed.metadata,
        **note.properties,
        **{key: value for key, value in front.items() if key not in _TAKEN},
    }
    updated, metadata["dated_by"] = date(_date_of(values, parsed, metadata, problems))
    content = note.text if {"page_starts", "cue_starts"} & metadata.keys() else note.text.strip()
    _note_first_line(metadata, parsed, content)
    tags = (*as_list(front.get("labels", "")), *as_list(front.get("tags", "")), *note.tags, *parsed.labels)
    tenant = values.get("tenant") or None
    return Document(
        content=content,
        id=id,
        url=values.get("url") or id,
        title=values.get("title") or parsed.title or heading or notion_title(stem),
        kind=kind or values.get("kind") or "document",
        media_type=parsed.media_type,
        updated_at=updated,
        links=tuple(parsed.links),
        keywords=as_list(front.get("keywords", "")),
        labels=tuple(dict.fromkeys(tags)),
        metadata=metadata,
        sensitivity=_sensitivity(values, problems),
        trust=values.get("trust") or None,
        tenant=None if tenant == "*" else tenant,  # no file makes itself everybody's
        compartment=values.get("compartment") or None,
        language=values.get("language") or parsed.language or None,
    ), problems


def _note_first_line(metadata: dict[str, Any], parsed: Parsed, content: str) -> None:
    """Note on which line of its file the content begins, if the content is a part of the file as it is. No
    front matter says so, nor which part of a file this is.
    """
    metadata.pop("first_line", None)
    metadata.pop("part", None)
    start = parsed.text.find(content) if "first_line" in parsed.metadata else -1
    if start >= 0:
        metadata["first_line"] = 1 + parsed.text.count("\n", 0, start)


def _date_of(
    values: dict[str, str], parsed: Parsed, metadata: dict[str, Any], problems: list[str]
) -> datetime | None:
    """The date that the document has of itself, noted in its metadata."""
    date = values.get("date", "")
    moment = as_moment(date)
    if date:
        metadata["date"] = date
        if not moment:
            problems.append(f"date {date!r} is no ISO date such as 2026-01-31.")
    elif parsed.date:
        metadata["date"] = parsed.date
    others = (values.get(name, "") for name in _DATES[1:])
    return moment or next(filter(None, map(as_moment, (*others, parsed.date))), None)


def _sensitivity(values: dict[str, str], problems: list[str]) -> str | None:
    """Return the label; one that is not known stays as it is, which means that nobody in a scope sees the
    file.
    """
    value = values.get("sensitivity") or None
    if value and value not in SENSITIVITIES:
        problems.append(f"sensitivity {value!r} is not one of {', '.join(SENSITIVITIES)}.")
    return value
