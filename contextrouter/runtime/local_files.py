"""Local files: the path of a document below its folder, and its bytes, without leaving the folder."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path, PurePosixPath

import msgspec


class LocalFile(msgspec.Struct, frozen=True):
    """A file of this machine, below `folder`."""

    folder: Path
    path: Path


def local_file(root: str | os.PathLike[str], name: str) -> LocalFile | None:
    """Return the file `name` below `root`, or `root` itself where it is that file; None for a name that is no
    path below a folder.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
        return None
    folder = Path(os.path.abspath(root))
    if parts == (folder.name,) and _is_file(folder):
        return LocalFile(folder.parent, folder)
    return LocalFile(folder, folder.joinpath(*parts))


@lru_cache(maxsize=1024)
def _is_file(path: Path) -> bool:
    return path.is_file()


def read_local_file(file: LocalFile, limit: int) -> tuple[bytes, float] | None:
    """Return the bytes of a file and the time of its last change, in seconds since 1970; None if it is not
    there, is no regular file, is larger than `limit` bytes, or lies outside its folder, whatever links say.

    A file that was moved or copied to its place has changed then, however old its content is said to be.
    """
    try:
        folder, path = file.folder.resolve(strict=True), file.path.resolve(strict=True)
        if not path.is_relative_to(folder):
            return None
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                return None
            return opened.read(limit), max(status.st_mtime, status.st_ctime)
    except (OSError, RuntimeError, ValueError):
        return None
