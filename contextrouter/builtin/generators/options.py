"""Checks of remote generators: base URL, positive numbers, and the messages of a request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def check_base_url(base_url: str) -> str:
    """The address of a server. Raises ValueError."""
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ValueError(f"base_url {base_url!r} is no HTTP address. Give one such as 'https://host/v1'.")
    return base_url


def check_positive(name: str, value: float) -> float:
    """A number above 0. Raises ValueError."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} {value!r} is not a positive number. Give more than 0.")
    return value


def clean_messages(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Messages that JSON can carry: half of a surrogate pair becomes "?"."""
    return [
        {name: text.encode("utf-8", "replace").decode() for name, text in message.items()}
        for message in messages
    ]
