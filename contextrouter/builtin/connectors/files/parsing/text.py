"""Text decoding: finds the encoding of a text file by its byte order mark, UTF-8, or its bytes."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter

from contextrouter.builtin.connectors.pages.charset import BOMS

_HIGH = re.compile(rb"[\x80-\xff]+")
_LOOKED_AT = 1 << 17  # bytes of which an encoding is guessed


def decode(data: bytes, encoding: str) -> tuple[str | None, str]:
    """Return the text and what was wrong with it: None for binary content, replacement characters for bytes
    that do not fit.

    Without an `encoding` it is found out. What only looks like one is taken without a word when every byte
    fits it.
    """
    mark = next((name for mark, name in BOMS if data.startswith(mark)), "")
    wide = (encoding or mark).lower().replace("_", "-").startswith(("utf-16", "utf-32"))
    if b"\0" in data[:8192] and not wide:
        return None, "looks binary and was left out."
    name = encoding or mark or "utf-8"
    try:
        return data.decode(name).removeprefix("\ufeff"), ""
    except UnicodeDecodeError as error:
        if not (encoding or mark) and (mixed := _of_two_encodings(data)):
            problem = "mixes UTF-8 with another encoding, which was read as Windows-1252; save it as UTF-8."
            return mixed, problem
        guessed = None if encoding or mark else _guess(data)
        if guessed is not None:
            return guessed, ""
        text = data.decode(name, "replace").removeprefix("\ufeff")
        return text, f"byte {error.start} is no {name}; undecodable bytes were replaced."


def _of_two_encodings(data: bytes) -> str:
    """The text of a file that was put together from UTF-8 and a Western encoding; "" for any other.

    In another encoding few runs of bytes above ASCII are UTF-8 by chance, so half of them are a proof.
    """
    runs = Counter(_HIGH.findall(data))
    texts = {run: _decode_run(run) for run in runs}
    if 2 * sum(count for run, count in runs.items() if texts[run][1]) < runs.total():
        return ""
    return _HIGH.sub(lambda run: texts[run[0]][0].encode(), data).decode("utf-8", "replace")


def _decode_run(run: bytes) -> tuple[str, bool]:
    """The text of bytes above ASCII, and whether they are UTF-8."""
    try:
        return run.decode("utf-8"), True
    except UnicodeDecodeError:
        return run.decode("cp1252", "replace"), False


def _guess(data: bytes) -> str | None:
    """The text by charset-normalizer's best guess; None when it has none, or is not installed."""
    if importlib.util.find_spec("charset_normalizer") is None:
        return None
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_LOOKED_AT]).best()
    if best is None:
        return None
    try:
        return data.decode(best.encoding)
    except UnicodeDecodeError:
        return None
