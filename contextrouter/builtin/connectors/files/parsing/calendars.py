"""Calendars (iCalendar) and address cards (vCard) to Markdown: a heading for each event or person."""

from __future__ import annotations

import quopri
import re
from collections.abc import Iterator, Sequence

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    Unreadable,
    markdown_line,
    one_heading,
)

_QUOTED = re.compile(r"(?i)QUOTED-PRINTABLE(?:[^\n]*=\r?\n)+[^\n]*")
_SOFT_BREAK = re.compile(r"=\r?\n")
_CHARSET = re.compile(r"(?i);CHARSET=([^;:]+)")
_FOLD = re.compile(r"\r?\n[ \t]")
_LINE = re.compile(r"(?:[\w-]+\.)?([A-Za-z-]+)((?:;[^:\"\n]*(?:\"[^\"\n]*\"[^:\"\n]*)*)?):(.*)$")
_DAY = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(Z?))?$")
_ZONE = re.compile(r";TZID=([^;:]+)", re.I)
_EVENT_FIELDS = {
    "DTSTART": "Start", "DTEND": "End", "DUE": "Due", "RRULE": "Repeats", "LOCATION": "Place",
    "ORGANIZER": "Organizer", "ATTENDEE": "Attendee", "CATEGORIES": "Categories", "STATUS": "Status",
    "URL": "Address", "DESCRIPTION": "", "COMMENT": "",
}  # fmt: skip
_CARD_FIELDS = {
    "ORG": "Organization", "TITLE": "Title", "ROLE": "Role", "EMAIL": "Mail", "TEL": "Telephone",
    "ADR": "Address", "URL": "Web", "BDAY": "Birthday", "NICKNAME": "Also called", "CATEGORIES": "Categories",
    "NOTE": "",
}  # fmt: skip


def read_calendar(data: bytes) -> Parsed:
    """The events, tasks and notes of a calendar. Times are those that it says, with their zone."""
    return _parse_components(data, ("VEVENT", "VTODO", "VJOURNAL"), ("SUMMARY",), _EVENT_FIELDS, "no event")


def read_cards(data: bytes) -> Parsed:
    """The people and organizations of an address book."""
    return _parse_components(data, ("VCARD",), ("FN", "N", "ORG"), _CARD_FIELDS, "no card")


def _parse_components(
    data: bytes, kinds: Sequence[str], names: Sequence[str], fields: dict[str, str], nothing: str
) -> Parsed:
    blocks: list[str] = []
    for component in _components(data.decode("utf-8", "replace"), kinds):
        title = next(
            (_name(key, text) for name in names for key, _, text in component if key == name and text), ""
        )
        blocks.append(one_heading(2, title or "Without a title"))
        for name, label in fields.items():
            values = [_readable_value(parameters, text) for key, parameters, text in component if key == name]
            blocks += [markdown_line(f"{label}: {value}" if label else value) for value in values if value]
    if not blocks:
        raise Unreadable(f"holds {nothing}.")
    return Parsed(text="\n\n".join(blocks), media_type=MARKDOWN)


def _components(text: str, kinds: Sequence[str]) -> Iterator[list[tuple[str, str, str]]]:
    """Yield the lines of each component as (name, parameters, value), without those of parts inside it."""
    component: list[tuple[str, str, str]] | None = None
    inner = 0
    text = _QUOTED.sub(lambda lines: _SOFT_BREAK.sub("", lines[0]), text)
    for line in _FOLD.sub("", text).splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, parameters, value = match[1].upper(), match[2], match[3].strip()
        if "QUOTED-PRINTABLE" in parameters.upper():
            value = _decode_quoted(value, parameters)
        if name == "BEGIN":
            if component is None and value.upper() in kinds:
                component, inner = [], 0
            else:
                inner += 1
        elif name == "END":
            if component is not None and value.upper() in kinds and not inner:
                yield component
                component = None
            inner = max(inner - 1, 0)
        elif component is not None and not inner:
            component.append((name, parameters, value))


def _name(key: str, text: str) -> str:
    """The name of a person: family name and given name of a card without a full name in the other order."""
    if key != "N":
        return text
    family, given = [*text.split(";"), ""][:2]
    return " ".join(filter(None, (given, family)))


def _decode_quoted(value: str, parameters: str) -> str:
    """A value of a vCard 2.1, whose bytes stand as =C3."""
    charset = _CHARSET.search(parameters)
    data = quopri.decodestring(value.encode())
    try:
        return data.decode(charset[1] if charset else "utf-8").replace("\r\n", "\n").replace("\n", "\\n")
    except (LookupError, UnicodeDecodeError):
        return data.decode("cp1252", "replace").replace("\n", " ")


def _readable_value(parameters: str, value: str) -> str:
    if day := _DAY.match(value):
        zone = _ZONE.search(parameters)
        time = f" {day[4]}:{day[5]}" if day[4] else ""
        return f"{day[1]}-{day[2]}-{day[3]}{time}" + (f" ({zone[1]})" if zone else " (UTC)" if day[7] else "")
    value = value.removeprefix("mailto:").removeprefix("tel:")
    parts = [part for part in re.split(r"(?<!\\);", value) if part.strip()]
    return re.sub(r"\\([,;\\])", r"\1", ", ".join(parts).replace("\\n", " ").replace("\\N", " "))
