"""The words of verdicts: what was broken, values cut to a line, and the law that was meant."""

from __future__ import annotations

import difflib
import functools


class Broken(AssertionError):
    """A law does not hold. The message says what was asked, what came, and what should have."""


def explained(error: BaseException) -> str:
    """An exception in one line, that of a group's first member for a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Broken):
        return str(error)
    place = _place(error)
    return f"it raised {type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"


def _place(error: BaseException) -> str:
    trace, last = error.__traceback__, None
    while trace is not None:
        last, trace = trace, trace.tb_next
    return f" ({last.tb_frame.f_code.co_name}, line {last.tb_lineno})" if last is not None else ""


def said(value: object, most: int = 80) -> str:
    """A value for a message, cut."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


@functools.cache
def nearest_law(name: str, known: tuple[str, ...]) -> str:
    """A hint at the law that was meant."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
