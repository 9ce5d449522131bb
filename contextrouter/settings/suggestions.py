""" "Did you mean …?": what is said of a name that does not exist: the nearest name, and all others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name among `names` that is closest to a misspelt one, if any is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(name: str, names: Iterable[str], quote: str = "'") -> str:
    """The nearest of `names` as a sentence with a space before it; nothing when none is close."""
    close = nearest(name, names)
    return f" Did you mean {quote}{close}{quote}?" if close else ""


def unknown(
    sentence: str, name: str, names: Iterable[str], label: str, *, none: str = "none", quote: str = "'"
) -> str:
    """`sentence` says that `name` does not exist; add the nearest of `names`, and all, after `label`."""
    names = list(names)
    return f"{sentence}.{did_you_mean(name, names, quote)} {label}: {', '.join(names) or none}."
