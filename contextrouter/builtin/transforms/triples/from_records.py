"""Facts from records: reads triples from JSON, JSON Lines and CSV, by a mapping of keys. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

from contextrouter.builtin.shared.delimited import layout, rows
from contextrouter.model import Fact

LINES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
_TABLES = ("text/csv", "text/tab-separated-values")
_KEY = re.compile(r'"([^"]+)"|([^."]+)')
_MOST_KEYS = 40
FACT_KEYS = ("confidence", "valid_from", "valid_to", "tenant", "compartment", "sensitivity")


class Rule(NamedTuple):
    """How a record becomes facts. `subject` and `object` are keys of the record, `predicate` is a word."""

    subject: str
    predicate: str
    object: str


def read_rules(mapping: Sequence[Mapping[str, str]]) -> tuple[Rule, ...]:
    """Return the rules of a mapping. Raises ValueError for an entry of another shape."""
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
                f"mapping {number} is {entry!r}. Give one such as {shape}: two keys, and a word as predicate."
            )
        rules.append(Rule(*(entry[role] for role in roles)))
    return tuple(rules)


def records(text: str, media_type: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each record. For a broken record the value is an exception."""
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
            yield 1, ValueError(f"The text is not JSON ({error}).")
            return
        yield from enumerate(data if isinstance(data, list) else [data], 1)
    elif media_type in _TABLES:
        yield from enumerate(_table_records(text, media_type), 2)


def _table_records(text: str, media_type: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table as records, with the names of its header as keys."""
    separator, header = layout(text, media_type)
    table = (row.fields for row in rows(text, separator, header) if row.fields)
    names = [name.strip() for name in next(table, [])]
    for fields in table:
        yield dict(zip(names, fields, strict=False))


def is_structured(media_type: str) -> bool:
    """Whether texts of this media type have records."""
    return media_type in LINES or media_type == "application/json" or media_type in _TABLES


def is_table(media_type: str) -> bool:
    """Whether texts of this media type have a row with the names of columns."""
    return media_type in _TABLES


def map_record(record: Mapping[str, Any], rules: Sequence[Rule]) -> Iterator[Fact]:
    """Yield the facts of one record: a fact for each pair of values at the keys of a rule.

    A key without a value gives no fact. A key with dots goes into objects and through lists: `authors.name`
    is the name of each author. A name that has dots itself stands in double quotes; without them it is taken
    whole where the record has a key of that name.
    """
    for rule in rules:
        for subject in values_of(record, rule.subject):
            for object_ in values_of(record, rule.object):
                yield Fact(subject=subject, predicate=rule.predicate, object=object_)


def values_of(record: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the values at a key of a rule."""
    yield from _values(record, [key] if key in record else path_of(key))


def path_of(key: str) -> list[str]:
    """The names in a key of a rule, outermost first: `person."D.O.B"` has two."""
    return [quoted or plain.strip() for quoted, plain in _KEY.findall(key)] or [key]


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


class Matches:
    """Which rules of a mapping match records of one document, and which keys the records have."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._facts = dict.fromkeys(rules, 0)
        self._keys: dict[str, None] = {}
        self._records = 0

    def facts(self, record: Mapping[str, Any]) -> list[Fact]:
        """The facts of one record, which is noted."""
        self._records += 1
        self._keys.update(dict.fromkeys(key for key in record if isinstance(key, str)))
        facts_of_record: list[Fact] = []
        for rule in self._rules:
            facts = list(map_record(record, [rule]))
            self._facts[rule] += len(facts)
            facts_of_record += facts
        return facts_of_record

    def problems(self, *, is_table: bool, is_whole: bool) -> Iterator[str]:
        """Yield a sentence for each rule that matches no record, with the keys that there are.

        One record, or a part of a document, may lack what others have; of a table it shows at least which
        columns there are.
        """
        names_are = "columns" if is_table else "keys"
        for number, rule in enumerate(self._rules, 1):
            if self._facts[rule] or not self._keys:
                continue
            unknown = [
                key
                for key in (rule.subject, rule.object)
                if key not in self._keys and path_of(key)[0] not in self._keys
            ]
            if not (is_table and unknown) and not (is_whole and self._records > 1):
                continue
            are = "are" if len(unknown) > 1 else "is"
            reason = (
                f"{' and '.join(map(repr, unknown))} {are} not there" if unknown else "no record has both"
            )
            names = ", ".join(list(self._keys)[:_MOST_KEYS])
            yield f"mapping {number} matches no record: {reason}. The {names_are} are {names}."


def read_fact(record: Mapping[str, Any], keys: Mapping[str, str]) -> Fact:
    """Return the fact of one record. Raises ValueError if a value is missing or wrong."""
    subject, predicate, object_ = (_require_text(record, key) for key in keys.values())
    tenant, compartment, sensitivity = (
        _label(record, key) for key in ("tenant", "compartment", "sensitivity")
    )
    start, end = _instant(record, "valid_from"), _instant(record, "valid_to")
    if start and end and start > end:
        raise ValueError(f"valid_from {record['valid_from']!r} is after valid_to {record['valid_to']!r}.")
    attributes = {key: value for key, value in record.items() if key not in (*keys.values(), *FACT_KEYS)}
    return Fact(
        subject=subject,
        predicate=predicate,
        object=object_,
        confidence=_confidence(record),
        valid_from=start,
        valid_to=end,
        attributes=attributes,
        tenant=tenant,
        compartment=compartment,
        sensitivity=sensitivity,
    )


def parse_record(line: str) -> Mapping[str, Any]:
    """Return the record of one line. Raises ValueError if the line is no JSON object."""
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
    raise ValueError(f"The record holds {name}, which is no JSON number. Give a finite number.")


def _require_text(record: Mapping[str, Any], key: str) -> str:
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
            return datetime.combine(
                date.fromisoformat(text), time.max if key == "valid_to" else time.min, UTC
            )
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"Key {key!r} is {value!r}. Give an ISO 8601 date such as 2024-12-31.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
