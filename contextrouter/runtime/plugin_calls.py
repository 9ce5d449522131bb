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
from contextrouter.runtime.abandoned_calls import consume_exception

log = logging.getLogger("contextrouter")
Answer = TypeVar("Answer")

CLOSE_SECONDS = 5.0
"""How long closing waits for a plugin."""
CANCEL_SECONDS = 0.25
"""How long a cancelled `aclose()` may take to end."""
STOPPING = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)
"""What is no Exception and still none of the plugin's business."""


def text_of(error: BaseException) -> str:
    """Return the message of an exception; empty if the exception cannot say it. That of a group names the
    first error in it: its own message only counts them.
    """
    try:
        text = str(error)
    except Exception:
        return ""
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return text if inner is error else f"{text}; the first: {type(inner).__name__}: {text_of(inner)}"


class containment:
    """Turn a BaseException that stops no program, such as a library's panic, into a PluginError, and a group
    of exceptions, too: its message names the first.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, (Exception, *STOPPING)) and not isinstance(error, BaseExceptionGroup):
            return
        if isinstance(error, GeneratorExit) and not in_event_loop():
            return  # a coroutine that nobody waits for any more is being closed
        raise PluginError(f"{type(error).__name__}: {text_of(error)}") from error


def in_event_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def as_plain(answer: Answer) -> Answer:
    """Return the items of a plugin's list or tuple as a plain one, and anything else as it is.

    A subclass is not iterated, because it may iterate otherwise, and without an end.
    """
    plain: Any = answer
    if isinstance(answer, list) and type(answer) is not list:
        plain = list.copy(answer)
    elif isinstance(answer, tuple) and type(answer) is not tuple:
        plain = tuple.__getitem__(answer, slice(None))
    return plain  # type: ignore[no-any-return]  # of the same kind as the answer


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
    """Close a plugin. After `seconds` give it up, with a warning. Raises what `aclose()` raises, and
    PluginError where it cancels itself.
    """
    task = asyncio.get_running_loop().create_task(_aclose(plugin))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            log.warning("%s does not close: given up after %.3g s.", name, seconds)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(consume_exception)
    if not task.done():
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)
    elif task.cancelled():
        raise PluginError("the plugin cancelled its own aclose()")
    elif (error := task.result()) is not None:
        with containment():
            raise error


async def _aclose(plugin: Plugin) -> BaseException | None:
    """Return what `aclose()` raises. A SystemExit that leaves a task stops the event loop, and would keep
    the other plugins open.
    """
    try:
        await plugin.aclose()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error
    return None
