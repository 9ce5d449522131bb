"""What keeps SQLite from using a file: another writer, damage, a full or read-only volume, or too many open
files.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from contextrouter.builtin.providers.vector_slots import REBUILD

_LEAST_FREE = 65_536  # bytes; SQLite needs 32 KiB beside the store even to read
_FULL = "is on a full volume"


def volume_problem(location: Path) -> str:
    """Say what is wrong with the volume of a file; "": nothing, or it cannot be found out."""
    folder = location.parent
    try:
        volume = os.statvfs(folder)
    except (OSError, AttributeError):  # it has no such call everywhere
        return ""
    if volume.f_flag & os.ST_RDONLY:
        return f"is on a read-only volume ({str(folder)!r})"
    if volume.f_bavail * volume.f_frsize < _LEAST_FREE:
        return f"{_FULL} ({str(folder)!r})"
    if not os.access(folder, os.W_OK):
        return f"is in a folder that may not be written to ({str(folder)!r})"
    return ""


def explain(location: Path) -> str:
    """Say why SQLite cannot use a file, and how to mend it; "" if the reason is the file itself."""
    if os.path.isdir(location):
        return "is a folder; give the path of a file, which need not exist"
    if problem := volume_problem(location):
        remedy = "make room there" if problem.startswith(_FULL) else "make it writable, or move the store"
        return f"{problem}; {remedy}. What it holds is unharmed"
    if _too_many_files():
        return (
            "cannot be opened, because the process has too many open files; raise the limit with `ulimit -n`"
        )
    return ""


def _too_many_files() -> bool:
    """Whether the process can open no file more, which SQLite reports as a file that cannot be opened."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def describe_error(error: Exception, location: Path, busy_timeout: float) -> str:
    """Say what an error of SQLite, or of the system, means for a store, and how to mend it."""
    message, store = str(error), f"Store {str(location)!r}"
    if "locked" in message or "busy" in message:
        waited = f"was locked by another writer for {busy_timeout} s ({message})"
        return f"{store} {waited}; raise `busy_timeout` or write less at once."
    if "not a database" in message or "malformed" in message or "encrypted" in message:
        remedy = f"correct `path`, or restore a copy, or remove it and run {REBUILD}"
        return f"{store} is damaged or no SQLite file ({message}); {remedy}."
    if reason := explain(location):
        return f"{store} {reason} ({message})."
    if isinstance(error, OSError) or any(part in message for part in ("unable to open", "readonly", "full")):
        return f"{store} cannot be used ({message}); check the path, its permissions and the free space."
    return f"{store} failed ({message}); check the volume, and then the file with `PRAGMA integrity_check`."
