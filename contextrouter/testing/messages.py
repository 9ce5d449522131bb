"""Error messages of the conformance kit: broken laws, exceptions and values in one line, and hints."""

from __future__ import annotations

import difflib
import functools

from contextrouter.runtime.plugin_calls import text_of


class Broken(AssertionError):
    """A law does not hold. The message says the input, the answer, and the answer that the law requires."""


def describe_error(error: BaseException) -> str:
    """Describe an exception in one line. Of a group, describe its first member."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Broken):
        return str(error)
    location = _place(error)
    return f"it raised {type(error).__name__}: {' '.join(text_of(error).split())[:300]}{location}"


def _place(error: BaseException) -> str:
    """Name the function and the line that raised the exception."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})" if trace is not None else ""


def shorten(value: object, length: int = 80) -> str:
    """Format a value for a message, cut to `length` characters."""
    text = repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"


@functools.cache
def nearest_law(name: str, laws: tuple[str, ...]) -> str:
    """Return a hint at the law whose name is close to `name`; empty where none is."""
    close = difflib.get_close_matches(name, laws, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
