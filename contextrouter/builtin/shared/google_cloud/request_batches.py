"""Batches of objects for requests that write to Google Cloud: as many as a service takes in one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST = 1_000
"""Objects of one request."""
BYTES = 3_000_000
"""Of one request that writes."""


def cut_batches(items: Sequence[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """Cut items into batches; `size_of` is how many bytes an item takes, roughly. One that is too large goes
    alone.
    """
    batches: list[list[T]] = []
    total = 0
    for item in items:
        size = size_of(item)
        if not batches or len(batches[-1]) == MOST or total + size > BYTES:
            batches.append([])
            total = 0
        batches[-1].append(item)
        total += size
    return batches
