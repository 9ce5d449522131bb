"""Disk cache tier, by `diskcache`, made safe: nothing on disk can run, since it neither pickles nor
unpickles.

`diskcache` unpickles what lies in its folder as soon as a row says so (CVE-2025-69872), and removes whatever
file a row names. Here a row that says either is refused, and the folder is the user's alone.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contextrouter.errors import MissingDependency, Problem, SettingsError
from contextrouter.runtime.threads import Threads

INLINE = 1_000_000
"""Entries of fewer bytes lie in the table, which is read faster than a file of their own."""
CULL = 2
"""How many entries each write removes while there is no room: more than it adds, and never all there are."""
PATIENCE = 1.0
"""Seconds to wait for another process that writes."""
_FILE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val\Z")
_DATABASE = ("cache.db", "cache.db-wal", "cache.db-shm", "cache.db-journal")


def _safe_disk() -> type[Any]:
    from diskcache import Disk
    from diskcache.core import MODE_BINARY, MODE_RAW

    class SafeDisk(Disk):  # type: ignore[misc]  # diskcache comes without types
        """Keys are texts; values are bytes, texts and numbers; files are those it named itself."""

        def put(self, key: Any) -> Any:
            if type(key) is not str:
                raise TypeError(f"A key is a text, not a {type(key).__name__}.")
            return key, True

        def get(self, key: Any, raw: Any) -> Any:
            if not raw or type(key) is not str:
                raise ValueError("A key in the folder is not a text.")
            return key

        def store(self, value: Any, read: Any, key: Any = None) -> Any:
            if read or type(value) not in (bytes, str, int, float):
                raise TypeError(f"A value is bytes, a text or a number, not a {type(value).__name__}.")
            return super().store(value, False, key)

        def fetch(self, mode: Any, filename: Any, value: Any, read: Any) -> Any:
            if mode == MODE_RAW:
                return value
            if read or mode != MODE_BINARY:
                raise ValueError(f"An entry in the folder has mode {mode!r}.")
            if not _own(filename):
                raise ValueError(f"An entry in the folder names file {filename!r}.")
            return super().fetch(mode, filename, value, False)

        def remove(self, file_path: Any) -> None:
            if _own(file_path):
                super().remove(file_path)

    return SafeDisk


def _own(name: Any) -> bool:
    return isinstance(name, str) and _FILE.match(name) is not None


class DiskTier:
    """Entries in folder `path`/`namespace`, up to about `max_bytes`; those stored longest ago go. Processes
    may share it.

    Reads take microseconds and run inline, writes in a thread.
    """

    name = "disk"

    def __init__(self, path: str, *, namespace: str, max_bytes: int) -> None:
        self.folder = Path(os.path.abspath(path)) / namespace
        self.max_bytes: int | None = max_bytes
        self._cache: Any = None
        self._threads: Threads | None = None

    async def open(self) -> None:
        """Open the folder; make it where there is none. One that is damaged is emptied: it holds nothing that
        is not elsewhere.

        Raises MissingDependency, and SettingsError where the folder cannot be made or belongs to others as
        well.
        """
        if self._cache is not None:
            return
        if find_spec("diskcache") is None:
            raise MissingDependency("diskcache", "disk", what="Cache tier 'disk'")
        threads = Threads(1, "cache-disk")
        try:
            self._cache = await threads.run(self._opened)
        except OSError as error:
            threads.close()
            raise self._refused(
                f"cannot be used: {error.strerror or error}. Name one that can be written to."
            ) from None
        except BaseException:
            threads.close()
            raise
        self._threads = threads

    def _opened(self) -> Any:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(self.folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise self._refused("is a link or belongs to another user. Name a folder of your own.")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise self._refused(f"is open to other users. Close it: chmod 700 {str(self.folder)!r}.")
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(str(error)) from error
            self._empty()
            return self._connected()

    def _connected(self) -> Any:
        from diskcache import Cache

        cache = Cache(
            str(self.folder),
            timeout=PATIENCE,
            disk=_safe_disk(),
            size_limit=self.max_bytes,
            statistics=0,
            tag_index=0,
            eviction_policy="least-recently-stored",
            cull_limit=CULL,
            disk_min_file_size=INLINE,
            disk_pickle_protocol=0,
        )
        if cache.directory != str(self.folder):
            raise self._refused("has a '$' or '~' in its name. Name one without.")
        return cache

    def _empty(self) -> None:
        """Remove what `diskcache` made, and nothing else."""
        for name in _DATABASE:
            (self.folder / name).unlink(missing_ok=True)
        for entry in self.folder.iterdir():
            if re.fullmatch("[0-9a-f]{2}", entry.name) and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)

    def _refused(self, why: str) -> SettingsError:
        return SettingsError([Problem(f"folder {str(self.folder)!r} {why}", key="cache.path")])

    async def aclose(self) -> None:
        """Close the connections of both threads."""
        cache, self._cache = self._cache, None
        threads, self._threads = self._threads, None
        if cache is not None and threads is not None:
            await threads.run(cache.close)
            cache.close()
            threads.close()

    async def get(self, at: bytes) -> bytes | None:
        """Return the entry. Raises what SQLite, the file system or a row that is not ours make it raise."""
        found = self._cache.get(at.hex())
        return found if type(found) is bytes else None

    async def put(self, at: bytes, entry: bytes, ttl: float) -> None:
        """Keep `entry` for `ttl` seconds, unless there could be no room for it."""
        cache = self._cache
        if self.max_bytes is not None and len(entry) > self.max_bytes:
            return
        await self._run(lambda: cache.set(at.hex(), entry, expire=ttl))

    async def clear(self) -> int:
        """Remove every entry, whatever it is; return how many there were."""
        return int(await self._run(self._cache.clear))

    async def size(self) -> tuple[int, int]:
        """Return the number of entries and the bytes of the folder's files. Removes what is too old."""
        cache = self._cache
        found: tuple[int, int] = await self._run(
            lambda: (cache.expire(), len(cache), int(cache.volume()))[1:]
        )
        return found

    async def _run(self, function: Any) -> Any:
        assert self._threads is not None
        return await self._threads.run(function)
