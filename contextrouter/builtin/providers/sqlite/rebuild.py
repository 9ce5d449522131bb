"""Builds a store again beside itself: whoever reads it meanwhile has the former content, then the new one.

The new store takes the place of the former in one transaction, page by page. So connections of other
processes stay good, which they would not if a new file took the place of the former.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from contextrouter.builtin.providers.sqlite import write
from contextrouter.builtin.providers.sqlite.file import StoreFile
from contextrouter.contracts import Provider
from contextrouter.runtime.threads import work_aside


class Rebuildable(Provider):
    """A store in a file, made from `path` and `embedder`."""

    _file: StoreFile

    async def clear(self) -> None:
        """Remove everything, and forget which embedder filled the store: the way to build it again."""
        if self._file.exists():
            await self._file.write(lambda c, _: write.clear(c))

    @asynccontextmanager
    async def rebuild(self) -> AsyncIterator[Self]:
        """Yield an empty store beside this one. When the block ends without an error, put its content in the
        place of this one's, at once. Raises SourceError where that cannot be done; the former content then
        stays.
        """
        location = self._file.location
        at = location.with_name(f"{location.name}-rebuild")
        await work_aside(_remove_files, at)  # of a run that was killed
        fresh = type(self)(path=str(at), embedder=self.embedder)  # type: ignore[call-arg]  # as `Sqlite` is made
        await fresh.open()
        try:
            try:
                yield fresh
            finally:
                await fresh.aclose()
            if await work_aside(at.exists):
                await self._file.replace_by(at)
            else:
                await self.clear()
        finally:
            await work_aside(_remove_files, at)


def _remove_files(at: Path) -> None:
    for path in (at, *(at.with_name(at.name + ending) for ending in ("-wal", "-shm", "-journal", "-turn"))):
        path.unlink(missing_ok=True)
