"""Exit codes of commands, and error messages in place of tracebacks."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import traceback
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeGuard

import typer

from contextrouter.cli import leaving, stdout, terminal
from contextrouter.errors import (
    AllSourcesFailed,
    ContextRouterError,
    IngestError,
    MissingDependency,
    RequestRefused,
    SettingsError,
)
from contextrouter.runtime.masking import MaskedLines

OK, NOTHING, USAGE, SOURCES, INGESTION, FAILED, FAULT, NO_ROOM = 0, 1, 2, 3, 4, 5, 70, 74
INTERRUPTED = 130
EXIT_CODES = {
    OK: "done",
    NOTHING: "nothing was found, or a check failed",
    USAGE: "wrong usage or settings, a missing package, or a refused question",
    SOURCES: "every source failed",
    INGESTION: "ingestion left documents out, or broke off",
    FAILED: "a plugin failed that may not be passed over",
    FAULT: "a fault of this program; its traceback is on stderr",
    NO_ROOM: "the output could not be written, because the disk is full",
}

_MOST_EXITS = 100
"""How often the loop is run again whose tasks want to end the program."""
P = ParamSpec("P")


def command(function: Callable[P, Coroutine[Any, Any, int] | int]) -> Callable[P, None]:
    """Turn a function that returns an exit code, async or not, into a command. Errors become messages on
    stderr, and so does what plugins print.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        lines = logging.StreamHandler(sys.stderr)
        lines.setFormatter(MaskedLines("%(levelname)s: %(message)s", terminal.hidden))
        logging.basicConfig(level=logging.WARNING, handlers=[lines])
        raise typer.Exit(_settle(lambda: _run(lambda: function(*args, **kwargs))))

    return run


def _run(function: Callable[[], Coroutine[Any, Any, int] | int]) -> int:
    """Run a command, and return its exit code. What a plugin still does does not keep the program."""
    runner = asyncio.Runner()

    def main() -> int:
        result = function()
        code = result if isinstance(result, int) else runner.run(result)
        terminal.stdout().flush()
        return code

    with stdout.reserve():
        code = _settle(main)
        leaving.leave_soon(code)
        return _settle(lambda: _end_loop(runner)) or code


def _settle(call: Callable[[], int]) -> int:
    """Return the exit code of a call. Its error becomes a message on stderr."""
    try:
        return call()
    except ContextRouterError as error:
        terminal.error(error)
        return code_of(error)
    except KeyboardInterrupt:
        terminal.error("Interrupted.")
        return INTERRUPTED
    except SystemExit as stop:
        terminal.error(f"A plugin ended the program: sys.exit({stop.code!r}).")
        return FAILED
    except BrokenPipeError:
        terminal.close_stdout()
        return 141
    except typer.Exit as stop:
        return stop.exit_code
    except Exception as error:
        if is_full_disk(error):
            return report_full_disk(error)
        terminal.err.print(terminal.style_text(traceback.format_exc()))
        return FAULT


def is_full_disk(error: Exception) -> TypeGuard[OSError]:
    """Whether something could not be written for want of room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def report_full_disk(error: OSError) -> int:
    """Say where there is no room, and return the exit code. Further output is discarded: it would fail in the
    same way.
    """
    place = "the output" if error.filename is None else repr(error.filename)
    terminal.error(f"There is no room to write {place} ({error.strerror}). Make room, and run it again.")
    terminal.close_stdout()
    return NO_ROOM


def _end_loop(runner: asyncio.Runner) -> int:
    """End the event loop and its threads, but for tasks that ignore their cancellation."""
    for _ in range(_MOST_EXITS):
        try:
            runner.run(asyncio.sleep(0))
            break
        except (KeyboardInterrupt, SystemExit):  # of a plugin, once more from each task that waited for it
            continue
    if runner.run(_end_tasks()):
        runner.close()  # waits for threads
    else:
        terminal.note("a plugin ignores its cancellation and is left behind.", "warning")
    return OK


async def _end_tasks() -> bool:
    """Cancel all other tasks, and return whether they ended in time: before the program leaves."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return not tasks or not (await asyncio.wait(tasks, timeout=0.5))[1]


def code_of(error: ContextRouterError) -> int:
    """Return the exit code of a command that fails with `error`."""
    if isinstance(error, AllSourcesFailed):
        return SOURCES
    if isinstance(error, IngestError):
        return INGESTION
    return USAGE if isinstance(error, SettingsError | MissingDependency | RequestRefused) else FAILED
