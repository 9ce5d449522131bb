"""Glob patterns over the relative paths of files: `*`, `?`, `[…]` within a folder, `**` across folders."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CLASS = re.compile(r"\[(!?)(\]?[^\]/]*)\]")


class Patterns:
    """Patterns that choose files. Without any, none is chosen here.

    A pattern without `/` is for the name of a file in any folder; one with `/` for its whole path below the
    root.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = {pattern: re.compile(_expression(pattern)) for pattern in patterns}
        self._unmatched = dict.fromkeys(self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def begin(self) -> None:
        """Forget which patterns matched."""
        self._unmatched = dict.fromkeys(self._patterns)

    def match(self, path: str) -> bool:
        """Whether one of the patterns matches; all that do are noted."""
        matching = [name for name, pattern in self._patterns.items() if pattern.fullmatch(path)]
        for name in matching:
            self._unmatched.pop(name, None)
        return bool(matching)

    @property
    def unmatched(self) -> list[str]:
        """The patterns that matched nothing since `begin`."""
        return list(self._unmatched)

    def any_of(self, names: Sequence[str], path: str) -> bool:
        """Whether one of the patterns called `names` matches, without a note."""
        return any(self._patterns[name].fullmatch(path) for name in names)


def _expression(pattern: str) -> str:
    """The regular expression of one pattern."""
    glob = pattern.removeprefix("./").lstrip("/")
    if glob.endswith("/"):
        glob += "**"
    if "/" not in glob:
        glob = "**/" + glob
    expression, position = "", 0
    while position < len(glob):
        if glob.startswith("**/", position) and (not position or glob[position - 1] == "/"):
            expression, position = expression + "(?:[^/]+/)*", position + 3
        elif glob.startswith("**", position):
            expression, position = expression + ".*", position + 2
        elif glob[position] in "*?":
            expression, position = expression + ("[^/]*" if glob[position] == "*" else "[^/]"), position + 1
        elif letters := _CLASS.match(glob, position):
            inside = (
                letters[2].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("]", "\\]")
            )
            expression += f"[{'^/' if letters[1] else ''}{inside}]" if inside else re.escape(letters[0])
            position = letters.end()
        else:
            expression, position = expression + re.escape(glob[position]), position + 1
    return expression
