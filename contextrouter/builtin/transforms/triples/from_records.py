"""Facts from records of JSON, JSON Lines and CSV, by a mapping of their keys. Pure functions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

from contextrouter.model import Fact

LINES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
_TABLES = {"text/csv": ",", "text/tab-separated-values": "\t"}
FACT_KEYS = ("confidence", "valid_from", "valid_to", "tenant", "compartment", "sensitivity")


class Rule(NamedTuple):
    """How a record becomes facts: the keys of subject and object, and the predicate, which is a word of its
    own.
    """

    subject: str
    predicate: str
    object: str


def read_rules(mapping: Sequence[Mapping[str, str]]) -> tuple[Rule, ...]:
    """The rules of a mapping. Raises ValueError for one that is none."""
    rules = []
    for number, entry in enumerate(mapping, 1):
        roles = ("subject", "predicate", "object")
        if (
            not isinstance(entry, Mapping)
            or set(entry) != set(roles)
            or not all(isinstance(v, str) and v for v in entry.values())
        ):
            shape = '{ subject = "name", predicate = "works at", object = "employer" }'
            raise ValueError(
                f"mapping {number} is {entry!r}. Give one such as {shape}: keys, and a word between them."
            )
        rules.append(Rule(*(entry[role] for role in roles)))
    return tuple(rules)


def records(text: str, media_type: str) -> Iterator[tuple[int, Any]]:
    """Yield what records a text has, with their numbers; what is no record comes as an exception in its
    place.
    """
    text = text.removeprefix("\ufeff")
    if media_type in LINES:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield number, parse_record(line)
                except ValueError as error:
                    yield number, error
    elif media_type == "application/json":
        try:
            data = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            yield 1, ValueError(f"The text is no JSON ({error}).")
            return
        yield from enumerate(data if isinstance(data, list) else [data], 1)
    elif media_type in _TABLES:
        try:
            yield from enumerate(csv.DictReader(io.StringIO(text), delimiter=_TABLES[media_type]), 2)
        except csv.Error as error:
            yield 1, ValueError(f"The table cannot be read ({error}).")


def is_structured(media_type: str) -> bool:
    """Whether texts of this type have records."""
    return media_type in LINES or media_type == "application/json" or media_type in _TABLES


def map_record(parse_record: Mapping[str, Any], read_rules: Sequence[Rule]) -> Iterator[Fact]:
    """The facts of one record: every pair of values that a rule's keys lead to; none where one leads nowhere.

    A key with dots leads into objects, and through lists: `authors.name` is the name of each author.
    """
    for rule in read_rules:
        for subject in _values(parse_record, rule.subject.split(".")):
            for object_ in _values(parse_record, rule.object.split(".")):
                yield Fact(subject=subject, predicate=rule.predicate, object=object_)


def _values(value: Any, keys: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _values(item, keys)
    elif keys and isinstance(value, Mapping):
        yield from _values(value.get(keys[0]), keys[1:])
    elif (
        not keys
        and isinstance(value, str | int | float)
        and not isinstance(value, bool)
        and str(value).strip()
    ):
        yield " ".join(str(value).split())


def read_fact(parse_record: Mapping[str, Any], keys: Mapping[str, str]) -> Fact:
    """The fact that a record is. Raises ValueError for what is wrong with it."""
    subject, predicate, object_ = (_require_text(parse_record, key) for key in keys.values())
    tenant, compartment, sensitivity = (
        _label(parse_record, key) for key in ("tenant", "compartment", "sensitivity")
    )
    start, end = _instant(parse_record, "valid_from"), _instant(parse_record, "valid_to")
    if start and end and start > end:
        raise ValueError(
            f"valid_from {parse_record['valid_from']!r} is after valid_to {parse_record['valid_to']!r}."
        )
    attributes = {
        key: value for key, value in parse_record.items() if key not in (*keys.values(), *FACT_KEYS)
    }
    return Fact(
        subject=subject,
        predicate=predicate,
        object=object_,
        confidence=_confidence(parse_record),
        valid_from=start,
        valid_to=end,
        attributes=attributes,
        tenant=tenant,
        compartment=compartment,
        sensitivity=sensitivity,
    )


def parse_record(line: str) -> Mapping[str, Any]:
    """The record of one line. Raises ValueError."""
    try:
        parse_record = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("The record is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"The line is not JSON ({error.msg} at character {error.colno}).") from None
    if not isinstance(parse_record, dict):
        raise ValueError(f"The record is a {type(parse_record).__name__}, not an object.")
    return parse_record


def _no_number(name: str) -> float:
    raise ValueError(f"The record holds {name}, which is no JSON number.")


def _require_text(parse_record: Mapping[str, Any], key: str) -> str:
    value = parse_record.get(key)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise ValueError(f"Key {key!r} is {'missing' if value is None else repr(value)[:80]}. Give a text.")
    return str(value).strip()


def _label(parse_record: Mapping[str, Any], key: str) -> str | None:
    value = parse_record.get(key)
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise ValueError(f"Key {key!r} is {value!r}. Give a name.")
    return value


def _confidence(parse_record: Mapping[str, Any]) -> float:
    value = parse_record.get("confidence", 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ValueError(f"Key 'confidence' is {value!r}. Give a number from 0 to 1.")
    return float(value)


def _instant(parse_record: Mapping[str, Any], key: str) -> datetime | None:
    value = parse_record.get(key)
    if value is None or value == "":
        return None
    try:
        text = str(value).strip()
        if len(text) <= 10:
            return datetime.combine(
                date.fromisoformat(text), time.max if key == "valid_to" else time.min, UTC
            )
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"Key {key!r} is {value!r}. Give an ISO 8601 date such as 2024-12-31.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
