"""Filters and ids as the local stand-in for Vector Search 2 reads them, and refuses them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from contextrouter.builtin.shared.google_cloud.cloud_options import SHORT_NAME

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class Refused(Exception):
    """A request that is answered with a status other than OK."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def holds(data: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Whether data meets a filter. Raises Refused for a filter that the service does not know."""
    return all([_holds_one(data, key, value) for key, value in condition.items()])


def _holds_one(data: Mapping[str, Any], key: str, value: Any) -> bool:
    if key == "$and":
        return all([holds(data, item) for item in value])
    if key == "$or":
        return any([holds(data, item) for item in value])
    if key.startswith("$"):
        raise Refused("INVALID_ARGUMENT", f"operator {key!r} is not supported")
    compared = value if isinstance(value, Mapping) else {"$eq": value}
    return all([_compare(data.get(key), sign, item) for sign, item in compared.items()])


def _compare(present: Any, sign: str, value: Any) -> bool:
    values = present if isinstance(present, list) else [present]
    if value is None:
        raise Refused("INVALID_ARGUMENT", f"{sign} takes no null")
    if sign in ("$eq", "$ne"):
        return (value in values) == (sign == "$eq")
    if sign in ("$in", "$nin"):
        if not all(isinstance(item, str) for item in value):
            raise Refused("INVALID_ARGUMENT", f"{sign} takes strings only")
        return any(item in value for item in values) == (sign == "$in")
    if sign not in _COMPARED:
        raise Refused("INVALID_ARGUMENT", f"operator {sign!r} is not supported")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("INVALID_ARGUMENT", f"{sign} takes numbers only")
    return isinstance(present, int | float) and _COMPARED[sign](present, value)


def plain_filter(query: Any) -> dict[str, Any]:
    """Return the filter of a request."""
    from google.protobuf import json_format

    condition: dict[str, Any] = json_format.MessageToDict(type(query).pb(query).filter)
    return condition


def fields_of(condition: Mapping[str, Any]) -> set[str]:
    """Return the fields that a filter compares."""
    parts = [part for key in ("$and", "$or") for part in condition.get(key, ())]
    fields = {key for key in condition if not key.startswith("$")}
    return fields.union(*map(fields_of, parts))


def check_id(key: str, id: str) -> None:
    """Raise Refused for an id of another form."""
    if not SHORT_NAME.fullmatch(id):
        raise Refused("INVALID_ARGUMENT", f"{key} {id!r} is not valid")
