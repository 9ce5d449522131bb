"""Disk cache tier, with `diskcache` but without pickle: nothing on disk can run.

`diskcache` unpickles a value when its row says so (CVE-2025-69872), and removes any file that a row names.
`SafeDisk` refuses both, and only the user can open the folder.
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
"""Smaller entries are in the table itself, which is faster than a file for each."""
CULL = 2
"""How many entries each write removes while the folder is full: more than it adds, but never all."""
PATIENCE = 1.0
"""Seconds to wait for a write lock of another process."""
_FILE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val\Z")
_DATABASE = ("cache.db", "cache.db-wal", "cache.db-shm", "cache.db-journal")


def _safe_disk() -> type[Any]:
    from diskcache import Disk
    from diskcache.core import MODE_BINARY, MODE_RAW

    class SafeDisk(Disk):  # type: ignore[misc]  # diskcache comes without types
        """Keys are texts, values are bytes, texts and numbers, and files have names of this cache."""

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
            if not _is_cache_file(filename):
                raise ValueError(f"An entry in the folder names file {filename!r}.")
            return super().fetch(mode, filename, value, False)

        def remove(self, file_path: Any) -> None:
            if _is_cache_file(file_path):
                super().remove(file_path)

    return SafeDisk


def _is_cache_file(name: Any) -> bool:
    return isinstance(name, str) and _FILE.match(name) is not None


class DiskTier:
    """Entries in the folder `path`/`namespace`, up to about `max_bytes`; the oldest are evicted. Several
    processes may share it.

    Reads take microseconds and run inline, writes in a thread.
    """

    name = "disk"

    def __init__(self, path: str, *, namespace: str, max_bytes: int) -> None:
        self.folder = Path(os.path.abspath(path)) / namespace
        self.max_bytes: int | None = max_bytes
        self._cache: Any = None
        self._threads: Threads | None = None

    async def open(self) -> None:
        """Open the folder, or make it. A damaged cache is cleared: it holds nothing that is not elsewhere.

        Raises MissingDependency, SettingsError when other users can open the folder, and OSError when it
        cannot be made or written to.
        """
        if self._cache is not None:
            return
        if find_spec("diskcache") is None:
            raise MissingDependency("diskcache", "disk", what="Cache tier 'disk'")
        threads = Threads(1, "cache-disk")
        try:
            self._cache = await threads.run(self._open_folder)
        except OSError as error:
            threads.close()
            reason = f"folder {str(self.folder)!r} cannot be used: {error.strerror or error}"
            raise OSError(f"{reason}. Name one that can be written to, or make room there.") from None
        except BaseException:
            threads.close()
            raise
        self._threads = threads

    def _open_folder(self) -> Any:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(self.folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise self._folder_error("is a link or belongs to another user. Name a folder of your own.")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise self._folder_error(f"is open to other users. Close it: chmod 700 {str(self.folder)!r}.")
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(str(error)) from error
            self._empty()
            return self._connect()

    def _connect(self) -> Any:
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
            raise self._folder_error("has a '$' or '~' in its name. Name one without.")
        return cache

    def _empty(self) -> None:
        """Remove the files of `diskcache`, and nothing else."""
        for name in _DATABASE:
            (self.folder / name).unlink(missing_ok=True)
        for entry in self.folder.iterdir():
            if re.fullmatch("[0-9a-f]{2}", entry.name) and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)

    def _folder_error(self, reason: str) -> SettingsError:
        return SettingsError([Problem(f"folder {str(self.folder)!r} {reason}", key="cache.path")])

    async def aclose(self) -> None:
        """Close the connections of both threads."""
        cache, self._cache = self._cache, None
        threads, self._threads = self._threads, None
        if cache is not None and threads is not None:
            try:
                await threads.run(cache.close)
            finally:
                cache.close()
                threads.close()

    async def get(self, address: bytes) -> bytes | None:
        """Return the entry. Raises errors of SQLite, of the file system, or ValueError for a foreign row."""
        entry = self._cache.get(address.hex())
        return entry if type(entry) is bytes else None

    async def put(self, address: bytes, entry: bytes, ttl: float) -> None:
        """Keep `entry` for `ttl` seconds, unless it is larger than the whole cache."""
        cache = self._cache
        if self.max_bytes is not None and len(entry) > self.max_bytes:
            return
        await self._run(lambda: cache.set(address.hex(), entry, expire=ttl))

    async def clear(self) -> int:
        """Remove every entry, and return how many there were."""
        return int(await self._run(self._cache.clear))

    async def size(self) -> tuple[int, int]:
        """Return the number of entries and the bytes of the files. Removes expired entries first."""
        cache = self._cache
        size: tuple[int, int] = await self._run(lambda: (cache.expire(), len(cache), int(cache.volume()))[1:])
        return size

    async def _run(self, function: Any) -> Any:
        assert self._threads is not None
        return await self._threads.run(function)
