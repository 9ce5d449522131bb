"""Terminal output: results go to stdout, everything else to stderr.

Texts from sources and settings lose their control characters, which could command a terminal, and their
secrets.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from contextrouter.runtime.masking import mask, mask_error, spellings
from contextrouter.serialization import plain

# Control characters but tab and line feed, and the marks that turn the direction of what follows.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
hidden: list[str] = []  # secrets that are shown as ***
_results: list[TextIO] = []  # the stream of the results, where it is not sys.stdout

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)


def results_to(stream: TextIO | None) -> None:
    """Send results to this stream; None: to `sys.stdout`."""
    out.file = stream  # type: ignore[assignment]  # None makes rich use sys.stdout again
    _results[:] = [] if stream is None else [stream]


def stdout() -> TextIO:
    """Return the stream that results go to."""
    return _results[0] if _results else sys.stdout


def hide(secrets: Iterable[str]) -> None:
    """From now on show `***` for each of `secrets`."""
    hidden[:] = spellings([*hidden, *secrets])


@contextmanager
def quiet(level: int, logger: str = "contextrouter") -> Iterator[None]:
    """Log nothing below `level` in this block: the command reports those problems itself."""
    log = logging.getLogger(logger)
    previous_level = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(previous_level)


def sanitize(text: object) -> str:
    """Return `text` without control characters and known secrets."""
    cleaned = str(text)
    for secret in hidden:
        cleaned = cleaned.replace(secret, "***")
    return _CONTROL.sub("", cleaned)


def style_text(*parts: tuple[object, str] | str) -> Text:
    """Return one text of cleaned parts, each with its style."""
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(sanitize(words), style=style)
    return text


def say(*parts: tuple[object, str] | str, indent: int = 0) -> None:
    """Print one paragraph to stdout, wrapped and indented."""
    out.print(Padding(style_text(*parts), (0, 0, 0, indent), expand=False))


def line(*parts: tuple[object, str] | str, indent: int = 0) -> None:
    """Print one line to stdout. What does not fit is cut."""
    text = style_text((" " * indent, ""), *parts)
    text.plain = text.plain.replace("\n", " ")
    out.print(text, no_wrap=True, overflow="ellipsis", crop=True)


def note(message: str, kind: str = "note") -> None:
    """Print a remark on stderr."""
    err.print(
        style_text((f"{kind}: ", "yellow" if kind == "warning" else "dim"), mask(message)), soft_wrap=True
    )


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """Show on stderr how far a long command is, where stderr is a terminal."""
    with err.status("") as status:
        yield lambda number, count, name: status.update(style_text(f"{number} of {count}: {name}"))


def error(message: str | BaseException) -> None:
    """Print an error on stderr."""
    text = mask(message) if isinstance(message, str) else mask_error(message)
    err.print(style_text(("error: ", "bold red"), text), soft_wrap=True)


def heading(title: str, explanation: str = "") -> None:
    """Print a rule with a title, and a line that says what follows."""
    out.print()
    out.print(Rule(style_text((title, "bold")), align="left", style="dim"))
    if explanation:
        say((explanation, "dim"))


def table(*columns: str | Mapping[str, Any]) -> Table:
    """Return an empty table; a column is a title, or the keywords of `Table.add_column`."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold dim")
    for column in columns:
        grid.add_column(**({"header": column} if isinstance(column, str) else column))
    return grid


def right(title: str) -> dict[str, Any]:
    """Return the keywords of a column of numbers, aligned right."""
    return {"header": title, "justify": "right", "no_wrap": True}


def row(into: Table, *cells: object, style: str = "") -> None:
    """Add a row of cleaned cells."""
    into.add_row(*(cell if isinstance(cell, Text) else style_text((cell, style)) for cell in cells))


def show(grid: Table, indent: int = 2) -> None:
    """Print a table."""
    out.print(Padding(grid, (0, 0, 0, indent), expand=False))


def milliseconds(seconds: float) -> str:
    """Format a duration."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def number(value: float | None) -> str:
    """Format a score with four significant digits; None is a dash."""
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.4g}"


def count(number: int, singular: str, plural: str = "") -> str:
    """ "1 document", "2 documents"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def print_json(value: Any) -> None:
    """Print a value to stdout as JSON, indented, secrets hidden."""
    encoded = msgspec.json.encode(_hide_secrets(plain(value)))
    stdout().write(msgspec.json.format(encoded, indent=2).decode() + "\n")
    stdout().flush()


def _hide_secrets(value: Any) -> Any:
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, "***")
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_hide_secrets(key): _hide_secrets(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_hide_secrets(item) for item in value]
    return value


def close_stdout() -> None:
    """Discard further output: the reader of the pipe has gone, and a second error at exit helps nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout().fileno())
