"""Stdout belongs to the results of a command. What plugins print goes to stderr."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from contextrouter.cli import terminal


@contextmanager
def reserve() -> Iterator[None]:
    """Reserve stdout for results in this block.

    `print()` goes to stderr, and so does whatever a library or a process of a plugin writes to file
    descriptor 1. Results go to the stream that `terminal.stdout()` returns.
    """
    outer = sys.stdout
    results, release = _divert(outer)
    terminal.results_to(results)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = outer
        terminal.results_to(None)
        release()


@contextmanager
def lend() -> Iterator[None]:
    """Lend stdout to a server that takes it for itself in the first step of this block.

    `sys.stdout` and file descriptor 1 are the program's own until the event loop runs its next step. After
    it `print()` goes to stderr again.
    """
    results, diverted = terminal.stdout(), sys.stdout
    if not _is_private(results):
        yield
        return
    results.flush()
    saved = os.dup(1)
    os.dup2(results.fileno(), 1)
    wire = sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - closed below
    asyncio.get_running_loop().call_soon(_print_to, diverted)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        wire.close()
        sys.stdout = diverted


def _print_to(stream: TextIO) -> None:
    sys.stdout = stream


def _is_private(stream: TextIO) -> bool:
    return stream is not sys.__stdout__ and _descriptor(stream) is not None


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a stream in memory, or a closed one
        return None


def _divert(outer: TextIO) -> tuple[TextIO, Callable[[], None]]:
    """Point file descriptor 1 at stderr if `outer` writes to it.

    Return the stream of the results, and a function that puts everything back.
    """
    if _descriptor(outer) != 1 or _descriptor(sys.stderr) != 2:
        return outer, lambda: None
    outer.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    # A console that cannot show a character, such as a tick, shows "?" in its place.
    results = open(  # noqa: SIM115 - release() closes it
        private, "w", encoding=outer.encoding, errors="replace", closefd=False
    )

    def release() -> None:
        try:
            results.close()  # flushes; the reader of the pipe may have gone
        finally:
            os.dup2(private, 1)
            os.close(private)

    return results, release
