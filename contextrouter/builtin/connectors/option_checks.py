"""Validation of constructor keywords: numbers with a minimum, and lists."""

from __future__ import annotations

from collections.abc import Sequence


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
