"""Async streams that are closed as soon as their reader stops: `async with closing(stream) as items`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar, cast

T = TypeVar("T")


def closing(stream: AsyncIterator[T]) -> aclosing[AsyncGenerator[T, None]]:
    """Close an async generator at the end of a block.

    The contracts call streams iterators, which have no `aclose` for the type checker. All are generators.
    """
    return aclosing(cast(AsyncGenerator[T, None], stream))
