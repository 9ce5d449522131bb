"""Finds the line number of each key in a TOML text.

The TOML parser keeps no positions. So this module scans the text again. It runs only after the text has
parsed, so it does not check the syntax. It skips strings, comments and values. It follows table headers,
dotted keys, inline tables and arrays of tables.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_BARE = re.compile(r"[^\s=.\[\]{},\"'#]+")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.S
)  # multi-line forms first; up to two quotes may stand before the closing three
_SCALAR = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")  # a date and a time may have one space between
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


def locate(text: str) -> dict[Path, int]:
    """Return the line (from 1) of every table and key in the valid TOML `text`. Array items count from 0."""
    return _Walk(text).run()


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.sizes: dict[Path, int] = {}  # array of tables -> tables so far
        self._counted = (0, 1)

    def run(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip() < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self.lines

    def _skip(self) -> int:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.at

    def _line(self) -> int:
        start, line = self._counted
        line += self.text.count("\n", start, self.at)
        self._counted = (self.at, line)
        return line

    def _mark(self, path: Path) -> None:
        self.lines.setdefault(path, self._line())

    def _header(self) -> Path:
        double = self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        names = self._key()
        path: Path = ()
        for index, name in enumerate(names):
            path = (*path, name)
            if double and index == len(names) - 1:
                self.sizes[path] = self.sizes.get(path, 0) + 1
            if path in self.sizes:
                self._mark(path)
                path = (*path, self.sizes[path] - 1)
            self._mark(path)
        self.at = self.text.index("]", self.at) + (2 if double else 1)
        return path

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip()
            quoted = _STRING.match(self.text, self.at)
            if quoted:
                names.append(_unquote(quoted.group()))
                self.at = quoted.end()
            else:
                bare = _BARE.match(self.text, self.at)
                assert bare is not None
                names.append(bare.group())
                self.at = bare.end()
            self._skip()
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _pair(self, table: Path) -> None:
        path = table
        for name in self._key():  # a key is on one line, with its "="
            path = (*path, name)
            self._mark(path)
        self.at = self.text.index("=", self.at) + 1
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip()
        opening = self.text[self.at]
        if opening == "[":
            self._items(path)
        elif opening == "{":
            self._inline(path)
        else:
            match = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            assert match is not None
            self.at = match.end()

    def _items(self, path: Path) -> None:
        self.at += 1
        index = 0
        while self.text[self._skip()] != "]":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._mark((*path, index))
            self._value((*path, index))
            index += 1
        self.at += 1

    def _inline(self, path: Path) -> None:
        self.at += 1
        while self.text[self._skip()] != "}":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(path)
        self.at += 1


def _unquote(literal: str) -> str:
    if literal[0] == "'":
        return literal[1:-1]

    def unescape(match: re.Match[str]) -> str:
        code = match.group(1)
        return _ESCAPES[code] if code in _ESCAPES else chr(int(code[1:], 16))

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|.)", unescape, literal[1:-1])
