"""Builds a store again beside itself: whoever reads it meanwhile has the former content, then the new one.

The new store takes the place of the former in one transaction, page by page. So connections of other
processes stay good, which they would not if a new file took the place of the former.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from contextrouter.builtin.providers.sqlite.file import StoreFile


class Store(Protocol):
    """What is needed of a store in a file."""

    async def open(self) -> None:
        """Open the file."""
        ...

    async def aclose(self) -> None:
        """Close the file."""
        ...


S = TypeVar("S", bound=Store)


def beside(location: Path) -> Path:
    """Where a store is built that will take the place of the one at `location`."""
    return location.with_name(f"{location.name}-rebuild")


@asynccontextmanager
async def rebuild(fresh: S, at: Path, file: StoreFile) -> AsyncIterator[S]:
    """Yield `fresh`, a store at the path `at`, open and empty. When the block ends without an error, put its
    content in the place of that of `file`. Raises SourceError where that cannot be done; the former content
    then stays.
    """
    await asyncio.to_thread(_remove, at)  # of a run that was killed
    await fresh.open()
    try:
        try:
            yield fresh
        finally:
            await fresh.aclose()
        if await asyncio.to_thread(at.exists):
            await file.replace_by(at)
    finally:
        await asyncio.to_thread(_remove, at)


def _remove(at: Path) -> None:
    for path in (at, *(at.with_name(at.name + ending) for ending in ("-wal", "-shm", "-journal", "-turn"))):
        path.unlink(missing_ok=True)
