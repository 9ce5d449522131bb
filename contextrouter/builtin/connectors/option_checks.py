"""Validation of constructor keywords: numbers with a minimum, lists, and HTTP headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def check_lists(owner: str, **lists: Sequence[str]) -> None:
    """Raise ValueError for a text in place of a list; `owner` is the connector's class name."""
    for name, value in lists.items():
        if isinstance(value, str):
            raise ValueError(f"{owner}.{name} {value!r} is one text; give a list.")


def check_numbers(owner: str, minimum: float, **numbers: float) -> None:
    """Raise ValueError for a number below `minimum`, or one without bound."""
    for name, value in numbers.items():
        if not minimum <= value < 1e9:
            raise ValueError(f"{owner}.{name} is {value!r}; give a number of at least {minimum}.")


def check_headers(owner: str, headers: Mapping[str, str]) -> None:
    """Raise ValueError for a header that cannot be sent."""
    for name, value in headers.items():
        if not name or not (name + value).isascii() or not (name + value).isprintable() or ":" in name:
            raise ValueError(
                f"{owner}.headers {name!r} cannot be sent; a name and a value of printable ASCII are"
                " expected."
            )
