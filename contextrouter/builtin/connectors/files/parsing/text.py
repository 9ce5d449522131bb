"""Text decoding: finds the encoding of a text file by its byte order mark, UTF-8, or its bytes."""

from __future__ import annotations

import codecs
import importlib.util

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOKED_AT = 1 << 17  # bytes of which an encoding is guessed


def decode(data: bytes, encoding: str) -> tuple[str | None, str]:
    """Return the text and what was wrong with it: None for binary content, replacement characters for bytes
    that do not fit.

    Without an `encoding` it is found out. What only looks like one is taken without a word when every byte
    fits it.
    """
    mark = next((name for mark, name in _BOMS if data.startswith(mark)), "")
    wide = (encoding or mark).lower().replace("_", "-").startswith(("utf-16", "utf-32"))
    if b"\0" in data[:8192] and not wide:
        return None, "looks binary and was left out."
    name = encoding or mark or "utf-8"
    try:
        return data.decode(name).removeprefix("\ufeff"), ""
    except UnicodeDecodeError as error:
        guessed = None if encoding or mark else guess(data)
        if guessed is not None:
            return guessed, ""
        text = data.decode(name, "replace").removeprefix("\ufeff")
        return text, f"byte {error.start} is no {name}; undecodable bytes were replaced."


def guess(data: bytes) -> str | None:
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
