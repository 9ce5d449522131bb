"""Side effects of constructors: access to files, sockets and processes is recorded and denied.

Files that an import opens, and those of the time zone database, do not count.
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

_IO_EVENTS = (
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
"""Prefixes of Python's audit events that are I/O."""
_SILENT_FUNCTIONS = ("stat", "lstat", "access", "readlink")  # functions of `os` that raise no audit event


class _State(threading.local):
    effects: list[str] | None = None


_state = _State()
_installed: list[bool] = []


@contextmanager
def deny_side_effects() -> Iterator[list[str]]:
    """Record the side effects of this thread in a block, one text each. Each raises RuntimeError."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)
    before, _state.effects = _state.effects, []
    originals = {name: getattr(os, name) for name in _SILENT_FUNCTIONS}
    for name, original in originals.items():
        setattr(os, name, _guard(name, original))
    try:
        yield _state.effects
    finally:
        _state.effects = before
        for name, original in originals.items():
            setattr(os, name, original)


@contextmanager
def watch_constructor(
    cls: type, watch: bool = True
) -> Iterator[tuple[list[str], list[tuple[tuple[Any, ...], dict[str, Any]]]]]:
    """Watch every construction of `cls` in a block. Yields side effects and arguments of the calls."""
    own_init = vars(cls).get("__init__")
    original: Callable[..., None] = getattr(cls, "__init__")  # noqa: B009 - mypy refuses the plain access
    effects: list[str] = []
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def init(self: Any, *args: Any, **keywords: Any) -> None:
        calls.append((args, keywords))
        if not watch:
            return original(self, *args, **keywords)
        with deny_side_effects() as call_effects:
            try:
                original(self, *args, **keywords)
            finally:
                effects.extend(call_effects)
        return None

    setattr(cls, "__init__", init)  # noqa: B010 - mypy refuses the plain assignment
    try:
        yield effects, calls
    finally:
        if own_init is None:
            delattr(cls, "__init__")
        else:
            setattr(cls, "__init__", own_init)  # noqa: B010 - mypy refuses the plain assignment


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _state.effects is not None and event.startswith(_IO_EVENTS):
        _deny(event, args[0] if args else "")


def _guard(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def guard(path: Any, *args: Any, **keywords: Any) -> Any:
        if _state.effects is not None:
            _deny(f"os.{name}", path)
        return original(path, *args, **keywords)

    return guard


def _deny(event: str, target: object) -> None:
    effects = _state.effects
    if effects is None or _importing(sys._getframe(1)) or _time_zone(target):
        return
    effect = f"{event} {target!r}"
    effects.append(effect)
    raise RuntimeError(f"Constructor touches the outside ({effect}); do it in open().")


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _time_zone(target: object) -> bool:
    """Whether a path is in the time zone database, which belongs to Python."""
    return isinstance(target, str) and (target.startswith(tuple(zoneinfo.TZPATH)) or "tzdata" in target)
