"""Exit codes of commands, and error messages in place of tracebacks."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import typer

from contextrouter.cli import stdout, terminal
from contextrouter.errors import (
    AllSourcesFailed,
    ContextRouterError,
    IngestError,
    MissingDependency,
    RequestRefused,
    SettingsError,
)

OK, NOTHING, USAGE, SOURCES, INGESTION, FAILED, FAULT = 0, 1, 2, 3, 4, 5, 70
EXIT_CODES = {
    OK: "done",
    NOTHING: "nothing was found, or a check failed",
    USAGE: "wrong usage or settings, a missing package, or a refused question",
    SOURCES: "every source failed",
    INGESTION: "ingestion left documents out, or broke off",
    FAILED: "a plugin failed that may not be passed over",
    FAULT: "a fault of this program; its traceback is on stderr",
}

P = ParamSpec("P")


def command(function: Callable[P, Coroutine[Any, Any, int] | int]) -> Callable[P, None]:
    """Turn a function that returns an exit code, async or not, into a command. Errors become messages on
    stderr, and so does what plugins print.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s: %(message)s")
        try:
            with stdout.reserve():
                result = function(*args, **kwargs)
                code = result if isinstance(result, int) else _run(result)
        except ContextRouterError as error:
            terminal.error(error)
            code = code_of(error)
        except KeyboardInterrupt:
            terminal.error("Interrupted.")
            code = 130
        except BrokenPipeError:
            terminal.close_stdout()
            code = 141
        except typer.Exit:
            raise
        except Exception:
            terminal.err.print(terminal.style_text(traceback.format_exc()))
            code = FAULT
        raise typer.Exit(code)

    return run


def _run(main: Coroutine[Any, Any, int]) -> int:
    """Run a command. A task that ignores its cancellation does not keep the program from its end."""
    runner = asyncio.Runner()
    try:
        return runner.run(main)
    finally:
        if runner.run(_end_tasks()):
            runner.close()
        else:
            terminal.note("a plugin ignores its cancellation and is left behind.", "warning")


async def _end_tasks() -> bool:
    """Cancel all other tasks, and return whether they ended within a second."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return not tasks or not (await asyncio.wait(tasks, timeout=1.0))[1]


def code_of(error: ContextRouterError) -> int:
    """Return the exit code of a command that fails with `error`."""
    if isinstance(error, AllSourcesFailed):
        return SOURCES
    if isinstance(error, IngestError):
        return INGESTION
    return USAGE if isinstance(error, SettingsError | MissingDependency | RequestRefused) else FAILED
