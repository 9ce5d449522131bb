"""Runs of laws: the check of a law in a thread and an event loop of its own, given up if it does not end."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from types import FrameType
from typing import Any, Generic, TypeVar

from contextrouter.runtime.abandoned_calls import consume_exception
from contextrouter.testing.messages import describe_error

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds that the check of one law may take. After them the law counts as broken."""
GRACE = 1.0
"""Seconds that cancelled work has to end, and an event loop to close."""
NO_END = "the plugin did not end within"
"""How the reason of a check that was given up begins."""

_left_behind: list[object] = []  # kept: Python complains of a task that is destroyed before it ended


class GivenUp(Exception):
    """The check did not end, or something ended its event loop. The message says what the plugin did."""


def run_apart(work: Callable[[], Coroutine[Any, Any, T]], file: str = "") -> T:
    """Return what a coroutine returns, in a thread of its own. Raises what it raises, and GivenUp if it does
    not end in `PATIENCE` seconds. `file` is the plugin's: the message names the line in it that blocks.
    """
    run = _Run(work)
    thread = threading.Thread(target=copy_context().run, args=(run.run,), name="law", daemon=True)
    thread.start()
    thread.join(PATIENCE + 6 * GRACE)
    if thread.is_alive():
        line = _blocking_line(sys._current_frames().get(thread.ident or 0), file)
        raise GivenUp(f"{NO_END} {PATIENCE:g} s, and it blocks the event loop{line}")
    return run.result()


def _blocking_line(frame: FrameType | None, file: str) -> str:
    """Name the function and the line that blocks: the innermost of the plugin's file, or of any."""
    inner = frame
    while inner is not None and inner.f_code.co_filename != file:
        inner = inner.f_back
    frame = inner or frame
    return f" ({frame.f_code.co_name}, line {frame.f_lineno})" if frame is not None else ""


class _Run(Generic[T]):
    """One coroutine, and how it ended."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._values: list[T] = []
        self._error: BaseException | None = None

    def result(self) -> T:
        """Return the value, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._values[0]

    def run(self) -> None:
        """Run the coroutine in a new event loop."""
        loop = asyncio.new_event_loop()
        task = loop.create_task(self._work())
        try:
            loop.run_until_complete(_wait(task))
            self._values.append(task.result())
        except Exception as error:
            self._error = error
        except BaseException as error:  # sys.exit() in a task of the plugin, which stops the loop
            self._error = GivenUp(describe_error(error))
        stubborn = loop.run_until_complete(_end_tasks(loop))
        if stubborn:
            _left_behind.append((loop, stubborn))
        else:
            loop.close()


async def _wait(task: asyncio.Task[Any]) -> None:
    """Wait for a task. Raises GivenUp if it does not end, not even when it is cancelled."""
    await asyncio.wait({task}, timeout=PATIENCE + GRACE)
    if task.done():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    heard = "" if task.done() else ", nor when it was cancelled: it must let CancelledError pass"
    raise GivenUp(f"{NO_END} {PATIENCE:g} s{heard}")


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
    """Cancel the tasks of a loop, close its generators, and return the tasks that do not end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        done, tasks = await asyncio.wait(tasks, timeout=GRACE)
        for task in done:
            consume_exception(task)
    closing = loop.create_task(loop.shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=GRACE)
    return {task for task in (*tasks, closing) if not task.done()}
