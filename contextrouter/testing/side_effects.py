"""A watch over constructors: files, sockets and processes they touch are noted, and denied.

Files opened by an import, and those of the time zone database, are not the plugin's doing.
"""

from __future__ import annotations

import os
import sys
import threading
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_TOUCHING = (
    "open",
    "socket.",
    "subprocess.",
    "sqlite3.",
    "shutil.",
    "tempfile.",
    "glob.",
    "ftplib.",
    "http.client.",
    "urllib.Request",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
)
"""Beginnings of the names of Python's audit events that are I/O."""
_ASKING = ("stat", "lstat", "access", "readlink")  # functions of `os` that raise no audit event


class _State(threading.local):
    touched: list[str] | None = None


_state = _State()
_installed: list[bool] = []


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note what this thread touches within, one text each. What is touched raises RuntimeError."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)
    before, _state.touched = _state.touched, []
    originals = {name: getattr(os, name) for name in _ASKING}
    for name, original in originals.items():
        setattr(os, name, _asking(name, original))
    try:
        yield _state.touched
    finally:
        _state.touched = before
        for name, original in originals.items():
            setattr(os, name, original)


@contextmanager
def constructing(
    cls: type, watch: bool = True
) -> Iterator[tuple[list[str], list[tuple[tuple[Any, ...], dict[str, Any]]]]]:
    """Within, every construction of `cls` is watched, and its arguments are noted: (touched, calls)."""
    own = vars(cls).get("__init__")
    original: Callable[..., None] = getattr(cls, "__init__")  # noqa: B009 - mypy refuses the plain access
    touched: list[str] = []
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def init(self: Any, *args: Any, **keywords: Any) -> None:
        calls.append((args, keywords))
        if not watch:
            return original(self, *args, **keywords)
        with watched() as seen:
            try:
                original(self, *args, **keywords)
            finally:
                touched.extend(seen)
        return None

    setattr(cls, "__init__", init)  # noqa: B010 - mypy refuses the plain assignment
    try:
        yield touched, calls
    finally:
        if own is None:
            delattr(cls, "__init__")
        else:
            setattr(cls, "__init__", own)  # noqa: B010 - mypy refuses the plain assignment


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _state.touched is not None and event.startswith(_TOUCHING):
        _deny(event, args[0] if args else "")


def _asking(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def asked(path: Any, *args: Any, **keywords: Any) -> Any:
        if _state.touched is not None:
            _deny(f"os.{name}", path)
        return original(path, *args, **keywords)

    return asked


def _deny(event: str, what: object) -> None:
    touched = _state.touched
    if touched is None or _importing(sys._getframe(1)) or _time_zone(what):
        return
    said = f"{event} {what!r}"
    touched.append(said)
    raise RuntimeError(f"Constructor touches the outside ({said}); do it in open().")


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _time_zone(what: object) -> bool:
    """Whether the path is one of the time zone database, which belongs to Python."""
    return isinstance(what, str) and (what.startswith(tuple(zoneinfo.TZPATH)) or "tzdata" in what)
