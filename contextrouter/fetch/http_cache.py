"""HTTP cache: bodies in memory and on disk, revalidated by conditional GET (ETag, Last-Modified)."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from contextrouter.runtime.lru import Lru

MEMORY_BYTES = 32_000_000
DISK_BYTES = 500_000_000
_SUFFIX = ".copy"
_HEAD_BYTES = 16_384
_PRUNE_EVERY = 50


class CachedBody(msgspec.Struct, frozen=True, kw_only=True):
    """A cached body with its URL and its validators."""

    url: str
    content_type: str
    etag: str = ""
    modified: str = ""
    body: bytes = b""

    def conditions(self) -> dict[str, str]:
        """Return the headers of a conditional request."""
        headers = {"If-None-Match": self.etag, "If-Modified-Since": self.modified}
        return {name: value for name, value in headers.items() if value}


class HttpCache:
    """Cached bodies in memory and, if configured, in a folder. Methods that use the folder block: call them
    in a thread.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = Path(folder) if folder else None
        self._recent: Lru[str, CachedBody] = Lru(MEMORY_BYTES)
        self._written = 0

    @property
    def on_disk(self) -> bool:
        """Whether there is a folder."""
        return self._folder is not None

    @staticmethod
    def key(url: str, *details: str) -> str:
        """Return the key of an entry: a hash of its URL and of everything else that the response
        depends on.
        """
        return sha256("\0".join((url, *details)).encode("utf-8", "replace")).hexdigest()

    def open(self) -> None:
        """Make the folder, for this user alone."""
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def recent(self, key: str) -> CachedBody | None:
        """Return the entry in memory."""
        return self._recent.get(key)

    def keep(self, key: str, copy: CachedBody) -> None:
        """Keep an entry in memory; the least recently used ones are evicted."""
        self._recent.put(key, copy, weight=len(copy.url) + len(copy.body))

    def read(self, key: str) -> CachedBody | None:
        """Return the entry in the folder; None when it is absent or damaged."""
        if self._folder is None:
            return None
        try:
            with open(
                os.open(self._folder / (key + _SUFFIX), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb"
            ) as file:
                head = msgspec.json.decode(file.readline(_HEAD_BYTES), type=dict[str, str])
                body = file.read()
            if sha256(body).hexdigest() != head.pop("sha256"):
                return None
            return CachedBody(**head, body=body)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, key: str, copy: CachedBody) -> None:
        """Write an entry to the folder, atomically. Errors are ignored: the cache is optional."""
        if self._folder is None:
            return
        head: dict[str, Any] = {
            name: getattr(copy, name) for name in ("url", "content_type", "etag", "modified")
        }
        line = msgspec.json.encode({**head, "sha256": sha256(copy.body).hexdigest()}) + b"\n"
        if len(line) > _HEAD_BYTES:
            return
        with suppress(OSError):
            number, name = tempfile.mkstemp(dir=self._folder)
            try:
                with open(number, "wb") as file:
                    file.write(line)
                    file.write(copy.body)
                os.replace(name, self._folder / (key + _SUFFIX))
            except OSError:
                os.unlink(name)
                raise
            self._written += 1
            if self._written % _PRUNE_EVERY == 1:
                self._prune()

    def _prune(self) -> None:
        """Remove the oldest entries when the folder is too large."""
        assert self._folder is not None
        copies = [
            (entry.stat().st_mtime, entry.stat().st_size, entry.path)
            for entry in os.scandir(self._folder)
            if entry.name.endswith(_SUFFIX)
        ]
        size = sum(size for _, size, _ in copies)
        for _, bytes_, path in sorted(copies):
            if size <= DISK_BYTES:
                return
            os.unlink(path)
            size -= bytes_
