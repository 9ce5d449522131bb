"""Request validation: checks the types of request fields, and the days of a period."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from datetime import date, datetime, time
from math import isfinite
from typing import Any

from contextrouter.errors import RequestRefused
from contextrouter.text.time_zones import time_zone

MOST_FILTERS, MOST_VALUES, LONGEST_VALUE = 50, 1_000, 2_000
"""The most keys of filters, the most values of all together, and the most characters of one."""
_NAMES = ("sources", "legs", "kinds", "labels")


def normalize_fields(request: Any) -> dict[str, Any]:
    """Fields of a Request that are right in another form: lists of names as tuples. Raises RequestRefused for
    what is wrong.
    """
    if _bare(request):
        return {}
    if not isinstance(request.question, str):
        raise RequestRefused(f"Request.question is a text, not {_describe(request.question)}.")
    deadline = request.deadline
    if deadline is not None and not (
        isinstance(deadline, int | float) and deadline > 0 and isfinite(deadline)
    ):
        raise RequestRefused(f"The deadline is {deadline!r} seconds from now. Give a number above 0.")
    if request.mode is not None and not isinstance(request.mode, str):
        raise RequestRefused(f"Request.mode is the name of a route, not {_describe(request.mode)}.")
    if request.scope is not None and not hasattr(request.scope, "allows"):
        raise RequestRefused(f"Request.scope is a Scope, not {_describe(request.scope)}.")
    if not isinstance(request.history, tuple | list) or not all(
        isinstance(turn, Mapping) for turn in request.history
    ):
        raise RequestRefused(
            f"Request.history is a list of mappings with role and content, not {_describe(request.history)}."
        )
    for name in ("profile", "filters"):
        if not isinstance(getattr(request, name), Mapping):
            raise RequestRefused(f"Request.{name} is a mapping, not {_describe(getattr(request, name))}.")
    changes: dict[str, Any] = (
        {} if isinstance(request.history, tuple) else {"history": tuple(request.history)}
    )
    for name in _NAMES:
        value = getattr(request, name)
        if value is None:
            continue
        if not _is_listed(value) or not all(isinstance(item, str) for item in value):
            hint = f" Write ({value!r},)." if isinstance(value, str) else ""
            raise RequestRefused(f"Request.{name} is a list of names, not {_describe(value)}.{hint}")
        if not isinstance(value, tuple):
            changes[name] = tuple(sorted(value)) if isinstance(value, Set) else tuple(value)
    if request.filters:
        changes["filters"] = _own_filters(request.filters)
    _check_demands(request)
    return changes


def _own_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of filters, so that nobody changes them on the way. Raises RequestRefused for too
    many.
    """
    copied = {
        key: list(value)
        if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
        else value
        for key, value in filters.items()
    }
    for key, item in copied.items():
        if not isinstance(key, str):
            raise RequestRefused(f"A key of Request.filters is a text, not {_describe(key)}.")
        for value in item if isinstance(item, list) else [item]:
            if isinstance(value, Mapping) or _is_listed(value):  # as operators of other programs are written
                raise RequestRefused(
                    f"Request.filters[{key!r}] is a value, or a list of values, not {_describe(item)}."
                    " With a list, a document needs only one of the values."
                )
    values = [value for item in copied.values() for value in (item if isinstance(item, list) else [item])]
    if len(copied) > MOST_FILTERS or len(values) > MOST_VALUES:
        raise RequestRefused(
            f"Request.filters have {len(copied)} keys and {len(values)} values. Give at most {MOST_FILTERS}"
            f" keys and {MOST_VALUES} values in all."
        )
    texts = [text for text in (*copied, *values) if isinstance(text, str)]
    if max(map(len, texts), default=0) > LONGEST_VALUE:
        raise RequestRefused(f"A value of Request.filters is longer than {LONGEST_VALUE} characters.")
    return copied


def _is_listed(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _check_demands(request: Any) -> None:
    if request.period is not None and not hasattr(request.period, "bounds"):
        raise RequestRefused(f"Request.period is a Period, not {_describe(request.period)}.")
    as_of, limit = request.as_of, request.limit
    if as_of is not None and not isinstance(as_of, datetime):
        raise RequestRefused(f"Request.as_of is a datetime, not {_describe(as_of)}.")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise RequestRefused(f"Request.limit is a whole number of documents, not {_describe(limit)}.")


def _bare(request: Any) -> bool:
    """Whether there is a question and nothing else that would have to be looked at, as in most requests."""
    return (
        type(request.question) is str
        and type(request.history) is tuple
        and not request.history
        and request.scope
        is request.sources
        is request.legs
        is request.kinds
        is request.deadline
        is request.mode
        is request.period
        is request.as_of
        is request.limit
        is None
        and request.labels == ()
        and type(request.profile) is type(request.filters) is dict
        and not request.filters
    )


def _describe(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"


def read_day(text: str, name: str) -> date:
    """Return the day ("2026-03-01") or instant ("2026-03-01T12:00:00") of a text. Raises RequestRefused that
    calls it `name`.
    """
    try:
        return date.fromisoformat(text) if len(text) <= len("2026-03-01") else datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"{name} {text!r:.80} is no day. Write one as 2026-03-01, or an instant as 2026-03-01T12:00."
        )
        raise RequestRefused(message) from None


def read_instant(text: str, name: str) -> datetime:
    """Return the instant of a text; a day is its first. Raises RequestRefused that calls it `name`."""
    value = read_day(text, name)
    return value if isinstance(value, datetime) else datetime.combine(value, time())


def check_period(start: object, end: object, zone: Any) -> None:
    """Raise ValueError for values that are no day, moment or time zone."""
    for name, value in (("start", start), ("end", end)):
        if value is not None and not isinstance(value, date):  # a datetime is a date
            raise ValueError(f"Period.{name} is a date, a datetime or None, not {_describe(value)}.")
    try:
        time_zone(zone)
    except (KeyError, ValueError, OSError, TypeError):
        hint = "Use a name such as 'Europe/Berlin'."
        raise ValueError(f"Period.zone {zone!r:.80} is not a time zone. {hint}") from None
