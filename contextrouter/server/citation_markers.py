"""Citation markers in a streamed answer: `[1]`, `[1][2]`, `[1, 2]`, `[1-3]`.

A marker waits until it is complete, and then goes out as `[1][2]`. Numbers without a block in the context are
dropped. Code spans and code fences stay as they are. The output does not depend on how the text is cut into
pieces.
"""

from __future__ import annotations

import re

_MARKER = re.compile(r"\[\s*(\d+(?:\s*[,;–-]\s*\d+)*)\s*\]")
_NUMBERS = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")
_INSIDE = frozenset("0123456789 ,;-–")
_LONGEST = 64
_FENCE = 3


class Markers:
    """The citation markers of one answer to a context of `count` blocks."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._used: dict[int, None] = {}
        self._pending = ""  # white space, and text that may become a marker
        self._out: list[str] = []
        self._code = ""  # the mark that closes the present code; "": this is no code
        self._fenced = False
        self._run = ""  # the backticks or tildes directly before
        self._run_leads = False  # whether they begin their line
        self._line = ""  # the line so far while it is blank, then its first character
        self._escaped = False

    @property
    def used(self) -> tuple[int, ...]:
        """Return the numbers cited, in the order of their first use."""
        return tuple(self._used)

    def feed(self, text: str) -> str:
        """Add a piece of the answer. Returns the text that is ready to show."""
        for character in text:
            self._step(character)
        output, self._out = "".join(self._out), []
        return output

    def end(self) -> str:
        """End the answer. Returns the text that was waiting."""
        self._release()
        output, self._out = "".join(self._out), []
        return output

    def _step(self, character: str) -> None:
        if self._run and character != self._run[0]:
            self._run_ends()
        if self._code:
            self._pass(character)
        elif "[" in self._pending:
            self._extend_marker(character)
        elif character in " \t" or (character == "[" and not self._escaped):
            self._pending += character
        else:
            self._release()
            self._pass(character)

    def _extend_marker(self, character: str) -> None:
        if character in _INSIDE and len(self._pending) < _LONGEST:
            self._pending += character
            return
        blank, _, inner = self._pending.partition("[")
        marker = _MARKER.fullmatch(f"[{inner}]") if character == "]" else None
        if marker is None:
            self._release()
            self._step(character)
            return
        self._pending = ""
        numbers = self._numbers(marker[1])
        if numbers:
            self._used.update(dict.fromkeys(numbers))
            for character in blank + "".join(f"[{number}]" for number in numbers):
                self._pass(character)

    def _numbers(self, inner: str) -> list[int]:
        """Return the numbers of a marker that the context has, each once."""
        numbers: dict[int, None] = {}
        for start, end in _NUMBERS.findall(inner):
            stop = min(int(end or start), self.count)
            numbers.update(dict.fromkeys(range(max(int(start), 1), stop + 1)))
        return list(numbers)

    def _release(self) -> None:
        pending, self._pending = self._pending, ""
        for character in pending:
            self._pass(character)

    def _pass(self, character: str) -> None:
        """Output a character, and note where code begins and ends."""
        self._out.append(character)
        self._escaped = character == "\\" and not self._escaped and not self._code
        if character in "`~" and (not self._run or self._run[0] == character):
            if not self._run:
                self._run_leads = not self._line.strip()
            self._run += character
        if character == "\n":
            if not self._line.strip() and not self._fenced:
                self._code = ""  # a blank line ends the code that a lone backtick seemed to begin
            self._line = ""
        elif not self._line.strip():
            self._line += character

    def _run_ends(self) -> None:
        run, self._run = self._run, ""
        leads = self._run_leads
        if not self._code:
            if leads and len(run) >= _FENCE:
                self._code, self._fenced = run, True
            elif run[0] == "`":
                self._code = run
        elif self._fenced:
            if leads and run[0] == self._code[0] and len(run) >= len(self._code):
                self._code, self._fenced = "", False
        elif run == self._code:
            self._code = ""
