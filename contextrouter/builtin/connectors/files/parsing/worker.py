"""The parser process itself: one file in, its text out. It may be killed at any time.

Messages on stdin and stdout: four bytes of length, JSON; on stdin the file's bytes follow.
"""

from __future__ import annotations

import logging
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

import msgspec

from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.connectors.files.parsing.readers import reader

MEMORY = 2_000_000_000
"""Bytes of address space of this process: an archive that unfolds to more than that is one file's failure."""


class Job(msgspec.Struct):
    """What comes in: the media type, and how many bytes follow."""

    media_type: str
    size: int


class Answer(msgspec.Struct):
    """What goes out: the text, or why there is none; `package` names one that is missing."""

    parsed: Parsed | None = None
    why: str = ""
    package: str = ""


def answer(media_type: str, data: bytes) -> bytes:
    """Parse one file; whatever it makes of the parser is an answer, as JSON."""
    try:
        parsed = reader(media_type)(data)
        if not parsed.text.strip() and not parsed.parts:
            raise Unreadable("holds no text.")
        return msgspec.json.encode(Answer(parsed=parsed), enc_hook=str)  # lxml has texts of its own kind
    except Exception as error:
        return msgspec.json.encode(_reason(error))


def _reason(error: Exception) -> Answer:
    """Why a file could not be parsed."""
    if isinstance(error, ModuleNotFoundError):
        return Answer(package=error.name or "")
    if isinstance(error, Unreadable):
        return Answer(why=str(error))
    if isinstance(error, MemoryError):
        return Answer(why=f"needs more than {MEMORY // 10**9} GB to be read.")
    message = str(error).encode("utf-8", "replace").decode()[:200]
    return Answer(why=f"is broken ({type(error).__name__}: {message or 'no reason given'}).")


def receive(stream: BinaryIO) -> bytes | None:
    """Read one message; None at the end."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack(">I", head)[0]
    body = stream.read(size)
    return body if len(body) == size else None


def send(stream: BinaryIO, message: bytes, data: bytes = b"") -> None:
    """Write one message, and bytes behind it."""
    stream.write(struct.pack(">I", len(message)) + message)
    stream.write(data)
    stream.flush()


def main() -> None:
    """Answer until there is nothing more to do."""
    with suppress(ImportError, ValueError, OSError):  # where there is no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints is no answer
    while (message := receive(sys.stdin.buffer)) is not None:
        job = msgspec.json.decode(message, type=Job)
        send(answers, answer(job.media_type, sys.stdin.buffer.read(job.size)))


if __name__ == "__main__":
    main()
