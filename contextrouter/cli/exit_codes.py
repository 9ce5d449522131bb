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

from contextrouter.cli import leaving, terminal
from contextrouter.errors import (
    AllSourcesFailed,
    ContextRouterError,
    IngestError,
    MissingDependency,
    RequestRefused,
    SettingsError,
)

OK, NOTHING, USAGE, SOURCES, INGESTION, FAILED, FAULT = 0, 1, 2, 3, 4, 5, 70
INTERRUPTED = 130
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
    stderr.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s: %(message)s")
        runner = asyncio.Runner()
        code = _settle(lambda: _run(function(*args, **kwargs), runner))
        leaving.leave_soon(code)
        try:
            runner.close()  # waits for threads
        except KeyboardInterrupt:
            code = INTERRUPTED
        raise typer.Exit(code)

    return run


def _run(result: Coroutine[Any, Any, int] | int, runner: asyncio.Runner) -> int:
    return result if isinstance(result, int) else runner.run(result)


def _settle(call: Callable[[], int]) -> int:
    """Return the exit code of a call. Its error becomes a message on stderr."""
    try:
        return call()
    except ContextRouterError as error:
        terminal.error(str(error))
        return code_of(error)
    except KeyboardInterrupt:
        terminal.error("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        terminal.close_stdout()
        return 141
    except typer.Exit:
        raise
    except Exception:
        terminal.err.print(terminal.style_text(traceback.format_exc()))
        return FAULT


def code_of(error: ContextRouterError) -> int:
    """Return the exit code of a command that fails with `error`."""
    if isinstance(error, AllSourcesFailed):
        return SOURCES
    if isinstance(error, IngestError):
        return INGESTION
    return USAGE if isinstance(error, SettingsError | MissingDependency | RequestRefused) else FAILED
