"""Reads a small text file in bounded time and memory, whatever its path names: a device, or a pipe without a
writer.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

SECONDS = 2.0
"""How long what is no plain file, such as a pipe, may take to deliver its text."""
_PART = 65_536  # bytes
_PAUSE = 0.02  # seconds
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # without it, opening a pipe waits for its writer


def read_limited(path: str | Path, most: int) -> str:
    """Return the text of a file of at most `most` bytes, without the mark that some editors put before it.

    Raises OSError, and UnicodeDecodeError.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        data, ends_at = bytearray(), time.monotonic() + SECONDS
        while part := _read_part(descriptor, ends_at, begun=bool(data)):
            data += part
            if len(data) > most:
                raise OSError(errno.EFBIG, f"it is longer than {most:,} bytes")
        return data.decode("utf-8-sig")
    finally:
        os.close(descriptor)


def _read_part(descriptor: int, ends_at: float, begun: bool) -> bytes:
    """Return the next bytes; none at the end. A pipe that nobody writes to yet is waited for."""
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.read(descriptor, _PART)
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, ends_at - time.monotonic()))
        part = os.read(descriptor, _PART) if ready else b""
        if part or (ready and (begun or not stat.S_ISFIFO(kind))):
            return part
        if time.monotonic() >= ends_at:
            raise OSError(errno.ETIMEDOUT, f"nothing more came from it within {SECONDS:g} s")
        time.sleep(_PAUSE)
