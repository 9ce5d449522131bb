""" "Did you mean …?": suggests the closest name for a misspelt name, and lists all names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the closest of `names`, or None if no name is close."""
    import difflib  # only for a name that is wrong

    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(name: str, names: Iterable[str], quote: str = "'") -> str:
    """Return " Did you mean 'name'?" with the closest of `names`, or "" if no name is close."""
    close = nearest(name, names)
    return f" Did you mean {quote}{close}{quote}?" if close else ""


def unknown(
    sentence: str, name: str, names: Iterable[str], label: str, *, none: str = "none", quote: str = "'"
) -> str:
    """Return `sentence`, a suggestion from `names`, and all `names` after `label`."""
    names = list(names)
    return f"{sentence}.{did_you_mean(name, names, quote)} {label}: {', '.join(names) or none}."
