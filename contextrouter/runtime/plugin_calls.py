"""Calls of plugins: a plugin's mistakes stay its own.

A library of a plugin may raise a BaseException, such as the panic of a compiled extension. It becomes a
PluginError, which every caller expects. Context variables that a call sets are gone after the call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from inspect import isawaitable
from types import CoroutineType
from typing import Any, TypeVar

from contextrouter.contracts import Plugin
from contextrouter.errors import PluginError

log = logging.getLogger("contextrouter")
Answer = TypeVar("Answer")

CLOSE_SECONDS = 5.0
"""How long closing waits for a plugin."""
CANCEL_SECONDS = 0.25
"""How long a cancelled `aclose()` may take to end."""
STOPPING = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What is no Exception and still none of the plugin's business."""


def text_of(error: BaseException) -> str:
    """Return the message of an exception; empty if the exception cannot say it."""
    try:
        return str(error)
    except Exception:
        return ""


class containment:
    """Turn a BaseException that stops no program, such as a library's panic, into a PluginError."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, (Exception, *STOPPING)):
            raise PluginError(f"{type(error).__name__}: {text_of(error)}") from error


def as_coroutine(call: Awaitable[Answer]) -> Coroutine[Any, Any, Answer]:
    """Return a plugin's call as a coroutine. Raises TypeError for what cannot be awaited."""
    if isinstance(call, CoroutineType):
        return call
    if not isawaitable(call):
        raise TypeError(f"the method returned {type(call).__name__} at once; write `async def`")
    return call if asyncio.iscoroutine(call) else _wait_for(call)


async def _wait_for(call: Awaitable[Answer]) -> Answer:
    return await call


async def close(plugin: Plugin, name: str, seconds: float = CLOSE_SECONDS) -> None:
    """Close a plugin. After `seconds` give it up, with a warning. Raises what `aclose()` raises."""
    task = asyncio.get_running_loop().create_task(_aclose(plugin))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            log.warning("%s does not close: given up after %.3g s.", name, seconds)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_retrieve)
    if task.done():
        with containment():
            task.result()
    else:
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)


async def _aclose(plugin: Plugin) -> None:
    await plugin.aclose()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the exception, so that the event loop does not report it as lost."""
    if not task.cancelled():
        task.exception()
