"""Types of fields: says which field of a plugin's answer has another type than the data model says."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from numbers import Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

_WORDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    datetime: "a datetime",
    date: "a date",
}


def flaw(value: msgspec.Struct, prefix: str = "") -> str:
    """Say which field of a noun has a wrong type, such as "document.id is int, not a text"; empty: none does.

    The router takes a list where the data model has a tuple, and any real number where it has a float.
    """
    for name, hint in _hints(type(value)).items():
        field = getattr(value, name)
        path = f"{prefix}{name}"
        if not _fits(field, hint):
            if key := _odd_key(field):
                return f"a key of {path} is {key}, not a text"
            if (item := _odd_item(field, hint)) is not None:
                return f"an item of {path} is {item}, not {_type_words(get_args(hint)[0])}"
            return f"{path} is {type_name(field)}, not {_type_words(hint)}"
        for part in _nouns(field):
            if message := flaw(part, f"{path}."):
                return message
    return ""


def is_number(value: object) -> bool:
    """Whether a value is a real number; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def type_name(value: object) -> str:
    """Return the type of a value, as a message names it."""
    return "None" if value is None else type(value).__name__


@functools.cache
def _hints(cls: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(cls)}


def _odd_key(field: object) -> str:
    """Return the type of the first key of a mapping that is no text; empty: there is none."""
    keys = field if isinstance(field, Mapping) else ()
    return next((type_name(key) for key in keys if not isinstance(key, str)), "")


def _odd_item(field: object, hint: Any) -> str | None:
    """Return the type of the first item that does not fit into a list or tuple; None: it is no such thing."""
    if get_origin(hint) not in (tuple, list, Sequence) or not isinstance(field, list | tuple):
        return None
    part = get_args(hint)[0]
    fits = is_number if part is float else lambda item: _fits(item, part)
    return next((type_name(item) for item in field if not fits(item)), None)


def _nouns(field: Any) -> list[Any]:
    """Return the nouns in a field."""
    items = field if isinstance(field, list | tuple) else [field]
    return [item for item in items if isinstance(item, msgspec.Struct)]


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return True
    if origin is Annotated:
        return _fits(value, get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint in (None, type(None)):
        return value is None
    if origin is Literal:
        return value in get_args(hint)
    if origin in (tuple, list, Sequence):
        return _fits_sequence(value, get_args(hint)[0])
    if origin is Mapping or hint is Mapping:
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and _fits(item, (get_args(hint) or (str, Any))[1])
            for key, item in value.items()
        )
    if hint is float:
        return is_number(value)
    if hint is date:
        return isinstance(value, date)
    return isinstance(value, datetime) if hint is datetime else type(value) is hint


def _fits_sequence(value: Any, item: Any) -> bool:
    if item is float:  # a vector: a list, or an array
        return not isinstance(value, str | bytes) and hasattr(value, "__len__") and all(map(is_number, value))
    return type(value) in (list, tuple) and all(_fits(part, item) for part in value)


def _type_words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        return _type_words(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return " or ".join(map(_type_words, parts)) + " or None"
    if origin in (tuple, list, Sequence):
        item = get_args(hint)[0]
        return "a vector of numbers" if item is float else f"a tuple, each item {_type_words(item)}"
    if origin is Mapping:
        return "a mapping"
    return _WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")
