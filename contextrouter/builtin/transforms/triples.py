"""Reads facts from JSON Lines: one directed triple per line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from contextrouter.contracts import Transform
from contextrouter.model import Document, Fact

MEDIA_TYPES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
_OWN = ("confidence", "valid_from", "valid_to", "tenant", "compartment", "sensitivity")
_SHOWN = 200  # problems listed one by one


class Triples(Transform):
    """A document of JSON Lines -> one document without content whose facts are in `metadata["facts"]`.

    `subject`, `predicate` and `object` are the keys of a record that hold the triple. `confidence` (0 to 1), `valid_from` and
    `valid_to` (ISO 8601; a date is its first instant in UTC, as `valid_to` its last; a time without zone is UTC), `tenant`,
    `compartment` and `sensitivity` are the fact's own; a record's other keys become its attributes. A record that is no fact is
    left out and listed in `metadata["problems"]` as "line N: …". Documents of other media types pass unchanged.
    """

    def __init__(self, *, subject: str = "subject", predicate: str = "predicate", object: str = "object") -> None:
        self.keys = {"subject": subject, "predicate": predicate, "object": object}
        for role, key in self.keys.items():
            if not key or key in _OWN:
                raise ValueError(f"{role} {key!r} cannot be the key of a triple. Give a name that is not {', '.join(_OWN)}.")
        if len(set(self.keys.values())) < 3:
            raise ValueError(f"Keys {tuple(self.keys.values())!r} are not distinct. Give subject, predicate and object one each.")

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its facts, or as it is when it is no JSON Lines."""
        if document.media_type.partition(";")[0].strip().lower() not in MEDIA_TYPES:
            return [document]
        facts, problems = self.read(document.content)
        metadata = {**document.metadata, "facts": (*document.metadata.get("facts", ()), *facts)}
        if problems:
            listed = problems[:_SHOWN] + ([f"{len(problems) - _SHOWN} more lines"] if len(problems) > _SHOWN else [])
            metadata["problems"] = (*document.metadata.get("problems", ()), *listed)
        return [document.replace(content="", metadata=metadata)]

    def read(self, text: str) -> tuple[list[Fact], list[str]]:
        """The facts of `text`, and what is wrong with the lines that are none. Blank lines are neither."""
        facts, problems = [], []
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
            if not line.strip():
                continue
            try:
                facts.append(self._fact(_record(line)))
            except ValueError as error:
                problems.append(f"line {number}: {error}")
        return facts, problems

    def _fact(self, record: Mapping[str, Any]) -> Fact:
        subject, predicate, object_ = (_text(record, key) for key in self.keys.values())
        tenant, compartment, sensitivity = (_label(record, key) for key in ("tenant", "compartment", "sensitivity"))
        start, end = _instant(record, "valid_from"), _instant(record, "valid_to")
        if start and end and start > end:
            raise ValueError(f"valid_from {record['valid_from']!r} is after valid_to {record['valid_to']!r}.")
        rest = {key: value for key, value in record.items() if key not in (*self.keys.values(), *_OWN)}
        return Fact(
            subject=subject, predicate=predicate, object=object_, confidence=_confidence(record),
            valid_from=start, valid_to=end, attributes=rest,
            tenant=tenant, compartment=compartment, sensitivity=sensitivity,
        )  # fmt: skip


def _record(line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("The record is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"The line is not JSON ({error.msg} at character {error.colno}).") from None
    if not isinstance(record, dict):
        raise ValueError(f"The record is a {type(record).__name__}, not an object.")
    return record


def _no_number(name: str) -> float:
    raise ValueError(f"The record holds {name}, which is no JSON number.")


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise ValueError(f"Key {key!r} is {'missing' if value is None else repr(value)[:80]}. Give a text.")
    return str(value).strip()


def _label(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise ValueError(f"Key {key!r} is {value!r}. Give a name.")
    return value


def _confidence(record: Mapping[str, Any]) -> float:
    value = record.get("confidence", 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ValueError(f"Key 'confidence' is {value!r}. Give a number from 0 to 1.")
    return float(value)


def _instant(record: Mapping[str, Any], key: str) -> datetime | None:
    value = record.get(key)
    if value is None or value == "":
        return None
    try:
        text = str(value).strip()
        if len(text) <= 10:
            return datetime.combine(date.fromisoformat(text), time.max if key == "valid_to" else time.min, UTC)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"Key {key!r} is {value!r}. Give an ISO 8601 date such as 2024-12-31.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
